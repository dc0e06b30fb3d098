"""Many events in one transaction: repeats, bad members, lost commits, and what is written down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.audience import erasing, writing
from app.audience.workspace_context import WorkspaceContext
from app.database.db import RequestTimeouts, Row, new_id
from app.errors import CommitUnknown, Problem
from app.intake import acceptance, webhooks
from app.intake.acceptance import Accepted
from app.intake.webhook_requests import Head, IncomingRequest
from app.intake.webhooks import WebhookTarget
from app.main import build_process
from app.process import Process
from app.store import expiry, known_events
from lab.chaos.intake import Keys, Where, Which, cut_commits, cut_off
from tests.cast import WEBHOOK, hook, lock_waiters, workspace

SECONDS = 10.0
STRICT = {**WEBHOOK, "createContact": False}
DEDUPED = {**WEBHOOK, "dedupePath": "order.id"}


async def receive(process: Process, token: str, body: Any, **headers: str) -> Accepted:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    head = Head([(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in headers.items()])
    return await webhooks.receive(process, token=token, body=raw, head=head)


async def outcomes(*asked: Any) -> list[Accepted | str]:
    """List what each got: ids, or a problem's code."""
    answers: list[Accepted | str] = []
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answer, BaseException) and not isinstance(answer, Problem):
            raise answer
        answers.append(answer.code if isinstance(answer, Problem) else answer)
    return answers


async def rows(process: Process, table: str) -> list[Row]:
    await process.batches.close()  # what is written after the answer
    async with process.database.read() as db:
        return await db.fetch_all(f"SELECT * FROM {table}")


def email(name: str = "ada") -> dict[str, str]:
    return {"email": f"{name}@example.com"}


# --- repeats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["idempotency_key", "webhook_id"])
async def test_a_repeat_gets_the_first_ids_whatever_its_body_says(
    process: Process, acme: str, header: str
) -> None:
    token = await hook(process, acme)
    first = await receive(process, token, email(), **{header: "k"})
    again = await receive(process, token, email("bob"), **{header: "k"})
    nobody = await receive(process, token, {}, **{header: "k"})
    assert not first.replayed
    assert again == nobody == Accepted(first.run_id, first.contact_id, replayed=True)
    assert await receive(process, token, email(), **{header: "other"}) != again
    assert len(await rows(process, "runs")) == 2
    assert len(await rows(process, "contacts")) == 1


async def test_fifty_copies_at_once_are_one_run(process: Process, acme: str) -> None:
    token = await hook(process, acme)
    answers = await asyncio.gather(
        *(receive(process, token, email(f"p{n}"), idempotency_key="k") for n in range(50))
    )
    assert len({(one.run_id, one.contact_id) for one in answers}) == 1
    assert sum(not one.replayed for one in answers) == 1
    assert len(await rows(process, "runs")) == len(await rows(process, "contacts")) == 1


async def test_a_repeat_is_known_when_the_contact_is_gone(process: Process, acme: str) -> None:
    token = await hook(process, acme, trigger=STRICT)
    async with process.database.write() as db:
        ada = await writing.create(db, WorkspaceContext(acme, None, process.vault), email())
    first = await receive(process, token, email(), idempotency_key="k")
    async with process.database.write() as db:
        assert (
            await erasing.erase(db, WorkspaceContext(acme, None, process.vault), ada.id) == "done"
        )
    again = await receive(process, token, email(), idempotency_key="k")
    assert again == Accepted(first.run_id, first.contact_id, replayed=True)
    assert await outcomes(receive(process, token, email())) == ["contact_not_found"]


