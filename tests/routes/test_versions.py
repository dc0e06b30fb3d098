"""Versions: what runs may have walked, immutable."""

from __future__ import annotations

from typing import Any

from app.process import Process
from tests.cast import WEBHOOK, Cast, settle

TAG = {"id": "tag", "type": "add_tag", "tag": "one"}


async def test_a_version_stays_as_it_was_pinned(cast: Cast) -> None:
    draft = {"name": "W", "steps": [TAG]}
    url = f"/workflows/{(await cast.ed.made('/workflows', draft))['id']}"
    assert (await cast.vic.read(f"{url}/versions"))["data"] == []  # no run can have walked it
    await cast.ed.patch(url, {"state": "ACTIVE", "trigger": {**WEBHOOK, "signingSecret": "s" * 16}})
    await cast.ed.patch(url, {"steps": [{**TAG, "tag": "two"}]})
    await cast.ed.patch(url, {"name": "renamed"})  # which is none
    await cast.ed.patch(url, {"steps": []})
    listed = await cast.vic.read(f"{url}/versions")
    assert [row["version"] for row in listed["data"]] == [3, 2, 1]
    assert listed["data"][0]["triggerSource"] == "inbound_webhook"
    assert "steps" not in listed["data"][0]
    first = await cast.vic.get(f"{url}/versions/1")
    assert first.json() == {
        "version": 1,
        "trigger": WEBHOOK,
        "steps": [TAG],
        "createdAt": first.json()["createdAt"],
    }
    assert "signingSecret" not in first.text
    assert (await cast.vic.read(f"{url}/versions/3"))["steps"] == []
    again = await cast.vic.get(
        f"{url}/versions/1", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert again.status_code == 304


async def test_a_long_history_comes_in_pages(cast: Cast) -> None:
    draft = {"name": "A", "state": "ACTIVE"}
    url = f"/automations/{(await cast.ed.made('/automations', draft))['id']}"
    for n in range(11):
        graph = {"nodes": [{"id": f"t{n}", "type": "trigger", "data": {}}], "edges": []}
        await cast.ed.patch(url, {"graph": graph})
    found, cursor = [], ""
    while cursor is not None:
        page = await cast.vic.read(f"{url}/versions?limit=5{cursor and '&cursor=' + cursor}")
        found += [row["version"] for row in page["data"]]
        cursor = page["nextCursor"]
    assert found == list(range(12, 0, -1))
    twelfth = await cast.vic.read(f"{url}/versions/12")
    assert twelfth["graph"]["nodes"][0]["id"] == "t10"
    assert (await cast.vic.read(f"{url}/versions?createdAfter=2999-01-01T00:00:00Z"))["data"] == []


async def test_what_is_no_version_is_not_found(cast: Cast) -> None:
    url = f"/workflows/{(await cast.ed.made('/workflows', {'name': 'W', 'state': 'ACTIVE'}))['id']}"
    for version in ("0", "2", "01", "-1", "x", "99999999999", "1.0", "١"):
        response = await cast.vic.get(f"{url}/versions/{version}")
        assert response.status_code == 404, version
        assert response.json()["detail"] == "This workflow has no such version."
    as_automation = url.replace("workflows", "automations")
    assert (await cast.vic.get(f"{as_automation}/versions/1")).status_code == 404


async def test_two_versions_are_compared_node_by_node(cast: Cast, process: Process) -> None:
    """And the runs that still walk each are counted."""
    pause = {"id": "pause", "type": "wait", "duration": "P1D"}
    more = {"type": "wait_for", "conditions": [{"event": "paid", "steps": [TAG]}], "timeout": "P1D"}
    draft = {"name": "W", "state": "ACTIVE", "trigger": WEBHOOK, "steps": [pause, TAG]}
    made = await cast.ed.made("/workflows", draft)
    url = f"/workflows/{made['id']}"
    event = {"email": "ada@example.com"}
    await cast.client.post(made["trigger"]["webhookUrl"], json=event)
    await settle(process)
    changed = [{**pause, "duration": "P2D"}, {"id": "more", **more}]
    await cast.ed.patch(url, {"steps": changed, "trigger": {"dedupePath": "id"}})
    listed = (await cast.vic.read(f"{url}/versions"))["data"]
    assert [(row["version"], row["runs"]) for row in listed] == [(2, 0), (1, 1)]
    assert await cast.vic.read(f"{url}/versions/1/diff/2") == {
        "before": 1,
        "after": 2,
        "trigger": {"dedupePath": [None, "id"]},
        "nodes": {
            "added": [{"id": "more", "type": "wait_for"}],
            "removed": [],
            "changed": [
                {"id": "pause", "type": "wait", "members": {"duration": ["P1D", "P2D"]}},
            ],
        },
        "edges": {
            "added": [
                {"source": "more", "port": "condition1", "target": "tag"},
                {"source": "pause", "port": "next", "target": "more"},
            ],
            "removed": [{"source": "pause", "port": "next", "target": "tag"}],
        },
        "runs": {"1": 1, "2": 0},
    }
    same = await cast.vic.read(f"{url}/versions/2/diff/2")
    assert (same["nodes"]["changed"], same["edges"]["added"], same["trigger"]) == ([], [], {})
    back = await cast.vic.read(f"{url}/versions/2/diff/1")
    assert back["nodes"]["removed"] == [{"id": "more", "type": "wait_for"}]


async def test_a_comparison_shows_no_credential(cast: Cast) -> None:
    def asking(**data: Any) -> dict[str, Any]:
        ask = {"id": "ask", "type": "http_request", "data": {"method": "GET", **data}}
        edges = [{"source": "t", "target": "ask"}]
        return {"graph": {"nodes": [{"id": "t", "type": "trigger"}, ask], "edges": edges}}

    first = {"name": "A", "state": "ACTIVE", **asking(url="https://a.example")}
    url = f"/automations/{(await cast.ed.made('/automations', first))['id']}"
    headers = {"Authorization": "Bearer hidden", "X-Plain": "{{now}}"}
    await cast.ed.patch(url, asking(url="https://crm.example", headers=headers))
    answer = await cast.vic.get(f"{url}/versions/1/diff/2")
    [change] = answer.json()["nodes"]["changed"]
    assert change["members"]["url"] == ["https://a.example", "https://crm.example"]
    assert change["members"]["headers"][1]["X-Plain"] == "{{now}}"
    assert "hidden" not in answer.text
    assert (await cast.vic.get(f"{url}/versions/1/diff/9")).status_code == 404
    assert (await cast.mallory.get(f"{url}/versions/1/diff/2")).status_code == 404


async def test_another_credential_is_a_change_that_is_shown_masked(cast: Cast) -> None:
    def asking(key: str) -> dict[str, Any]:
        headers = {"Authorization": key}
        ask = {"type": "http_request", "method": "GET", "url": "https://crm.example"}
        return {"steps": [{"id": "ask", **ask, "headers": headers}, TAG]}

    first = {"name": "W", "state": "ACTIVE", **asking("Bearer hidden")}
    url = f"/workflows/{(await cast.ed.made('/workflows', first))['id']}"
    await cast.ed.patch(url, asking("Bearer concealed"))
    kept = asking("••••")["steps"]
    await cast.ed.patch(url, {"steps": [kept[0], {**TAG, "tag": "two"}]})
    answer = await cast.vic.get(f"{url}/versions/1/diff/2")
    masked = {"Authorization": "••••"}
    assert answer.json()["nodes"]["changed"] == [
        {"id": "ask", "type": "http_request", "members": {"headers": [masked, masked]}}
    ]
    assert "sealed:" not in answer.text
    [tag] = (await cast.vic.read(f"{url}/versions/2/diff/3"))["nodes"]["changed"]
    assert tag["id"] == "tag"
