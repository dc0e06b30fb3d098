"""Runs in people's hands: started, cancelled, retried, replayed; safe against workers."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from app.machine.reasons import Reason
from app.messages import composing, delivery
from app.process import Process
from app.providers.base import Message, Receipt, SendError
from app.runs import runner
from app.runtime import compute
from app.runtime.compute import Computation, Compute
from app.store import held_messages, jobs
from tests.cast import SEND_HELLO, Cast, hook, settle
from tests.messages.test_delivery import accepts, with_provider
from tests.runs.test_runner import later

WAIT = {"id": "rest", "type": "wait", "duration": "PT1H"}
TAG = {"id": "tag", "type": "add_tag", "tag": "{{trigger.word}}"}
BROKEN = {"id": "name", "type": "add_tag", "tag": "{{ 1 | divided_by: contact.metadata.zero }}"}


async def contact(cast: Cast, **more: Any) -> str:
    made = await cast.ed.made("/contacts", {"email": "ada@example.com", **more})
    return str(made["id"])


async def definition(cast: Cast, *steps: Any, state: str = "ACTIVE") -> str:
    body = {"name": "W", "state": state, "steps": list(steps)}
    return f"/workflows/{(await cast.ed.made('/workflows', body))['id']}"


async def started(cast: Cast, *steps: Any, data: Any = None, **fields: Any) -> dict[str, Any]:
    workflow, contact_id = await definition(cast, *steps), await contact(cast, **fields)
    body = {"contactId": contact_id, "data": data or {"word": "tea"}}
    return await cast.ed.made(f"{workflow}/runs", body)


async def run_of(cast: Cast, receipt: dict[str, Any]) -> dict[str, Any]:
    return await cast.vic.read(f"/runs/{receipt['runId']}")


async def statuses(cast: Cast, receipt: dict[str, Any]) -> list[tuple[str, int, str]]:
    run = await run_of(cast, receipt)
    return [(step["nodeId"], step["visit"], step["status"]) for step in run["steps"]]


# --- started by hand ------------------------------------------------------------------------------


@pytest.mark.parametrize("noun", ["workflow", "automation"])
async def test_a_run_is_started_by_hand(cast: Cast, process: Process, noun: str) -> None:
    if noun == "workflow":
        url = await definition(cast, TAG)
    else:
        graph = {
            "nodes": [
                {"id": "t", "type": "trigger", "data": {}},
                {"id": "tag", "type": "add_tag", "data": {"tag": "{{trigger.word}}"}},
            ],
            "edges": [{"id": "e", "source": "t", "target": "tag"}],
        }
        body = {"name": "A", "state": "ACTIVE", "graph": graph}
        url = f"/automations/{(await cast.ed.made('/automations', body))['id']}"
    contact_id = await contact(cast)
    literals = b'{"contactId": "%s", "data": {"word": "tea", "n": 1.10}}' % contact_id.encode()
    response = await cast.ed.post(
        f"{url}/runs", content=literals, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 202, response.text
    receipt = response.json()
    assert receipt == {"runId": receipt["runId"], "contactId": contact_id}
    await settle(process)
    run = await run_of(cast, receipt)
    assert (run["status"], run[f"{noun}Id"], run["version"]) == ("COMPLETED", url[-30:], 1)
    assert (await cast.vic.read(f"/contacts/{contact_id}"))["tags"] == ["tea"]
    raw = (await cast.vic.get(f"/runs/{receipt['runId']}")).text
    assert '"trigger":{"word":"tea","n":1.10}' in raw


async def test_only_what_is_active_is_started(cast: Cast) -> None:
    contact_id = await contact(cast)
    for state in ("DRAFT", "PAUSED", "ARCHIVED"):
        url = await definition(cast, TAG, state="DRAFT" if state == "DRAFT" else "ACTIVE")
        if state != "DRAFT":
            await cast.ed.patch(url, {"state": state})
        response = await cast.ed.post(f"{url}/runs", {"contactId": contact_id})
        assert (response.status_code, response.json()["code"]) == (409, "conflict"), state
    assert (await cast.vic.read("/runs"))["data"] == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/contactId"),
        ({"contactId": "con_" + "0" * 26}, "/contactId"),
        ({"contactId": 1}, "/contactId"),
        ({"contactId": "x", "data": []}, "/data"),
        ({"contactId": "x", "runId": "y"}, "/runId"),
    ],
)
async def test_what_cannot_start_a_run_is_told_and_starts_none(
    cast: Cast, body: dict[str, Any], pointer: str
) -> None:
    response = await cast.ed.post(f"{await definition(cast)}/runs", body)
    assert response.status_code == 422, response.text
    assert pointer in [error["pointer"] for error in response.json()["errors"]]
    assert (await cast.vic.read("/runs"))["data"] == []


# --- cancelled ------------------------------------------------------------------------------------


async def test_a_waiting_run_is_cancelled_and_again(cast: Cast, process: Process) -> None:
    receipt = await started(cast, WAIT, TAG)
    await settle(process)
    first = await cast.ed.post(f"/runs/{receipt['runId']}/cancel")
    second = await cast.ed.post(f"/runs/{receipt['runId']}/cancel")
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json() == await run_of(cast, receipt)
    assert first.json()["status"] == "CANCELLED"
    assert first.json()["reason"] == {"code": "cancelled", "detail": "A member cancelled the run."}
    assert first.json()["waitingFor"] is None
    await later(process, "run", 7_200)
    await settle(process)
    assert await statuses(cast, receipt) == [("rest", 1, "CANCELLED")]


async def test_a_run_with_a_long_body_is_cancelled_whatever_waits_to_be_computed(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever cancels a campaign does it while its messages fill the queue."""
    receipt = await started(cast, WAIT, data={"all": [1.5] * 20_000})
    await settle(process)
    shown = await run_of(cast, receipt)
    monkeypatch.setattr(Compute, "_serve", lambda _: asyncio.sleep(600))
    computation = Computation(cast.ed.workspace_id, abs, (1,), compute.WAITING_SECONDS / 2)
    waiting = [asyncio.create_task(process.compute.apart(computation)) for _ in range(2)]
    try:
        refused = await cast.vic.get(f"/runs/{receipt['runId']}")
        cancelled = await cast.ed.post(f"/runs/{receipt['runId']}/cancel")
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert refused.status_code == 429
    assert cancelled.status_code == 200, cancelled.text
    assert cancelled.json()["status"] == "CANCELLED"
    assert cancelled.json()["trigger"] == shown["trigger"]