async def test_keys_of_two_kinds_and_of_two_definitions_are_apart(
    process: Process, acme: str
) -> None:
    one, other = await hook(process, acme), await hook(process, acme)
    answers = [
        await receive(process, one, email(), idempotency_key="k"),
        await receive(process, one, email(), webhook_id="k"),
        await receive(process, other, email(), idempotency_key="k"),
    ]
    assert len({answer.run_id for answer in answers}) == 3
    assert not any(answer.replayed for answer in answers)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"order": {"id": 7}}, {"order": {"id": 7}}, True),
        ({"order": {"id": 7}}, {"order": {"id": "7"}}, True),
        ({"order": {"id": 7}}, {"order": {"id": 8}}, False),
        ({"order": {"id": 10**30}}, {"order": {"id": 10**30 + 1}}, False),
        ({"order": {"id": None}}, {"order": {"id": None}}, False),
        ({"order": {"id": ""}}, {"order": {"id": ""}}, False),
        ({"order": {"id": {}}}, {"order": {"id": {}}}, False),
        ({"order": 1}, {"order": 1}, False),
        ({}, {}, False),
    ],
)
async def test_a_value_in_the_body_makes_a_repeat(
    process: Process, acme: str, first: Any, second: Any, same: bool
) -> None:
    token = await hook(process, acme, trigger=DEDUPED)
    bodies = [
        str({**email(), **one}).replace("'", '"').replace("None", "null").encode()
        for one in (first, second)
    ]
    answers = [await receive(process, token, body) for body in bodies]
    assert answers[1].replayed is same
    assert (answers[0].run_id == answers[1].run_id) is same


async def test_a_sender_s_own_key_counts_before_the_body_s(process: Process, acme: str) -> None:
    token = await hook(process, acme, trigger=DEDUPED)
    event = {**email(), "order": {"id": 7}}
    first = await receive(process, token, event, idempotency_key="a")
    second = await receive(process, token, event, idempotency_key="b", webhook_id="c")
    assert first.run_id != second.run_id


async def test_a_refused_request_leaves_its_key_free(process: Process, acme: str) -> None:
    token = await hook(process, acme, trigger=STRICT)
    assert await outcomes(
        receive(process, token, {}, idempotency_key="k"),
        receive(process, token, email(), idempotency_key="k"),
    ) == ["lookup_unresolved", "contact_not_found"]
    async with process.database.write() as db:
        await writing.create(db, WorkspaceContext(acme, None, process.vault), email())
    assert not (await receive(process, token, email(), idempotency_key="k")).replayed


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_key_that_is_none_is_refused_after_the_body_s_own_faults(
    process: Process, acme: str, key: str
) -> None:
    token = await hook(process, acme)
    assert await outcomes(
        receive(process, token, b"{", idempotency_key=key),
        receive(process, token, email(), idempotency_key=key),
        receive(process, token, {}, idempotency_key=key),
    ) == ["malformed_json", "malformed_request", "malformed_request"]
    first = await receive(process, token, email(), webhook_id=key)
    assert not (await receive(process, token, email(), webhook_id=key)).replayed
    assert first.run_id


async def test_an_expired_receipt_is_taken_over_and_swept(process: Process, acme: str) -> None:
    token = await hook(process, acme)
    first = await receive(process, token, email(), idempotency_key="k")
    async with process.database.write() as db:
        now = await db.now()
        await db.execute("UPDATE receipts SET expires_at = :past", past=now - timedelta(seconds=1))
    second = await receive(process, token, email(), idempotency_key="k")
    third = await receive(process, token, email(), idempotency_key="k")
    assert second.run_id != first.run_id
    assert third == Accepted(second.run_id, second.contact_id, replayed=True)
    async with process.database.write() as db:
        assert await expiry.delete_expired(db, "receipts", limit=10) == 0
        await db.execute("UPDATE receipts SET expires_at = :past", past=now)
        assert await expiry.delete_expired(db, "receipts", limit=10) == 1


# --- what is remembered ---------------------------------------------------------------------------

# By whom a column is changed, and what an event is answered then that would have been accepted.
SINCE: dict[str, tuple[str, str]] = {
    "the secret is another": (
        "UPDATE definitions SET signing_secret = :sealed",
        "invalid_signature",
    ),
    "the token is another": ("UPDATE definitions SET token = 'B'", "not_found"),
    "it is paused": ("UPDATE definitions SET state = 'PAUSED'", "not_found"),
    "it looks elsewhere": (
        "UPDATE definitions SET trigger_config = CAST(:elsewhere AS JSONB)",
        "lookup_unresolved",
    ),
    "the workspace is suspended": ("UPDATE workspaces SET suspended = TRUE", "not_found"),
}
ELSEWHERE = {**WEBHOOK, "contactPath": "mail"}


