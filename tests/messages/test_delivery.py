"""A message goes out: the intent before the call, the outcome after, and never twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest

from app.audience import erasing
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Database
from app.intake import webhooks
from app.machine import document
from app.machine.content import CHANNELS
from app.machine.reasons import Reason
from app.messages import callbacks, circuit_breaker, delivery
from app.messages.providers import Account
from app.process import Process
from app.providers import styling
from app.providers.base import Capabilities, Message, Receipt, Replies, SendError
from app.providers.callbacks import DELIVERED, Report
from app.providers.email import EmailChannel
from app.runs import runner
from app.store import (
    delivery_attempts,
    delivery_reports,
    held_messages,
    jobs,
    messages,
    parked,
    run_steps,
    runs,
    suppressions,
)
from app.store.held_messages import HeldMessage
from app.store.jobs import Job
from tests import servers
from tests.cast import HELLO, SEND_HELLO, Cast, hook, lock_waiters, settle, suppress
from tests.present import present
from tests.proxy import Proxy, proxy_before
from tests.receivers import HESITATE, Receiver
from tests.runs.test_runner import later, outlasted
from workers.kinds import WORKERS

EVENT = orjson.dumps({"email": "ada@example.com", "word": "tea"})


NO_PROMISES = Capabilities(None, callbacks=False)


@dataclass(slots=True)
class Provider:
    """A provider that says what it is told to, and keeps what it was given."""

    answer: Callable[[Message], Awaitable[Receipt]]
    given: list[Message] = field(default_factory=list)
    name: str = "email"
    provider: str = "scripted"
    capabilities: Capabilities = NO_PROMISES
    account: str | None = None
    replies: Replies = "none"

    async def send(self, message: Message) -> Receipt:
        self.given.append(message)
        return await self.answer(message)

    async def close(self) -> None:
        pass


def with_provider(
    process: Process, answer: Callable[[Message], Awaitable[Receipt]]
) -> tuple[Process, Provider]:
    provider = Provider(answer)
    return replace(process, channels={"email": provider}), provider


async def intend_outside(process: Process, job: Job) -> object:
    """The intent of a claimed message, as for a provider outside: the sandbox captures at once."""
    provider = Provider(accepts)
    outside = replace(process, channels=dict.fromkeys(CHANNELS, provider))
    return await outside.batches.run(delivery.intend_some, outside, job)


async def accepts(message: Message) -> Receipt:
    return Receipt(f"<{message.message_key}@provider>")


def refuses(error: SendError) -> Callable[[Message], Awaitable[Receipt]]:
    async def refuse(_message: Message) -> Receipt:
        raise error

    return refuse


async def start(process: Process, acme: str, step: object = SEND_HELLO) -> str:
    token = await hook(process, acme, [step])
    accepted = await webhooks.receive(process, token=token, signatures=[], body=EVENT)
    return accepted.run_id


async def attempts(process: Process, acme: str) -> list[delivery_attempts.Attempt]:
    """Oldest first."""
    async with process.database.read() as db:
        rows = await delivery_attempts.page(
            db, workspace_id=acme, filters={}, before=None, limit=50
        )
    return rows[::-1]


async def run_status(process: Process, acme: str, run_id: str) -> str:
    async with process.database.read() as db:
        row = await runs.by_id(db, workspace_id=acme, id=run_id)
    assert row is not None
    return str(row.status)


async def steps_of(process: Process, acme: str, run_id: str) -> list[run_steps.RunStep]:
    async with process.database.read() as db:
        return await run_steps.of_run(db, workspace_id=acme, run_id=run_id)


async def test_a_message_is_rendered_sent_and_recorded(process: Process, acme: str) -> None:
    process, provider = with_provider(process, accepts)
    run_id = await start(process, acme)
    await settle(process)
    [message] = provider.given
    assert message.to == "ada@example.com"
    assert message.content["html"] == "<p>You said tea</p>"
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.number, attempt.tries) == ("SENT", 1, 1)
    assert attempt.provider_message_id == f"<{message.message_key}@provider>"
    assert [event["status"] for event in attempt.events] == ["SENDING", "SENT"]
    assert await run_status(process, acme, run_id) == "COMPLETED"


STYLED = "<style>p { color: red }" + ".a { color: blue }" * 50 + "</style>"


@pytest.mark.parametrize("paragraphs", [3, 300])
async def test_style_sheets_that_take_long_are_written_into_elements_beside_the_loop(
    process: Process, acme: str, paragraphs: int
) -> None:
    """Thirty milliseconds for each mail would hold up all who share the worker."""
    process, provider = with_provider(process, accepts)
    markup = STYLED + "<p>Tea</p>" * paragraphs
    content = {"subject": "Tea", "html": markup}
    await start(process, acme, {**SEND_HELLO, "content": content})
    await settle(process)
    [message] = provider.given
    assert message.content["html"] == markup  # as it is recorded
    styled = styling.inlined(markup)
    assert styled.count('style="color: red;"') == paragraphs
    assert message.styled == (styled if paragraphs > 3 else None)


async def test_what_the_content_printed_in_vain_is_noted_in_the_step_and_the_attempt(
    process: Process, acme: str
) -> None:
    doubts = [SendError("unknown", Reason.OUTCOME_UNKNOWN, "No answer.")]

    async def recover(message: Message) -> Receipt:
        if doubts:
            raise doubts.pop()
        return await accepts(message)

    process, _ = with_provider(process, recover)
    text = {"subject": "Hi {{contact.nick}}", "html": "<p>{{trigger.no}}</p>"}
    step = {"type": "send_message", "channel": "email", "content": text, "onUnknown": "resend"}
    run_id = await start(process, acme, step)
    await settle(process)
    [passed] = await steps_of(process, acme, run_id)
    output = document.parse(present(passed.output).encode())
    assert (output["status"], output["number"]) == ("SENT", 2)
    assert output["missing"] == ["contact.nick", "trigger.no"]
    for attempt in await attempts(process, acme):
        intent, ended = attempt.events
        assert intent["missing"] == ["contact.nick", "trigger.no"]
        assert "missing" not in ended


async def test_the_intent_is_committed_before_the_provider_is_called(
    process: Process, acme: str
) -> None:
    seen: list[str] = []

    async def look(message: Message) -> Receipt:
        [attempt] = await attempts(process, acme)
        seen.append(attempt.status)
        return await accepts(message)

    process, _ = with_provider(process, look)
    await start(process, acme)
    await settle(process)
    assert seen == ["SENDING"]


async def test_what_was_surely_not_accepted_is_tried_again_under_the_same_key(
    process: Process, acme: str
) -> None:
    answers = [
        SendError("not_accepted", Reason.PROVIDER_UNREACHABLE, "Connection refused."),
        SendError("not_accepted", Reason.PROVIDER_THROTTLED, "Slow down.", retry_after_seconds=90),
    ]

    async def recover(message: Message) -> Receipt:
        if answers:
            raise answers.pop(0)
        return await accepts(message)

    process, provider = with_provider(process, recover)
    run_id = await start(process, acme)
    await settle(process)
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("QUEUED", "provider_unreachable")
    assert await run_status(process, acme, run_id) == "WAITING"
    await later(process, "message", 7)
    await settle(process)
    await later(process, "message", 80)
    await settle(process)
    assert len(provider.given) == 2  # Retry-After is longer than that
    await later(process, "message", 11)
    await settle(process)
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.number, attempt.tries) == ("SENT", 1, 3)
    assert len({message.message_key for message in provider.given}) == 1
    assert await run_status(process, acme, run_id) == "COMPLETED"


async def test_a_provider_that_stays_away_for_a_day_is_given_up(
    process: Process, acme: str
) -> None:
    away = SendError("not_accepted", Reason.PROVIDER_UNREACHABLE, "Connection refused.")
    process, _ = with_provider(process, refuses(away))
    run_id = await start(process, acme)
    await settle(process)
    async with process.database.write() as db:
        [row] = await db.fetch_all("SELECT id, trouble_since FROM delivery_attempts")
        await db.execute(
            "UPDATE delivery_attempts SET trouble_since = :then WHERE id = :id",
            id=row["id"],
            then=row["trouble_since"] - circuit_breaker.DEFAULT_RETRY_FOR,
        )
    await later(process, "message", 60)
    await settle(process)
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("FAILED", "provider_unreachable")
    assert await run_status(process, acme, run_id) == "COMPLETED"  # onFailure: continue


@pytest.mark.parametrize(
    ("policy", "status"), [({}, "COMPLETED"), ({"onFailure": "stop"}, "FAILED")]
)
async def test_a_refusal_for_good_is_never_tried_again(
    process: Process, acme: str, policy: dict[str, str], status: str
) -> None:
    no = SendError("rejected", Reason.PROVIDER_REJECTED, "550 no such user")
    process, provider = with_provider(process, refuses(no))
    run_id = await start(process, acme, {**SEND_HELLO, **policy})
    await settle(process)
    await later(process, "message", 100_000)
    await settle(process)
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_detail) == ("FAILED", "550 no such user")
    assert await run_status(process, acme, run_id) == status


@pytest.mark.parametrize(
    "error",
    [
        SendError("not_accepted", Reason.RECIPIENT_DEFERRED, "450 4.2.2 Mailbox full"),
        SendError("unknown", Reason.OUTCOME_UNKNOWN, "The reply was lost."),
    ],
    ids=["retried", "sent again by hand"],
)
@pytest.mark.parametrize("reasons", [["unsubscribed"], ["bounced", "unsubscribed"]])
async def test_who_opts_out_at_a_new_address_is_not_written_to_at_the_old_one_either(
    cast: Cast, process: Process, error: SendError, reasons: list[suppressions.Reason]
) -> None:
    through, provider = with_provider(process, refuses(error))
    ada = await cast.ed.made("/contacts", {"email": "ada@exmaple.com"})
    news = {**HELLO, "category": "marketing"}
    wanted = {"channel": "email", "contactId": ada["id"], "content": news}
    made = await cast.ed.made("/messages", wanted)
    await settle(through)
    assert len(provider.given) == 1
    changed = await cast.ed.patch(f"/contacts/{ada['id']}", {"email": "ada@example.com"})
    assert changed.status_code == 200, changed.text
    for reason in reasons:
        await suppress(process, cast.ed.workspace_id, reason, source="link")
    if error.outcome == "unknown":
        await cast.ed.made(f"/messages/{made['messageId']}/resend", None)
    await later(process, "message", 7_200)
    await settle(through)
    assert len(provider.given) == 1
    shown = await cast.vic.read(f"/messages/{made['messageId']}")
    assert (shown["status"], shown["reason"]["code"]) == ("SUPPRESSED", "suppressed_unsubscribed")


async def test_an_uncertain_outcome_is_unknown_and_not_sent_again(
    process: Process, acme: str
) -> None:
    lost = SendError("unknown", Reason.OUTCOME_UNKNOWN, "The reply was lost.")
    process, provider = with_provider(process, refuses(lost))
    run_id = await start(process, acme)
    await settle(process)
    await later(process, "message", 100_000)
    await settle(process)
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert attempt.status == "UNKNOWN"
    assert await run_status(process, acme, run_id) == "COMPLETED"  # onUnknown: continue


async def test_on_unknown_resend_makes_new_attempts_under_new_keys_and_then_stops(
    process: Process, acme: str
) -> None:
    lost = SendError("unknown", Reason.OUTCOME_UNKNOWN, "The reply was lost.")
    process, provider = with_provider(process, refuses(lost))
    run_id = await start(process, acme, {**SEND_HELLO, "onUnknown": "resend"})
    await settle(process)
    made = await attempts(process, acme)
    assert [attempt.number for attempt in made] == [1, 2, 3]
    assert len({message.message_key for message in provider.given}) == 3
    assert await run_status(process, acme, run_id) == "COMPLETED"


async def test_what_is_told_of_an_unknown_just_before_it_is_sent_again_is_heard(
    process: Process, acme: str
) -> None:
    """The report commits after the run has read UNKNOWN: nothing is to be sent again, and nobody
    else would wake the run."""
    lost = SendError("unknown", Reason.OUTCOME_UNKNOWN, "The reply was lost.")
    process, provider = with_provider(process, refuses(lost))
    run_id = await start(process, acme, {**SEND_HELLO, "onUnknown": "resend"})
    for kind in ("run", "message"):
        [claimed] = await process.claim(kind, [], 10)
        await WORKERS[kind].act(process, claimed)
    [attempt] = await attempts(process, acme)
    [waiting] = await process.claim("run", [], 10)
    report = Report("told", acme, attempt.id, None, DELIVERED, None)
    async with process.database.write() as db:
        await delivery_reports.locked(db, workspace_id=acme, attempt_id=attempt.id)
        account = Account(provider.provider, acme, "")
        reporting = asyncio.create_task(callbacks.report(process, account, report))
        await lock_waiters(process, 1)
        moving = asyncio.create_task(runner.move(process, waiting))
        await lock_waiters(process, 2)
    await asyncio.gather(reporting, moving)
    await settle(process)
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert (attempt.number, attempt.status) == (1, "DELIVERED")
    [step] = await steps_of(process, acme, run_id)
    assert (step.status, orjson.loads(present(step.output))["status"]) == ("COMPLETED", "SENT")
    assert await run_status(process, acme, run_id) == "COMPLETED"


async def test_what_is_told_of_an_unknown_while_it_is_sent_again_in_vain_is_heard(
    process: Process, acme: str
) -> None:
    async def unsure(_message: Message) -> Receipt:
        made = await attempts(process, acme)
        if len(made) == 2:
            report = Report("told", acme, made[0].id, None, DELIVERED, None)
            await callbacks.report(process, Account(provider.provider, acme, ""), report)
        raise SendError("unknown", Reason.OUTCOME_UNKNOWN, "The reply was lost.")

    process, provider = with_provider(process, unsure)
    run_id = await start(process, acme, {**SEND_HELLO, "onUnknown": "resend"})
    await settle(process)
    assert len(provider.given) == 2
    made = await attempts(process, acme)
    assert [attempt.status for attempt in made] == ["DELIVERED", "UNKNOWN", "SUPPRESSED"]
    [step] = await steps_of(process, acme, run_id)
    assert (step.status, orjson.loads(present(step.output))["status"]) == ("COMPLETED", "SENT")


async def orphaned(process: Process, acme: str) -> str:
    """A message whose worker died after the intent was committed; its run's id."""
    run_id = await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    [claimed] = await process.claim("message", [], 10)
    assert await intend_outside(process, claimed) is not None
    await later(process, "message", 60)
    return run_id


