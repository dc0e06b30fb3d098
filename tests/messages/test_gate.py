"""Gates of a message: caps, quiet hours and `sendAt`; what waits is no intent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.consent.gate import SPREAD
from app.database import handle, pipelining
from app.machine import document
from app.machine.reasons import Reason
from app.messages import callbacks, delivery
from app.messages.providers import Account
from app.process import Process
from app.providers.base import SendError
from app.providers.callbacks import DELIVERED, Report
from app.store import jobs, workspaces
from app.store.usage import MESSAGES
from tests.billing.test_quotas import use_up
from tests.cast import HELLO, Cast, hook, settle
from tests.driving import set_clock
from tests.messages.test_delivery import refuses, with_provider
from tests.tables import each_row

EVENING = datetime.fromisoformat("2026-10-24T22:30:00+02:00")  # the clocks go back in this night
MORNING = datetime.fromisoformat("2026-10-25T08:00:00+01:00")
NIGHT = {"from": "21:00", "to": "08:00", "timezone": "contact", "channels": ["email"]}
NEWS = {**HELLO, "category": "marketing"}


async def setting(cast: Cast, **given: Any) -> None:
    response = await cast.adam.patch("/settings/workspace", given)
    assert response.status_code == 200, response.text


async def ada(cast: Cast, **given: Any) -> str:
    made = await cast.ed.made(
        "/contacts", {"email": "ada@example.com", "timezone": "Europe/Berlin", **given}
    )
    return str(made["id"])


async def ordered(cast: Cast, contact_id: str, content: Any = NEWS, **given: Any) -> str:
    wanted = {"channel": "email", "contactId": contact_id, "content": content, **given}
    return str((await cast.ed.made("/messages", wanted))["messageId"])


async def shown(cast: Cast, message_id: str) -> dict[str, Any]:
    return await cast.vic.read(f"/messages/{message_id}")


async def outcome(cast: Cast, message_id: str) -> tuple[str, str | None]:
    message = await shown(cast, message_id)
    return message["status"], message["reason"] and message["reason"]["code"]


SENT = ("SENT", None)
HELD = ("QUEUED", "quiet_hours")


# --- quiet hours ----------------------------------------------------------------------------------


async def test_marketing_waits_for_the_morning_and_the_rest_does_not(
    cast: Cast, process: Process
) -> None:
    await setting(cast, quietHours=NIGHT)
    set_clock(process, EVENING)
    contact_id = await ada(cast)
    news, receipt = await ordered(cast, contact_id), await ordered(cast, contact_id, HELLO)
    await settle(process)
    assert await outcome(cast, news) == HELD
    assert await outcome(cast, receipt) == SENT
    held = await shown(cast, news)
    until = datetime.fromisoformat(held["until"])
    assert MORNING <= until < MORNING + SPREAD
    assert "quiet hours" in held["reason"]["detail"]
    set_clock(process, MORNING - timedelta(seconds=5))  # an hour longer than other nights
    await settle(process)
    assert await outcome(cast, news) == HELD
    set_clock(process, until + timedelta(seconds=1))
    await settle(process)
    assert await outcome(cast, news) == SENT
    assert (await shown(cast, news))["until"] is None


async def test_an_opt_out_in_the_night_ends_the_mail_of_the_morning(
    cast: Cast, process: Process
) -> None:
    await setting(cast, quietHours=NIGHT)
    set_clock(process, EVENING)
    contact_id = await ada(cast)
    news = await ordered(cast, contact_id)
    await settle(process)
    set_clock(process, EVENING + timedelta(hours=5))
    gone = {"subscriptions": {"email": "unsubscribed"}}
    assert (await cast.ed.patch(f"/contacts/{contact_id}", gone)).status_code == 200
    set_clock(process, MORNING + SPREAD)
    await settle(process)
    assert await outcome(cast, news) == ("SUPPRESSED", "suppressed_unsubscribed")


async def test_a_night_does_not_begin_the_retries_of_a_message_anew(
    cast: Cast, process: Process
) -> None:
    full = SendError("not_accepted", Reason.RECIPIENT_DEFERRED, "452 4.2.2 Mailbox full")
    through, _ = with_provider(process, refuses(full))
    await setting(cast, quietHours=NIGHT)
    noon = EVENING - timedelta(hours=10)
    set_clock(process, noon)
    news = await ordered(cast, await ada(cast))
    await settle(through)
    for days in range(3):
        assert await outcome(cast, news) == ("QUEUED", "recipient_deferred")
        set_clock(process, EVENING + timedelta(days=days))
        await settle(through)
        assert await outcome(cast, news) == HELD
        set_clock(process, noon + timedelta(days=days + 1, hours=1))
        await settle(through)
    assert await outcome(cast, news) == ("FAILED", "recipient_deferred")


async def test_what_would_wait_too_long_is_not_sent(cast: Cast, process: Process) -> None:
    await setting(cast, quietHours={**NIGHT, "maxWait": "PT2H"})
    set_clock(process, EVENING)
    news = await ordered(cast, await ada(cast))
    await settle(process)
    assert await outcome(cast, news) == ("SUPPRESSED", "suppressed_max_wait")
    late = await ordered(cast, await ada(cast, email="bob@example.com"))
    set_clock(process, MORNING - timedelta(hours=1, minutes=30))
    early = await ordered(cast, await ada(cast, email="cleo@example.com"))
    await settle(process)
    assert await outcome(cast, early) == HELD
    assert await outcome(cast, late) == ("SUPPRESSED", "suppressed_max_wait")


async def test_what_is_sent_again_by_hand_waits_from_then_on(cast: Cast, process: Process) -> None:
    await setting(cast, quietHours={**NIGHT, "maxWait": "PT12H"})
    set_clock(process, EVENING - timedelta(days=1, hours=3))
    await cast.adam.made("/sandbox/faults", {"kind": "fail"})
    news = await ordered(cast, await ada(cast))
    await settle(process)
    assert await outcome(cast, news) == ("FAILED", "provider_rejected")
    set_clock(process, EVENING)
    assert (await cast.ed.post(f"/messages/{news}/resend")).status_code == 202
    await settle(process)
    assert await outcome(cast, news) == HELD
    set_clock(process, MORNING + SPREAD)
    await settle(process)
    assert await outcome(cast, news) == SENT


async def test_a_run_waits_with_its_message_and_says_why(cast: Cast, process: Process) -> None:
    await setting(cast, quietHours=NIGHT)
    set_clock(process, EVENING)
    step = {"id": "news", "type": "send_message", "channel": "email", "content": NEWS}
    token = await hook(process, cast.ed.workspace_id, steps=[step])
    await ada(cast)
    body = {"email": "ada@example.com"}
    receipt = (await cast.client.post(f"/v1/webhooks/in/{token}", json=body)).json()
    await settle(process)
    run = await cast.vic.read(f"/runs/{receipt['runId']}")
    assert (run["status"], run["waitingFor"]["kind"]) == ("WAITING", "delivery")
    explained = await cast.vic.read(f"/contacts/{receipt['contactId']}/explain")
    codes = {(one["code"], one["reason"]) for one in explained["data"]}
    assert ("message_held", "quiet_hours") in codes
    set_clock(process, MORNING + SPREAD)
    await settle(process)
    assert (await cast.vic.read(f"/runs/{receipt['runId']}"))["status"] == "COMPLETED"


# --- sendAt ---------------------------------------------------------------------------------------


async def test_a_message_leaves_at_its_time(cast: Cast, process: Process) -> None:
    contact_id = await ada(cast)
    set_clock(process, EVENING)
    at = EVENING + timedelta(days=2)
    later = await ordered(cast, contact_id, HELLO, sendAt=document.text(at))
    await settle(process)
    assert await outcome(cast, later) == ("QUEUED", "scheduled")
    assert datetime.fromisoformat((await shown(cast, later))["until"]) == at
    await cast.ed.patch(f"/contacts/{contact_id}", {"firstName": "Ada"})
    set_clock(process, at - timedelta(seconds=2))
    await settle(process)
    assert await outcome(cast, later) == ("QUEUED", "scheduled")
    set_clock(process, at + timedelta(seconds=1))
    await settle(process)
    assert await outcome(cast, later) == SENT
    assert (await shown(cast, later))["content"]["subject"] == "Hello Ada"  # as they are then


async def test_what_is_parked_after_its_time_says_no_time(cast: Cast, process: Process) -> None:
    contact_id = await ada(cast)
    set_clock(process, EVENING)
    at = EVENING + timedelta(days=2)
    later = await ordered(cast, contact_id, HELLO, sendAt=document.text(at))
    await settle(process)
    await setting(cast, sendingPaused=True)
    set_clock(process, at + timedelta(seconds=1))
    await settle(process)
    assert await outcome(cast, later) == ("QUEUED", "sending_paused")
    assert (await shown(cast, later))["until"] is None


async def test_what_has_ended_by_a_report_says_no_time(cast: Cast, process: Process) -> None:
    contact_id = await ada(cast)
    set_clock(process, EVENING)
    at = document.text(EVENING + timedelta(days=2))
    later = await ordered(cast, contact_id, HELLO, sendAt=at)
    [attempt] = (await shown(cast, later))["attempts"]
    report = Report("told", cast.ed.workspace_id, attempt, None, DELIVERED, None)
    await callbacks.report(process, Account("inbox", cast.ed.workspace_id, ""), report)
    assert (await shown(cast, later))["status"] == "DELIVERED"
    assert (await shown(cast, later))["until"] is None


async def test_a_job_that_was_made_anew_sends_nothing_early(cast: Cast, process: Process) -> None:
    """A sweep makes what is lost due at once."""
    set_clock(process, EVENING)
    at = EVENING + timedelta(days=2)
    later = await ordered(cast, await ada(cast), HELLO, sendAt=document.text(at))
    async with process.database.write() as db:
        await jobs.wake(db, "message", workspace_id=cast.ed.workspace_id, ids=[later])
    await settle(process)
    assert await outcome(cast, later) == ("QUEUED", "scheduled")
    set_clock(process, at + timedelta(seconds=1))
    await settle(process)
    assert await outcome(cast, later) == SENT


async def test_a_time_too_far_ahead_is_refused_and_a_past_one_is_now(
    cast: Cast, process: Process
) -> None:
    contact_id = await ada(cast)
    far = {"channel": "email", "contactId": contact_id, "content": HELLO}
    refused = await cast.ed.post("/messages", {**far, "sendAt": "2199-01-01T00:00:00Z"})
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/sendAt"]
    past = await ordered(cast, contact_id, HELLO, sendAt="2026-01-01T00:00:00Z")
    await settle(process)
    assert await outcome(cast, past) == SENT


# --- what becomes true while it waits -------------------------------------------------------------


async def suppressed(cast: Cast, _process: Process, _contact_id: str) -> None:
    await cast.adam.made("/suppressions", {"channel": "email", "address": "ada@example.com"})


async def capped(cast: Cast, process: Process, contact_id: str) -> None:
    await setting(cast, frequencyCap={"limit": 1, "window": "P7D"})
    text = {"text": "News", "category": "marketing"}
    another = await ordered(cast, contact_id, text, channel="sms")
    await settle(process)
    assert await outcome(cast, another) == SENT


async def used_up(cast: Cast, process: Process, _contact_id: str) -> None:
    await use_up(process, cast.ed.workspace_id, MESSAGES, left=0)


async def unverified(cast: Cast, process: Process, _contact_id: str) -> None:
    async with process.database.write() as db:
        await workspaces.change_plan(db, id=cast.ed.workspace_id, plan="starter")
        await db.execute("UPDATE users SET email_verified_at = NULL")


@pytest.mark.parametrize("waits", ["scheduled", "quiet_hours"])
@pytest.mark.parametrize(
    ("meanwhile", "code"),
    [
        (suppressed, "suppressed_manual"),
        (capped, "suppressed_capped"),
        (used_up, "suppressed_quota"),
        (unverified, "suppressed_unverified"),
    ],
)
async def test_what_waits_is_judged_by_what_holds_when_it_leaves(
    cast: Cast, process: Process, waits: str, meanwhile: Any, code: str
) -> None:
    is_scheduled = waits == "scheduled"
    await setting(cast, quietHours=None if is_scheduled else NIGHT)
    set_clock(process, EVENING)
    contact_id = await ada(cast, phone="+14155550132")
    at = {"sendAt": document.text(MORNING)} if is_scheduled else {}
    news = await ordered(cast, contact_id, **at)
    live = replace(process, settings=replace(process.settings, environment="production"))
    await settle(live)
    assert await outcome(cast, news) == ("QUEUED", waits)
    await meanwhile(cast, process, contact_id)
    set_clock(process, MORNING + SPREAD)
    await settle(live)
    assert await outcome(cast, news) == ("SUPPRESSED", code)


# --- caps -----------------------------------------------------------------------------------------

CAPPED = ("SUPPRESSED", "suppressed_capped")


async def test_a_contact_gets_no_more_marketing_than_the_cap(cast: Cast, process: Process) -> None:
    await setting(cast, frequencyCap={"limit": 2, "window": "P7D"})
    set_clock(process, EVENING)
    contact_id, other = await ada(cast), await ada(cast, email="bob@example.com")
    news = [await ordered(cast, contact_id) for _ in range(3)]  # in one batch
    alone, receipt = await ordered(cast, other), await ordered(cast, contact_id, HELLO)
    await settle(process)
    outcomes = sorted([await outcome(cast, one) for one in news], key=str)
    assert outcomes == [SENT, SENT, CAPPED]
    assert await outcome(cast, alone) == SENT
    assert await outcome(cast, receipt) == SENT
    set_clock(process, EVENING + timedelta(days=6))
    again = await ordered(cast, contact_id)
    await settle(process)
    assert await outcome(cast, again) == CAPPED
    set_clock(process, EVENING + timedelta(days=8))
    again = await ordered(cast, contact_id)
    await settle(process)
    assert await outcome(cast, again) == SENT


async def test_a_cap_may_be_of_one_channel(cast: Cast, process: Process) -> None:
    await setting(cast, frequencyCap={"limit": 1, "window": "P1D", "channel": "email"})
    contact_id = await ada(cast, phone="+14155550132")
    text = {"text": "News", "category": "marketing"}
    texts = [await ordered(cast, contact_id, text, channel="sms") for _ in range(2)]
    mails = [await ordered(cast, contact_id) for _ in range(2)]
    await settle(process)
    assert [await outcome(cast, one) for one in texts] == [SENT, SENT]
    assert sorted([await outcome(cast, one) for one in mails], key=str) == [SENT, CAPPED]


async def test_two_workers_at_once_do_not_both_send_the_last_one(
    cast: Cast, process: Process
) -> None:
    await setting(cast, frequencyCap={"limit": 1, "window": "P1D"})
    contact_id = await ada(cast)
    news = [await ordered(cast, contact_id) for _ in range(4)]
    claimed = await process.claim("message", [], 10)
    await asyncio.gather(*(delivery.deliver(replace(process), job) for job in claimed))
    outcomes = [await outcome(cast, one) for one in news]
    assert sorted(outcomes, key=str) == [SENT, CAPPED, CAPPED, CAPPED]


async def test_what_was_not_sent_does_not_count(cast: Cast, process: Process) -> None:
    await setting(cast, frequencyCap={"limit": 1, "window": "P1D"})
    contact_id = await ada(cast)
    fault = {"kind": "fail", "count": 1}
    assert (await cast.ed.post("/sandbox/faults", fault)).status_code == 201
    first = await ordered(cast, contact_id)
    await settle(process)
    assert (await shown(cast, first))["status"] == "FAILED"
    second = await ordered(cast, contact_id)
    await settle(process)
    assert await outcome(cast, second) == SENT


# --- what a workspace may set ---------------------------------------------------------------------


async def test_what_is_set_is_shown_and_null_removes_it(cast: Cast) -> None:
    await setting(cast, quietHours=NIGHT, frequencyCap={"limit": 3, "window": "P7D"})
    read = await cast.vic.read("/settings/workspace")
    assert read["frequencyCap"] == {"limit": 3, "window": "P7D", "channel": None}
    assert read["quietHours"] == {
        **NIGHT,
        "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
        "maxWait": None,
    }
    await setting(cast, quietHours={"to": "07:00"})
    assert (await cast.vic.read("/settings/workspace"))["quietHours"]["to"] == "07:00"
    await setting(cast, quietHours=None, frequencyCap=None)
    read = await cast.vic.read("/settings/workspace")
    assert (read["quietHours"], read["frequencyCap"]) == (None, None)


@each_row(
    ("given", "pointer"),
    [
        ({"frequencyCap": {"limit": 0, "window": "P7D"}}, "/frequencyCap/limit"),
        ({"frequencyCap": {"limit": 1, "window": "a week"}}, "/frequencyCap/window"),
        ({"frequencyCap": {"limit": 1, "window": "P9999D"}}, "/frequencyCap/window"),
        ({"frequencyCap": {"limit": 1}}, "/frequencyCap/window"),
        ({"quietHours": {**NIGHT, "from": "25:00"}}, "/quietHours/from"),
        ({"quietHours": {**NIGHT, "to": "21:00"}}, "/quietHours"),
        ({"quietHours": {**NIGHT, "to": "20:46"}}, "/quietHours"),
        ({"quietHours": {**NIGHT, "from": "00:00", "to": "23:59"}}, "/quietHours"),
        ({"quietHours": {**NIGHT, "channels": []}}, "/quietHours/channels"),
        ({"quietHours": {**NIGHT, "days": ["sunday"]}}, "/quietHours/days/0"),
        ({"quietHours": {**NIGHT, "timezone": "Europe/Berlin"}}, "/quietHours/timezone"),
    ],
)
async def test_what_cannot_be_set_is_refused(cast: Cast, given: Any, pointer: str) -> None:
    refused = await cast.adam.patch("/settings/workspace", given)
    assert refused.status_code == 422
    assert [one["pointer"] for one in refused.json()["errors"]] == [pointer]


# --- what it costs --------------------------------------------------------------------------------


async def statements_of(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch, message_id: str
) -> list[str]:
    """List the statements of the intent of the only message that is due: each text once, as it is
    passed on."""
    sent: list[str] = []
    [job] = await process.claim("message", [], 10)
    with monkeypatch.context() as patched:
        for kind in (handle.Handle, pipelining._PipelinedHandle):
            for name in ("fetch_all", "fetch_each", "execute_many"):
                if name in vars(kind):
                    patched.setattr(kind, name, noting(getattr(kind, name), sent))
        await delivery.deliver(process, job)
    assert await outcome(cast, message_id) == SENT
    return list(dict.fromkeys(sent))


def noting(query: Any, sent: list[str]) -> Any:
    async def noted(self: handle.Handle, sql: str, /, *args: Any, **values: Any) -> Any:
        sent.append(" ".join(sql.split()))
        return await query(self, sql, *args, **values)

    return noted


async def test_who_sets_nothing_makes_no_statement_for_it(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(process, EVENING)
    contact_id = await ada(cast)
    plain = await statements_of(cast, process, monkeypatch, await ordered(cast, contact_id))
    assert len(plain) > 10
    for word in ("topics WHERE", "intended_at >", "FROM topics"):
        assert not [sql for sql in plain if word in sql], word
    offers = (await cast.ed.made("/topics", {"name": "Offers", "channels": ["email"]}))["id"]
    yes = {"channel": "email", "state": "subscribed", "source": "form"}
    await cast.ed.call("PUT", f"/contacts/{contact_id}/topics/{offers}", json=yes)
    about = {**NEWS, "topicId": offers}
    asked = await statements_of(cast, process, monkeypatch, await ordered(cast, contact_id, about))
    assert len(asked) == len(plain)  # a yes costs none
    await setting(cast, quietHours={**NIGHT, "from": "03:00", "to": "03:01"})
    quiet = await statements_of(cast, process, monkeypatch, await ordered(cast, contact_id))
    assert len(quiet) == len(plain)
    await setting(cast, frequencyCap={"limit": 100, "window": "P7D"})
    capped = await statements_of(cast, process, monkeypatch, await ordered(cast, contact_id))
    assert len(capped) == len(plain) + 1