async def test_a_run_that_has_ended_is_not_cancelled(cast: Cast, process: Process) -> None:
    receipt = await started(cast, TAG)
    await settle(process)
    response = await cast.ed.post(f"/runs/{receipt['runId']}/cancel")
    assert (response.status_code, response.json()["code"]) == (409, "conflict")
    assert (await run_of(cast, receipt))["status"] == "COMPLETED"


async def test_what_a_cancelled_run_was_about_to_send_is_not_sent(
    cast: Cast, process: Process
) -> None:
    """The message is claimed already, but its intent is not committed."""
    process, provider = with_provider(process, accepts)
    receipt = await started(cast, SEND_HELLO)
    [run] = await process.claim("run", [], 10)
    await runner.move(process, run)
    [message] = await process.claim("message", [], 10)
    assert (await cast.ed.post(f"/runs/{receipt['runId']}/cancel")).status_code == 200
    [attempt] = (await cast.vic.read("/messages/delivery-attempts"))["data"]
    assert (attempt["status"], attempt["reason"]["code"]) == ("SUPPRESSED", "cancelled")
    await delivery.deliver(process, message)
    await settle(process)
    assert provider.given == []
    assert (await run_of(cast, receipt))["status"] == "CANCELLED"


async def test_what_is_on_its_way_when_a_run_is_cancelled_arrives(
    cast: Cast, process: Process
) -> None:
    codes: list[int] = []

    async def cancel(message: Message) -> Receipt:
        codes.append((await cast.ed.post(f"/runs/{message.run_id}/cancel")).status_code)
        return await accepts(message)

    process, provider = with_provider(process, cancel)
    receipt = await started(cast, SEND_HELLO, TAG)
    await settle(process)
    assert (codes, len(provider.given)) == ([200], 1)
    [attempt] = (await cast.vic.read("/messages/delivery-attempts"))["data"]
    assert attempt["status"] == "SENT"
    assert await statuses(cast, receipt) == [("hello", 1, "CANCELLED")]


async def test_a_worker_that_holds_a_run_while_it_is_cancelled_changes_nothing(
    cast: Cast, process: Process
) -> None:
    receipt = await started(cast, TAG)
    [claimed] = await process.claim("run", [], 10)
    assert (await cast.ed.post(f"/runs/{receipt['runId']}/cancel")).status_code == 200
    await runner.move(process, claimed)
    assert await statuses(cast, receipt) == []
    assert (await cast.vic.read(f"/contacts/{receipt['contactId']}"))["tags"] == []


