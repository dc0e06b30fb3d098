"""Runs over HTTP: what happened to each accepted event, its steps, its body as it came."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from app.machine import document
from app.process import Process
from app.routes.runs import LARGE
from app.runs import runner
from app.runtime.compute import Computation, Compute, Unfinished
from app.store import run_steps
from tests.cast import SEND_HELLO, WEBHOOK, Cast, hook, settle

RUNS = "/runs"
JSON = {"Content-Type": "application/json"}
STEPS: list[dict[str, Any]] = [
    {"type": "add_tag", "id": "tag", "tag": "seen"},
    {
        "type": "branch",
        "id": "rich",
        "cases": [
            {
                "when": {"path": "trigger.price", "op": "gt", "value": 1},
                "steps": [SEND_HELLO],
            }
        ],
    },
    {"type": "wait", "id": "rest", "duration": "PT1H"},
]


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: httpx2.Response) -> list[str]:
    assert refused(response) == (422, "invalid"), response.text
    return [error["pointer"] for error in response.json()["errors"]]


async def started(cast: Cast, token: str, body: bytes) -> dict[str, str]:
    response = await cast.client.post(f"/v1/webhooks/in/{token}", content=body, headers=JSON)
    assert response.status_code == 202, response.text
    receipt: dict[str, str] = response.json()
    return receipt


async def test_a_run_reads_back_at_once_and_then_step_by_step(cast: Cast, process: Process) -> None:
    token = await hook(process, cast.ed.workspace_id, STEPS)
    receipt = await started(cast, token, b'{"email": "ada@example.com", "word": "tea", "price": 2}')
    url = f"{RUNS}/{receipt['runId']}"
    [workflow] = (await cast.vic.read("/workflows"))["data"]
    queued = await cast.vic.read(url)
    assert queued == {
        "id": receipt["runId"],
        "workflowId": workflow["id"],
        "version": 1,
        "contactId": receipt["contactId"],
        "status": "QUEUED",
        "reason": None,
        "blockedBy": None,
        "waitingFor": None,
        "trigger": {"email": "ada@example.com", "word": "tea", "price": 2},
        "steps": [],
        "stepsOmitted": 0,
        "outputsOmitted": 0,
        "createdAt": queued["createdAt"],
        "startedAt": None,
        "finishedAt": None,
    }
    await settle(process)
    waiting = await cast.vic.read(url)
    assert waiting["status"] == "WAITING"
    assert waiting["waitingFor"]["kind"] == "time"
    assert waiting["startedAt"] >= waiting["createdAt"]
    listed = [(one["nodeId"], one["kind"], one["status"], one["port"]) for one in waiting["steps"]]
    assert listed == [
        ("tag", "add_tag", "COMPLETED", "next"),
        ("rich", "branch", "COMPLETED", "case1"),
        ("hello", "send_message", "COMPLETED", "next"),
        ("rest", "wait", "WAITING", None),
    ]
    assert {one["visit"] for one in waiting["steps"]} == {1}
    tagged, branched, sent, resting = waiting["steps"]
    assert tagged["output"] == {"tag": "seen"}
    assert branched["output"]["cases"][0]["holds"] is True
    assert sent["output"]["status"] == "SENT"
    message = await cast.vic.read(f"/messages/{sent['output']['messageId']}")
    assert (message["runId"], message["nodeId"]) == (receipt["runId"], "hello")
    assert resting["finishedAt"] is None
    assert all(one["finishedAt"] >= one["startedAt"] for one in waiting["steps"][:3])


async def test_a_run_of_many_steps_is_shown_by_the_newest_and_what_they_left(
    cast: Cast, process: Process
) -> None:
    token = await hook(process, cast.ed.workspace_id, STEPS)
    receipt = await started(cast, token, b'{"email": "ada@example.com"}')
    large = '{"body":"' + "x" * 64 * 1024 + '"}'
    async with process.database.write() as db:
        now = await db.now()
        await run_steps.record(
            db,
            workspace_id=cast.ed.workspace_id,
            run_id=receipt["runId"],
            steps=[
                run_steps.NewStep(
                    node_id="ask",
                    visit=number,
                    position=number,
                    kind="http_request",
                    status="COMPLETED",
                    reason_code=None,
                    reason_detail=None,
                    port="next",
                    output=large if 1_900 < number < run_steps.MOST else '{"body":1.10}',
                    finished_at=now,
                )
                for number in range(1, run_steps.MOST + 4)
            ],
        )
    shown = await cast.vic.get(f"{RUNS}/{receipt['runId']}")
    assert len(shown.content) < run_steps.MOST_BYTES + 1024 * 1024
    assert b'"output":{"body":1.10}' in shown.content
    run = shown.json()
    assert run["stepsOmitted"] == 3
    assert [step["visit"] for step in run["steps"]] == [*range(4, run_steps.MOST + 4)]
    kept = [step["output"] is not None for step in run["steps"]]
    assert kept == [False] * (run_steps.MOST - 35) + [True] * 35
    assert run["outputsOmitted"] == run_steps.MOST - 35
    drawn = await cast.vic.get(f"/workflows/{run['workflowId']}/graph.svg?runId={run['id']}")
    assert drawn.status_code == 200


async def test_a_step_tells_what_has_become_of_its_message_since(
    cast: Cast, process: Process
) -> None:
    away = {**SEND_HELLO, "id": "away", "to": "{{trigger.none}}"}
    token = await hook(process, cast.ed.workspace_id, [SEND_HELLO, away, STEPS[0]])
    receipt = await started(cast, token, b'{"email": "ada@example.com"}')
    [row] = await process.claim("run", [], 10)
    await runner.move(process, row)
    url = f"{RUNS}/{receipt['runId']}"
    [queued] = (await cast.vic.read(url))["steps"]
    assert (queued["status"], queued["message"]["status"]) == ("WAITING", "QUEUED")
    await settle(process)
    async with process.database.write() as db:
        await db.execute(
            "UPDATE messages SET status = 'BOUNCED', reason_code = 'bounced_hard'"
            " WHERE status = 'SENT'"
        )
    sent, unsent, tagged = (await cast.vic.read(url))["steps"]
    assert sent["output"]["status"] == "SENT"  # what the step heard
    assert sent["message"] == {
        "id": sent["output"]["messageId"],
        "status": "BOUNCED",
        "reason": {
            "code": "bounced_hard",
            "detail": "The address does not exist, or permanently refuses messages.",
        },
    }
    assert (unsent["reason"]["code"], unsent["message"]) == ("no_address", None)
    assert tagged["message"] is None


async def test_the_trigger_s_body_keeps_the_sender_s_literals(cast: Cast, process: Process) -> None:
    token = await hook(process, cast.ed.workspace_id, [STEPS[1]])
    literals = b'{"price":1.10,"n":123456789012345678901,"e":1E400,"zero":-0,"word":2.50}'
    body = b'{"email":"ada@example.com",' + literals[1:]
    receipt = await started(cast, token, body)
    await settle(process)
    shown = (await cast.vic.get(f"{RUNS}/{receipt['runId']}")).content
    assert b'"trigger":' + body in shown
    assert b"1.10" in shown.split(b'"steps":')[1]  # what the branch compared
    [captured] = (await cast.vic.read("/sandbox/messages"))["data"]
    assert "You said 2.50" in captured["text"]


async def test_a_long_body_of_a_trigger_is_read_beside_the_loop(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of numbers takes a third of a second, whenever somebody looks at the run."""
    token = await hook(process, cast.ed.workspace_id, [{"type": "exit"}])
    body = b'{"email":"ada@example.com","all":[' + b"1.50," * 4_000 + b"1]}"
    assert len(body) > LARGE
    receipt = await started(cast, token, body)
    tried: list[bool] = []
    attempt = Compute.attempt

    def noted(compute: Compute, computation: Computation[Any], *, large: bool = False) -> Any:
        if computation.work is document.rewritten:
            tried.append(large)
        return attempt(compute, computation, large=large)

    monkeypatch.setattr(Compute, "attempt", noted)
    shown = (await cast.vic.get(f"{RUNS}/{receipt['runId']}")).content
    assert b'"trigger":' + body in shown
    assert tried == [True]


