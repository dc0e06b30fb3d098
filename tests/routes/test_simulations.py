"""Trying a definition over HTTP: nothing is written or sent, and it says what would be."""

from __future__ import annotations

from typing import Any

import pytest

from app.machine import document
from app.process import Process
from app.simulation import cases
from tests.cast import HELLO, Cast, settle

STEPS = [
    {
        "id": "rich",
        "type": "branch",
        "cases": [
            {
                "when": {"path": "trigger.total", "op": "gte", "value": 1.10},
                "steps": [{"id": "tag", "type": "add_tag", "tag": "rich"}],
            }
        ],
    },
    {
        "id": "hello",
        "type": "send_message",
        "channel": "email",
        "content": {"subject": "{{contact.firstName}} {{trigger.total}}", "html": "<p>Hi</p>"},
        "onUnknown": "resend",
    },
    {"id": "pause", "type": "wait", "duration": "P3D"},
    {
        "id": "ask",
        "type": "http_request",
        "method": "GET",
        "url": "https://shop.example/{{trigger.id}}",
    },
    {"id": "name", "type": "update_contact", "set": {"lastName": "{{steps.ask.body.name}}"}},
]
ADA = {"email": "ada@example.com", "firstName": "Ada"}
WEBHOOK = {
    "source": "inbound_webhook",
    "contactLookup": "email",
    "createContact": True,
    "contactDefaults": {"firstName": "{{trigger.name}}", "tags": ["lead"]},
}
TABLES = ("runs", "run_steps", "messages", "contacts", "captured_messages", "calls", "audit_logs")


async def draft(cast: Cast, steps: Any = STEPS, **more: Any) -> str:
    made = await cast.ed.made("/workflows", {"name": "Try me", "steps": steps, **more})
    return f"/workflows/{made['id']}/simulate"


async def counted(process: Process) -> dict[str, int]:
    async with process.database.read() as db:
        return {table: await db.fetch_value(f"SELECT count(*) FROM {table}") for table in TABLES}


async def test_a_draft_is_tried_from_end_to_end_and_nothing_comes_of_it(
    cast: Cast, process: Process
) -> None:
    url = await draft(cast)
    before = await counted(process)
    raw = b"""{"trigger": {"id": 123456789012345678901, "total": 1.10},
               "startAt": "2026-03-01T09:00:00Z",
               "contact": {"email": "ada@example.com", "firstName": "Ada"},
               "outcomes": {"hello": [{"status": "unknown"}, {"status": "sent"}]},
               "httpAnswers": {"ask": {"status": 200, "body": {"name": "Lovelace"}}}}"""
    response = await cast.vic.post(url, content=raw, headers={"Content-Type": "application/json"})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert await counted(process) == before
    assert [finding["code"] for finding in answer["findings"]] == ["address_uncertain"]
    rich, tag, hello, pause, ask, name = answer["steps"]
    assert rich["output"]["cases"][0]["operands"][0]["found"] == 1.1
    assert b'"found":1.10' in response.content
    assert tag["changes"] == {"tags": [[], ["rich"]]}
    text = {"subject": "Ada 1.10", "html": "<p>Hi</p>", "text": "Hi"}
    sender = hello["message"]["content"]
    assert sender.pop("fromName") == "Acme"
    assert sender.pop("fromEmail").startswith("acme-")
    assert sender == text
    assert (hello["message"]["status"], hello["output"]["number"]) == ("SENT", 2)
    assert (pause["enteredAt"], pause["leftAt"]) == (
        "2026-03-01T09:00:00.000Z",
        "2026-03-04T09:00:00.000Z",
    )
    assert ask["output"]["request"]["url"] == "https://shop.example/123456789012345678901"
    assert name["changes"] == {"lastName": [None, "Lovelace"]}
    assert answer["end"] == {
        "status": "COMPLETED",
        "reason": None,
        "at": "2026-03-04T09:00:00.000Z",
    }
    assert (answer["contact"]["lastName"], answer["contact"]["tags"]) == ("Lovelace", ["rich"])


async def test_a_stored_contact_is_taken_and_left_as_it_is(cast: Cast) -> None:
    url = await draft(cast)
    made = await cast.ed.made("/contacts", {**ADA, "tags": ["vip"]})
    answer = await cast.vic.made(url, {"contactId": made["id"], "trigger": {"total": 2}})
    assert answer["contact"]["tags"] == ["rich", "vip"]
    assert (await cast.vic.read(f"/contacts/{made['id']}"))["tags"] == ["vip"]


