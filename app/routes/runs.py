"""Runs: what happened to each accepted event."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from pydantic import Field
from starlette.responses import Response

from app.machine import description, document, reasons
from app.outbound import chains
from app.routes import automations, workflows
from app.routes.definitions import DefinitionKind
from app.routes.ids import AutomationId, ContactId, MessageId, RunId, WorkflowId
from app.runs import run_control
from app.runtime.compute import Computation, Unfinished
from app.store import definitions, messages, run_steps, runs
from app.store.messages import MessageStatus
from app.store.runs import RunStatus
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import Call, Endpoint, Handler, get, post
from app.web.schemas import referring

OWNER = {"graph": "automationId", "steps": "workflowId"}
LARGE = 16 * 1024  # bytes of a trigger's body that is not read on the event loop


Trouble: TypeAlias = Literal["FAILED", "BOUNCED", "SUPPRESSED", "UNKNOWN"]


class Filters(Paging):
    workflow_id: str | None = Field(None, description="Filter by workflow.")
    automation_id: str | None = Field(None, description="Filter by automation.")
    contact_id: str | None = Field(None, description="Filter by contact.")
    status: RunStatus | None = Field(None, description="How far it is.")
    message_status: Trouble | None = Field(
        None,
        description="One of its messages has this status. A run whose message failed goes on, and"
        " may be COMPLETED.",
    )


class Reason(Shape):
    """The reason, if something other than the obvious happened: a stable code and an
    explanation."""

    code: str | None
    detail: str | None


class RunSummary(Shape):
    """The ID of a workflow or an automation. `blockedBy` is the run because of which this one was
    not let in (the trigger's `reentry`)."""

    id: RunId
    workflow_id: WorkflowId | None = None
    automation_id: AutomationId | None = None
    version: int
    contact_id: ContactId | None
    status: RunStatus
    reason: Reason | None
    blocked_by: RunId | None
    waiting_for: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Sent(Shape):
    """The current status of a step's message, which may have changed since the step: it may have
    bounced. The full message is at `/messages/:id`."""

    id: MessageId
    status: MessageStatus
    reason: Reason | None


class RunStep(Shape, json_schema_extra={"allOf": referring(description.outputs())}):
    """`message` is present if the step sends one. `output` is null, too, where those of later steps
    have 2 MiB already."""

    node_id: str
    kind: str
    visit: int
    status: str
    reason: Reason | None
    port: str | None
    output: dict[str, Any] | None
    message: Sent | None
    started_at: datetime
    finished_at: datetime | None


class Run(RunSummary):
    """`trigger` is the body that started it, written without blanks and doubled names; one over
    16 KB has them where a cancellation answers it, or rewriting it takes too long. `stepsOmitted`
    says how many steps were before these, which are the newest 2,000, and `outputsOmitted` of how
    many of these the output is left out."""

    trigger: Any
    steps: list[RunStep]
    steps_omitted: int
    outputs_omitted: int


class Start(Shape):
    """`data` is available to templates as `trigger`."""

    contact_id: str
    data: dict[str, Any] = Field(default_factory=dict)


class Receipt(Shape):
    run_id: RunId
    contact_id: ContactId


async def index(call: Call) -> Response:
    return await paging.index(call, Filters, runs.page, summary)


async def show(call: Call) -> Response:
    """Every step with its reasons, the operands of its decisions, and the current status of each
    message."""
    row = await _found(call)
    body = bytes(row.body)
    computation = Computation(
        call.member.workspace_id, document.rewritten, (body,), same=lambda: [row.id]
    )
    try:
        trigger = call.process.compute.here(computation, large=len(body) > LARGE)
    except Unfinished:
        trigger = document.as_it_came(body)
    return reply.ok(await _resource(call, row, trigger))


async def cancel(call: Call) -> Response:
    """End the run at its current step. Pending messages are not sent, messages already being sent
    arrive."""
    row = await _found(call)
    await run_control.cancel(call.process, call.db, call.member.workspace_id, row)
    # Who cancels waits for nothing that is to be computed, and is never refused for it.
    body = bytes(row.body)
    trigger = document.as_it_came(body) if len(body) > LARGE else document.rewritten(body)
    cancelled = await _resource(call, await _found(call), trigger)
    if row.finished_at is None:
        after = {"status": cancelled["status"]}
        await call.note("run.cancelled", row.id, {"status": row.status}, after)
    return reply.ok(cancelled)


async def retry(call: Call) -> Response:
    """Retry a FAILED run: it enters the step that failed again, in the version it started with. To
    run a definition that was fixed since, use a replay."""
    row = await runs.locked(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    row = reply.found(row, "run")
    await run_control.retry(call.process, call.db, call.member.workspace_id, row)
    await call.note("run.retried", row.id)
    return _receipt(row.id, row.contact_id)


async def replay(call: Call) -> Response:
    """A new run of the current definition from its beginning, with the same body and contact; what
    the first run sent is sent again."""
    row = await _found(call)
    run_id = await run_control.replay(
        call.process, call.db, call.member.workspace_id, row, **_chain(call)
    )
    await call.note("run.replayed", run_id, after={"replayOf": row.id})
    return _receipt(run_id, row.contact_id)


def start_of(kind: DefinitionKind) -> Handler:
    async def start(call: Call) -> Response:
        """Start a run manually, for a contact and with your own body."""
        new, workspace_id = call.read(Start), call.member.workspace_id
        row = await definitions.by_id(
            call.db, workspace_id=workspace_id, shape=kind.shape, id=call.path("id")
        )
        row = reply.found(row, kind.noun)
        run_id = await run_control.start(
            call.process,
            call.db,
            workspace_id,
            definition_id=row.id,
            contact_id=new.contact_id,
            data=new.data,
            **_chain(call),
        )
        await call.note("run.started", run_id, after={"contactId": new.contact_id})
        return _receipt(run_id, new.contact_id)

    return start


class Chain(TypedDict):
    """The chain of runs that a request comes from."""

    depth: int
    root: str | None


def _chain(call: Call) -> Chain:
    headers, vault = call.request.headers, call.process.vault
    values = headers.getlist(chains.CHAIN)
    return {
        "depth": chains.depth_of(headers.getlist(chains.DEPTH)),
        "root": chains.root_of(vault, call.member.workspace_id, values),
    }


async def _found(call: Call) -> runs.WholeRun:
    row = await runs.by_id(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    return reply.found(row, "run")


def _receipt(run_id: str, contact_id: str) -> Response:
    return reply.accepted({"runId": run_id, "contactId": contact_id})


async def _resource(call: Call, row: runs.WholeRun, trigger: str) -> dict[str, Any]:
    """`trigger` is its body as JSON is written, or as it came if that takes too long."""
    of = {"workspace_id": call.member.workspace_id, "run_id": row.id}
    steps = await run_steps.of_run(call.db, **of)
    sends = any(step.kind == "send_message" for step in steps)
    asked_for = await messages.of_run(call.db, **of) if sends else []
    sent = {(one.node_id, one.visit): one for one in asked_for}
    shown = []
    for step in steps:
        one = sent.get((step.node_id, step.visit))
        message = None if one is None else Sent.of(one, reason=reason(one))
        output = None if step.output is None else document.as_written(step.output)
        shown.append(RunStep.of(step, reason=reason(step), output=output, message=message))
    return {
        **summary(row),
        "trigger": document.as_written(trigger),
        "steps": shown,
        "stepsOmitted": steps[0].position - 1 if steps else 0,
        "outputsOmitted": sum(step.output is None and step.output_bytes > 0 for step in steps),
    }


def summary(row: runs.Run) -> dict[str, Any]:
    """A run as lists have it: without the trigger's body and the steps."""
    shown = RunSummary.of(row, reason=reason(row), workflow_id=None, automation_id=None)
    other = OWNER["steps" if row.shape == "graph" else "graph"]
    del shown[other]
    return {**shown, OWNER[row.shape]: row.definition_id}


class Reasoned(Protocol):
    """A row that says why it is so."""

    @property
    def reason_code(self) -> str | None: ...
    @property
    def reason_detail(self) -> str | None: ...


def reason(row: Reasoned) -> dict[str, Any] | None:
    """The reason, when it is not the obvious thing."""
    return reasons.resource(row.reason_code, row.reason_detail)


def _start_route(kind: DefinitionKind) -> Endpoint:
    return post(
        f"{kind.path}/{{id}}/runs",
        start_of(kind),
        can="runs:write",
        takes=Start,
        gives={202: Receipt},
        raises=("conflict", "chain_too_long"),
    )


routes = [
    get("/runs", index, can="runs:read", query=Filters, gives={200: Page[RunSummary]}),
    get("/runs/{id}", show, can="runs:read", gives={200: Run}),
    post("/runs/{id}/cancel", cancel, can="runs:write", gives={200: Run}, raises=["conflict"]),
    post("/runs/{id}/retry", retry, can="runs:write", gives={202: Receipt}, raises=["conflict"]),
    post(
        "/runs/{id}/replay",
        replay,
        can="runs:write",
        gives={202: Receipt},
        raises=("conflict", "chain_too_long"),
    ),
    _start_route(automations.kind),
    _start_route(workflows.kind),
]