async def test_a_body_that_takes_too_long_to_be_written_again_is_shown_as_it_came(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await hook(process, cast.ed.workspace_id, [{"type": "exit"}])
    body = b'\xef\xbb\xbf{"email": "ada@example.com"}'
    receipt = await started(cast, token, body)

    def unfinished(_: Compute, computation: Computation[Any], *, large: bool = False) -> None:
        raise Unfinished(computation.seconds)

    monkeypatch.setattr(Compute, "here", unfinished)
    shown = (await cast.vic.get(f"{RUNS}/{receipt['runId']}")).content
    assert b'"trigger":{"email": "ada@example.com"}' in shown


async def test_a_step_that_did_not_do_the_obvious_thing_says_why(
    cast: Cast, process: Process
) -> None:
    steps = [
        {**STEPS[1], "else": [{"type": "remove_tag", "id": "drop", "tag": "{{trigger.none}}"}]},
        {"type": "update_contact", "id": "set", "set": {"timezone": "{{trigger.where}}"}},
        {"type": "exit", "id": "out", "reason": "enough"},
    ]
    token = await hook(process, cast.ed.workspace_id, steps)
    receipt = await started(cast, token, b'{"email": "ada@example.com", "where": "Mars"}')
    await settle(process)
    run = await cast.vic.read(f"{RUNS}/{receipt['runId']}")
    assert (run["status"], run["finishedAt"] is not None) == ("COMPLETED", True)
    answer = {one["nodeId"]: (one["reason"] or {}).get("code") for one in run["steps"]}
    assert answer == {
        "rich": "condition_false",
        "drop": "tag_empty",
        "set": "change_refused",
        "out": None,
    }
    assert run["steps"][1]["output"]["missing"] == ["trigger.none"]
    assert "IANA" in run["steps"][2]["reason"]["detail"]


async def test_runs_are_listed_without_body_and_steps_and_filtered(
    cast: Cast, process: Process
) -> None:
    acme, body = cast.ed.workspace_id, b'{"email": "ada@example.com"}'
    rests = await hook(process, acme, [STEPS[2]])
    ends = await hook(process, acme, [{"type": "exit"}])
    theirs = await hook(process, cast.mallory.workspace_id, [{"type": "exit"}], trigger=WEBHOOK)
    first = await started(cast, rests, body)
    second = await started(cast, ends, b'{"email": "bob@example.com"}')
    await started(cast, theirs, body)
    await settle(process)
    third = await started(cast, ends, body)
    [quick, slow] = (await cast.vic.read("/workflows"))["data"]
    for query, found in (
        ("", [third, second, first]),
        (f"?workflowId={slow['id']}", [first]),
        (f"?workflowId={quick['id']}&status=QUEUED", [third]),
        (f"?automationId={quick['id']}", []),
        (f"?contactId={first['contactId']}", [third, first]),
        ("?status=COMPLETED", [second]),
        ("?status=WAITING", [first]),
        ("?status=FAILED", []),
        ("?createdAfter=2999-01-01T00:00:00Z", []),
        ("?createdBefore=2999-01-01T00:00:00%2B02:00", [third, second, first]),
    ):
        listed = (await cast.vic.read(RUNS + query))["data"]
        assert [one["id"] for one in listed] == [one["runId"] for one in found], query
        assert all(not {"trigger", "steps"} & one.keys() for one in listed)
    for query, wrong in (
        ("?status=DONE", ["?status"]),
        ("?createdAfter=2026-01-01", ["?createdAfter"]),
        ("?definitionId=x&q=y", ["?definitionId", "?q"]),
    ):
        assert pointers(await cast.vic.get(RUNS + query)) == wrong, query
    page = await cast.vic.read(f"{RUNS}?limit=2")
    rest = await cast.vic.read(f"{RUNS}?limit=2&cursor={page['nextCursor']}")
    assert [one["id"] for one in rest["data"]] == [first["runId"]]
    assert rest["nextCursor"] is None


async def test_a_run_s_contact_may_be_gone_and_the_run_is_still_readable(
    cast: Cast, process: Process
) -> None:
    token = await hook(process, cast.ed.workspace_id, [{"type": "exit"}])
    receipt = await started(cast, token, b'{"email": "ada@example.com"}')
    await settle(process)
    await cast.ed.delete(f"/contacts/{receipt['contactId']}")
    run: dict[str, Any] = await cast.vic.read(f"{RUNS}/{receipt['runId']}")
    assert (run["status"], run["contactId"]) == ("COMPLETED", receipt["contactId"])


async def test_what_has_no_revision_has_a_tag_of_what_it_says(cast: Cast, process: Process) -> None:
    token = await hook(process, cast.ed.workspace_id)
    made = (
        await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "a@b.example"})
    ).json()
    url = f"/runs/{made['runId']}"
    queued = await cast.vic.get(url)
    tag = queued.headers["ETag"]
    for same in (tag, f"W/{tag}", f'"1", {tag}', "*"):
        unchanged = await cast.vic.get(url, headers={"If-None-Match": same})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["ETag"] == tag
    await settle(process)
    changed = await cast.vic.get(url, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != tag
    message = (await cast.vic.read("/messages/delivery-attempts"))["data"][0]
    for other in (
        f"/messages/{message['messageId']}",
        f"/messages/delivery-attempts/{message['id']}",
    ):
        tag = (await cast.vic.get(other)).headers["ETag"]
        again = await cast.vic.get(other, headers={"If-None-Match": tag})
        assert again.status_code == 304


async def test_a_run_whose_message_failed_is_found_by_it(cast: Cast, process: Process) -> None:
    """Its run has gone on, and is COMPLETED like all others."""
    hello = {"id": "hello", "type": "send_message", "channel": "email"}
    broken = {**hello, "content": {"subject": "{{trigger.no | divided_by: 0}}", "text": "Hi"}}
    twice = await hook(process, cast.ed.workspace_id, [broken, {**broken, "id": "again"}])
    once = await hook(process, cast.ed.workspace_id, [broken])
    fine = await hook(process, cast.ed.workspace_id, [SEND_HELLO])
    ids = []
    for token in (twice, fine, once, fine, twice):
        receipt = await started(cast, token, b'{"email": "ada@example.com", "no": 1}')
        await settle(process)
        ids.append(receipt["runId"])
    page = await cast.vic.read("/runs?messageStatus=FAILED")
    assert [one["id"] for one in page["data"]] == [ids[4], ids[2], ids[0]]
    assert {one["status"] for one in page["data"]} == {"COMPLETED"}
    found, cursor = [], ""
    for _ in range(3):
        page = await cast.vic.read(f"/runs?messageStatus=FAILED&limit=1{cursor}")
        found += [one["id"] for one in page["data"]]
        cursor = f"&cursor={page['nextCursor']}"
    assert (found, page["nextCursor"]) == ([ids[4], ids[2], ids[0]], None)
    workflow = page["data"][0]["workflowId"]
    narrowed = f"messageStatus=FAILED&status=COMPLETED&workflowId={workflow}"
    page = await cast.vic.read(f"/runs?{narrowed}")
    assert [one["id"] for one in page["data"]] == [ids[4], ids[0]]
    assert (await cast.vic.read("/runs?messageStatus=BOUNCED"))["data"] == []
    assert (await cast.mallory.read("/runs?messageStatus=FAILED"))["data"] == []
    refusal = await cast.vic.get("/runs?messageStatus=SENT")
    assert (refusal.status_code, "FAILED" in refusal.text) == (422, True)


async def test_a_line_break_at_the_end_of_a_name_fails_no_message(
    cast: Cast, process: Process
) -> None:
    content = {"subject": "Hi {{trigger.name}}", "fromName": "{{trigger.name}}", "text": "Hi"}
    steps = [{"id": "hello", "type": "send_message", "channel": "email", "content": content}]
    token = await hook(process, cast.ed.workspace_id, steps)
    receipt = await started(cast, token, b'{"email": "ada@example.com", "name": "Ada\\n"}')
    await settle(process)
    [mail] = (await cast.vic.read(f"/sandbox/messages?runId={receipt['runId']}"))["data"]
    assert (mail["subject"], mail["from"].split(" <")[0]) == ("Hi Ada", "Ada")
