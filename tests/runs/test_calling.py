"""A step calls out: against real servers, under one key, at most three times, and never inward."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.audience import erasing
from app.audience.workspace_context import WorkspaceContext
from app.intake import webhooks
from app.machine.reasons import Reason
from app.machine.step import MOST_NOTED
from app.process import Process
from app.runs import calling, runner
from app.store import jobs, run_steps, runs
from app.vault.vault import VaultError
from tests.cast import hook, settle
from tests.listener import Asked, Listener, Respond, never, says
from tests.present import present
from tests.runs.test_runner import contact_of, later, outlasted, read, steps_of
from tests.servers import free_port

EVENT = {"email": "ada@example.com", "order": "o1"}


async def started(process: Process, acme: str, *steps: Any) -> str:
    token = await hook(process, acme, steps)
    accepted = await webhooks.receive(process, token=token, signatures=[], body=orjson.dumps(EVENT))
    return accepted.run_id


def ask(listener: Listener, **more: Any) -> dict[str, Any]:
    url = f"{listener.url}/orders/{{{{trigger.order}}}}"
    return {"id": "ask", "type": "http_request", "method": "POST", "url": url, **more}


async def step_of(
    process: Process, acme: str, run_id: str, node_id: str = "ask"
) -> run_steps.RunStep:
    [step] = [s for s in await steps_of(process, acme, run_id) if s.node_id == node_id]
    return step


async def left(process: Process) -> int:
    async with process.database.read() as db:
        count: int = await db.fetch_value("SELECT count(*) FROM calls")
    return count


async def test_an_answer_enters_the_run_and_serves_what_follows(
    open_process: Process, acme: str
) -> None:
    process = open_process
    answer = b'{"id": "x-7", "total": 1.10, "n": 123456789012345678901}'
    async with Listener(says(answer, Set_Cookie="canary")) as listener:
        run_id = await started(
            process,
            acme,
            ask(
                listener,
                headers={"Authorization": "Bearer canary"},
                body={"for": "{{contact.email}}"},
            ),
            {
                "id": "keep",
                "type": "update_contact",
                "set": {"metadata.order": "{{steps.ask.body.id}} {{steps.ask.body.total}}"},
            },
        )
        [claimed] = await process.claim("run", [], 10)
        await runner.move(process, claimed)
        run = await read(process, acme, run_id)
        assert (run.status, present(run.waiting_for)["kind"]) == ("WAITING", "http")
        assert listener.connections == 0  # the intent is committed, and nobody was called yet
        async with process.database.read() as db:
            kept = await db.fetch_all("SELECT * FROM calls")
        assert "canary" not in str(kept)
        await settle(process)
    [asked] = listener.asked
    assert (asked.method, asked.target) == ("POST", "/orders/o1")
    assert asked.header("authorization") == "Bearer canary"
    assert orjson.loads(asked.body) == {"for": "ada@example.com"}
    assert len(asked.header("idempotency-key") or "") == 40
    run = await read(process, acme, run_id)
    assert run.status == "COMPLETED"
    contact, _ = await contact_of(process, acme, run_id)
    assert contact.metadata == {"order": "x-7 1.10"}
    output = present((await step_of(process, acme, run_id)).output)
    assert '"total":1.10,"n":123456789012345678901' in output
    assert "canary" not in output + present(run.state)
    assert await left(process) == 0


async def _too_much(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n[" + b"1," * 500_000)
    await writer.drain()


@pytest.mark.parametrize(
    ("respond", "body"),
    [
        (says(b"plain", media_type="text/plain"), "plain"),
        (says(b"\xff\0", media_type="application/octet-stream"), "\ufffd\ufffd"),
        (says(b'{"a": 1', media_type="application/json"), '{"a": 1'),
        (says(b"", status="204 No Content"), ""),
        (_too_much, ("[" + "1," * 40_000)[: 64 * 1024]),
    ],
)
async def test_a_body_is_json_when_it_is_and_else_text(
    open_process: Process, acme: str, respond: Respond, body: str
) -> None:
    async with Listener(respond) as listener:
        run_id = await started(open_process, acme, ask(listener))
        await settle(open_process)
    output = orjson.loads(present((await step_of(open_process, acme, run_id)).output))
    assert output["body"] == body
    assert output.get("truncated", False) is (len(body) == 64 * 1024)


async def test_a_run_whose_steps_leave_too_much_fails_and_stays_small(
    open_process: Process, acme: str
) -> None:
    async with Listener(says({"said": "x" * 64_000})) as listener:
        asking = [ask(listener, id=f"ask{number}") for number in range(10)]
        run_id = await started(open_process, acme, *asking)
        await settle(open_process)
    run = await read(open_process, acme, run_id)
    assert (run.status, run.reason_code) == ("FAILED", Reason.OUTPUTS_TOO_LARGE)
    assert len(present(run.state)) < MOST_NOTED + 1_000
    statuses = [step.status for step in await steps_of(open_process, acme, run_id)]
    assert statuses == ["COMPLETED"] * 8 + ["FAILED"]


async def test_the_network_inside_is_not_reached(process: Process, acme: str) -> None:
    async with Listener() as listener:
        run_id = await started(process, acme, ask(listener))
        await settle(process)
        assert listener.connections == 0
    run = await read(process, acme, run_id)
    assert (run.status, run.reason_code) == ("FAILED", Reason.HTTP_REFUSED)
    assert "127.0.0.1" not in present(run.reason_detail)
    assert await left(process) == 0


@pytest.mark.parametrize(
    ("method", "config", "calls", "code"),
    [
        ("POST", {}, 1, Reason.HTTP_TIMEOUT),  # it may have done what it was asked
        ("PUT", {}, 3, Reason.HTTP_TIMEOUT),  # which does no harm twice (RFC 9110 §9.2.2)
    ],
)
async def test_what_may_have_arrived_is_repeated_only_where_that_is_harmless(
    open_process: Process, acme: str, method: str, config: Any, calls: int, code: Reason
) -> None:
    process = open_process
    async with Listener(never) as listener:
        run_id = await started(process, acme, ask(listener, method=method, timeoutMs=150))
        for _ in range(calls):
            await settle(process)
            await later(process, "call", 60)
        await settle(process)
    assert len(listener.asked) == calls
    assert len({asked.header("idempotency-key") for asked in listener.asked}) == 1
    run = await read(process, acme, run_id)
    assert (run.status, run.reason_code) == ("FAILED", code)


async def test_what_surely_did_not_arrive_is_tried_again(open_process: Process, acme: str) -> None:
    process, port = open_process, free_port()
    listener = Listener(port=port)
    run_id = await started(process, acme, ask(listener))
    await settle(process)
    assert (await read(process, acme, run_id)).status == "WAITING"
    async with listener:
        await later(process, "call", 60)
        await settle(process)
    assert (await read(process, acme, run_id)).status == "COMPLETED"
    assert orjson.loads(present((await step_of(process, acme, run_id)).output))["tries"] == 2


async def test_a_server_that_asks_for_patience_gets_it(open_process: Process, acme: str) -> None:
    process = open_process
    async with Listener(says(status="429 Slow down", Retry_After="30")) as listener:
        run_id = await started(process, acme, ask(listener))
        await settle(process)
        await later(process, "call", 25)
        await settle(process)
        assert len(listener.asked) == 1
        listener.respond = says({"ok": True})
        await later(process, "call", 10)
        await settle(process)
    assert len(listener.asked) == 2
    assert (await read(process, acme, run_id)).status == "COMPLETED"


async def test_a_call_whose_worker_dies_every_time_is_given_up(
    open_process: Process, acme: str
) -> None:
    process = open_process
    async with Listener() as listener:
        run_id = await started(
            process, acme, ask(listener, failed=[{"id": "sorry", "type": "exit"}])
        )
        [moving] = await process.claim("run", [], 10)
        await runner.move(process, moving)
        for _ in range(calling.TRIES):
            [claimed] = await process.claim("call", [], 10)
            assert await calling._begin(process, claimed) is not None  # and there it dies
            await later(process, "call", 60)
        await settle(process)
        assert listener.connections == 0
    step = await step_of(process, acme, run_id)
    assert (step.port, step.reason_code) == ("failed", Reason.HTTP_BROKEN)
    assert (await read(process, acme, run_id)).status == "COMPLETED"


async def test_a_call_that_breaks_its_worker_every_time_is_set_aside(
    open_process: Process, acme: str
) -> None:
    """Before the try is counted: what was sealed cannot be opened."""
    process = open_process
    async with Listener() as listener:
        run_id = await started(process, acme, ask(listener))
        [moving] = await process.claim("run", [], 10)
        await runner.move(process, moving)
        async with process.database.write() as db:
            await db.execute("UPDATE calls SET sealed = :sealed", sealed=b"by another key")
        for _ in range(jobs.MAX_CLAIMS):
            [claimed] = await process.claim("call", [], 10)
            with pytest.raises(VaultError):
                await calling.make(process, claimed)
            await later(process, "call", 60)
        assert (await read(process, acme, run_id)).status == "WAITING"
        await settle(process)
        assert listener.connections == 0
    run = await read(process, acme, run_id)
    assert (run.status, run.reason_code) == ("FAILED", Reason.POISONED)
    assert run.reason_detail == calling.POISONED
    assert await left(process) == 0


async def tries(process: Process) -> int:
    async with process.database.read() as db:
        count: int = await db.fetch_value("SELECT tries FROM calls")
    return count


async def test_a_try_that_is_begun_again_under_one_claim_counts_once(
    open_process: Process, acme: str
) -> None:
    """Its COMMIT's answer was lost: nobody knows whether it was counted."""
    process = open_process
    async with Listener() as listener:
        await started(process, acme, ask(listener))
        [moving] = await process.claim("run", [], 10)
        await runner.move(process, moving)
        [claimed] = await process.claim("call", [], 10)
        for _ in range(calling.TRIES + 1):
            assert await calling._begin(process, claimed) is not None
        assert await tries(process) == 1


