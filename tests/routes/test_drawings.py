"""Pictures over HTTP: live counts, kept by browsers, nothing in them that runs."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

from app.process import Process
from tests.cast import Cast, settle
from tests.definitions.drawing.pictures import boxes, texts
from tests.routes.test_automations import edge, node

WAITING = [
    {"type": "add_tag", "id": "tag", "tag": "met"},
    {"type": "wait", "id": "hold", "duration": "P3D"},
]
TRIGGER = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}


def shown(svg: bytes) -> list[list[str]]:
    return [list(texts(group)) for group in boxes(fromstring(svg)).values()]


async def test_a_picture_counts_the_runs_that_stand_at_a_node_and_have_passed_it(
    cast: Cast, process: Process
) -> None:
    made = await cast.ed.made(
        "/workflows",
        {"name": "<Hold>", "state": "ACTIVE", "trigger": TRIGGER, "steps": WAITING},
    )
    url = f"/workflows/{made['id']}/graph.svg"
    before = await cast.vic.get(url)
    hook = made["trigger"]["webhookUrl"]
    for name in ("ada", "bob"):
        await cast.client.post(hook, json={"email": f"{name}@example.com"})
    await settle(process)
    after = await cast.vic.get(url, headers={"If-None-Match": before.headers["ETag"]})
    assert (before.status_code, after.status_code) == (200, 200)
    assert after.headers["Content-Type"].startswith("image/svg+xml")
    assert after.headers["Content-Security-Policy"].startswith("default-src 'none';")
    assert after.headers["Cache-Control"] == "private, no-cache"
    assert shown(before.content)[1] == ["Add tag", "tag", "met"]
    assert shown(after.content) == [
        ["Trigger", "Inbound webhook"],
        ["Add tag", "tag", "met", "0 here now · 2 passed"],
        ["Wait", "hold", "P3D", "2 here now · 0 passed"],
    ]
    assert b"&lt;Hold&gt;" in after.content
    again = await cast.vic.get(url, headers={"If-None-Match": after.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_a_draft_is_drawn_however_broken_and_names_its_templates(cast: Cast) -> None:
    template = await cast.ed.made(
        "/templates",
        {"name": "Welcome", "channel": "email", "content": {"subject": "s", "html": "h"}},
    )
    made = await cast.ed.made(
        "/automations",
        {
            "name": "Draft",
            "graph": {
                "nodes": [
                    node("t", "trigger"),
                    node("hi", "send_message", channel="email", templateId=template["id"]),
                ],
                "edges": [edge("t", "hi"), edge("hi", "gone")],
            },
        },
    )
    response = await cast.vic.get(f"/automations/{made['id']}/graph.svg")
    assert shown(response.content)[1:] == [
        ["Send message", "hi", "Welcome"],
        ["Missing", "gone", "There is no such node."],
    ]


async def test_a_definition_of_another_workspace_or_shape_is_not_found(cast: Cast) -> None:
    made = await cast.ed.made("/workflows", {"name": "Ours"})
    for person, url in (
        (cast.mallory, f"/workflows/{made['id']}/graph.svg"),
        (cast.ed, f"/automations/{made['id']}/graph.svg"),
    ):
        response = await person.get(url)
        assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_a_node_at_which_a_run_ended_was_not_passed_by_it(
    cast: Cast, process: Process
) -> None:
    made = await cast.ed.made(
        "/workflows", {"name": "Hold", "state": "ACTIVE", "trigger": TRIGGER, "steps": WAITING}
    )
    url, hook = f"/workflows/{made['id']}", made["trigger"]["webhookUrl"]
    run = (await cast.client.post(hook, json={"email": "ada@example.com"})).json()["runId"]
    await settle(process)
    assert (await cast.ed.post(f"/runs/{run}/cancel")).status_code == 200
    drawn = await cast.vic.get(f"{url}/graph.svg?runId={run}")
    assert shown(drawn.content)[1:] == [
        ["Add tag", "tag", "met", "0 here now · 1 passed"],
        ["Wait", "hold", "P3D", "0 here now · 0 passed"],
    ]


async def test_the_way_of_a_run_is_drawn_in_the_version_that_it_took(
    cast: Cast, process: Process
) -> None:
    made = await cast.ed.made(
        "/workflows", {"name": "Hold", "state": "ACTIVE", "trigger": TRIGGER, "steps": WAITING}
    )
    url, hook = f"/workflows/{made['id']}", made["trigger"]["webhookUrl"]
    first, _ = [
        (await cast.client.post(hook, json={"email": f"{name}@example.com"})).json()["runId"]
        for name in ("ada", "bob")
    ]
    await settle(process)
    steps = [{"type": "exit", "id": "out"}]
    assert (await cast.ed.patch(url, {"steps": steps})).status_code == 200
    drawn = await cast.vic.get(f"{url}/graph.svg?runId={first}")
    assert shown(drawn.content) == [
        ["Trigger", "Inbound webhook"],
        ["Add tag", "tag", "met", "0 here now · 1 passed"],
        ["Wait", "hold", "P3D", "1 here now · 0 passed"],
    ]
    assert "The way of one run." in drawn.text
    other = await cast.ed.made("/workflows", {"name": "Other", "state": "DRAFT"})
    for path in (f"/workflows/{other['id']}/graph.svg?runId={first}", f"{url}/graph.svg?runId=x"):
        assert (await cast.vic.get(path)).status_code == 404
    theirs = await cast.mallory.made("/workflows", {"name": "Theirs", "state": "DRAFT"})
    url = f"/workflows/{theirs['id']}/graph.svg"
    assert (await cast.mallory.get(f"{url}?runId={first}")).status_code == 404
    assert (await cast.mallory.get(url)).status_code == 200