async def change(process: Process, acme: str, sql: str) -> None:
    values = {
        "sealed": process.vault.encrypt("signing secret", b"another", acme, await only_id(process)),
        "elsewhere": ELSEWHERE,
    }
    if sql.startswith("UPDATE definitions"):
        sql += ", revision = revision + 1"  # as everybody does who changes one
    async with process.database.write() as db:
        await db.execute(sql, **{name: values[name] for name in values if f":{name}" in sql})


@pytest.mark.parametrize("since", SINCE)
async def test_an_event_is_never_judged_by_what_was_remembered_and_is_no_longer_so(
    process: Process, acme: str, since: str
) -> None:
    token = await hook(process, acme)
    assert isinstance(await receive(process, token, email()), Accepted)
    sql, code = SINCE[since]
    await change(process, acme, sql)
    assert await outcomes(receive(process, token, email())) == [code]
    assert len(await rows(process, "runs")) == 1


@pytest.mark.parametrize("since", [*SINCE, "the receipt has ended"])
async def test_a_repeat_is_never_answered_by_what_was_remembered(
    process: Process, acme: str, since: str
) -> None:
    token = await hook(process, acme)
    await receive(process, token, email())  # the contact is known from now on
    first = await receive(process, token, email(), idempotency_key="k")
    again = Accepted(first.run_id, first.contact_id, replayed=True)
    assert await receive(process, token, email(), idempotency_key="k") == again
    sql, code = SINCE.get(since, ("UPDATE receipts SET expires_at = :now", ""))
    await change(process, acme, sql)
    [answer] = await outcomes(receive(process, token, email(), idempotency_key="k"))
    if code == "lookup_unresolved":
        assert answer == again  # whatever its body says
    elif code:
        assert answer == code
    else:
        assert isinstance(answer, Accepted)
        assert answer.run_id != first.run_id


async def test_a_target_is_remembered_by_the_process_that_hints_at_its_runs(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme)
    async with build_process(process.database, process.settings) as other:
        for one in (process, other):
            assert isinstance(await receive(one, token, email()), Accepted)
            target: WebhookTarget | None = one.targets.get(token)
            assert target is not None
            assert target.workspace.hints is one.hints


async def test_a_national_number_is_read_by_the_country_of_now(process: Process, acme: str) -> None:
    token = await hook(process, acme, trigger={**WEBHOOK, "contactLookup": "phone"})
    found = []
    for country in ("FR", "IT", "FR"):
        async with process.database.write() as db:
            await db.execute("UPDATE workspaces SET country = :country", country=country)
        found.append((await receive(process, token, {"phone": "0212345678"})).contact_id)
    assert found[0] == found[2] != found[1]
    assert {row["phone"] for row in await rows(process, "contacts")} == {
        "+33212345678",
        "+390212345678",
    }


async def test_what_was_refused_by_what_is_remembered_is_looked_at_again(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme, trigger=STRICT)
    assert await outcomes(receive(process, token, {"mail": "ada@example.com"})) == [
        "lookup_unresolved"
    ]
    async with process.database.write() as db:
        await writing.create(db, WorkspaceContext(acme, None, process.vault), email())
        await db.execute(
            "UPDATE definitions SET trigger_config = :elsewhere, revision = revision + 1",
            elsewhere={**STRICT, "contactPath": "mail"},
        )
    assert isinstance(await receive(process, token, {"mail": "ada@example.com"}), Accepted)


async def only_id(process: Process) -> str:
    [definition] = await rows(process, "definitions")
    return str(definition["id"])


