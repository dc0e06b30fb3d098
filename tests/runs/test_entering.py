"""Entries of a contact into a definition again: by its policy, in the order of run ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest

from app.database import handle, pipelining
from app.process import Process
from app.runs import runner
from app.store import definition_entries
from tests.cast import WEBHOOK, Cast, settle
from tests.outbound.test_events import listening, types
from tests.workers.test_retention import long_ago, went_round

WAIT = {"id": "rest", "type": "wait", "duration": "P1D"}
TAG = {"id": "tag", "type": "add_tag", "tag": "been"}
Ends: TypeAlias = tuple[str, str | None, str | None]  # status, reason, the run in its way


async def flow(cast: Cast, reentry: Any, *steps: Any, trigger: Any = WEBHOOK) -> str:
    body = {
        "name": "Welcome",
        "state": "ACTIVE",
        "trigger": {**trigger, "reentry": reentry},
        "steps": list(steps or [TAG]),
    }
    return str((await cast.ed.made("/workflows", body))["id"])


async def begin(cast: Cast, flow_id: str, contact_id: str) -> str:
    started = await cast.ed.made(f"/workflows/{flow_id}/runs", {"contactId": contact_id})
    return str(started["runId"])


async def ada(cast: Cast) -> str:
    return str((await cast.ed.made("/contacts", {"email": "ada@example.com"}))["id"])


async def come_to(cast: Cast, run_id: str) -> Ends:
    run = await cast.vic.read(f"/runs/{run_id}")
    return run["status"], run["reason"] and run["reason"]["code"], run["blockedBy"]


def refused(by: str) -> Ends:
    return "COMPLETED", "reentry_refused", by


WENT: Ends = ("COMPLETED", None, None)


async def test_once_lets_a_contact_through_once(process: Process, cast: Cast) -> None:
    id, contact_id = await flow(cast, "once"), await ada(cast)
    first = await begin(cast, id, contact_id)
    await settle(process)
    second, third = [await begin(cast, id, contact_id) for _ in range(2)]
    await settle(process)
    assert await come_to(cast, first) == WENT
    assert await come_to(cast, second) == refused(first)
    assert await come_to(cast, third) == refused(first)
    run = await cast.vic.read(f"/runs/{second}")
    assert (run["steps"], first in run["reason"]["detail"]) == ([], True)
    other = (await cast.ed.made("/contacts", {"email": "bob@example.com"}))["id"]
    of_another = await begin(cast, id, other)
    await settle(process)
    assert await come_to(cast, of_another) == WENT


async def test_every_run_is_listed_and_those_refused_are_not_counted(
    process: Process, cast: Cast
) -> None:
    id, contact_id = await flow(cast, "once"), await ada(cast)
    await listening(cast.adam)
    ids = [await begin(cast, id, contact_id) for _ in range(3)]
    await settle(process)
    listed = (await cast.vic.read(f"/runs?workflowId={id}"))["data"]
    assert [one["id"] for one in listed] == ids[::-1]
    assert [one["blockedBy"] for one in listed] == [ids[0], ids[0], None]
    stats = (await cast.vic.read(f"/workflows/{id}"))["stats"]
    assert stats["runs"] == {"COMPLETED": 1}
    assert (await types(process)).count("run.completed") == 1

    async def previewed(run: str) -> tuple[int, bool]:
        body = {"filter": {"run": run, "definitionId": id}, "contactId": contact_id}
        found = await cast.ed.made("/segments/preview", body)
        return found["count"], found["contact"]["holds"]

    assert [await previewed(run) for run in ("entered", "completed")] == [(1, True)] * 2
    async with process.database.write() as db:
        await db.execute("DELETE FROM runs WHERE id = :id", id=ids[0])
    assert [await previewed(run) for run in ("entered", "completed")] == [(0, False)] * 2


async def test_the_older_run_goes_first_whichever_is_claimed_first(
    process: Process, cast: Cast
) -> None:
    id, contact_id = await flow(cast, "once"), await ada(cast)
    older, newer = [await begin(cast, id, contact_id) for _ in range(2)]
    claimed = await process.claim("run", [], 50)
    assert {job.id for job in claimed} == {older, newer}
    for job in sorted(claimed, key=lambda job: job.id, reverse=True):
        await runner.move(process, job)
    assert await come_to(cast, newer) == refused(older)
    assert await come_to(cast, older) == WENT


async def test_who_was_let_in_and_cancelled_before_the_first_step_went_through_nothing(
    process: Process, cast: Cast
) -> None:
    id, contact_id = await flow(cast, "once"), await ada(cast)
    older, newer = [await begin(cast, id, contact_id) for _ in range(2)]
    claimed = await process.claim("run", [], 50)
    for job in claimed:
        if job.id == newer:
            await runner.move(process, job)
    assert await come_to(cast, newer) == refused(older)
    assert (await cast.ed.post(f"/runs/{older}/cancel")).is_success
    later, last = [await begin(cast, id, contact_id) for _ in range(2)]
    await settle(process)
    assert await come_to(cast, later) == WENT
    assert await come_to(cast, last) == refused(later)


async def test_what_went_through_nothing_counts_no_more_once_it_was_removed(
    process: Process, cast: Cast
) -> None:
    with long_ago(process):
        id, contact_id = await flow(cast, "once"), await ada(cast)
        older, newer = [await begin(cast, id, contact_id) for _ in range(2)]
        for job in await process.claim("run", [], 50):
            if job.id == newer:
                await runner.move(process, job)
        assert await come_to(cast, newer) == refused(older)
        assert (await cast.ed.post(f"/runs/{older}/cancel")).is_success
    await went_round(process)
    assert (await cast.vic.get(f"/runs/{older}")).status_code == 404
    later = await begin(cast, id, contact_id)
    await settle(process)
    assert await come_to(cast, later) == WENT


@pytest.mark.parametrize(
    ("policy", "step", "trigger", "first"),
    [
        ("once", TAG, WEBHOOK, WENT),
        ({"after": "P7D"}, TAG, WEBHOOK, WENT),
        ("not_while_running", WAIT, WEBHOOK, ("WAITING", None, None)),
        ("once", TAG, {"source": "event", "name": "paid"}, WENT),
    ],
)
async def test_runs_that_are_moved_at_once_let_one_through(
    process: Process, cast: Cast, policy: Any, step: Any, trigger: Any, first: Ends
) -> None:
    id, contact_id = await flow(cast, policy, step, trigger=trigger), await ada(cast)
    paid = {"match": {"contactId": contact_id}, "name": "paid"}
    for _ in range(8):
        await (cast.ed.made("/events", paid) if "name" in trigger else begin(cast, id, contact_id))
    claimed = await process.claim("run", [], 50)
    # Each by a process of its own: one would move them in turns, in a single batch.
    await asyncio.gather(*(runner.move(replace(process), job) for job in claimed))
    ids = [one["id"] for one in (await cast.vic.read(f"/runs?workflowId={id}"))["data"]][::-1]
    came = [await come_to(cast, run_id) for run_id in ids]
    assert came == [first, *[refused(ids[0])] * 7]


async def test_while_a_run_goes_on_no_other_is_let_in(process: Process, cast: Cast) -> None:
    id, contact_id = await flow(cast, "not_while_running", WAIT), await ada(cast)
    first = await begin(cast, id, contact_id)
    await settle(process)
    second = await begin(cast, id, contact_id)
    await settle(process)
    assert await come_to(cast, second) == refused(first)
    await cast.ed.post(f"/runs/{first}/cancel")
    third = await begin(cast, id, contact_id)
    await settle(process)
    assert (await come_to(cast, third))[0] == "WAITING"


async def test_after_a_time_the_contact_may_go_through_again(process: Process, cast: Cast) -> None:
    id, contact_id = await flow(cast, {"after": "P7D"}), await ada(cast)
    first = await begin(cast, id, contact_id)
    await settle(process)
    second = await begin(cast, id, contact_id)
    await settle(process)
    assert await come_to(cast, second) == refused(first)
    async with process.database.write() as db:
        eight_days_ago = (await db.now()).replace(year=2020)
        await db.execute("UPDATE definition_entries SET entered_at = :at", at=eight_days_ago)
    third, fourth = [await begin(cast, id, contact_id) for _ in range(2)]
    await settle(process)
    assert await come_to(cast, third) == WENT
    assert await come_to(cast, fourth) == refused(third)
    async with process.database.read() as db:
        kept = await db.fetch_all("SELECT run_id FROM definition_entries")
    assert [row["run_id"] for row in kept] == [third]


async def test_a_policy_that_is_new_sees_the_runs_that_go_on(process: Process, cast: Cast) -> None:
    id, contact_id = await flow(cast, "always", WAIT), await ada(cast)
    first = await begin(cast, id, contact_id)
    await settle(process)
    await cast.ed.patch(f"/workflows/{id}", {"trigger": {"reentry": "not_while_running"}})
    second = await begin(cast, id, contact_id)
    await settle(process)
    assert await come_to(cast, second) == refused(first)


async def test_a_replay_and_a_retry_pass(process: Process, cast: Cast) -> None:
    id, contact_id = await flow(cast, "once"), await ada(cast)
    first = await begin(cast, id, contact_id)
    await settle(process)
    replayed = (await cast.ed.made(f"/runs/{first}/replay", None))["runId"]
    await settle(process)
    assert await come_to(cast, replayed) == WENT
    async with process.database.write() as db:  # set aside before its first step
        await db.execute(
            "UPDATE runs SET status = 'FAILED', state = NULL WHERE id = :id", id=replayed
        )
        await db.execute("DELETE FROM definition_entries WHERE run_id = :id", id=replayed)
    assert (await cast.ed.post(f"/runs/{replayed}/retry")).status_code == 202
    await settle(process)
    assert await come_to(cast, replayed) == WENT


async def test_entries_outlive_runs_and_are_erased_with_the_contact(
    process: Process, cast: Cast
) -> None:
    id, contact_id = await flow(cast, "once"), await ada(cast)
    first = await begin(cast, id, contact_id)
    await settle(process)
    async with process.database.write() as db:
        await db.execute("DELETE FROM runs WHERE id = :id", id=first)
    second = await begin(cast, id, contact_id)
    await settle(process)
    assert await come_to(cast, second) == refused(first)
    await cast.ed.delete(f"/contacts/{contact_id}")
    async with process.database.read() as db:
        of = {"definition_id": id, "contact_id": contact_id}
        kept = await definition_entries.of_contact(db, workspace_id=cast.ed.workspace_id, **of)
    assert kept == []


# What becomes of two events long after, when the run of the first of three before is pruned.
LATER: list[tuple[Any, Callable[[str, str], list[Ends]]]] = [
    ("always", lambda _first, _later: [WENT, WENT]),
    ("once", lambda first, _later: [refused(first), refused(first)]),
    ("not_while_running", lambda _first, _later: [WENT, WENT]),
    ({"after": "P7D"}, lambda _first, later: [WENT, refused(later)]),
]


@pytest.mark.parametrize(("policy", "later"), LATER)
async def test_each_event_starts_one_run_also_when_retention_has_pruned_the_earlier_ones(
    process: Process, cast: Cast, policy: Any, later: Callable[[str, str], list[Ends]]
) -> None:
    id = await flow(cast, policy)
    url = (await cast.ed.read(f"/workflows/{id}"))["trigger"]["webhookUrl"]
    path = urlsplit(url).path

    async def accepted() -> str:
        answer = await cast.client.post(path, json={"email": "ada@example.com"})
        assert answer.status_code == 202, answer.text
        await settle(process)
        return str(answer.json()["runId"])

    with long_ago(process):
        await ada(cast)
        early = [await accepted() for _ in range(3)]
        assert len({*early}) == 3
        assert [(await come_to(cast, run_id))[0] for run_id in early] == ["COMPLETED"] * 3
    await went_round(process)
    assert (await cast.vic.read(f"/runs?workflowId={id}"))["data"] == []
    late = [await accepted() for _ in range(2)]
    listed = (await cast.vic.read(f"/runs?workflowId={id}"))["data"]
    assert [one["id"] for one in listed] == late[::-1]
    assert [await come_to(cast, run_id) for run_id in late] == later(early[0], late[0])


async def test_a_definition_without_a_policy_asks_nothing_more(
    process: Process, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, limited = await flow(cast, "always"), await flow(cast, "once")
    contact_id = await ada(cast)
    statements: list[str] = []
    for kind in (handle.Handle, pipelining._PipelinedHandle):
        monkeypatch.setattr(kind, "fetch_all", noting(kind.fetch_all, statements))
    asked = []
    for id in (free, limited):
        await begin(cast, id, contact_id)
        statements.clear()
        await settle(process)
        asked.append(any("definition_entries" in sql for sql in statements))
    assert asked == [False, True]


def noting(fetch_all: Any, statements: list[str]) -> Any:
    async def noted(self: handle.Handle, sql: str, /, **values: Any) -> Any:
        statements.append(sql)
        return await fetch_all(self, sql, **values)

    return noted


async def test_a_simulation_shows_who_would_not_be_let_in(process: Process, cast: Cast) -> None:
    id, contact_id = await flow(cast, {"after": "P7D"}), await ada(cast)
    path = f"/workflows/{id}/simulate"
    assert (await cast.ed.made(path, {"contactId": contact_id}))["end"]["reason"] is None
    await begin(cast, id, contact_id)
    await settle(process)
    refused = await cast.ed.made(f"{path}?case=true", {"contactId": contact_id})
    assert (refused["steps"], refused["end"]["status"]) == ([], "COMPLETED")
    assert refused["end"]["reason"]["code"] == "reentry_refused"
    assert "only after P7D" in refused["end"]["reason"]["detail"]
    assert refused["case"]["input"]["entered"]["running"] is False
    assert refused["case"]["expected"]["end"]["reason"] == "reentry_refused"
    later = await cast.ed.made(path, {"contactId": contact_id, "startAt": "2199-01-01T00:00:00Z"})
    assert [step["nodeId"] for step in later["steps"]] == ["tag"]
    nobody = {"contactId": contact_id, "entered": None}
    assert [step["nodeId"] for step in (await cast.ed.made(path, nobody))["steps"]] == ["tag"]
    given = {
        "contact": {"email": "eve@example.com"},
        "startAt": "2026-03-08T00:00:00Z",
        "entered": {"at": "2026-03-02T00:00:00Z"},
    }
    end = (await cast.ed.made(path, given))["end"]
    assert end["reason"]["code"] == "reentry_refused"


@pytest.mark.parametrize("policy", ["never", 1, {"after": "soon"}, {"before": "P7D"}])
async def test_an_unknown_policy_is_refused_at_its_place(cast: Cast, policy: Any) -> None:
    body = {"name": "Odd", "trigger": {"source": "manual", "reentry": policy}}
    response = await cast.ed.post("/workflows", body)
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["pointer"] == "/trigger/reentry"