async def test_a_send_whose_worker_died_is_unknown(process: Process, acme: str) -> None:
    """The intent is there and its outcome is not: nobody can tell, so nobody sends again."""
    process, provider = with_provider(process, accepts)
    run_id = await orphaned(process, acme)
    await settle(process)
    assert provider.given == []
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("UNKNOWN", Reason.WORKER_LOST)
    assert await run_status(process, acme, run_id) == "COMPLETED"


async def test_a_mail_that_is_asked_about_has_its_style_sheets_in_its_elements_as_well(
    process: Process, acme: str
) -> None:
    """Whoever asked did it on the loop that all share, for each message of a lost worker."""
    process, provider = with_provider(process, accepts)
    provider.account = "the same"
    provider.capabilities = Capabilities(idempotency_key_ttl_seconds=86_400, callbacks=False)
    markup = STYLED + "<p>Tea</p>" * 300
    content = {"subject": "Tea", "html": markup}
    await start(process, acme, {**SEND_HELLO, "content": content})
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    [claimed] = await process.claim("message", [], 10)
    first = await process.compute.within(
        lambda: process.batches.run(delivery.intend_alone, process, claimed)
    )
    assert isinstance(first, delivery.Sending)
    await later(process, "message", 60)
    await settle(process)
    [message] = provider.given
    assert (message.content, message.styled) == (first.message.content, first.message.styled)
    assert message.styled == styling.inlined(markup)
    [attempt] = await attempts(process, acme)
    assert [event["status"] for event in attempt.events] == ["SENDING", "SENDING", "SENT"]