@pytest.mark.parametrize("key", [None, "idempotency_key", "webhook_id", "in the body"])
@pytest.mark.parametrize("lookup", ["email", "phone", "contact_id", "metadata"])
async def test_an_event_of_a_contact_that_exists_takes_one_statement_whatever_finds_it(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, lookup: str, key: str | None
) -> None:
    if process.database.engine != "postgresql" or process.database.is_sharded:
        pytest.skip("the statement for known contacts is PostgreSQL's alone")
    given = {**email(), "phone": "+14155550132", "metadata": {"crmId": "17"}}
    async with process.database.write() as db:
        ada = await writing.create(db, WorkspaceContext(acme, None, process.vault), given)
    by_field = {"contactLookup": "contact_id", "metadataField": "crmId"}
    how = by_field if lookup == "metadata" else {"contactLookup": lookup}
    token = await hook(process, acme, trigger={**DEDUPED, **how, "contactPath": lookup})
    event = {**given, "contact_id": ada.id, "metadata": "17"}

    async def send(n: int) -> Accepted:
        headers = {key: f"k{n}"} if key in {"idempotency_key", "webhook_id"} else {}
        body = {**event, "order": {"id": n}} if key == "in the body" else event
        return await receive(process, token, body, **headers)

    await send(1)  # the webhook is remembered from now on

    async def take_the_long_way(*_given: Any, **_more: Any) -> Accepted:
        raise AssertionError("it went the long way")

    monkeypatch.setattr(webhooks, "_received", take_the_long_way)
    accepted = await send(2)
    assert (accepted.contact_id, accepted.replayed) == (ada.id, False)
    assert len(await rows(process, "runs")) == 2
    assert len(await rows(process, "receipts")) == (2 if key else 0)


# --- one transaction for many ---------------------------------------------------------------------


async def test_many_events_share_a_transaction_and_each_gets_its_own(
    process: Process, acme: str
) -> None:
    rival = await workspace(process, "Rival")
    ours, theirs = await hook(process, acme), await hook(process, rival)
    by_phone = await hook(process, acme, trigger={**WEBHOOK, "contactLookup": "phone"})
    strict = await hook(process, acme, trigger=STRICT)
    answers = await outcomes(
        *(receive(process, ours, email(f"p{n % 5}")) for n in range(20)),
        *(receive(process, theirs, email(f"p{n % 5}")) for n in range(20)),
        *(receive(process, by_phone, {"phone": f"+1415555013{n % 5}"}) for n in range(10)),
        *(receive(process, strict, email("stranger")) for _ in range(3)),
        receive(process, ours, {}),
        receive(process, "A" * 30, email()),
    )
    accepted = [one for one in answers if isinstance(one, Accepted)]
    assert answers[50:] == ["contact_not_found"] * 3 + ["lookup_unresolved", "not_found"]
    made = {row["id"]: row for row in await rows(process, "runs")}
    assert len(accepted) == len(made) == 50
    for n, one in enumerate(accepted):
        assert made[one.run_id]["contact_id"] == one.contact_id
        assert made[one.run_id]["workspace_id"] == (rival if 20 <= n < 40 else acme)
    assert len(await rows(process, "contacts")) == 15
    assert len({row["created_at"] for row in made.values()}) < 10  # transactions


async def test_a_member_that_breaks_the_batch_hurts_nobody_else(
    process: Process, acme: str
) -> None:
    """A definition whose version is not pinned: no run can be inserted for it."""
    good, bad = await hook(process, acme), await hook(process, acme)
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET version = 99 WHERE token = :token", token=bad)
    answers = await asyncio.gather(
        *(receive(process, bad if n == 7 else good, email(f"p{n}")) for n in range(20)),
        return_exceptions=True,
    )
    assert [n for n, one in enumerate(answers) if not isinstance(one, Accepted)] == [7]
    assert {row["id"] for row in await rows(process, "runs")} == {
        one.run_id for one in answers if isinstance(one, Accepted)
    }


