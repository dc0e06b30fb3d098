"""A worker is lost between the call and its outcome: Resend is asked again, under the same key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import pytest

from app.intake import webhooks
from app.machine import document
from app.messages import delivery
from app.process import Process
from app.runs import runner
from app.store import delivery_attempts
from app.store.jobs import MAX_CLAIMS
from tests import resend_server
from tests.cast import hook, settle, suppress
from tests.messages.test_delivery_providers import EVENT, attempts, producing
from tests.resend_server import API_KEY, ResendServer
from tests.runs.test_runner import later

Orphaned: TypeAlias = Callable[[], Awaitable[delivery_attempts.Attempt]]


@pytest.fixture
async def resend() -> AsyncIterator[ResendServer]:
    async with resend_server.serving() as serving:
        yield serving


MAIL = {
    "id": "m",
    "type": "send_message",
    "channel": "email",
    "content": {
        "subject": "Hello {{contact.firstName}}",
        "html": "<p>{{trigger.word}}</p>",
        "category": "marketing",
    },
}


@pytest.fixture
async def orphaned(process: Process, acme: str, resend: ResendServer) -> AsyncIterator[Orphaned]:
    """A mail whose worker was killed after Resend had it, before anything was written down; and
    what another worker makes of it when the lease is over."""
    settings = {
        "resend_api_key": API_KEY,
        "resend_base_url": resend.url,
        "mail_from": "Acme <hello@acme.test>",
    }
    async with producing(process, **settings) as live:
        token = await hook(live, acme, [MAIL])
        await webhooks.receive(live, token=token, signatures=[], body=EVENT)
        await settle_runs(live)
        [claimed] = await live.claim("message", [], 1)
        sending = await live.batches.run(delivery.intend_some, live, claimed)
        assert sending is not None
        await sending.channel.send(sending.message)
        assert len(resend.accepted) == 1

        async def found() -> delivery_attempts.Attempt:
            await later(live, "message", 100)
            await settle(live)
            [attempt] = await attempts(live, acme)
            return attempt

        yield found


async def settle_runs(process: Process) -> None:
    while claimed := await process.claim("run", [], 50):
        for row in claimed:
            await runner.move(process, row)


async def test_a_mail_whose_worker_was_lost_is_asked_about_under_its_key(
    orphaned: Orphaned, resend: ResendServer
) -> None:
    attempt = await orphaned()
    [mail] = resend.accepted.values()
    assert (attempt.status, attempt.provider_message_id) == ("SENT", mail["id"])
    assert len(resend.asked) == 2
    assert len({one.header("idempotency-key") for one in resend.asked}) == 1
    listed = [(one["status"], one["code"]) for one in attempt.events]
    assert listed == [("SENDING", None), ("SENDING", "worker_lost"), ("SENT", None)]
    assert (attempt.tries, attempt.number) == (2, 1)


async def test_it_is_asked_about_in_the_words_of_its_intent(
    process: Process,
    acme: str,
    orphaned: Orphaned,
    resend: ResendServer,
) -> None:
    async with process.database.write() as db:
        await db.execute("UPDATE contacts SET first_name = 'Ada'")
        await db.execute("UPDATE workspaces SET name = 'Moved', postal_address = 'Elsewhere'")
    assert (await orphaned()).status == "SENT"
    first, second = (one.body for one in resend.asked)
    assert first == second  # the footer and its link, too
    mail = json.loads(first)
    assert (mail["subject"], "Unsubscribe</a></div>" in mail["html"]) == ("Hello", True)
    assert mail["headers"]["List-Unsubscribe"].strip("<>") in mail["html"]


async def another_account(process: Process, acme: str) -> None:
    async with process.database.write() as db:
        await db.execute("UPDATE delivery_attempts SET account = 'that of other credentials'")


async def a_hard_bounce(process: Process, acme: str) -> None:
    await suppress(process, acme, "bounced")


async def a_pause(process: Process, acme: str) -> None:
    async with process.database.write() as db:
        await db.execute("UPDATE workspaces SET sending_paused = TRUE")


async def a_fifth_loss(process: Process, acme: str) -> None:
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET claims = :claims", claims=MAX_CLAIMS)


async def a_day(process: Process, acme: str) -> None:
    """Nearly: a call that begins within a key's life may end after it."""
    async with process.database.write() as db:
        [row] = await db.fetch_all("SELECT events FROM delivery_attempts")
        [asked] = row["events"]
        at = document.text(datetime.fromisoformat(asked["at"]) - timedelta(hours=23, minutes=1))
        await db.execute(
            "UPDATE delivery_attempts SET events = :events", events=[{**asked, "at": at}]
        )


@pytest.mark.parametrize("happens", [another_account, a_hard_bounce, a_pause, a_fifth_loss, a_day])
async def test_it_is_unknown_where_asking_might_send_it_twice_or_to_who_wants_none(
    process: Process,
    acme: str,
    orphaned: Orphaned,
    resend: ResendServer,
    happens: Callable[[Process, str], Awaitable[None]],
) -> None:
    await happens(process, acme)
    attempt = await orphaned()
    assert (attempt.status, attempt.reason_code) == ("UNKNOWN", "worker_lost")
    assert len(resend.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [resend_server.refusal(429, "rate_limit_exceeded"), resend_server.refusal(503, "no")],
)
async def test_a_no_to_the_question_is_none_to_the_first_call(
    orphaned: Orphaned,
    resend: ResendServer,
    answer: dict[str, Any],
) -> None:
    resend.script.append(answer)
    attempt = await orphaned()
    assert (attempt.status, attempt.reason_code) == ("UNKNOWN", "worker_lost")
    assert len(resend.accepted) == 1
