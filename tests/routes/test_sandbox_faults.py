"""Faults that somebody asks the sandbox for, which befall its next messages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from app.process import Process
from app.providers import inbox
from app.routes.sandbox_faults import FaultKind
from tests import cast as company
from tests.cast import HELLO, Cast, settle
from tests.runs.test_runner import later

FAULTS = "/sandbox/faults"
GUIDE = (Path(__file__).parents[2] / "docs/sandbox.md").read_text()
MESSAGE = {"channel": "email", "to": "ada@example.com", "content": HELLO}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "STALLS_SECONDS", 0.01)


async def sent(cast: Cast, process: Process) -> dict[str, Any]:
    """A message, once it has come as far as it does by itself."""
    made = await cast.ed.made("/messages", MESSAGE)
    await settle(process)
    return await cast.ed.read(f"/messages/{made.get('messageId') or made['id']}")


async def inbox_of(cast: Cast) -> int:
    return len((await cast.vic.read("/sandbox/messages"))["data"])


@pytest.mark.parametrize(
    ("kind", "status", "code", "captured"),
    [
        ("fail", "FAILED", "provider_rejected", 0),
        ("throttle", "QUEUED", "provider_throttled", 0),
        ("stall", "UNKNOWN", "outcome_unknown", 0),
        ("accept_then_drop", "UNKNOWN", "outcome_unknown", 1),
    ],
)
async def test_a_fault_befalls_the_next_message_and_no_other(
    cast: Cast, process: Process, kind: str, status: str, code: str, captured: int
) -> None:
    fault = await cast.ed.made(FAULTS, {"kind": kind})
    assert (fault["count"], fault["remaining"], fault["channel"]) == (1, 1, None)
    message = await sent(cast, process)
    assert (message["status"], message["reason"]["code"]) == (status, code)
    assert "The sandbox was told" in message["reason"]["detail"]
    assert await inbox_of(cast) == captured
    [listed] = (await cast.vic.read(FAULTS))["data"]
    assert listed == {**fault, "remaining": 0}
    if kind == "throttle":
        await later(process, "message", inbox.THROTTLES_SECONDS + 1)
        await settle(process)
        assert await inbox_of(cast) == 1
    assert (await sent(cast, process))["status"] == "SENT"


async def test_a_callback_that_comes_twice_counts_once(
    cast: Cast, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    loggers = ("app.messages.callbacks", "app.messages.reports")
    for name in loggers:
        caplog.set_level("INFO", name)
    await cast.olivia.made("/event-endpoints", {"url": "http://localhost/hook"})
    await cast.ed.made(FAULTS, {"kind": "duplicate_callback"})
    message = await sent(cast, process)
    assert await inbox_of(cast) == 1
    await process.channels["email"].close()  # it calls back now at the latest

    def found() -> list[str]:
        return [one.message for one in caplog.records if one.name in loggers]

    assert sorted(found()) == ["callback was received before", "message reported"]
    [id] = message["attempts"]
    attempt = await cast.vic.read(f"/messages/delivery-attempts/{id}")
    assert attempt["status"] == "DELIVERED"
    assert [one["status"] for one in attempt["events"]] == ["SENDING", "SENT", "DELIVERED"]
    assert (await cast.vic.read(f"/messages/{message['id']}"))["status"] == "DELIVERED"
    async with process.database.read() as db:
        events = await db.fetch_all("SELECT type FROM events ORDER BY id")
    assert [one["type"] for one in events] == ["message.sent", "message.delivered"]
    await sent(cast, process)
    assert len(found()) == 2  # the next is not called back for


@pytest.mark.parametrize(
    ("kind", "status", "code", "standing"),
    [
        ("bounce", "BOUNCED", "bounced_hard", "bounced"),
        ("complain", "COMPLAINED", "complained", "complained"),
    ],
)
async def test_what_a_provider_tells_later_can_be_tried_with_all_that_comes_of_it(
    cast: Cast, process: Process, kind: str, status: str, code: str, standing: str
) -> None:
    await cast.olivia.made("/event-endpoints", {"url": "http://localhost/hook"})
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    await cast.ed.made(FAULTS, {"kind": kind})
    message = await sent(cast, process)
    await process.channels["email"].close()  # it calls back now at the latest
    assert await inbox_of(cast) == 1
    message = await cast.vic.read(f"/messages/{message['id']}")
    assert (message["status"], message["reason"]["code"]) == (status, code)
    contact = await cast.vic.read(f"/contacts/{ada['id']}")
    assert contact["subscriptions"]["email"] == standing
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert (held["address"], held["reason"], held["source"]) == (
        "ada@example.com",
        standing,
        "provider",
    )
    async with process.database.read() as db:
        events = await db.fetch_all("SELECT type FROM events ORDER BY id")
    assert {one["type"] for one in events} >= {"message.sent", f"message.{standing}"}
    later_on = await sent(cast, process)
    assert (later_on["status"], later_on["reason"]["code"]) == (
        "SUPPRESSED",
        f"suppressed_{standing}",
    )


async def test_faults_befall_so_many_messages_in_the_order_of_asking(
    cast: Cast, process: Process
) -> None:
    await cast.ed.made(FAULTS, {"kind": "fail", "count": 2, "channel": "email"})
    await cast.ed.made(FAULTS, {"kind": "fail", "count": 9, "channel": "sms"})
    await cast.ed.made(FAULTS, {"kind": "stall"})
    statuses = [(await sent(cast, process))["status"] for _ in range(4)]
    assert statuses == ["FAILED", "FAILED", "UNKNOWN", "SENT"]
    listed = (await cast.vic.read(FAULTS))["data"]
    assert [one["remaining"] for one in listed] == [0, 9, 0]  # the newest first
    assert [one["kind"] for one in listed] == ["stall", "fail", "fail"]
    page = await cast.vic.read(f"{FAULTS}?limit=1")
    rest = await cast.vic.read(f"{FAULTS}?cursor={page['nextCursor']}")
    assert page["data"] + rest["data"] == listed
    [oldest] = (await cast.vic.read(f"{FAULTS}?createdBefore={listed[1]['createdAt']}"))["data"]
    assert oldest == listed[2]


async def test_faults_are_cleared(cast: Cast, process: Process) -> None:
    await cast.ed.made(FAULTS, {"kind": "fail", "count": 100})
    assert (await cast.ed.delete(FAULTS)).status_code == 204
    assert (await cast.vic.read(FAULTS))["data"] == []
    assert (await sent(cast, process))["status"] == "SENT"


async def test_another_workspace_is_not_befallen(cast: Cast, process: Process) -> None:
    await cast.mallory.made(FAULTS, {"kind": "fail", "count": 100})
    assert (await cast.vic.read(FAULTS))["data"] == []
    await cast.ed.delete(FAULTS)
    assert (await sent(cast, process))["status"] == "SENT"
    assert len((await cast.mallory.read(FAULTS))["data"]) == 1


@pytest.mark.parametrize(
    "wrong",
    [{}, {"kind": "explode"}, {"kind": "fail", "count": 0}, {"kind": "fail", "count": 1_001},
     {"kind": "fail", "channel": "pigeon"}],
)  # fmt: skip
async def test_a_fault_that_cannot_be_is_named(cast: Cast, wrong: dict[str, Any]) -> None:
    refused = await cast.ed.post(FAULTS, wrong)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


async def test_so_many_may_wait_and_who_asks_is_written_down(cast: Cast) -> None:
    for _ in range(50):
        await cast.ed.made(FAULTS, {"kind": "fail"})
    assert (await cast.ed.post(FAULTS, {"kind": "fail"})).status_code == 409
    await cast.ed.delete(FAULTS)
    cleared, made, *_ = (await cast.olivia.read("/audit-logs"))["data"]
    assert cleared["action"] == "sandbox_faults.cleared"
    assert made["action"] == "sandbox_fault.created"


CURL = re.compile(r"""curl -sS "\$API(\S+)" -H "\$AUTH"(?: -H "\$JSON" -d '(.*?)')?\n""", re.DOTALL)


async def test_what_the_guide_types_works(cast: Cast, process: Process) -> None:
    answers: list[dict[str, Any]] = []
    for path, body in CURL.findall(GUIDE):
        if body:
            answers.append(await cast.ed.made(path, json.loads(body)))
            await settle(process)
        else:
            answers.append(await cast.ed.read(path.replace("msg_…", answers[-1]["messageId"])))
    found = [one.keys() & {"messageId", "data", "remaining", "meaning"} for one in answers]
    assert found == [{"messageId"}, {"data"}, {"remaining"}, {"meaning"}]
    [captured] = answers[1]["data"]
    assert captured["messageId"] == answers[0]["messageId"]


def test_the_guide_tells_of_every_kind() -> None:
    assert re.findall(r"(?m)^\| `(\w+)` \|", GUIDE) == list(get_args(FaultKind))


async def test_production_has_none(process: Process, acme: str) -> None:
    production = replace(process, settings=replace(process.settings, environment="production"))
    async with company.client(production) as client:
        olivia = await company.person(production, client, acme, "olivia", "owner")
        assert (await olivia.post(FAULTS, {"kind": "fail"})).status_code == 404