async def test_a_call_that_was_not_made_in_time_was_no_try(
    open_process: Process, acme: str
) -> None:
    process = open_process
    late = replace(process, settings=replace(process.settings, lease_seconds=0))
    async with Listener() as listener:
        run_id = await started(process, acme, ask(listener))
        [moving] = await process.claim("run", [], 10)
        await runner.move(process, moving)
        for _ in range(calling.TRIES + 1):
            [claimed] = await late.claim("call", [], 10)
            await calling.make(late, claimed)
        assert (await tries(process), listener.connections) == (0, 0)
        await settle(process)
        assert len(listener.asked) == 1
    assert (await read(process, acme, run_id)).status == "COMPLETED"


async def test_a_caller_that_lost_its_lease_writes_nothing(
    open_process: Process, acme: str
) -> None:
    process = open_process

    async def oversleep(asked: Asked, writer: asyncio.StreamWriter) -> None:
        listener.respond = says({"from": "the second"})
        await later(process, "call", 60)
        [other] = await process.claim("call", [], 10)
        await calling.make(process, other)
        await says({"from": "the first"})(asked, writer)

    async with Listener(oversleep) as listener:
        run_id = await started(process, acme, ask(listener))
        await settle(process)
    assert len(listener.asked) == 2
    output = orjson.loads(present((await step_of(process, acme, run_id)).output))
    assert output["body"] == {"from": "the second"}


