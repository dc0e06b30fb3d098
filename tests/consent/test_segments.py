"""Changes of consent that move the contact in segments that ask for it, at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.messages import callbacks
from app.messages.providers import Account
from app.process import Process
from app.providers.callbacks import COMPLAINED, HARD, Became, Report
from tests.cast import HELLO, Cast, settle
from tests.routes.test_imports import imported
from tests.routes.test_preferences import ONE_CLICK
from tests.routes.test_topic_preferences import mailed
from tests.routes.test_topics import answer, topic

ADA = {"email": "ada@example.com", "phone": "+14155550132"}


def asked(path: str, value: str) -> dict[str, Any]:
    return {"path": path, "op": "eq", "value": value}


async def segment(cast: Cast, process: Process, filter: Any) -> str:
    id = (await cast.ed.made("/segments", {"name": "S", "filter": filter}))["id"]
    await settle(process)
    return f"/segments/{id}"


async def members(cast: Cast, process: Process, path: str) -> int:
    """Kept, which is what a fresh look finds."""
    await settle(process)
    shown = await cast.vic.read(path)
    fresh = await cast.vic.made("/segments/preview", {"filter": shown["filter"]})
    assert shown["count"] == fresh["count"]
    return int(shown["count"])


async def reported(cast: Cast, process: Process, contact_id: str, became: Became) -> None:
    letter = {"channel": "email", "contactId": contact_id, "content": HELLO}
    made = await cast.ed.made("/messages", letter)
    await settle(process)
    id, workspace_id = made["deliveryAttemptId"], cast.ed.workspace_id
    notice = Report(f"{became.status}|{id}", workspace_id, id, None, became, None)
    await callbacks.report(process, Account("sandbox", workspace_id, ""), notice)


async def test_members_suppress_and_lift(cast: Cast, process: Process) -> None:
    await cast.ed.made("/contacts", ADA)
    out = await segment(cast, process, asked("contact.subscriptions.email", "unsubscribed"))
    assert await members(cast, process, out) == 0
    held = await cast.adam.made("/suppressions", {"channel": "email", "address": ADA["email"]})
    assert await members(cast, process, out) == 1
    assert (await cast.adam.delete(f"/suppressions/{held['id']}")).status_code == 204
    assert await members(cast, process, out) == 0
    await imported(cast.ed, b"email,subscriptions.email\nada@example.com,unsubscribed\n")
    assert await members(cast, process, out) == 1


@pytest.mark.parametrize(("became", "status"), [(HARD, "bounced"), (COMPLAINED, "complained")])
async def test_a_provider_reports(
    cast: Cast, process: Process, became: Became, status: str
) -> None:
    ada = await cast.ed.made("/contacts", ADA)
    barred = await segment(cast, process, asked("contact.subscriptions.email", status))
    bounced = await segment(cast, process, {"message": "bounced"})
    await reported(cast, process, ada["id"], became)
    assert await members(cast, process, barred) == 1
    assert await members(cast, process, bounced) == (became is HARD)


async def test_the_person_replies_stop_and_start(cast: Cast, process: Process) -> None:
    await cast.ed.made("/contacts", ADA)
    out = await segment(cast, process, asked("contact.subscriptions.sms", "unsubscribed"))
    for text, count in (("STOP", 1), ("START", 0)):
        reply = {"channel": "sms", "from": ADA["phone"], "text": text}
        assert (await cast.ed.post("/sandbox/replies", reply)).status_code in (200, 202, 204)
        assert await members(cast, process, out) == count


async def test_the_person_clicks_once(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada, offers = (await cast.ed.made("/contacts", ADA))["id"], await topic(cast.ed)
    agreed = await segment(cast, process, asked(f"contact.topics.{offers}.email", "subscribed"))
    out = await segment(cast, process, asked("contact.subscriptions.email", "unsubscribed"))
    await answer(cast.ed, ada, offers)
    assert await members(cast, process, agreed) == 1
    link = await mailed(cast, process, tmp_path / "one", ada, offers)
    assert (await client.post(link, data=ONE_CLICK)).status_code == 200
    assert [await members(cast, process, one) for one in (agreed, out)] == [0, 0]
    link = await mailed(cast, process, tmp_path / "two", ada, None)
    assert (await client.post(link, data=ONE_CLICK)).status_code == 200
    assert [await members(cast, process, one) for one in (agreed, out)] == [0, 1]


async def test_a_file_brings_answers(cast: Cast, process: Process) -> None:
    offers = await topic(cast.ed)
    agreed = await segment(cast, process, asked(f"contact.topics.{offers}.email", "subscribed"))
    sheet = f"email,topics.{offers}.email\nada@example.com,subscribed\n".encode()
    await imported(cast.ed, sheet, query="?consentSource=shop")
    assert await members(cast, process, agreed) == 1


async def test_an_erasure_leaves_all_segments(cast: Cast, process: Process) -> None:
    ada = await cast.ed.made("/contacts", ADA)
    everybody = await segment(cast, process, {"path": "contact.email", "op": "exists"})
    assert await members(cast, process, everybody) == 1
    assert (await cast.ed.delete(f"/contacts/{ada['id']}")).status_code == 204
    assert await members(cast, process, everybody) == 0