async def test_what_was_given_back_is_not_intended_by_the_batch_that_it_still_stood_in(
    process: Process, acme: str
) -> None:
    """A worker that ends gives back what it has not sent; its batch has its turn after that."""
    process, provider = with_provider(process, accepts)
    await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    [claimed] = await process.claim("message", [], 10)
    async with process.database.write() as db:
        await jobs.release(db, claimed)
    assert await process.batches.run(delivery.intend_some, process, claimed) is None
    [attempt] = await attempts(process, acme)
    assert attempt.status == "QUEUED"
    await settle(process)
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert attempt.status == "SENT"


async def test_a_lost_lease_cuts_the_call_off(process: Process, acme: str) -> None:
    """Two thirds of a lease without the database: another may begin, so this one has stopped."""
    quick = replace(process, settings=replace(process.settings, lease_seconds=1))
    called, cut = asyncio.Event(), asyncio.Event()

    async def never(_message: Message) -> Receipt:
        called.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.set()
            raise SendError("not_accepted", Reason.WORKER_LOST, "Before the dot.") from None
        raise AssertionError

    quick, _ = with_provider(quick, never)
    await start(quick, acme)
    sending = asyncio.create_task(settle(quick))
    async with asyncio.timeout(10):
        await called.wait()
        async with process.database.write() as db:  # somebody else has claimed it
            await db.execute("UPDATE jobs SET lease_token = lease_token + 1")
        await cut.wait()
        await sending


