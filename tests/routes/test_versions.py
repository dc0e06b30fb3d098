"""Versions: what runs may have walked, immutable."""

from __future__ import annotations

from tests.cast import WEBHOOK, Cast

TAG = {"id": "tag", "type": "add_tag", "tag": "one"}


async def test_a_version_stays_as_it_was_pinned(cast: Cast):
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


async def test_a_long_history_comes_in_pages(cast: Cast):
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


async def test_what_is_no_version_is_not_found(cast: Cast):
    url = f"/workflows/{(await cast.ed.made('/workflows', {'name': 'W', 'state': 'ACTIVE'}))['id']}"
    for version in ("0", "2", "01", "-1", "x", "99999999999", "1.0", "١"):
        response = await cast.vic.get(f"{url}/versions/{version}")
        assert response.status_code == 404, version
        assert response.json()["detail"] == "This workflow has no such version."
    as_automation = url.replace("workflows", "automations")
    assert (await cast.vic.get(f"{as_automation}/versions/1")).status_code == 404