NEWCOMER = {
    "id": "new",
    "type": "branch",
    "cases": [{"when": {"path": "contact.createdAt", "op": "within_last", "value": "P7D"}}],
}


async def test_a_contact_is_as_old_as_it_is(cast: Cast) -> None:
    naming = {
        "id": "name",
        "type": "update_contact",
        "set": {"lastName": "{{contact.createdAt}} {{contact.updatedAt}}"},
    }
    url = await draft(cast, [NEWCOMER, naming])
    made = await cast.ed.made("/contacts", ADA)
    stored = (await cast.ed.patch(f"/contacts/{made['id']}", {"firstName": "Augusta"})).json()
    start = {"startAt": "2099-03-01T09:00:00Z"}
    times = {"createdAt": "2099-02-28T09:00:00Z", "updatedAt": "2099-02-28T10:00:00+01:00"}
    for given, port, name in (
        ({"contactId": stored["id"]}, "else", f"{stored['createdAt']} {stored['updatedAt']}"),
        ({"contact": {**ADA, **times}}, "case1", " ".join(["2099-02-28T09:00:00.000Z"] * 2)),
        ({"contact": ADA}, "case1", " ".join(["2099-03-01T09:00:00.000Z"] * 2)),
    ):
        answer = await cast.vic.made(f"{url}?case=true", {**start, **given})
        branch, named = answer["steps"]
        assert (branch["port"], named["changes"]["lastName"][1]) == (port, name)
        case = cases.read(document.dumps(answer["case"]))
        assert cases.difference(case.expected, cases.play(case)) == ""


async def test_another_workspace_s_contact_is_no_contact(cast: Cast) -> None:
    url = await draft(cast)
    theirs = await cast.mallory.made("/contacts", ADA)
    for id in (theirs["id"], "con_" + "0" * 26):
        response = await cast.vic.post(url, {"contactId": id})
        assert response.json()["errors"] == [
            {"pointer": "/contactId", "message": "There is no such contact."}
        ]
    assert (await cast.mallory.post(url, {"contact": ADA})).status_code == 404


async def test_without_a_contact_it_is_whom_the_intake_would_find_or_make(cast: Cast) -> None:
    url = await draft(cast, trigger=WEBHOOK)
    new = await cast.vic.made(url, {"trigger": {"email": "bob@example.com", "name": "Bob"}})
    assert (new["contact"]["firstName"], new["contact"]["tags"]) == ("Bob", ["lead"])
    made = await cast.ed.made("/contacts", ADA)
    found = await cast.vic.made(url, {"trigger": {"email": "ADA@example.com"}})
    assert found["contact"]["id"] == made["id"]
    lost = await cast.vic.post(url, {"trigger": {"mail": "ada@example.com"}})
    assert (lost.status_code, lost.json()["code"]) == (422, "lookup_unresolved")
    strict = await draft(cast, trigger={**WEBHOOK, "createContact": False})
    nobody = await cast.vic.post(strict, {"trigger": {"email": "eve@example.com"}})
    assert (nobody.status_code, nobody.json()["code"]) == (404, "contact_not_found")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "/contact"),
    ({"contact": {"email": "no address"}}, "/contact/email"),
    ({"contact": {**ADA, "shoeSize": 40}}, "/contact/shoeSize"),
    ({"contact": {**ADA, "createdAt": "long ago"}}, "/contact/createdAt"),
    ({"contact": {**ADA, "updatedAt": "9999-12-31T00:00:00Z"}}, "/contact/updatedAt"),
    ({"contact": ADA, "outcomes": {"helo": "sent"}}, "/outcomes/helo"),
    ({"contact": ADA, "outcomes": {"ask": "sent"}}, "/outcomes/ask"),
    ({"contact": ADA, "httpAnswers": {"hello": {"status": 200}}}, "/httpAnswers/hello"),
    ({"contact": ADA, "variants": {"rich": "a"}}, "/variants/rich"),
    ({"contact": ADA, "events": [{"at": "tomorrow", "name": "x"}]}, "/events/0/at"),
    ({"contact": ADA, "events": [{"at": "P1D"}]}, "/events/0"),
    ({"contact": ADA, "events": [{"at": "P99999999W", "name": "x"}]}, "/events/0/at"),
    (
        {"contact": ADA, "events": [{"at": "9999-12-31T23:59:59-12:00", "name": "x"}]},
        "/events/0/at",
    ),
    ({"contact": ADA, "startAt": "9999-12-31T00:00:00Z"}, "/startAt"),
    (
        {
            "contact": ADA,
            "startAt": "2026-03-01T09:00:00Z",
            "events": [
                {"at": "2026-03-01T10:00:00+01:00", "name": "x"},
                {"at": "2026-03-01T08:59:59Z", "contact": {"firstName": "Ada"}},
            ],
        },
        "/events/1/at",
    ),
]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_cannot_be_meant_is_refused_at_its_place(cast: Cast) -> None:
    url = await draft(cast)
    for body, pointer in WRONG:
        response = await cast.vic.post(url, body)
        assert response.status_code == 422, body
        assert [error["pointer"] for error in response.json()["errors"]] == [pointer], body