async def test_a_slow_server_does_not_cost_the_lease(open_process: Process, acme: str) -> None:
    process = replace(open_process, settings=replace(open_process.settings, lease_seconds=1))
    gate = asyncio.Event()

    async def slowly(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await gate.wait()
        await says({"ok": True})(asked, writer)

    async with Listener(slowly) as listener:
        run_id = await started(process, acme, ask(listener))
        moving = asyncio.create_task(settle(process))
        await listener.arrived.wait()
        await outlasted(process, "call")
        assert await process.claim("call", [], 10) == []
        gate.set()
        await moving
    assert len(listener.asked) == 1
    assert (await read(process, acme, run_id)).status == "COMPLETED"


@pytest.mark.parametrize("when", ["before", "during"])
async def test_an_erased_contact_s_calls_are_not_made_or_not_heard(
    open_process: Process, acme: str, when: str
) -> None:
    process = open_process

    async def erase() -> None:
        run = await read(process, acme, run_id)
        async with process.database.write() as db:
            await erasing.erase(db, WorkspaceContext(acme, None, process.vault), run.contact_id)

    async def erase_first(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await erase()
        await says({"ok": True})(asked, writer)

    async with Listener(erase_first) as listener:
        run_id = await started(process, acme, ask(listener))
        [moving] = await process.claim("run", [], 10)
        await runner.move(process, moving)
        if when == "before":
            await erase()
        await settle(process)
        assert listener.connections == (when == "during")
    run = await read(process, acme, run_id)
    assert (run.status, run.reason_code) == ("CANCELLED", Reason.CONTACT_ERASED)
    assert await left(process) == 0


@pytest.mark.parametrize(
    "ended",
    [
        "UPDATE definitions SET state = 'ARCHIVED'",
        # Not by a definition either that was activated while the workspace was deleted.
        "UPDATE workspaces SET deleted_at = :now",
    ],
)
async def test_calls_of_what_has_ended_are_not_made(
    open_process: Process, acme: str, ended: str
) -> None:
    process = open_process
    async with Listener() as listener:
        await started(process, acme, ask(listener))
        [moving] = await process.claim("run", [], 10)
        await runner.move(process, moving)
        async with process.database.write() as db:
            await db.execute(ended)
        await settle(process)
        assert listener.connections == 0
    assert await left(process) == 0


async def test_an_answer_that_comes_for_an_archived_run_is_forgotten(
    open_process: Process, acme: str
) -> None:
    process = open_process
    async with Listener() as listener:
        run_id = await started(process, acme, ask(listener))
        [moving] = await process.claim("run", [], 10)
        await runner.move(process, moving)
        [claimed] = await process.claim("call", [], 10)
        await calling.make(process, claimed)
        async with process.database.write() as db:
            await db.execute("UPDATE definitions SET state = 'ARCHIVED'")
        await settle(process)
    assert (await read(process, acme, run_id)).status == "CANCELLED"
    assert await left(process) == 0


async def test_a_run_is_woken_only_by_what_it_waits_for(process: Process, acme: str) -> None:
    run_id = await started(process, acme, {"type": "wait", "duration": "PT1H"})
    await settle(process)
    async with process.database.write() as db:
        await runs.wake(db, workspace_id=acme, id=run_id, awaited_id="call_of_another")
    assert await process.claim("run", [], 10) == []
