"""Definitions tried before they send: a simulated run, for a given contact or a stored one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from pydantic import Field
from starlette.responses import Response

from app.contacts import audience
from app.definitions import activation, credentials, findings
from app.definitions.findings import Subject
from app.errors import FieldError, Problem
from app.machine import check, document
from app.machine.program import Finding as Found
from app.machine.program import Json
from app.machine.reasons import SAID
from app.messages import composing, providers
from app.routes import automations, workflows
from app.routes.definitions import DefinitionKind, Finding
from app.routes.runs import Reason
from app.simulations import cases, scenes, simulation, traces
from app.simulations.scenes import Given
from app.simulations.simulation import Scenario
from app.simulations.traces import Passage, Trace
from app.store import contacts, definitions, templates, workspaces
from app.store.db import Handle, Row
from app.web import reply
from app.web.body import Query, Shape
from app.web.routing import Call, Endpoint, post
from app.webhooks import lookup

# One at a time in each process: it holds the interpreter's lock, and intakes wait for that too.
PAPER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="simulation")


class Wanted(Query):
    case: bool = Field(False, description="Also as a file for `python -m app simulate`.")


class Said(Shape):
    """A message as it would be sent."""

    channel: str
    to: str | None
    template_id: str | None
    status: str
    content: dict[str, Any] | None


class SimulatedStep(Shape):
    """`changes` of the contact: by field, before and after."""

    node_id: str
    kind: str
    visit: int
    status: str
    reason: Reason | None
    port: str | None
    output: Any
    message: Said | None
    changes: dict[str, list[Any]] | None
    entered_at: datetime
    left_at: datetime | None


class End(Shape):
    """COMPLETED, FAILED, WAITING for something that does not happen, or STOPPED by the simulation's
    limits."""

    status: str
    reason: Reason | None
    at: datetime


class Simulation(Shape):
    """What would happen. Without an `end`, the definition cannot run: `findings` say why."""

    findings: list[Finding]
    start_at: datetime
    steps: list[SimulatedStep]
    end: End | None
    contact: dict[str, Any] | None
    case: dict[str, Any] | None = None


def simulated(kind: DefinitionKind) -> Endpoint:
    """The route that tries one definition of that kind."""

    async def simulate(call: Call) -> Response:
        """What a run would do, on a virtual clock; nothing is written or sent."""
        await call.receive_body()
        given, wanted = call.read(Given), call.query(Wanted)
        async with call.process.database.read() as db:
            subject, found = await _looked_at(call, db, kind)
            given = await _filled(db, given, subject)
            scenario = await _scenario(call, db, subject, given)
        trace = None
        if scenario is not None:
            loop = asyncio.get_running_loop()
            trace = await loop.run_in_executor(PAPER, simulation.simulate, scenario)
        told = _told(given, found, trace)
        if wanted.case and scenario is not None and trace is not None:
            told["case"] = _case(call.body, subject, given, scenario, trace)
        return reply.ok(told)

    return post(
        f"{kind.path}/{{id}}/simulate",
        simulate,
        can=f"{kind.noun}s:read",
        tx=None,
        takes=Given,
        query=Wanted,
        gives={200: Simulation},
        raises=("lookup_unresolved", "contact_not_found"),
    )


# --- what is tried --------------------------------------------------------------------------------


async def _looked_at(call: Call, db: Handle, kind: DefinitionKind) -> tuple[Subject, list[Found]]:
    """The definition as it is now, draft or not, and all that its activation would find."""
    workspace_id = call.member.workspace_id
    row = await definitions.by_id(
        db, workspace_id=workspace_id, shape=kind.shape, id=call.path("id")
    )
    if row is None:
        raise kind.unknown()
    body = credentials.opened(
        call.process.vault, workspace_id, row["id"], document.parse(row["body"].encode())
    )
    compiled = check.compile(row["shape"], body)
    subject = Subject(workspace_id, row, row["trigger_config"], None, compiled)
    return subject, [*compiled.findings, *await findings.find(call.process, db, subject)]


async def _filled(db: Handle, given: Given, subject: Subject) -> Given:
    """With a time to start at and, unless the trigger makes one, a contact."""
    start_at = given.start_at or await db.now()
    row = await _contact(db, given, subject)
    if row is None:
        return given.model_copy(update={"start_at": start_at})
    tags = await contacts.tags_of(db, workspace_id=subject.workspace_id, contact_ids=[row["id"]])
    contact = {"id": row["id"], **audience.writable(row, tags[row["id"]])}
    return given.model_copy(update={"start_at": start_at, "contact": contact})


async def _contact(db: Handle, given: Given, subject: Subject) -> Row | None:
    """The stored one, if there is one to be: the one named, or whom the intake would find."""
    if given.contact is not None and given.contact_id is not None:
        message = "Give a contactId or a contact, not both."
        raise scenes.invalid([FieldError("/contactId", message)])
    if given.contact is not None:
        return None
    id, trigger = given.contact_id, subject.trigger
    if id is None and trigger["source"] == "inbound_webhook" and trigger.get("contactLookup"):
        workspace = await workspaces.by_id(db, id=subject.workspace_id)
        country = workspace["country"] if workspace else None
        found = lookup.resolve(trigger, given.trigger, country)
        who = found.within(subject.workspace_id)
        known = await audience.find_all(db, [who])
        if who not in known:
            if trigger.get("createContact") and found.kind in ("email", "phone"):
                return None
            raise Problem("contact_not_found", "The intake would find no contact and create none.")
        id = known[who].id
    row = id and await contacts.by_id(db, workspace_id=subject.workspace_id, id=id)
    if id is not None and not row:
        raise scenes.invalid([FieldError("/contactId", "There is no such contact.")])
    return row or None


async def _scenario(call: Call, db: Handle, subject: Subject, given: Given) -> Scenario | None:
    """None for a program that cannot run."""
    compiled, workspace_id = subject.compiled, subject.workspace_id
    workspace = await workspaces.by_id(db, id=workspace_id)
    if compiled.program is None or workspace is None:
        return None
    started = [start.id for start in compiled.starts]
    targets = await definitions.bodies(db, workspace_id=workspace_id, ids=started)
    named = {reference.id for reference in compiled.templates}
    sender = {part: workspace[column] for part, column in composing.SENDER.items()}
    return Scenario(
        workspace={name: workspace[name] for name in ("id", "name", "timezone", "country")},
        definition_id=subject.row["id"],
        version=max(subject.row["version"], 1),
        sender={part: value for part, value in sender.items() if value is not None},
        templates=await templates.named(db, workspace_id=workspace_id, ids=sorted(named)),
        channels=sorted(await providers.names(call.process, db, workspace_id)),
        startable=[row["id"] for row in targets if row["state"] == "ACTIVE"],
        **scenes.of(given, compiled.program, subject.trigger, workspace["country"]),
    )


# --- what is told ---------------------------------------------------------------------------------


def _told(given: Given, found: list[Found], trace: Trace | None) -> dict[str, Any]:
    return {
        "findings": activation.told(found),
        "startAt": given.start_at,
        "steps": [_step(passage) for passage in trace.passages] if trace else [],
        "end": trace
        and {
            "status": trace.end.status,
            "reason": _reason(trace.end.code, trace.end.detail),
            "at": trace.end.at,
        },
        "contact": trace and trace.contact,
        "case": None,
    }


def _step(passage: Passage) -> dict[str, Any]:
    said = passage.said
    return {
        "nodeId": passage.node_id,
        "kind": passage.kind,
        "visit": passage.visit,
        "status": passage.status,
        "reason": _reason(passage.code, passage.detail),
        "port": passage.port,
        "output": passage.output,
        "message": said
        and {
            "channel": said.channel,
            "to": said.to,
            "templateId": said.template_id,
            "status": said.status,
            "content": said.content,
        },
        "changes": passage.changes
        and {name: list(values) for name, values in passage.changes.items()},
        "enteredAt": passage.entered_at,
        "leftAt": passage.left_at,
    }


def _reason(code: str | None, detail: str | None) -> dict[str, Json] | None:
    if code is None and detail is None:
        return None
    return {"code": code, "detail": detail or SAID.get(code or "")}


def _case(
    body: bytes, subject: Subject, given: Given, scenario: Scenario, trace: Trace
) -> dict[str, Json]:
    """As a file has it: with all that it needs, and what came of it."""
    place = {name: scenario.workspace[name] for name in ("name", "timezone", "country")}
    answers = {"channels": list(scenario.channels), "startable": scenario.startable}
    asked = {name: value for name, value in document.parse(body).items() if name != "contactId"}
    contact = {} if given.contact is None else {"contact": given.contact}
    found = cases.found(subject.trigger, subject.compiled, scenario.templates, given.trigger)
    return {
        "name": subject.row["name"],
        "definition": {
            "trigger": subject.trigger,
            subject.row["shape"]: credentials.masked(document.parse(subject.row["body"].encode())),
        },
        "templates": {
            id: {name: row[name] for name in ("name", "channel", "category", "content")}
            for id, row in scenario.templates.items()
        },
        "workspace": {**place, "sender": scenario.sender, **answers},
        "input": {**asked, **contact, "startAt": given.start_at},
        "expected": {"findings": cases.noted(found), **traces.normal(trace)},
    }


routes = [simulated(automations.kind), simulated(workflows.kind)]