async def test_an_event_that_gives_wrong_tags_is_refused(cast: Cast) -> None:
    url = await draft(cast)
    wrong: list[Any] = [5, [{}], ["vip", 1], "vip", ["x" * 101]]
    for tags in wrong:
        event = {"at": "PT1H", "contact": {"tags": tags}}
        refused = await cast.vic.post(url, {"contact": ADA, "events": [event]})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid"), tags
    event = {"at": "PT1H", "contact": {"tags": [" vip ", "vip"]}}
    answer = await cast.vic.made(url, {"contact": ADA, "events": [event]})
    assert answer["contact"]["tags"] == ["vip"]  # as a PATCH of the contact stores them


async def test_what_cannot_run_says_why(cast: Cast) -> None:
    url = await draft(cast, [{"type": "wait"}])
    answer = await cast.vic.made(url, {"contact": ADA})
    assert (answer["steps"], answer["end"]) == ([], None)
    assert [finding["severity"] for finding in answer["findings"]] == ["error"]


async def test_what_never_ends_is_shown_for_a_while(cast: Cast) -> None:
    graph = {
        "nodes": [
            {"id": "t", "type": "trigger"},
            {"id": "w", "type": "wait", "data": {"duration": "P366D"}},
            {"id": "tag", "type": "add_tag", "data": {"tag": "again"}},
        ],
        "edges": [
            {"source": "t", "target": "w"},
            {"source": "w", "target": "tag"},
            {"source": "tag", "target": "w"},
        ],
    }
    made = await cast.ed.made("/automations", {"name": "Round", "graph": graph})
    answer = await cast.vic.made(f"/automations/{made['id']}/simulate", {"contact": ADA})
    assert answer["end"]["status"] == "STOPPED"
    assert answer["end"]["reason"]["code"] == "simulation_limit"
    assert len(answer["steps"]) == 2_000


async def test_what_waits_for_the_end_of_the_calendar_does_not_go_beyond_it(cast: Cast) -> None:
    steps = [{"type": "wait", "until": "9999-12-31"}, {"type": "wait", "duration": "P1D"}]
    answer = await cast.vic.made(await draft(cast, steps), {"contact": ADA})
    end = answer["end"]
    assert (end["status"], end["reason"]["code"]) == ("STOPPED", "simulation_limit")
    assert (end["at"], len(answer["steps"])) == ("9999-12-31T00:00:00.000Z", 1)


async def test_a_simulation_becomes_a_file_that_plays_the_same(cast: Cast) -> None:
    template = await cast.ed.made(
        "/templates",
        {"name": "T", "channel": "email", "content": {"subject": "{{trigger.n}}", "html": "h"}},
    )
    steps = [{"id": "t", "type": "send_message", "channel": "email", "templateId": template["id"]}]
    url = await draft(cast, [*STEPS, *steps])
    made = await cast.ed.made("/contacts", {**ADA, "metadata": {"plan": "pro"}})
    raw = b'{"contactId": "%s", "trigger": {"n": 1.50}}' % made["id"].encode()
    response = await cast.vic.post(
        f"{url}?case=true", content=raw, headers={"Content-Type": "application/json"}
    )
    case = document.dumps(document.parse(response.content)["case"])
    read = cases.read(case)
    assert read.expected
    assert cases.difference(read.expected, cases.play(read)) == ""
    assert read.expected["steps"][-1]["message"]["content"]["subject"] == "1.50"