async def test_who_slept_through_a_lease_sends_nothing_beside_the_next(
    process: Process, acme: str
) -> None:
    process, provider = with_provider(process, accepts)
    run_id = await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    [slept] = await process.claim("message", [], 10)
    await later(process, "message", 60)
    [awake] = await process.claim("message", [], 10)
    await delivery.deliver(process, slept)
    assert provider.given == []
    await delivery.deliver(process, awake)
    await delivery.deliver(process, slept)
    assert len(provider.given) == 1
    await settle(process)
    assert await run_status(process, acme, run_id) == "COMPLETED"


async def test_an_erasure_that_was_answered_is_obeyed_by_every_later_intent(
    process: Process, acme: str
) -> None:
    """The intent waits for an erasure under way, and then finds nobody to write to."""
    if process.database.engine == "sqlite":
        pytest.skip("SQLite's one writer makes every transaction wait for every other")
    process, provider = with_provider(process, accepts)
    await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    async with process.database.write() as db:
        [contact] = await db.fetch_all("SELECT id FROM contacts")
        await erasing.erase(db, WorkspaceContext(acme, None, process.vault), contact["id"])
        sending = asyncio.create_task(settle(process))
        await asyncio.sleep(0.3)  # time enough to send, were it not waiting
        assert provider.given == []
    await sending
    assert provider.given == []


