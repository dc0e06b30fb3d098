"""Templates over HTTP: saved only when they parse, shown rendered before they are sent."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from app.database.db import new_id
from app.process import Process
from app.store import templates
from tests.cast import Cast, lock_waiters

TEMPLATES = "/templates"
HELLO: dict[str, Any] = {
    "name": "Hello",
    "channel": "email",
    "content": {
        "subject": "Hello {{contact.firstName | default: 'there'}}",
        "html": "<p>{{trigger.items[0].name}} at {{trigger.price}}</p>",
    },
}

VARIABLES = ["contact.firstName", "trigger.items[0].name", "trigger.price"]


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def errors(response: httpx2.Response) -> dict[str, str]:
    assert refused(response) == (422, "invalid"), response.text
    return {error["pointer"]: error["message"] for error in response.json()["errors"]}


def with_content(**parts: Any) -> dict[str, Any]:
    return {**HELLO, "content": {**HELLO["content"], **parts}}


async def test_a_new_template_is_answered_whole_with_where_it_is(cast: Cast) -> None:
    response = await cast.ed.post(TEMPLATES, HELLO)
    assert response.status_code == 201
    made = response.json()
    assert response.headers["Location"] == f"{TEMPLATES}/{made['id']}"
    assert response.headers["ETag"] == '"1"'
    assert sorted(made["variables"]) == VARIABLES
    assert made == {
        **HELLO,
        "id": made["id"],
        "category": "transactional",
        "topicId": None,
        "version": 1,
        "variables": made["variables"],
        "findings": [],
        "createdAt": made["createdAt"],
        "updatedAt": made["createdAt"],
    }
    assert await cast.vic.read(f"{TEMPLATES}/{made['id']}") == made


async def test_names_that_are_in_no_contact_are_found(cast: Cast) -> None:
    source = "Hi {{contact.first_name}} {{ contact.metadata.first_name }} {{workspace.Name}}"
    content = {"subject": "Hi {{contact.first_name}}", "html": source}
    made = await cast.ed.made(TEMPLATES, {**HELLO, "content": content})
    assert [(one["code"], one["pointer"], one["severity"]) for one in made["findings"]] == [
        ("field_unknown", "/content/subject", "warning"),
        ("field_unknown", "/content/html", "warning"),
        ("field_unknown", "/content/html", "warning"),
    ]
    assert made["findings"][0]["message"].endswith("Did you mean contact.firstName?")
    assert made["findings"][2]["message"].endswith("Did you mean workspace.name?")
    path = f"{TEMPLATES}/{made['id']}"
    assert (await cast.ed.read(path))["findings"] == made["findings"]
    mended = {"content": {"subject": "Hi", "html": "{{contact.zip}}"}}
    [finding] = (await cast.ed.patch(path, mended)).json()["findings"]
    assert (finding["code"], "Did you mean" in finding["message"]) == ("field_unknown", False)


WRONG: list[tuple[dict[str, Any], list[str] | None]] = [
    ({}, ["/name", "/channel", "/content"]),
    ({**HELLO, "name": ""}, ["/name"]),
    ({**HELLO, "name": "two\nlines"}, ["/name"]),
    ({**HELLO, "name": "x" * 201}, ["/name"]),
    ({**HELLO, "channel": "fax"}, ["/channel"]),
    ({**HELLO, "category": "spam"}, ["/category"]),
    ({**HELLO, "content": "Hello"}, ["/content"]),
    ({**HELLO, "content": {}}, ["/content/subject", "/content/html"]),
    (with_content(subject=""), ["/content/subject"]),
    (with_content(html=None), ["/content/html"]),
    (with_content(text=5), ["/content/text"]),
    (with_content(**{"a/b~c": "x"}), ["/content/a~1b~0c"]),
    (with_content(subject="{{", html="{% if %}", text="{{ nobody.name }}", sms="x"), None),
    ({**HELLO, "version": 7, "variables": []}, ["/version", "/variables"]),
]


async def test_everything_that_is_wrong_with_a_template_is_named_at_once(cast: Cast) -> None:
    for values, wrong in WRONG:
        named = wrong or ["/content/sms", "/content/subject", "/content/html", "/content/text"]
        assert list(errors(await cast.ed.post(TEMPLATES, values))) == named, values
    assert await cast.ed.read(TEMPLATES) == {"data": [], "nextCursor": None}


FULL = "ж" * 65_536  # a part with all the characters that it may have, of two bytes each


async def test_a_content_is_bounded_as_a_whole(cast: Cast, process: Process) -> None:
    """And one that was saved before may keep it, but become no other that large."""
    much = with_content(html=FULL, text=FULL)
    assert errors(await cast.ed.post(TEMPLATES, much)) == {
        "/content": "A content has at most 256 KiB of JSON."
    }
    unchecked = {"channel": "email", "content": much["content"]}
    [finding] = (await cast.ed.made(f"{TEMPLATES}/check", unchecked))["findings"]
    assert (finding["code"], finding["pointer"]) == ("too_long", "/content")
    unsaved = await cast.ed.post(f"{TEMPLATES}/preview", {"template": much})
    assert list(errors(unsaved)) == ["/template/content"]
    await cast.ed.made(TEMPLATES, with_content(html="x" * 65_536, text=FULL))
    async with process.database.write() as db:
        row = await templates.insert(
            db,
            workspace_id=cast.ed.workspace_id,
            id=new_id("tpl"),
            name="Old",
            channel="email",
            category="transactional",
            content=much["content"],
        )
    path = f"{TEMPLATES}/{row.id}"
    assert (await cast.ed.patch(path, {"name": "New"})).status_code == 200
    other = {"content": {"text": FULL[1:]}}
    assert list(errors(await cast.ed.patch(path, other))) == ["/content"]


async def test_a_mistake_in_liquid_is_told_with_its_line_and_column(cast: Cast) -> None:
    for source, found in (
        ("{{ contact.firstName", "line 1, column 1"),
        ("<p>\n  {{ user.name }}</p>", "line 2, column 6"),
        ("{{ contact.email | shout }}", "line 1, column 20"),
        ("<p>{% include 'x' %}</p>", "line 1, column 4"),
        ("{{ (1..10000000) | join: ',' }}", "line 1, column 4"),
    ):
        message = errors(await cast.ed.post(TEMPLATES, with_content(html=source)))["/content/html"]
        assert found in message, source


async def test_a_change_of_content_is_a_new_version_and_of_the_name_is_none(cast: Cast) -> None:
    made = await cast.ed.made(TEMPLATES, HELLO)
    url = f"{TEMPLATES}/{made['id']}"
    for patch, version in (
        ({"name": "Hi"}, 1),
        ({"category": "marketing"}, 1),
        ({"content": {"text": "Hi {{contact.email}}"}}, 2),
        ({"content": {"text": "Hi {{contact.email}}"}}, 2),
        ({"content": {"text": None}}, 3),
    ):
        response = await cast.ed.patch(url, patch)
        assert (response.status_code, response.json()["version"]) == (200, version), patch
    changed = await cast.ed.read(url)
    assert changed["content"] == HELLO["content"]
    assert (changed["name"], changed["category"]) == ("Hi", "marketing")


async def test_a_wrong_change_is_named_and_nothing_of_it_applied(cast: Cast) -> None:
    made = await cast.ed.made(TEMPLATES, HELLO)
    url = f"{TEMPLATES}/{made['id']}"
    for patch, wrong in (
        ({"name": None}, ["/name"]),
        ({"content": None}, ["/content"]),
        ({"content": {"subject": None}}, ["/content/subject"]),
        ({"name": "Hi", "content": {"html": "{{"}}, ["/content/html"]),
        ({"channel": "sms"}, ["/channel"]),
        ({"id": None}, ["/id"]),
        ({"variables": ["x"], "version": 2}, ["/variables", "/version"]),
    ):
        assert list(errors(await cast.ed.patch(url, patch))) == wrong, patch
    assert await cast.ed.read(url) == made


async def test_if_match_guards_a_change_and_a_removal(cast: Cast) -> None:
    made = await cast.ed.made(TEMPLATES, HELLO)
    url, stale = f"{TEMPLATES}/{made['id']}", {"If-Match": '"9"'}
    assert refused(await cast.ed.patch(url, {"name": "Hi"}, headers=stale)) == (412, "stale")
    assert refused(await cast.ed.delete(url, headers=stale)) == (412, "stale")
    changed = await cast.ed.patch(url, {"name": "Hi"}, headers={"If-Match": '"1"'})
    assert changed.headers["ETag"] == '"2"'
    assert (await cast.ed.delete(url, headers={"If-Match": '"2"'})).status_code == 204
    assert refused(await cast.ed.get(url)) == (404, "not_found")


async def test_a_template_that_a_definition_sends_cannot_be_removed(cast: Cast) -> None:
    made = await cast.ed.made(TEMPLATES, HELLO)
    url = f"{TEMPLATES}/{made['id']}"
    step = {"type": "send_message", "channel": "email", "templateId": made["id"]}
    workflow = await cast.ed.made("/workflows", {"name": "W", "steps": [step]})
    response = await cast.ed.delete(url)
    assert refused(response) == (409, "conflict")
    assert response.json()["usedBy"] == [workflow["id"]]
    await cast.ed.patch(f"/workflows/{workflow['id']}", {"state": "ARCHIVED"})
    assert (await cast.ed.delete(url)).status_code == 204


async def test_an_activation_waits_for_a_template_that_is_being_removed(
    cast: Cast, process: Process
) -> None:
    made = await cast.ed.made(TEMPLATES, HELLO)
    step = {"type": "send_message", "channel": "email", "templateId": made["id"]}
    workflow = await cast.ed.made("/workflows", {"name": "W", "steps": [step]})
    where = {"workspace_id": cast.ed.workspace_id, "id": made["id"]}
    async with process.database.write() as db:
        await templates.locked(db, **where)
        activated = asyncio.create_task(
            cast.ed.patch(f"/workflows/{workflow['id']}", {"state": "ACTIVE"})
        )
        await lock_waiters(process, 1)
        await templates.delete(db, **where)
    response = await activated
    assert response.status_code == 422
    assert "template_unknown" in response.text


async def test_a_preview_shows_each_part_rendered_or_its_error(cast: Cast) -> None:
    made = await cast.ed.made(
        TEMPLATES, with_content(text="{{ trigger.price | divided_by: trigger.zero }}")
    )
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com", "firstName": "Ada & Co"})
    body = (
        b'{"contactId": "%s", "trigger": {"price": 1.10, "zero": 0, "items": [{"name": "<Tea>"}]}}'
    )
    response = await cast.vic.call(
        "POST",
        f"{TEMPLATES}/{made['id']}/preview",
        content=body % ada["id"].encode(),
        headers={"Content-Type": "application/json"},
    )
    assert response.status_code == 200
    shown = response.json()
    assert shown["subject"] == {"rendered": "Hello Ada & Co"}
    assert shown["html"] == {"rendered": "<p>&lt;Tea&gt; at 1.10</p>"}
    assert shown["text"].keys() == {"error"}
    assert "line 1" in shown["text"]["error"]


async def test_a_preview_names_what_printed_nothing(cast: Cast) -> None:
    made = await cast.ed.made(TEMPLATES, with_content(subject="Hi {{contact.nick}}{{trigger.no}}"))
    response = await cast.vic.post(f"{TEMPLATES}/{made['id']}/preview", {})
    assert response.json()["subject"] == {
        "rendered": "Hi ",
        "missing": ["contact.nick", "trigger.no"],
    }


async def test_a_preview_needs_nobody_and_nothing(cast: Cast) -> None:
    made = await cast.ed.made(TEMPLATES, HELLO)
    url = f"{TEMPLATES}/{made['id']}/preview"
    shown = (await cast.vic.post(url, {})).json()
    absent = ["trigger.items[0].name", "trigger.price"]
    assert shown == {
        "subject": {"rendered": "Hello there"},
        "html": {"rendered": "<p> at </p>", "missing": absent},
        "text": {"rendered": "at"},  # as it would be sent
    }
    theirs = await cast.mallory.made("/contacts", {"email": "ada@example.com"})
    unknown = errors(await cast.vic.post(url, {"contactId": "con_" + "0" * 26}))
    assert unknown.keys() == {"/contactId"}
    refusal = await cast.vic.post(url, {"contactId": theirs["id"]})
    assert "saved" not in refusal.json()["detail"]
    assert errors(await cast.vic.post(url, {"contactId": theirs["id"]})) == unknown
    assert list(errors(await cast.vic.post(url, {"trigger": [], "x": 1}))) == ["/trigger", "/x"]


async def test_lists_leave_out_the_content_and_come_in_pages(cast: Cast) -> None:
    for name in ("a", "b", "c"):
        await cast.ed.made(TEMPLATES, {**HELLO, "name": name})
    await cast.mallory.made(TEMPLATES, HELLO)
    first = await cast.vic.read(f"{TEMPLATES}?limit=2")
    assert [one["name"] for one in first["data"]] == ["c", "b"]
    assert not {"content", "variables"} & first["data"][0].keys()
    rest = await cast.vic.read(f"{TEMPLATES}?limit=2&cursor={first['nextCursor']}")
    assert [one["name"] for one in rest["data"]] == ["a"]
    assert rest["nextCursor"] is None
    assert list(errors(await cast.vic.get(f"{TEMPLATES}?channel=email"))) == ["?channel"]


async def test_what_changed_after_a_time_that_was_shown_is_found_and_what_had_not_is_not(
    cast: Cast,
) -> None:
    """Templates, automations, workflows and workspaces alike; and created, as well as updated."""
    mail = {"channel": "email", "content": {"subject": "S", "html": "H"}}
    for url, extra in (("/templates", mail), ("/automations", {}), ("/workflows", {})):
        first = await cast.ed.made(url, {"name": "One", **extra})
        second = await cast.ed.made(url, {"name": "Two", **extra})
        newest = max(first["updatedAt"], second["updatedAt"])

        async def found(query: str, url: str = url) -> list[str]:
            return [row["id"] for row in (await cast.vic.read(f"{url}?{query}"))["data"]]

        assert await found(f"updatedAfter={newest}") == []
        assert await found(f"createdAfter={second['createdAt']}") == []
        assert second["id"] not in await found(f"createdBefore={second['createdAt']}")
        before = first["createdAt"][:-1] + "999Z"  # within the millisecond that is shown
        assert first["id"] not in await found(f"createdAfter={before}")
        assert first["id"] in await found(f"createdBefore={before}")
        changed = (await cast.ed.patch(f"{url}/{first['id']}", {"name": "Uno"})).json()
        if changed["updatedAt"] > newest:
            assert await found(f"updatedAfter={newest}") == [first["id"]]
        assert await found(f"updatedAfter={changed['updatedAt']}") == []
    workspace = (await cast.vic.read("/workspaces"))["data"][0]
    assert (await cast.vic.read(f"/workspaces?updatedAfter={workspace['updatedAt']}"))["data"] == []
    since = "/workspaces?updatedAfter=2020-01-01T00:00:00Z"
    assert len((await cast.vic.read(since))["data"]) == 1


async def test_a_template_says_at_save_that_a_footer_will_be_added(cast: Cast) -> None:
    address = {"postalAddress": "1 Main Street"}
    assert (await cast.adam.patch("/settings/workspace", address)).status_code == 200
    content = {"subject": "News", "text": "Spring"}
    news = {"name": "N", "channel": "email", "category": "marketing", "content": content}
    made = await cast.ed.made("/templates", news)
    [finding] = made["findings"]
    named = (finding["severity"], finding["code"], finding["pointer"])
    assert named == ("warning", "footer_added", "/content")
    path = f"/templates/{made['id']}"
    assert (await cast.vic.read(path))["findings"] == [finding]
    linked = {**content, "text": "Out: {{unsubscribeUrl}}"}
    changed = await cast.ed.patch(path, {"content": linked})
    assert changed.json()["findings"] == []
    assert "unsubscribeUrl" in changed.json()["variables"]
    receipt = await cast.ed.made("/templates", {**news, "category": "transactional"})
    assert receipt["findings"] == []


async def test_the_links_are_names_of_messages_alone(cast: Cast) -> None:
    steps = [{"type": "http_request", "method": "GET", "url": "https://x.test/{{unsubscribeUrl}}"}]
    refusal = await cast.ed.post("/workflows", {"name": "N", "steps": steps})
    assert refusal.status_code == 422
    assert "unsubscribeUrl" in refusal.text


async def test_a_template_that_is_not_saved_is_shown_like_one_that_is(cast: Cast) -> None:
    template = {
        "name": "T",
        "channel": "email",
        "content": {"subject": "Hi {{trigger.name}}", "html": "<p>{{contact.firstName}}</p>"},
    }
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com", "firstName": "Ada"})
    given = {"contactId": ada["id"], "trigger": {"name": "you"}}
    unsaved = await cast.vic.post("/templates/preview", {**given, "template": template})
    assert unsaved.status_code == 200, unsaved.text
    assert unsaved.json()["html"] == {"rendered": "<p>Ada</p>"}
    made = await cast.ed.made("/templates", template)
    saved = await cast.vic.post(f"/templates/{made['id']}/preview", given)
    assert unsaved.json() == saved.json()
    assert len((await cast.vic.read("/templates"))["data"]) == 1


async def test_a_template_that_could_not_be_saved_is_not_shown(cast: Cast) -> None:
    template = {"name": "T", "channel": "email", "content": {"subject": "{{ x }}", "html": "h"}}
    refused = await cast.vic.post("/templates/preview", {"template": template})
    assert refused.status_code == 422
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/template/content/subject"]


async def test_a_template_is_checked_without_being_saved(cast: Cast) -> None:
    content = {"subject": "Hi {{trigger.name}}", "html": "<p>\n{{contact.frstName}}</p>"}
    template = {"name": "T", "channel": "email", "category": "marketing", "content": content}
    written = {name: template[name] for name in ("channel", "category", "content")}
    checked = await cast.vic.post("/templates/check", written)
    assert checked.status_code == 200, checked.text
    made = await cast.ed.made("/templates", template)
    assert checked.json() == {name: made[name] for name in ("variables", "findings")}
    codes = [one["code"] for one in made["findings"]]
    assert codes == ["field_unknown", "footer_added", "postal_address_missing"]
    wrong = {"html": "{% if %}"}
    found = (await cast.vic.post("/templates/check", {**written, "content": wrong})).json()
    refused = (await cast.ed.post("/templates", {**template, "content": wrong})).json()
    errors = [one for one in found["findings"] if one["severity"] == "error"]
    assert [(one["pointer"], one["message"]) for one in errors] == [
        (one["pointer"], one["message"]) for one in refused["errors"]
    ]
    assert found["variables"] == []
    assert len((await cast.vic.read("/templates"))["data"]) == 1


async def test_a_template_says_what_uses_it(cast: Cast) -> None:
    content = {"subject": "Hi", "html": "<p>Hi</p>"}
    template = await cast.ed.made(
        "/templates", {"name": "T", "channel": "email", "content": content}
    )
    path, send = f"/templates/{template['id']}/uses", {"type": "send_message", "channel": "email"}
    assert await cast.vic.read(path) == {"usedBy": []}
    steps = [{**send, "templateId": template["id"]}]
    flow = await cast.ed.made("/workflows", {"name": "W", "steps": steps})
    old = await cast.ed.made("/workflows", {"name": "Old", "steps": steps})
    archived = await cast.ed.patch(f"/workflows/{old['id']}", {"state": "ARCHIVED"})
    assert archived.status_code == 200, archived.text
    body = {"name": "B", "tag": "vip", "templateId": template["id"]}
    broadcast = await cast.adam.made("/broadcasts", body)
    assert await cast.vic.read(path) == {"usedBy": [flow["id"], broadcast["id"]]}
    refused = await cast.ed.delete(f"/templates/{template['id']}")
    assert refused.json()["usedBy"] == [flow["id"], broadcast["id"]]
    assert (await cast.mallory.get(path)).status_code == 404