async def test_the_file_of_a_signed_definition_says_so_without_the_secret(cast: Cast) -> None:
    trigger = {
        "source": "inbound_webhook",
        "contactLookup": "email",
        "contactPath": "email",
        "signingSecret": "a secret of the sender",
    }
    made = await cast.ed.made("/workflows", {"name": "S", "trigger": trigger, "steps": STEPS})
    given = {"trigger": {"email": "ada@acme.test"}, "contact": ADA}
    answer = await cast.vic.made(f"/workflows/{made['id']}/simulate?case=true", given)
    assert answer["case"]["definition"]["trigger"]["signed"] is True
    assert "a secret of the sender" not in document.dumps(answer).decode()
    cases.read(document.dumps(answer["case"]))


async def test_the_file_of_a_flow_keeps_the_topics_of_its_templates(cast: Cast) -> None:
    """Brought back in, it goes to the same people."""
    offers = await cast.ed.made("/topics", {"name": "Offers", "channels": ["email"]})
    news = {"name": "News", "channel": "email", "category": "marketing", "topicId": offers["id"]}
    template = await cast.ed.made("/templates", {**news, "content": HELLO})
    send = {"type": "send_message", "channel": "email", "templateId": template["id"]}
    url = await draft(cast, [{"id": "news", **send}])
    agreed = {offers["id"]: {"email": "subscribed"}}
    for topics, status in (({}, "SUPPRESSED"), (agreed, "SENT")):
        answer = await cast.vic.made(f"{url}?case=true", {"contact": {**ADA, "topics": topics}})
        file = answer["case"]
        assert answer["steps"][0]["message"]["status"] == status
        case = cases.read(document.dumps(file))
        assert cases.difference(case.expected, cases.play(case)) == ""
    brought = await cast.ed.made("/definitions/import", {"file": file})
    [kept] = brought["templates"]
    assert (kept["id"], kept["action"]) == (template["id"], "unchanged")
    assert (await cast.ed.made("/definitions/import", {"file": file}))["action"] == "unchanged"
    assert brought["file"]["templates"][kept["key"]]["topicId"] == "offers"


async def test_a_simulation_that_became_a_file_comes_out_alike_after_a_pull_and_a_push(
    cast: Cast,
) -> None:
    """Here and in another workspace, whose topics have other IDs."""
    topics = [
        {"name": "Offers", "channels": ["email"]},
        {"name": "Tips", "channels": ["email"]},
        {"name": "All", "channels": ["email"], "isDefault": True},
    ]
    offers, tips, default = [(await cast.ed.made("/topics", one))["id"] for one in topics]
    started = await cast.ed.made("/workflows", {"name": "Then", "steps": [], "state": "ACTIVE"})
    news = {"channel": "email", "category": "marketing", "content": HELLO}
    about = {"News": offers, "Rest": default}
    templates = [
        await cast.ed.made("/templates", {"name": name, **news, "topicId": id})
        for name, id in about.items()
    ]
    path = f'contact.topics["{offers}"].email'
    asked = {"when": {"path": path, "op": "eq", "value": "subscribed"}, "steps": []}
    steps = [
        {"type": "branch", "cases": [asked]},
        *(
            {"type": "send_message", "channel": "email", "templateId": one["id"]}
            for one in templates
        ),
        {"type": "start_workflow", "workflowId": started["id"]},
    ]
    contact = {**ADA, "topics": {id: {"email": "subscribed"} for id in (tips, offers)}}
    answer = await cast.vic.made(f"{await draft(cast, steps)}?case=true", {"contact": contact})
    statuses = [step["message"]["status"] for step in answer["steps"][1:3]]
    assert statuses == ["SENT", "SENT"]
    recorded = answer["case"]
    brought = await cast.ed.made("/definitions/import", {"file": recorded})
    pulled = await cast.vic.read(f"/workflows/{brought['id']}/export")
    written = document.dumps(pulled).decode()
    assert not [id for id in (offers, tips, default, started["id"]) if id in written]
    for file in (recorded, pulled):
        again = await cast.ed.made("/definitions/import", {"file": file})
        assert again["action"] == "unchanged"
    for topic in reversed(topics):
        await cast.mallory.made("/topics", topic)
    await cast.mallory.made("/workflows", {"name": "Then", "steps": [], "state": "ACTIVE"})
    moved = await cast.mallory.made("/definitions/import", {"file": pulled})
    assert moved["file"] == pulled
    case = cases.read(document.dumps(pulled))
    assert cases.difference(case.expected, cases.play(case)) == ""
    for person, id in ((cast.ed, brought["id"]), (cast.mallory, moved["id"])):
        [ran] = (await person.made(f"/workflows/{id}/cases/run", None))["cases"]
        assert (ran["name"], ran["difference"]) == ("expected", None)