NO_USER = SendError("rejected", Reason.PROVIDER_REJECTED, "550 no such user")
STOPPED = SendError("rejected", Reason.SUPPRESSED_STOPPED, "21610")
FULL = SendError("rejected", Reason.BOUNCED_SOFT, "552 5.2.2 full")
THROTTLED = SendError("not_accepted", Reason.PROVIDER_THROTTLED, "451 later")
LOST = SendError("unknown", Reason.OUTCOME_UNKNOWN, "The reply was lost.")


@pytest.mark.parametrize(
    ("error", "status"),
    [(NO_USER, "FAILED"), (THROTTLED, "FAILED"), (STOPPED, "SUPPRESSED")],
)
async def test_a_refusal_that_comes_late_settles_what_was_given_up(
    process: Process, acme: str, error: SendError, status: str
) -> None:
    """It surely did not arrive. The run has gone on, so it is not tried again either."""

    async def oversleep(_message: Message) -> Receipt:
        await given_up(process)
        await settle(process)
        assert await run_status(process, acme, run_id) == "COMPLETED"
        raise error

    slow, provider = with_provider(process, oversleep)
    run_id = await start(process, acme)
    await settle(slow)
    await later(process, "message", 100_000)
    await settle(slow)
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == (status, error.code)
    assert attempt.reason_detail == error.detail
    assert [event["status"] for event in attempt.events] == ["SENDING", "UNKNOWN", status]
    async with process.database.read() as db:
        message = await messages.by_id(db, workspace_id=acme, id=attempt.message_id)
    assert message is not None
    assert (message.status, message.reason_code) == (status, error.code)
    assert await opted_out(process) == (["stopped"] if error is STOPPED else [])


async def opted_out(process: Process) -> list[str]:
    """The reasons of all suppressions."""
    async with process.database.read() as db:
        return [row["reason"] for row in await db.fetch_all("SELECT reason FROM suppressions")]


async def test_what_nobody_can_know_late_either_stays_as_it_was(
    process: Process, acme: str
) -> None:
    async def oversleep(_message: Message) -> Receipt:
        await given_up(process)
        raise LOST

    slow, _ = with_provider(process, oversleep)
    await start(process, acme)
    await settle(slow)
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("UNKNOWN", Reason.WORKER_LOST)
    assert [event["status"] for event in attempt.events] == ["SENDING", "UNKNOWN"]


async def test_what_was_not_accepted_before_anybody_gave_up_is_tried_again(
    process: Process, acme: str
) -> None:
    claimed: list[Job] = []

    async def oversleep(_message: Message) -> Receipt:
        await later(process, "message", 60)
        claimed.extend(await process.claim("message", [], 10))  # and does nothing with it yet
        raise THROTTLED

    slow, provider = with_provider(process, oversleep)
    run_id = await start(process, acme)
    await settle(slow)
    provider.answer = accepts
    await delivery.deliver(slow, claimed[0])
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("QUEUED", Reason.PROVIDER_THROTTLED)
    await later(process, "message", 60)
    await settle(slow)
    [attempt] = await attempts(process, acme)
    assert [event["status"] for event in attempt.events] == [
        *("SENDING", "QUEUED"),
        *("SENDING", "SENT"),
    ]
    assert await run_status(process, acme, run_id) == "COMPLETED"


async def test_a_refusal_says_nothing_of_a_later_try(process: Process, acme: str) -> None:
    """The answer to the COMMIT that recorded it was lost, and it is recorded again, long after."""
    process, _ = with_provider(process, accepts)
    await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    first = await intended(process)
    await process.batches.run(delivery.record_some, process, (first, THROTTLED))
    await later(process, "message", 60)
    await intended(process)  # and then its worker is lost
    await process.batches.run(delivery.record_some, process, (first, THROTTLED))
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.tries) == ("SENDING", 2)
    await given_up(process)
    await process.batches.run(delivery.record_some, process, (first, THROTTLED))
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("UNKNOWN", Reason.WORKER_LOST)


async def test_a_refusal_of_a_second_call_says_nothing_of_the_first(
    process: Process, acme: str
) -> None:
    process, _ = with_provider(process, accepts)
    await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    second = replace(await intended(process), is_second=True)
    await given_up(process)
    await process.batches.run(delivery.record_some, process, (second, NO_USER))
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("UNKNOWN", Reason.WORKER_LOST)


async def soft_bounces(process: Process) -> list[int]:
    async with process.database.read() as db:
        return await db.fetch_values("SELECT bounces FROM soft_bounces")


