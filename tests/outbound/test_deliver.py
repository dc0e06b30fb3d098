"""Events go out: signed as the specification's own library reads them, tried by its schedule, and
never inward."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from app.database.db import Row, new_id
from app.intake import webhooks
from app.net.egress import Answer
from app.outbound import deliver, events
from app.process import Process
from app.store import event_endpoints, workspaces
from app.store.jobs import MAX_CLAIMS
from app.vault import standard_webhooks
from tests import cast as company
from tests.cast import hook, settle
from tests.listener import Asked, Listener, never, says
from tests.net.test_egress import FORBIDDEN
from tests.runs.test_runner import later
from tests.store.rows import set_columns

NOT_NOW = says(status="503 Not now")


async def endpoint(process: Process, acme: str, url: str, types: Any = ()) -> tuple[str, str]:
    """Its id and secret."""
    id, secret = new_id("ep"), standard_webhooks.new_secret()
    async with process.database.write() as db:
        await event_endpoints.insert(
            db,
            workspace_id=acme,
            id=id,
            url=url,
            description=None,
            types=types,
            secret=deliver.sealed(process, acme, id, secret),
            disabled_reason=None,
        )
    return id, secret


async def tell(process: Process, acme: str, *about: Any, type: str = "message.sent") -> None:
    async with process.database.write() as db:
        await events.record(db, acme, type, *(about or ({"messageId": "msg_1"},)))


async def post_due(process: Process) -> int:
    """Post the attempts that are due; returns how many were."""
    claimed = await process.claim("event_attempt", [], 50)
    for row in claimed:
        await deliver.post(process, row)
    return len(claimed)


async def attempts(process: Process) -> list[Row]:
    async with process.database.read() as db:
        return await db.fetch_all(
            """
            SELECT a.*, j.wake_at FROM event_attempts a
            LEFT JOIN jobs j
              ON j.workspace_id = a.workspace_id AND j.kind = 'event_attempt' AND j.id = a.id
            ORDER BY a.id
            """
        )


async def endpoint_of(process: Process, id: str) -> Row:
    async with process.database.read() as db:
        row = await db.fetch_one("SELECT * FROM event_endpoints WHERE id = :id", id=id)
    assert row is not None
    return row


def verified(secret: str, asked: Asked) -> Any:
    return Webhook(secret).verify(asked.body, dict(asked.headers))


# --- what arrives ---------------------------------------------------------------------------------


async def test_an_event_arrives_signed(open_process: Process, acme: str) -> None:
    async with Listener(says({"taken": True})) as listener:
        _, secret = await endpoint(open_process, acme, f"{listener.url}/hook?a=1")
        await tell(open_process, acme, {"messageId": "msg_1", "n": 1})
        assert await post_due(open_process) == 1
    [asked] = listener.asked
    assert (asked.method, asked.target) == ("POST", "/hook?a=1")
    assert asked.header("content-type") == "application/json"
    found = verified(secret, asked)
    assert (found["type"], found["data"]) == ("message.sent", {"messageId": "msg_1", "n": 1})
    [attempt] = await attempts(open_process)
    assert asked.header("webhook-id") == attempt["event_id"]
    assert (attempt["status"], attempt["response_status"]) == ("SUCCEEDED", 200)
    assert attempt["response_excerpt"] == '{"taken":true}'
    [made] = attempt["tries"]
    assert (made["status"], made["code"]) == (200, None)
    assert await post_due(open_process) == 0
    with pytest.raises(WebhookVerificationError):
        verified(standard_webhooks.new_secret(), asked)


async def test_an_endpoint_hears_of_what_it_wants_and_nobody_else_does(
    open_process: Process, acme: str
) -> None:
    async with Listener() as listener:
        await tell(open_process, acme)  # while nobody listens
        await endpoint(open_process, acme, f"{listener.url}/some", ["run.failed"])
        await endpoint(open_process, acme, f"{listener.url}/all")
        await tell(open_process, acme)
        await tell(open_process, acme, {"runId": "run_1"}, {"runId": "run_2"}, type="run.failed")
        await post_due(open_process)
    received = sorted((asked.target, orjson.loads(asked.body)["type"]) for asked in listener.asked)
    some = [("/some", "run.failed")] * 2
    assert received == [("/all", "message.sent"), *[("/all", "run.failed")] * 2, *some]


async def test_after_a_rotation_both_secrets_verify_for_a_day(
    open_process: Process, acme: str
) -> None:
    async with Listener() as listener:
        id, old = await endpoint(open_process, acme, listener.url)
        new = standard_webhooks.new_secret()
        async with open_process.database.write() as db:
            sealed = deliver.sealed(open_process, acme, id, new)
            await event_endpoints.rotate(
                db, workspace_id=acme, id=id, secret=sealed, overlap=deliver.OVERLAP
            )
        await tell(open_process, acme)
        await post_due(open_process)
        await set_columns(
            open_process.database,
            "event_endpoints",
            id,
            old_secret_until=(await endpoint_of(open_process, id))["updated_at"],
        )
        await tell(open_process, acme)
        await post_due(open_process)
    during, after = listener.asked
    for secret in (old, new):
        assert verified(secret, during)["type"] == "message.sent"
    assert verified(new, after)["type"] == "message.sent"
    with pytest.raises(WebhookVerificationError):
        verified(old, after)


async def test_nothing_of_a_secret_stands_in_the_database(process: Process, acme: str) -> None:
    _, secret = await endpoint(process, acme, "https://hooks.example")
    async with process.database.read() as db:
        kept = str(await db.fetch_all("SELECT * FROM event_endpoints"))
    assert secret not in kept
    assert secret.removeprefix("whsec_") not in kept


# --- again, by the schedule -----------------------------------------------------------------------


async def test_what_is_not_taken_is_tried_ten_times_over_three_days(
    open_process: Process, acme: str
) -> None:
    waits = []
    async with Listener(says(b"no\0pe", status="500 Oh")) as listener:
        id, _ = await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        while await post_due(open_process):
            [row] = await attempts(open_process)
            if row["wake_at"] is not None:
                async with open_process.database.read() as db:
                    waits.append((row["wake_at"] - await db.now()).total_seconds())
            await later(open_process, "event_attempt", 100_000)
    assert len(listener.asked) == 10
    assert len({asked.header("webhook-id") for asked in listener.asked}) == 1
    assert len({asked.body for asked in listener.asked}) == 1
    for wait, planned in zip(waits, deliver.RETRY_SECONDS, strict=True):
        assert planned * 0.9 - 2 <= wait <= planned * 1.1
    [row] = await attempts(open_process)
    assert (row["status"], row["reason_code"]) == ("FAILED", "http_status")
    assert row["response_excerpt"] == "no\ufffdpe"
    assert [made["status"] for made in row["tries"]] == [500] * 10
    assert (await endpoint_of(open_process, id))["disabled_reason"] is None


async def test_a_receiver_that_asks_for_patience_gets_it(open_process: Process, acme: str) -> None:
    async with Listener(says(status="429 Slow down", Retry_After="120")) as listener:
        await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        await post_due(open_process)
        await later(open_process, "event_attempt", 110)
        assert await post_due(open_process) == 0
        await later(open_process, "event_attempt", 15)
        assert await post_due(open_process) == 1


@pytest.mark.parametrize("status", ["301 Go", "302 Go", "307 Go", "308 Go"])
async def test_a_redirect_is_a_failure_and_not_followed(
    open_process: Process, acme: str, status: str
) -> None:
    async with Listener() as inner, Listener(says(status=status, Location=inner.url)) as listener:
        await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        await post_due(open_process)
        assert inner.connections == 0
    [row] = await attempts(open_process)
    assert (row["status"], row["response_status"]) == ("QUEUED", int(status[:3]))


async def test_410_disables_the_endpoint_at_once(open_process: Process, acme: str) -> None:
    async with Listener(says(status="410 Gone")) as listener:
        id, _ = await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme, {}, {})
        await post_due(open_process)
        assert len(listener.asked) == 1  # the other was set down without a call
        await tell(open_process, acme)
        assert await post_due(open_process) == 0
    assert (await endpoint_of(open_process, id))["disabled_reason"] == "gone"
    codes = {row["reason_code"] for row in await attempts(open_process)}
    assert codes == {"gone", "endpoint_disabled"}


async def test_five_days_of_failure_disable_it_and_a_success_starts_anew(
    open_process: Process, acme: str
) -> None:
    async with Listener(NOT_NOW) as listener:
        id, _ = await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        await post_due(open_process)
        first = (await endpoint_of(open_process, id))["failing_since"]
        assert first is not None
        almost = {"failing_since": first - deliver.DISABLED_AFTER + timedelta(minutes=1)}
        await set_columns(open_process.database, "event_endpoints", id, **almost)
        await later(open_process, "event_attempt", 10)
        await post_due(open_process)
        assert (await endpoint_of(open_process, id))["disabled_reason"] is None
        listener.respond = says()
        await tell(open_process, acme)
        await post_due(open_process)
        assert (await endpoint_of(open_process, id))["failing_since"] is None
        listener.respond = NOT_NOW
        over = {"failing_since": first - deliver.DISABLED_AFTER - timedelta(minutes=1)}
        await set_columns(open_process.database, "event_endpoints", id, **over)
        await tell(open_process, acme)
        await post_due(open_process)
    row = await endpoint_of(open_process, id)
    assert row["disabled_reason"] == "failing"
    assert row["disabled_at"] is not None


async def move(process: Process, acme: str, id: str, url: str) -> None:
    async with process.database.write() as db:
        await event_endpoints.update(
            db,
            workspace_id=acme,
            id=id,
            url=url,
            description=None,
            types=[],
            disabled_reason=None,
        )


async def test_a_new_url_begins_with_a_clean_slate(open_process: Process, acme: str) -> None:
    async with Listener(NOT_NOW) as listener:
        id, _ = await endpoint(open_process, acme, f"{listener.url}/old")
        async with open_process.database.read() as db:
            long_ago = await db.now() - deliver.DISABLED_AFTER - timedelta(days=1)
        await set_columns(open_process.database, "event_endpoints", id, failing_since=long_ago)
        await move(open_process, acme, id, f"{listener.url}/old")  # the same as before
        assert (await endpoint_of(open_process, id))["failing_since"] == long_ago
        await move(open_process, acme, id, f"{listener.url}/new")
        await tell(open_process, acme)
        await post_due(open_process)
    row = await endpoint_of(open_process, id)
    assert row["disabled_reason"] is None
    assert row["failing_since"] > long_ago
    assert [row["status"] for row in await attempts(open_process)] == ["QUEUED"]


@pytest.mark.parametrize("answer", [NOT_NOW, says(status="410 Gone")], ids=["503", "410"])
async def test_what_the_old_url_answers_says_nothing_of_the_new_one(
    open_process: Process, acme: str, answer: Any
) -> None:
    async def respond(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await move(open_process, acme, id, f"{listener.url}/new")
        listener.respond = says()
        await answer(asked, writer)

    async with Listener(respond) as listener:
        id, _ = await endpoint(open_process, acme, f"{listener.url}/old")
        await tell(open_process, acme)
        await post_due(open_process)
        row = await endpoint_of(open_process, id)
        assert (row["disabled_reason"], row["failing_since"]) == (None, None)
        await later(open_process, "event_attempt", 60)
        assert await post_due(open_process) == 1
    assert [asked.target for asked in listener.asked] == ["/old", "/new"]
    assert [row["status"] for row in await attempts(open_process)] == ["SUCCEEDED"]


async def test_a_success_counts_though_another_try_failed_while_it_was_made(
    open_process: Process, acme: str
) -> None:
    async def respond(asked: Asked, writer: asyncio.StreamWriter) -> None:
        listener.respond = NOT_NOW
        assert await post_due(open_process) == 1
        assert (await endpoint_of(open_process, id))["failing_since"] is not None
        await says()(asked, writer)

    async with Listener(respond) as listener:
        id, _ = await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        [first] = await open_process.claim("event_attempt", [], 1)
        await tell(open_process, acme)
        await deliver.post(open_process, first)
    assert (await endpoint_of(open_process, id))["failing_since"] is None


async def test_a_try_that_fails_disables_no_endpoint_that_accepted_another_meanwhile(
    open_process: Process, acme: str
) -> None:
    async def respond(asked: Asked, writer: asyncio.StreamWriter) -> None:
        listener.respond = says()
        assert await post_due(open_process) == 1
        assert (await endpoint_of(open_process, id))["failing_since"] is None
        await NOT_NOW(asked, writer)

    async with Listener(respond) as listener:
        id, _ = await endpoint(open_process, acme, listener.url)
        async with open_process.database.read() as db:
            long_ago = await db.now() - deliver.DISABLED_AFTER - timedelta(days=1)
        await set_columns(open_process.database, "event_endpoints", id, failing_since=long_ago)
        await tell(open_process, acme)
        [first] = await open_process.claim("event_attempt", [], 1)
        await tell(open_process, acme)
        await deliver.post(open_process, first)
        assert (await endpoint_of(open_process, id))["disabled_reason"] is None
        await later(open_process, "event_attempt", 60)
        assert await post_due(open_process) == 1  # it is tried again, as by its schedule
    assert {row["status"] for row in await attempts(open_process)} == {"SUCCEEDED"}


async def test_tries_that_end_together_are_recorded_together_each_as_it_ended(
    open_process: Process, acme: str
) -> None:
    """What an endpoint has accepted counts before what would disable it."""
    mixed, _ = await endpoint(open_process, acme, "https://receiver.example/mixed")
    gone, _ = await endpoint(open_process, acme, "https://receiver.example/gone")
    async with open_process.database.read() as db:
        long_ago = await db.now() - deliver.DISABLED_AFTER - timedelta(days=1)
    await set_columns(open_process.database, "event_endpoints", mixed, failing_since=long_ago)
    for _ in range(4):
        await tell(open_process, acme)
    claimed = await open_process.claim("event_attempt", [], 8)
    tries = []
    for job in claimed:
        attempt, now, _ = await open_process.batches.run(deliver.read_some, open_process, job)
        assert attempt is not None
        status = 410 if attempt.endpoint_id == gone else 503
        outcome = deliver._outcome_of(attempt, Answer(status, (), b"", truncated=False), now)
        tries.append(deliver.Try(job, attempt, outcome, {"status": status}))
    last = max(n for n, one in enumerate(tries) if one.attempt.endpoint_id == mixed)
    accepted = deliver._outcome_of(tries[last].attempt, Answer(204, (), b"", truncated=False), now)
    tries[last] = replace(tries[last], outcome=accepted)
    assert await deliver.record_some.work(open_process, tries) == [None] * 8
    row = await endpoint_of(open_process, mixed)
    assert (row["disabled_reason"], row["failing_since"]) == (None, None)
    assert (await endpoint_of(open_process, gone))["disabled_reason"] == "gone"
    ended = await attempts(open_process)
    ends = sorted((one["endpoint_id"] == gone, one["status"]) for one in ended)
    retried = [(False, "QUEUED")] * 3
    assert ends == [*retried, (False, "SUCCEEDED"), (True, "FAILED"), *[(True, "QUEUED")] * 3]
    assert {len(one["tries"]) for one in ended} == {1}


# --- crashes --------------------------------------------------------------------------------------


async def test_a_worker_that_lost_its_lease_writes_nothing(
    open_process: Process, acme: str
) -> None:
    async def oversleep(asked: Asked, writer: asyncio.StreamWriter) -> None:
        listener.respond = says({"from": "the second"})
        await later(open_process, "event_attempt", 60)
        await post_due(open_process)
        await says({"from": "the first"})(asked, writer)

    async with Listener(oversleep) as listener:
        await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        await post_due(open_process)
    assert len({asked.header("webhook-id") for asked in listener.asked}) == 1
    assert len(listener.asked) == 2
    [row] = await attempts(open_process)
    assert row["response_excerpt"] == '{"from":"the second"}'
    assert len(row["tries"]) == 1


async def test_a_try_cut_off_by_the_end_of_the_process_is_made_again(
    open_process: Process, acme: str
) -> None:
    async with Listener(never) as listener:
        await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        posting_it = asyncio.create_task(post_due(open_process))
        await listener.arrived.wait()
        posting_it.cancel()
        await asyncio.wait([posting_it])
        listener.respond = says()
        assert await post_due(open_process) == 1
    [row] = await attempts(open_process)
    assert (row["status"], len(row["tries"])) == ("SUCCEEDED", 1)


async def test_an_attempt_that_kills_its_worker_every_time_is_set_aside(
    open_process: Process, acme: str
) -> None:
    async with Listener() as listener:
        await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        for _ in range(MAX_CLAIMS):
            assert await open_process.claim("event_attempt", [], 10)  # and there it dies
            await later(open_process, "event_attempt", 60)
        await post_due(open_process)
        assert listener.connections == 0
    [row] = await attempts(open_process)
    assert (row["status"], row["reason_code"]) == ("FAILED", "poisoned")
    assert open_process.metrics.take() == {("tidings_events_ended", '{"status": "FAILED"}'): 1}


async def test_an_event_is_undone_with_the_change_that_it_tells_of(
    process: Process, acme: str
) -> None:
    await endpoint(process, acme, "https://hooks.example")

    async def told_and_undone() -> None:
        async with process.database.write() as db:
            await events.record(db, acme, "message.sent", {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await told_and_undone()
    assert await attempts(process) == []


async def test_what_is_on_its_way_to_a_removed_endpoint_is_dropped(
    open_process: Process, acme: str
) -> None:
    async with Listener() as listener:
        id, _ = await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        async with open_process.database.write() as db:
            await event_endpoints.delete(db, workspace_id=acme, id=id)
        await post_due(open_process)
        assert listener.connections == 0
    assert await attempts(open_process) == []


async def test_a_suspended_workspace_tells_nobody_until_it_is_resumed(
    open_process: Process, acme: str
) -> None:
    async with Listener() as listener:
        await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        await set_columns(open_process.database, "workspaces", acme, suspended=True)
        assert await post_due(open_process) == 1
        assert listener.connections == 0
        await set_columns(open_process.database, "workspaces", acme, suspended=False)
        await later(open_process, "event_attempt", 3_700)
        await post_due(open_process)
        assert listener.connections == 1


async def test_a_deleted_workspace_tells_nobody(open_process: Process, acme: str) -> None:
    async with Listener() as listener:
        await endpoint(open_process, acme, listener.url)
        await tell(open_process, acme)
        async with open_process.database.write() as db:
            await workspaces.close(db, id=acme)
        assert await post_due(open_process) == 1
        assert listener.connections == 0


# --- never inward ---------------------------------------------------------------------------------


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_no_endpoint_leads_inward(process: Process, acme: str) -> None:
    """Whatever address it is, nobody is connected to, and the record does not say who is there."""
    for address in FORBIDDEN:
        host = f"[{address}]" if ":" in address else address
        await endpoint(process, acme, f"http://{host}/")
    async with Listener() as listener:
        for spelling in ("localhost", "127.1", "2130706433", "0x7f.1", "LOCALHOST", "127.0.0.1"):
            await endpoint(process, acme, f"http://{spelling}:{listener.port}/")
        await tell(process, acme)
        while await post_due(process):
            pass
        assert listener.connections == 0
    rows = await attempts(process)
    assert len(rows) == len(FORBIDDEN) + 6
    assert {row["reason_code"] for row in rows} <= {"refused_target", "connect_failed"}
    assert {row["response_excerpt"] for row in rows} == {None}


async def test_a_chain_of_events_ends_like_any_other(open_process: Process, acme: str) -> None:
    """A workflow that is started by what is told of its own runs: the header comes with each."""
    async with Listener() as listener:
        await endpoint(open_process, acme, listener.url, ["run.completed"])
        token = await hook(open_process, acme, [{"type": "exit"}])
        depths: list[str] = []
        body, refused = orjson.dumps({"email": "ada@example.com"}), False
        async with company.client(open_process) as client:
            payload: dict[str, str] = {}
            while not refused and len(depths) < 20:
                answer = await client.post(
                    f"/v1/webhooks/in/{token}",
                    content=body,
                    headers={"content-type": "application/json", **payload},
                )
                refused = answer.status_code == 422
                if not refused:
                    await settle(open_process)
                    depths.append(str(listener.asked[-1].header("tidings-depth")))
                    payload = {"Tidings-Depth": depths[-1]}
    assert answer.json()["code"] == "chain_too_long"
    assert depths == [str(number) for number in range(1, 12)]


async def test_what_a_run_does_to_a_contact_is_told_with_its_depth(
    open_process: Process, acme: str
) -> None:
    async with Listener() as listener:
        await endpoint(open_process, acme, listener.url, ["contact.updated"])
        steps = [{"type": "update_contact", "set": {"firstName": "Ada"}}]
        token = await hook(open_process, acme, steps)
        body = orjson.dumps({"email": "ada@example.com"})
        await webhooks.receive(open_process, token=token, signatures=[], body=body)
        await settle(open_process)
    [asked] = listener.asked
    assert asked.header("tidings-depth") == "1"
    assert orjson.loads(asked.body)["data"]["depth"] == 1