CHANGES: dict[str, tuple[str, Any, str]] = {
    "paused": ("state", "PAUSED", "not_found"),
    "another secret": ("signing_secret", b"another", "invalid_signature"),
    "another path": ("trigger_config", {**DEDUPED, "contactPath": "mail"}, "lookup_unresolved"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_was_changed_while_an_event_was_judged_counts(
    process: Process, acme: str, change: str
) -> None:
    """Between the look at the target and the insert; who shares the transaction does not notice."""
    stays, goes = await hook(process, acme), await hook(process, acme, trigger=DEDUPED)
    column, value, code = CHANGES[change]
    targets = {
        token: await process.batches.run(webhooks.load_targets, process, token)
        for token in (stays, goes)
    }
    target = targets[goes]
    assert target is not None
    if column == "signing_secret":
        value = process.vault.encrypt("signing secret", value, acme, target.definition_id)
    async with process.database.write() as db:
        await db.execute(
            f"UPDATE definitions SET {column} = :value, revision = revision + 1 WHERE id = :id",
            id=target.definition_id,
            value=value,
        )

    async def enter(token: str, name: str) -> Accepted:
        body = orjson.dumps({**email(name), "order": {"id": name}})
        looks = [targets[token]]

        async def judge() -> Accepted:
            if not looks:
                return await receive(process, token, body)
            target = looks.pop()
            assert target is not None
            request = IncomingRequest(new_id("req"), acme, target.definition_id, Head(), body)
            return await webhooks.admit(process, target, request)

        return await webhooks.until_current(judge)

    answers = await outcomes(enter(goes, "a"), enter(stays, "b"), enter(goes, "c"))
    assert answers[0::2] == [code, code]
    assert isinstance(answers[1], Accepted)
    assert len(await rows(process, "runs")) == len(await rows(process, "contacts")) == 1
    assert await rows(process, "receipts") == []
    found = [row["code"] for row in await rows(process, "webhook_requests")]
    assert sorted(map(str, found)) == sorted(["None", code, code])


async def test_a_sender_that_goes_away_takes_nobody_along(process: Process, acme: str) -> None:
    token = await hook(process, acme)
    tasks = [asyncio.create_task(receive(process, token, email(f"p{n}"))) for n in range(10)]
    while not await rows(process, "runs"):
        for task in tasks[::2]:
            task.cancel()
    others = await asyncio.gather(*tasks[1::2])
    made = {row["id"] for row in await rows(process, "runs")}
    assert {one.run_id for one in others} <= made


# --- commits whose answer is lost -----------------------------------------------------------------


FRESH: Mapping[Keys, int] = {"with receipts": 12, "without": 20, "some with": 12}  # of twenty


@pytest.mark.parametrize("which", ["COMMIT", "statement"])
@pytest.mark.parametrize("where", ["cut_before", "cut_after"])
async def test_every_answer_matches_the_database_when_a_commit_is_cut(
    process: Process,
    acme: str,
    where: Where,
    which: Which,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    if process.database.engine != "postgresql":
        pytest.skip("SQLite has no connection to lose")
    if which == "statement" and process.database.is_sharded:
        pytest.skip("the statement for known contacts is PostgreSQL's alone")
    url, redis_url = (request.getfixturevalue(name) for name in ("database_url", "redis_url"))
    async with cut_off(url, redis_url, tmp_path) as (through, proxy):
        for keys, fresh in FRESH.items():
            became = await cut_commits(through, proxy, url, acme, where, 3, which, keys)
            assert became["cuts"] >= 3
            assert became["accepted"] == 3 * fresh
            assert became["repeated"] == 3 * (20 - fresh)


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_statement_that_goes_on_when_its_connection_is_cut_is_waited_for(
    process: Process,
    acme: str,
    key: str | None,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if process.database.engine != "postgresql" or process.database.is_sharded:
        pytest.skip("the statement for known contacts is PostgreSQL's alone")
    monkeypatch.setattr(acceptance, "LOOKING_SECONDS", SECONDS)
    monkeypatch.setattr(acceptance, "TIMEOUTS", RequestTimeouts.within(SECONDS))
    url, redis_url = (request.getfixturevalue(name) for name in ("database_url", "redis_url"))
    token = await hook(process, acme)
    async with cut_off(url, redis_url, tmp_path) as (through, proxy):
        first = await receive(through, token, email())  # the contact is known from now on
        async with process.database.write() as db:
            # Its run refers to this, which is looked at when all is inserted.
            await db.execute("SELECT 1 FROM definition_versions FOR UPDATE")
            headers = {"idempotency_key": key} if key else {}
            answer = asyncio.create_task(receive(through, token, email(), **headers))
            await lock_waiters(process, 1)
            await proxy.stop()
            await proxy.start()
            await lock_waiters(process, 2)  # the second look, behind the first try
            assert not answer.done()
        accepted = await answer
    assert accepted == Accepted(accepted.run_id, first.contact_id, replayed=False)
    assert {row["id"] for row in await rows(process, "runs")} == {first.run_id, accepted.run_id}


async def test_a_run_whose_commit_was_not_answered_is_found_when_a_neighbour_breaks_the_second_look(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if process.database.engine != "postgresql" or process.database.is_sharded:
        pytest.skip("the statement for known contacts is PostgreSQL's alone")
    token = await hook(process, acme)
    names = ("ada", "bob")
    for name in names:  # they are known from now on, and the webhook is remembered
        await receive(process, token, email(name))
    before = {row["id"] for row in await rows(process, "runs")}
    really = known_events.accept
    lost: list[dict[str, str]] = []

    async def accept_unanswered(*given: Any, **more: Any) -> dict[str, str]:
        started = await really(*given, **more)
        if not lost:
            lost.append(started)
            raise CommitUnknown("The answer was lost.")
        return started

    async def break_(*_given: Any) -> None:
        raise ValueError("a neighbour that no statement takes")

    monkeypatch.setattr(known_events, "accept", accept_unanswered)
    monkeypatch.setattr(acceptance, "_after_unknown_commit", break_)
    answers = await asyncio.gather(*(receive(process, token, email(name)) for name in names))
    assert [len(started) for started in lost] == [2]
    assert (
        {one.run_id for one in answers}
        == {row["id"] for row in await rows(process, "runs")} - before
        == set(lost[0])
    )
    assert len(await rows(process, "webhook_requests")) == 4


async def timed(asked: Awaitable[Accepted]) -> tuple[Accepted | str, float]:
    """Measure what one got, and after how many seconds."""
    began = time.monotonic()
    [outcome] = await outcomes(asked)
    return outcome, time.monotonic() - began


@pytest.mark.parametrize("where", ["at once", "swallow_before", "swallow_after"])
async def test_who_waits_while_the_database_says_nothing_is_told_so_soon(
    process: Process, acme: str, where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Whoever is in a batch, whoever stands in line behind it, and whoever comes later; and when it
    speaks again every answer turns out to have been true."""
    if process.database.engine != "postgresql":
        pytest.skip("SQLite has no network that could be silent")
    url, redis_url = (request.getfixturevalue(name) for name in ("database_url", "redis_url"))
    token = await hook(process, acme)
    async with cut_off(url, redis_url, tmp_path) as (through, proxy):

        def some(name: str) -> list[asyncio.Task[tuple[Accepted | str, float]]]:
            asked = (receive(through, token, email(f"{name}{n}")) for n in range(10))
            return [asyncio.create_task(timed(one)) for one in asked]

        await receive(through, token, email())  # connections are there
        proxy.swallow() if where == "at once" else getattr(proxy, where)(b"COMMIT")
        asked = some("first")
        await asyncio.sleep(0.3)
        asked += some("later")
        found = await asyncio.gather(*asked)
        proxy.heal()
        began = time.monotonic()
        while isinstance((await timed(receive(through, token, email("back"))))[0], str):
            assert time.monotonic() - began < 5
    print(f"\nsilent {where}: told after {max(seconds for _, seconds in found):.2f} s at most")
    assert {outcome for outcome, _ in found} == {"unavailable"}
    assert max(seconds for _, seconds in found) < 4  # two on a machine that is not busy
    made = len(await rows(process, "runs")) - 2
    assert (made > 0) == (where == "swallow_after")  # which nobody could know


# --- what is written down -------------------------------------------------------------------------


async def test_every_request_is_written_down_once_with_what_became_of_it(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme, secret="a shared secret of good length")
    plain = await hook(process, acme, trigger={**STRICT, "dedupePath": "n"})
    async with process.database.write() as db:
        await writing.create(db, WorkspaceContext(acme, None, process.vault), email())
    first = await receive(process, plain, {**email(), "n": 1}, user_agent="shop/1.0")
    await receive(process, plain, {**email(), "n": 1})
    await outcomes(
        receive(process, plain, email("bob")),
        receive(process, plain, b"{"),
        receive(process, plain, {"mail": "x"}),
        receive(process, token, email()),
        receive(process, "A" * 30, email()),
    )
    written = sorted(
        (row["outcome"], row["status"], row["code"] or "", row["cause"] or "")
        for row in await rows(process, "webhook_requests")
    )
    assert written == [
        ("ACCEPTED", 202, "", ""),
        ("REFUSED", 400, "malformed_json", ""),
        ("REFUSED", 401, "invalid_signature", "missing"),
        ("REFUSED", 404, "contact_not_found", ""),
        ("REFUSED", 422, "lookup_unresolved", ""),
        ("REPEATED", 202, "", ""),
    ]
    by_outcome = {row["outcome"]: row for row in await rows(process, "webhook_requests")}
    accepted, repeated, refused = (
        by_outcome[outcome] for outcome in ("ACCEPTED", "REPEATED", "REFUSED")
    )
    assert accepted["run_id"] == repeated["run_id"] == first.run_id
    assert accepted["contact_id"] == repeated["contact_id"] == first.contact_id
    assert accepted["headers"] == {"user-agent": "shop/1.0"}
    assert accepted["body"] is repeated["body"] is None
    assert refused["body"] is not None


async def test_a_paused_definition_s_owner_is_told_why_and_its_sender_is_not(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme)
    async with process.database.write() as db:
        await db.execute("UPDATE definitions SET state = 'PAUSED'")
    with pytest.raises(Problem) as refused:
        await receive(process, token, email())
    assert "paused" not in refused.value.detail
    [row] = await rows(process, "webhook_requests")
    assert (row["status"], row["code"]) == (404, "not_found")
    assert "paused" in row["detail"]


async def test_what_was_noted_is_shown_to_the_owner(process: Process, acme: str) -> None:
    defaults = {"firstName": "{{trigger.x | divided_by: 0}}", "lastName": "Lovelace"}
    token = await hook(process, acme, trigger={**WEBHOOK, "contactDefaults": defaults})
    await receive(process, token, email())
    [row] = await rows(process, "webhook_requests")
    assert row["detail"] == "Left out of the new contact: firstName."


async def test_an_erased_contact_s_requests_go_with_it(process: Process, acme: str) -> None:
    token = await hook(process, acme)
    kept = await receive(process, token, email("bob"))
    gone = await receive(process, token, email(), idempotency_key="k")
    await receive(process, token, email(), idempotency_key="k")
    async with process.database.write() as db:
        assert (
            await erasing.erase(db, WorkspaceContext(acme, None, process.vault), gone.contact_id)
            == "done"
        )
    assert [row["run_id"] for row in await rows(process, "webhook_requests")] == [kept.run_id]


async def test_a_body_that_no_column_of_text_could_hold_is_written_down(
    process: Process, acme: str
) -> None:
    token = await hook(process, acme)
    assert await outcomes(
        receive(process, token, b'{"email": "\\u0000", "\\ud800": "a@b.example"}'),
        receive(process, token, b"\x00\xff"),
    ) == ["lookup_unresolved", "malformed_json"]
    assert len(await rows(process, "webhook_requests")) == 2