async def test_a_bounce_whose_commit_was_not_answered_counts_once(
    process: Process, acme: str
) -> None:
    """For its address, which the fifth suppresses, and for its provider."""
    process, provider = with_provider(process, accepts)
    provider.capabilities = Capabilities(None, callbacks=False, refuses_recipients=True)
    await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    sending = await intended(process)
    for _ in range(2):
        await process.batches.run(delivery.record_some, process, (sending, FULL))
    [attempt] = await attempts(process, acme)
    assert attempt.status == "BOUNCED"
    assert await soft_bounces(process) == [1]
    async with process.database.read() as db:
        counted = await db.fetch_tuples("SELECT recipients, dead FROM recipient_counts")
    assert counted == [(1, 1)]


async def test_a_bounce_that_comes_late_counts_for_its_address(process: Process, acme: str) -> None:
    process, _ = with_provider(process, accepts)
    await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    sending = await intended(process)
    await given_up(process)
    await process.batches.run(delivery.record_some, process, (sending, FULL))
    [attempt] = await attempts(process, acme)
    assert attempt.status == "BOUNCED"
    assert await soft_bounces(process) == [1]


async def test_an_opt_out_that_is_heard_after_a_newer_attempt_holds(
    process: Process, acme: str
) -> None:
    process, _ = with_provider(process, accepts)
    await start(process, acme, {**SEND_HELLO, "onUnknown": "resend"})
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    sending = await intended(process)
    await given_up(process)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    await process.batches.run(delivery.record_some, process, (sending, STOPPED))
    assert await opted_out(process) == ["stopped"]
    await settle(process)
    [first, second] = await attempts(process, acme)
    assert (first.status, second.status) == ("UNKNOWN", "SUPPRESSED")


async def intended(process: Process) -> delivery.Sending:
    """The one message that is due, claimed, with its intent committed."""
    [claimed] = await process.claim("message", [], 10)
    sending = await process.batches.run(delivery.intend_some, process, claimed)
    assert sending is not None
    return sending


async def given_up(process: Process) -> None:
    """The lease runs out, and another worker finds an intent without an outcome."""
    await later(process, "message", 60)
    [other] = await process.claim("message", [], 10)
    await delivery.deliver(process, other)


async def hesitating(
    process: Process, receiver: Receiver
) -> tuple[Process, asyncio.Task[None], EmailChannel]:
    """A message is at a real server, which has not answered the final dot yet."""
    channel = EmailChannel(receiver.url, "Acme <hello@acme.test>")
    through = replace(process, channels={"email": channel})
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    [claimed] = await process.claim("message", [], 10)
    sending = asyncio.create_task(delivery.deliver(through, claimed))
    await receiver.stalled.wait()
    return through, sending, channel


async def test_a_receipt_that_comes_late_settles_what_was_given_up(
    process: Process, acme: str, tmp_path: Path
) -> None:
    async with Receiver(tmp_path / "ledger", script=[HESITATE]) as receiver:
        run_id = await start(process, acme)
        through, sending, channel = await hesitating(process, receiver)
        await given_up(through)
        await settle(through)
        [attempt] = await attempts(process, acme)
        assert (attempt.status, attempt.reason_code) == ("UNKNOWN", Reason.WORKER_LOST)
        assert await run_status(process, acme, run_id) == "COMPLETED"  # it has gone on
        receiver.released.set()
        await sending
        await channel.close()
        assert len(receiver.received) == 1
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code, attempt.number) == ("SENT", None, 1)
    assert attempt.sent_at is not None
    assert "queued as 1" in present(attempt.provider_message_id)
    assert [event["status"] for event in attempt.events] == ["SENDING", "UNKNOWN", "SENT"]
    async with process.database.read() as db:
        message = await messages.by_id(db, workspace_id=acme, id=attempt.message_id)
    assert message is not None
    assert (message.status, message.reason_code) == ("SENT", None)
    assert await process.claim("message", [], 10) == []


async def test_a_receipt_that_waits_for_whoever_gives_up_keeps_what_that_wrote(
    process: Process, acme: str, tmp_path: Path
) -> None:
    """The two race: the receipt's transaction waits for the one that says UNKNOWN."""
    async with Receiver(tmp_path / "ledger", script=[HESITATE]) as receiver:
        await start(process, acme)
        through, sending, channel = await hesitating(process, receiver)
        await later(process, "message", 60)
        [orphan] = await process.claim("message", [], 10)
        async with process.database.write() as db:
            assert await jobs.lock(db, [orphan])
            await delivery._judge(through, orphan, db)
            receiver.released.set()
            await lock_waiters(process, 1)
        await sending
        await channel.close()
    [attempt] = await attempts(process, acme)
    assert [event["status"] for event in attempt.events] == ["SENDING", "UNKNOWN", "SENT"]