async def test_a_flow_that_starts_another_shows_the_run_as_its_description_says(cast: Cast) -> None:
    """By which every answer is judged (conformance.py)."""
    started = await cast.ed.made("/workflows", {"name": "Then", "steps": [], "state": "ACTIVE"})
    url = await draft(cast, [{"type": "start_workflow", "workflowId": started["id"]}])
    [step] = (await cast.vic.made(url, {"contact": ADA}))["steps"]
    assert step["output"].keys() == {"runId"}


# --- what is not saved ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["workflows", "automations"])
async def test_what_is_not_saved_is_tried_like_what_is(
    cast: Cast, process: Process, kind: str
) -> None:
    body: dict[str, Any] = {"steps": STEPS}
    if kind == "automations":
        body = {"graph": {"nodes": [{"id": "t", "type": "trigger"}], "edges": []}}
    given = {"trigger": {"total": 2}, "contact": ADA, "startAt": "2026-03-01T09:00:00Z"}
    definition = {"name": "Try me", **body}
    before = await counted(process)
    unsaved = await cast.vic.post(f"/{kind}/simulate", {**given, "definition": definition})
    assert unsaved.status_code == 200, unsaved.text
    assert await counted(process) == before
    made = await cast.ed.made(f"/{kind}", definition)
    saved = await cast.vic.post(f"/{kind}/{made['id']}/simulate", given)
    assert unsaved.json() == saved.json()


SPLIT = {
    "id": "coin",
    "type": "split",
    "variants": [{"port": "heads", "weight": 1}, {"port": "tails", "weight": 1}],
}


async def test_a_change_that_is_not_saved_splits_a_contact_as_the_saved_one_does(
    cast: Cast,
) -> None:
    definition = {"name": "Toss", "steps": [SPLIT]}
    id = (await cast.ed.made("/workflows", definition))["id"]
    changed = {**definition, "steps": [SPLIT, {"type": "add_tag", "tag": "tossed"}]}
    ports: dict[str, list[str]] = {"saved": [], "changed": []}
    for number in range(20):
        given = {"contact": {**ADA, "id": f"con_{number:026}"}}
        saved = await cast.vic.made(f"/workflows/{id}/simulate", given)
        tried = {**given, "definition": changed}
        unsaved = await cast.vic.made(f"/workflows/simulate?id={id}", tried)
        assert unsaved["contact"]["tags"] == ["tossed"]
        ports["saved"].append(saved["steps"][0]["port"])
        ports["changed"].append(unsaved["steps"][0]["port"])
    assert ports["changed"] == ports["saved"]
    assert {*ports["saved"]} == {"heads", "tails"}
    other = {"definition": changed, "contact": ADA}
    refused = await cast.mallory.post(f"/workflows/simulate?id={id}", other)
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")


async def test_a_change_that_is_not_saved_knows_who_went_through_the_saved_one(
    cast: Cast, process: Process
) -> None:
    definition = {"name": "Once", "trigger": {"source": "manual", "reentry": "once"}}
    steps = [{"type": "add_tag", "tag": "seen"}]
    made = await cast.ed.made("/workflows", {**definition, "steps": steps, "state": "ACTIVE"})
    ada = await cast.ed.made("/contacts", ADA)
    await cast.ed.made(f"/workflows/{made['id']}/runs", {"contactId": ada["id"]})
    await settle(process)
    asked = {"definition": {**definition, "steps": [*steps, *steps]}, "contactId": ada["id"]}
    tried = await cast.vic.made(f"/workflows/simulate?id={made['id']}", asked)
    assert tried["end"]["reason"]["code"] == "reentry_refused"