async def test_cancelling_and_moving_at_once_end_in_one_of_two_ways(
    cast: Cast, process: Process
) -> None:
    workflow, contact_id = await definition(cast, SEND_HELLO, TAG), await contact(cast)
    body = {"contactId": contact_id, "data": {"word": "tea"}}
    receipts = [await cast.ed.made(f"{workflow}/runs", body) for _ in range(12)]

    async def cancel(receipt: dict[str, Any]) -> int:
        return (await cast.ed.post(f"/runs/{receipt['runId']}/cancel")).status_code

    codes, _ = await asyncio.gather(
        asyncio.gather(*(cancel(receipt) for receipt in receipts)), settle(process)
    )
    await settle(process)
    for receipt, code in zip(receipts, codes, strict=True):
        run = await run_of(cast, receipt)
        assert (code, run["status"]) in ((200, "CANCELLED"), (409, "COMPLETED"))
        unfinished = [step for step in run["steps"] if step["finishedAt"] is None]
        assert unfinished == []


async def test_a_run_is_cancelled_while_its_orphaned_message_is_looked_at(
    cast: Cast, process: Process
) -> None:
    receipt = await started(cast, SEND_HELLO, WAIT)
    for run in await process.claim("run", [], 10):
        await runner.move(process, run)
    [job] = await process.claim("message", [], 10)
    async with process.database.write() as db:  # as if a worker had died while it called
        await db.execute("UPDATE messages SET status = 'SENDING', intended_by = 1")
    async with process.database.write() as db:
        await jobs.lock(db, [job])
        row = await held_messages.locked(db, workspace_id=job.workspace_id, id=job.id)
        assert row is not None
        await composing.prepare(process, db, row, again=True)
        cancelling = asyncio.create_task(cast.ed.post(f"/runs/{receipt['runId']}/cancel"))
        if process.database.engine == "postgresql":  # SQLite has one writer
            assert (await cancelling).status_code == 200
    assert (await cancelling).status_code == 200


# --- retried --------------------------------------------------------------------------------------


async def test_a_failed_run_goes_on_where_it_failed(cast: Cast, process: Process) -> None:
    receipt = await started(cast, TAG, BROKEN, {**WAIT, "duration": "PT0S"}, metadata={"zero": 0})
    await settle(process)
    failed = await run_of(cast, receipt)
    assert (failed["status"], failed["reason"]["code"]) == ("FAILED", Reason.TEMPLATE_ERROR)
    await cast.ed.patch(f"/contacts/{receipt['contactId']}", {"metadata": {"zero": 2}})
    response = await cast.ed.post(f"/runs/{receipt['runId']}/retry")
    assert (response.status_code, response.json()) == (202, receipt)
    waiting = await run_of(cast, receipt)
    assert (waiting["status"], waiting["reason"], waiting["finishedAt"]) == ("QUEUED", None, None)
    await settle(process)
    assert (await run_of(cast, receipt))["status"] == "COMPLETED"
    assert await statuses(cast, receipt) == [
        ("tag", 1, "COMPLETED"),  # and not again
        ("name", 1, "FAILED"),
        ("name", 2, "COMPLETED"),
        ("rest", 1, "COMPLETED"),
    ]


async def test_a_retried_send_is_a_new_message_under_a_new_key(
    cast: Cast, process: Process
) -> None:
    answers: list[SendError] = [SendError("rejected", Reason.PROVIDER_REJECTED, "550 full")]

    async def recover(message: Message) -> Receipt:
        if answers:
            raise answers.pop()
        return await accepts(message)

    process, provider = with_provider(process, recover)
    receipt = await started(cast, {**SEND_HELLO, "onFailure": "stop"})
    await settle(process)
    assert (await run_of(cast, receipt))["status"] == "FAILED"
    assert (await cast.ed.post(f"/runs/{receipt['runId']}/retry")).status_code == 202
    await settle(process)
    assert (await run_of(cast, receipt))["status"] == "COMPLETED"
    first, second = provider.given
    assert first.message_id != second.message_id
    assert first.message_key != second.message_key