async def test_an_outcome_that_waits_for_a_report_keeps_what_that_wrote(
    process: Process, acme: str
) -> None:
    run_id = await start(process, acme)
    await runner.move(process, (await process.claim("run", [], 10))[0])
    [claimed] = await process.claim("message", [], 10)
    assert await intend_outside(process, claimed) is not None
    [attempt] = await attempts(process, acme)
    where = {"workspace_id": acme, "attempt_id": attempt.id}

    async def held() -> HeldMessage | None:
        async with process.database.write() as db:
            assert await jobs.lock(db, [claimed])
            return await held_messages.locked(db, workspace_id=acme, id=claimed.id)

    async with process.database.write() as db:
        assert await delivery_reports.locked(db, **where) is not None
        waiting = asyncio.create_task(held())
        await lock_waiters(process, 1)
        await delivery_reports.remember(
            db, **where, provider_message_id="p", events=[{"status": "SENDING"}, {"status": "X"}]
        )
    row = await waiting
    assert row is not None
    assert row.run_id == run_id
    assert [event["status"] for event in row.events] == ["SENDING", "X"]


async def test_a_receipt_before_anybody_gave_up_is_the_run_s_answer(
    process: Process, acme: str, tmp_path: Path
) -> None:
    async with Receiver(tmp_path / "ledger", script=[HESITATE]) as receiver:
        run_id = await start(process, acme)
        through, sending, channel = await hesitating(process, receiver)
        await later(process, "message", 60)
        [other] = await process.claim("message", [], 10)  # and does nothing with it yet
        receiver.released.set()
        await sending
        await delivery.deliver(through, other)
        await channel.close()
    await settle(process)
    [attempt] = await attempts(process, acme)
    assert [event["status"] for event in attempt.events] == ["SENDING", "SENT"]
    async with process.database.read() as db:
        [step] = await run_steps.of_run(db, workspace_id=acme, run_id=run_id)
    assert orjson.loads(present(step.output))["status"] == "SENT"


async def test_a_receipt_that_comes_after_a_newer_attempt_changes_nothing(
    process: Process, acme: str, tmp_path: Path
) -> None:
    async with Receiver(tmp_path / "ledger", script=[HESITATE]) as receiver:
        await start(process, acme, {**SEND_HELLO, "onUnknown": "resend"})
        through, sending, channel = await hesitating(process, receiver)
        await given_up(through)
        [run] = await process.claim("run", [], 10)
        await runner.move(process, run)
        receiver.released.set()
        await sending
        [first, second] = await attempts(process, acme)
        assert (first.status, second.status) == ("UNKNOWN", "QUEUED")
        await settle(through)
        await channel.close()
        assert len(receiver.received) == 2
    [first, second] = await attempts(process, acme)
    assert (first.status, second.status) == ("UNKNOWN", "SENT")


async def test_a_slow_provider_does_not_cost_the_lease(process: Process, acme: str) -> None:
    quick = replace(process, settings=replace(process.settings, lease_seconds=1))
    asked, gate = asyncio.Event(), asyncio.Event()

    async def wait(message: Message) -> Receipt:
        asked.set()
        await gate.wait()
        return await accepts(message)

    quick, _ = with_provider(quick, wait)
    await start(quick, acme)
    sending = asyncio.create_task(settle(quick))
    await asked.wait()
    await outlasted(quick, "message")
    assert await quick.claim("message", [], 10) == []
    gate.set()
    await sending
    [attempt] = await attempts(process, acme)
    assert attempt.status == "SENT"


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({**SEND_HELLO, "to": "{{trigger.nobody}}"}, Reason.NO_ADDRESS),
        (
            {**SEND_HELLO, "content": {**HELLO, "html": "{{ 1 | divided_by: 0 }}"}},
            Reason.TEMPLATE_ERROR,
        ),
    ],
)
async def test_a_message_that_cannot_be_made_says_why_and_calls_nobody(
    process: Process, acme: str, step: dict[str, object], code: Reason
) -> None:
    process, provider = with_provider(process, accepts)
    run_id = await start(process, acme, step)
    await settle(process)
    assert provider.given == []
    async with process.database.read() as db:
        [row] = await run_steps.of_run(db, workspace_id=acme, run_id=run_id)
    assert row.reason_code == code
    assert await run_status(process, acme, run_id) == "COMPLETED"


async def test_an_address_that_is_none_fails_the_message(process: Process, acme: str) -> None:
    process, provider = with_provider(process, accepts)
    await start(process, acme, {**SEND_HELLO, "to": "{{trigger.word}}"})
    await settle(process)
    assert provider.given == []
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("FAILED", Reason.INVALID_ADDRESS)


