"""The segments of a contact by the API."""

from __future__ import annotations

from app.process import Process
from tests.cast import Cast, settle

VIP = {"path": "contact.tags", "op": "contains", "value": "vip"}
PRO = {"path": "contact.metadata.plan", "op": "eq", "value": "pro"}


async def made(cast: Cast, name: str, **more: object) -> str:
    return str((await cast.ed.made("/segments", {"name": name, **more}))["id"])


async def test_a_contact_has_the_segments_that_it_is_in(cast: Cast, process: Process) -> None:
    given = {"email": "ada@x.test", "tags": ["vip"]}
    ada = (await cast.ed.made("/contacts", given))["id"]
    path = f"/contacts/{ada}/segments"
    assert await cast.vic.read(path) == {"data": [], "nextCursor": None}
    vip = await made(cast, "Gold", filter=VIP)
    frozen = await made(cast, "Gold then", filter=VIP, kind="frozen")
    pro = await made(cast, "Pro", filter=PRO)
    assert (await cast.vic.read(path))["data"] == []  # nobody has judged them yet
    await settle(process)
    shown = (await cast.vic.read(path))["data"]
    assert shown == [
        {"id": frozen, "name": "Gold then", "kind": "frozen"},
        {"id": vip, "name": "Gold", "kind": "live"},
    ]
    first = await cast.vic.read(f"{path}?limit=1")
    rest = await cast.vic.read(f"{path}?limit=1&cursor={first['nextCursor']}")
    assert (first["data"], rest["data"], rest["nextCursor"]) == (shown[:1], shown[1:], None)
    change = {"tags": [], "metadata": {"plan": "pro"}}
    assert (await cast.ed.patch(f"/contacts/{ada}", change)).status_code == 200
    assert [one["id"] for one in (await cast.vic.read(path))["data"]] == [pro, frozen]


async def test_what_watches_for_a_flow_is_no_segment_of_a_contact(
    cast: Cast, process: Process
) -> None:
    trigger = {"source": "date", "field": "metadata.renewsAt", "time": "09:00"}
    flow = {"name": "Renewal", "state": "ACTIVE", "trigger": trigger, "steps": []}
    await cast.ed.made("/workflows", flow)
    body = {"email": "ada@x.test", "metadata": {"renewsAt": "2090-01-01T00:00:00Z"}}
    ada = (await cast.ed.made("/contacts", body))["id"]
    await settle(process)
    assert (await cast.vic.read(f"/contacts/{ada}/segments"))["data"] == []


async def test_nobody_else_s_contact_has_segments(cast: Cast) -> None:
    ada = (await cast.ed.made("/contacts", {"email": "ada@x.test"}))["id"]
    refused = await cast.mallory.get(f"/contacts/{ada}/segments")
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