async def test_a_case_of_what_is_not_saved_passes_once_that_is_saved(cast: Cast) -> None:
    """Also in a duplicate, by whose own ID the contacts would go other ways."""
    definition = {"name": "Toss", "steps": [SPLIT]}
    id = (await cast.ed.made("/workflows", {"name": "Toss"}))["id"]
    for number in range(10):
        given = {"contact": {**ADA, "id": f"con_{number:026}"}, "definition": definition}
        answer = await cast.vic.made(f"/workflows/simulate?id={id}&case=true", given)
        file = answer["case"]
        assert file["input"]["variants"] == {"coin": answer["steps"][0]["port"]}
        kept = {"given": file["input"], "expect": file["expected"]}
        put = await cast.ed.call("PUT", f"/workflows/{id}/cases/case {number}", json=kept)
        assert put.status_code == 201, put.text
        assert cases.play(cases.read(document.dumps(file))) == file["expected"]
    assert (await cast.ed.patch(f"/workflows/{id}", definition)).status_code == 200
    copy = await cast.ed.made(f"/workflows/{id}/duplicate", {})
    for one in (id, copy["id"]):
        assert (await cast.vic.made(f"/workflows/{one}/cases/run", None))["passes"]


async def test_what_is_not_saved_becomes_a_file_too(cast: Cast) -> None:
    body = {"definition": {"name": "Mine", "steps": STEPS}, "contact": ADA}
    body["startAt"] = "2026-03-01T09:00:00Z"
    answer = await cast.vic.post("/workflows/simulate?case=true", body)
    assert answer.status_code == 200, answer.text
    case = cases.read(document.dumps(answer.json()["case"]))
    assert (case.name, case.expected) == ("Mine", cases.play(case))


async def test_what_is_not_saved_and_cannot_be_meant_is_refused_at_its_place(cast: Cast) -> None:
    wrong = {"definition": {"name": "x", "steps": {}}, "contact": ADA}
    refused = await cast.vic.post("/workflows/simulate", wrong)
    assert refused.json()["errors"][0]["pointer"] == "/definition/steps"
    large = {"definition": {"name": "x", "steps": ["x" * 300_000]}, "contact": ADA}
    refused = await cast.vic.post("/workflows/simulate", large)
    assert refused.json()["errors"] == [
        {"pointer": "/definition/steps", "message": "At most 256 KiB of JSON."}
    ]


@pytest.mark.parametrize(
    ("kind", "definition", "pointer"),
    [
        ("workflows", {"steps": [{"type": "x" * 300_000}]}, "/steps"),
        ("automations", {"graph": {"nodes": [{"id": "x" * 300_000}], "edges": []}}, "/graph"),
        ("workflows", {"steps": [["x"] * 10_001]}, "/steps"),
        ("workflows", {"trigger": {"source": "moon"}}, "/trigger/source"),
        (
            "automations",
            {"graph": {"nodes": [{"id": "t", "type": "trigger", "data": {"source": "moon"}}]}},
            "/graph/nodes/0/data/source",
        ),
    ],
)
async def test_what_is_wrong_with_an_unsaved_definition_is_named_by_its_place(
    cast: Cast, kind: str, definition: Any, pointer: str
) -> None:
    """The limits of saved ones hold."""
    body = {"definition": {"name": "Try me", **definition}, "contact": ADA}
    refused = await cast.vic.post(f"/{kind}/simulate", body)
    assert refused.status_code == 422, refused.text
    assert [one["pointer"] for one in refused.json()["errors"]] == [f"/definition{pointer}"]
    saved = await cast.ed.post(f"/{kind}", body["definition"])
    assert pointer in [one["pointer"] for one in saved.json()["errors"]]


async def test_what_is_read_with_masked_credentials_is_tried_like_what_is_kept(cast: Cast) -> None:
    """Not saved, and as a file: the mask stands for a credential."""
    headers = {"Authorization": "Bearer hidden"}
    ask = {"type": "http_request", "method": "GET", "url": "https://crm.example"}
    body = {"name": "Ask", "steps": [{"id": "ask", **ask, "headers": headers}]}
    path = f"/workflows/{(await cast.ed.made('/workflows', body))['id']}"
    given = {"contact": ADA, "startAt": "2026-03-01T09:00:00Z"}
    kept = (await cast.vic.post(f"{path}/simulate", given)).json()
    shown = (await cast.vic.read(path))["steps"]
    asked = {**given, "definition": {**body, "steps": shown}}
    tried = (await cast.vic.post("/workflows/simulate?case=true", asked)).json()
    assert tried["end"] == kept["end"]
    assert tried["steps"] == kept["steps"]
    assert tried["case"]["definition"]["steps"] == shown
    case = cases.read(document.dumps(tried["case"]))
    assert case.expected == cases.play(case)