async def test_a_run_that_was_set_aside_in_a_wait_enters_the_step_again(
    cast: Cast, process: Process
) -> None:
    receipt = await started(cast, WAIT, TAG)
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET claims = 5")
    await later(process, "run", 7_200)
    await settle(process)
    assert (await run_of(cast, receipt))["reason"]["code"] == Reason.POISONED
    assert (await cast.ed.post(f"/runs/{receipt['runId']}/retry")).status_code == 202
    await settle(process)
    run = await run_of(cast, receipt)
    assert (run["status"], run["waitingFor"]["kind"]) == ("WAITING", "time")


async def test_only_a_failed_run_is_retried_and_only_once(cast: Cast, process: Process) -> None:
    receipt = await started(cast, BROKEN, metadata={"zero": 0})
    url = f"/runs/{receipt['runId']}/retry"
    assert (await cast.ed.post(url)).status_code == 409  # QUEUED
    await settle(process)
    answers = await asyncio.gather(*(cast.ed.post(url) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [202, 409, 409, 409, 409]
    await settle(process)
    assert [visit for _, visit, _ in await statuses(cast, receipt)] == [1, 2]


async def test_neither_retry_nor_replay_outlives_definition_and_contact(
    cast: Cast, process: Process
) -> None:
    receipt = await started(cast, BROKEN, metadata={"zero": 0})
    await settle(process)
    run = await run_of(cast, receipt)
    await cast.ed.patch(f"/workflows/{run['workflowId']}", {"state": "ARCHIVED"})
    for act in ("retry", "replay"):
        assert (await cast.ed.post(f"/runs/{receipt['runId']}/{act}")).status_code == 409
    await cast.ed.delete(f"/contacts/{receipt['contactId']}")
    for act in ("retry", "replay"):
        assert (await cast.ed.post(f"/runs/{receipt['runId']}/{act}")).status_code == 409


# --- replayed -------------------------------------------------------------------------------------


async def test_a_replay_is_a_new_run_of_today_s_version_with_the_same_body(
    cast: Cast, process: Process
) -> None:
    token = await hook(process, cast.ed.workspace_id, [TAG])
    body = b'{"email": "ada@example.com", "word": "tea", "n": 1.10}'
    receipt = (
        await cast.client.post(
            f"/v1/webhooks/in/{token}", content=body, headers={"Content-Type": "application/json"}
        )
    ).json()
    await settle(process)
    run = await run_of(cast, receipt)
    await cast.ed.patch(
        f"/workflows/{run['workflowId']}", {"steps": [{**TAG, "tag": "new-{{trigger.word}}"}]}
    )
    response = await cast.ed.post(f"/runs/{receipt['runId']}/replay")
    assert response.status_code == 202
    again = response.json()
    assert again["runId"] != receipt["runId"]
    assert again["contactId"] == receipt["contactId"]
    await settle(process)
    replayed = await run_of(cast, again)
    assert (replayed["status"], replayed["version"]) == ("COMPLETED", 2)
    assert orjson.loads(body) == replayed["trigger"] == run["trigger"]
    assert (await run_of(cast, receipt)) == run  # which stays as it was
    tags = (await cast.vic.read(f"/contacts/{receipt['contactId']}"))["tags"]
    assert sorted(tags) == ["new-tea", "tea"]


async def test_viewers_steer_nothing(cast: Cast, process: Process) -> None:
    receipt = await started(cast, WAIT)
    for act in ("cancel", "retry", "replay"):
        response = await cast.vic.post(f"/runs/{receipt['runId']}/{act}")
        assert response.status_code == 403
    assert (await run_of(cast, receipt))["status"] == "QUEUED"


async def test_every_act_leaves_one_entry_in_the_trail(cast: Cast, process: Process) -> None:
    receipt = await started(cast, WAIT, BROKEN, metadata={"zero": 0})
    run_id = receipt["runId"]
    assert (await cast.ed.post(f"/runs/{run_id}/retry")).status_code == 409  # which leaves none
    again = await cast.ed.made(f"/runs/{run_id}/replay", None)
    for _ in range(2):
        assert (await cast.ed.post(f"/runs/{again['runId']}/cancel")).status_code == 200
    await settle(process)
    await later(process, "run", 7_200)
    await settle(process)
    assert (await cast.ed.post(f"/runs/{run_id}/retry")).status_code == 202
    async with process.database.read() as db:
        rows = await db.fetch_all("SELECT * FROM audit_logs ORDER BY id")
    listed = [(row["action"], row["resource_id"]) for row in rows if row["action"][:4] == "run."]
    assert listed == [
        ("run.started", run_id),
        ("run.replayed", again["runId"]),
        ("run.cancelled", again["runId"]),
        ("run.retried", run_id),
    ]