# --- the database goes away around a call -------------------------------------------------------


@pytest.fixture
async def proxied(
    postgres_server: servers.PostgresServer, postgres_url: str, process: Process
) -> AsyncIterator[tuple[Process, Proxy]]:
    """The same process and database, with a proxy between them that can cut."""
    if process.database.engine == "sqlite":
        pytest.skip("SQLite has no connection to cut")
    server = urlsplit(postgres_server.tcp_url)
    async with proxy_before(server.hostname or "", server.port or 0) as proxy:
        path = urlsplit(postgres_url).path
        database = Database(f"postgresql://postgres@127.0.0.1:{proxy.port}{path}")
        await database.connect()
        yield replace(process, database=database), proxy
        await database.disconnect()


CUT_SECONDS = 20.0


async def cut_once(proxy: Proxy) -> None:
    """The answer to the next COMMIT is lost, and only that one."""
    proxy.cut_after(b"COMMIT")
    before = proxy.hits
    async with asyncio.timeout(CUT_SECONDS):
        while proxy.hits == before:
            await asyncio.sleep(0)
    proxy.heal()


async def test_an_orphan_whose_settlement_was_not_answered_is_still_not_sent(
    proxied: tuple[Process, Proxy], process: Process, acme: str
) -> None:
    """It was SENDING when it was claimed: that intent is not ours, however often we look."""
    through, provider = with_provider(proxied[0], accepts)
    await orphaned(process, acme)
    [claimed] = await process.claim("message", [], 10)
    proxied[1].cut_before(b"COMMIT")
    delivering = asyncio.create_task(delivery.deliver(through, claimed))
    while proxied[1].hits == 0 and not delivering.done():
        await asyncio.sleep(0)
    proxied[1].heal()
    await delivering
    assert provider.given == []
    [attempt] = await attempts(process, acme)
    assert attempt.status == "UNKNOWN"


async def test_an_intent_whose_commit_was_not_answered_is_still_carried_out(
    proxied: tuple[Process, Proxy], process: Process, acme: str
) -> None:
    through, provider = with_provider(proxied[0], accepts)
    await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    [claimed] = await process.claim("message", [], 10)
    cutting = asyncio.create_task(cut_once(proxied[1]))
    await delivery.deliver(through, claimed)
    await cutting
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.tries) == ("SENT", 1)


async def test_an_intent_that_is_parked_when_it_is_asked_for_again_has_been_sent_to_nobody(
    process: Process, acme: str
) -> None:
    """The answer of its COMMIT was lost, and sending was paused before the second look."""
    process, provider = with_provider(process, accepts)
    await start(process, acme)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    [claimed] = await process.claim("message", [], 10)
    assert await process.batches.run(delivery.intend_some, process, claimed) is not None
    async with process.database.write() as db:
        await db.execute("UPDATE workspaces SET sending_paused = TRUE")
    assert await process.batches.run(delivery.intend_some, process, claimed) is None
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.reason_code) == ("QUEUED", Reason.SENDING_PAUSED)
    async with process.database.write() as db:
        await db.execute("UPDATE workspaces SET sending_paused = FALSE")
        assert await parked.wake(db, workspace_id=acme, limit=10) == 1
    await settle(process)
    [attempt] = await attempts(process, acme)
    assert (attempt.status, attempt.tries, len(provider.given)) == ("SENT", 2, 1)


async def test_an_outcome_whose_commit_was_not_answered_stands(
    proxied: tuple[Process, Proxy], process: Process, acme: str
) -> None:
    async def cut_what_follows(message: Message) -> Receipt:
        cutting.append(asyncio.create_task(cut_once(proxied[1])))
        await asyncio.sleep(0.01)
        return await accepts(message)

    cutting: list[asyncio.Task[None]] = []
    through, provider = with_provider(proxied[0], cut_what_follows)
    run_id = await start(process, acme)
    await settle(through)
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert attempt.status == "SENT"
    assert await run_status(process, acme, run_id) == "COMPLETED"


async def test_an_outcome_waits_for_a_database_that_went_away_during_the_call(
    proxied: tuple[Process, Proxy],
    process: Process,
    acme: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def lose_the_database(message: Message) -> Receipt:
        await proxied[1].stop()
        asyncio.get_running_loop().call_later(0.2, lambda: back.append(restart()))
        return await accepts(message)

    def restart() -> asyncio.Task[None]:
        return asyncio.create_task(proxied[1].start())

    back: list[asyncio.Task[None]] = []
    through, provider = with_provider(proxied[0], lose_the_database)
    await start(process, acme)
    await settle(through)
    assert "outcome of a job not recorded yet" in caplog.messages
    assert len(provider.given) == 1
    [attempt] = await attempts(process, acme)
    assert attempt.status == "SENT"
