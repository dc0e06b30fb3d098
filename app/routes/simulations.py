"""Definitions tried before they send: a simulated run, for a given contact or a stored one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

from pydantic import Field
from starlette.responses import Response

from app.audience import shapes, writing
from app.consent.gate import FrequencyCap
from app.database.db import Handle
from app.definitions import activation, credentials, findings, portable, trigger_node
from app.definitions.activation import Draft
from app.definitions.findings import Subject
from app.errors import FieldError, Problem
from app.intake import lookup
from app.machine import description, document, reasons, reentry
from app.machine.program import Finding as Found
from app.machine.program import Json
from app.machine.reentry import Entry
from app.routes import automations, workflows
from app.routes.definition_shapes import Finding, WritableAutomation, WritableWorkflow
from app.routes.definitions import DefinitionKind, object_in
from app.routes.runs import Reason
from app.runtime.compute import Computation
from app.simulation import proofs, scenes, simulation, trial
from app.simulation.scenes import Given
from app.simulation.traces import Passage, Trace
from app.simulation.trial import Setting
from app.store import contacts, definition_entries, definitions, messages, workspaces
from app.store.contacts import Contact
from app.store.row_keys import EntrantKey
from app.web import body, reply
from app.web.body import Query, Shape
from app.web.routing import Call, Endpoint, post
from app.web.schemas import referring

WHERE = "/definition"  # in the body, of what is not saved
SECONDS = simulation.MOST_SECONDS + 0.2  # of CPU time: it ends by its own limits


class Wanted(Query):
    case: bool = Field(False, description="Also as a file for `python -m app simulate`.")


class WantedUnsaved(Wanted):
    id: str | None = Field(
        None,
        description="The definition that this would change: splits go as its own do, and who went"
        " through it before counts.",
    )


class Asked(Given):
    """Everything that happens to the run; the contact is a stored one, or any other."""

    contact_id: str | None = None


class UnsavedAutomation(Asked):
    """`definition` is as POST `/automations` takes it."""

    definition: WritableAutomation


class UnsavedWorkflow(Asked):
    """`definition` is as POST `/workflows` takes it."""

    definition: WritableWorkflow


Unsaved: TypeAlias = type[UnsavedAutomation] | type[UnsavedWorkflow]


class SimulatedMessage(Shape):
    """A message as it would be sent; `heldUntil`, if quiet hours held it until then."""

    channel: str
    to: str | None
    template_id: str | None
    status: str
    content: dict[str, Any] | None
    held_until: datetime | None


class SimulatedStep(Shape, json_schema_extra={"allOf": referring(description.outputs())}):
    """`changes` of the contact: by field, before and after."""

    node_id: str
    kind: str
    visit: int
    status: str
    reason: Reason | None
    port: str | None
    output: dict[str, Any] | None
    message: SimulatedMessage | None
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
    """The trace of what would happen. Without an `end`, the definition cannot run: `findings` say
    why."""

    findings: list[Finding]
    start_at: datetime
    steps: list[SimulatedStep]
    end: End | None
    contact: dict[str, Any] | None
    case: dict[str, Any] | None = None


def simulated(kind: DefinitionKind) -> Endpoint:
    """The route that tries one definition of that kind."""

    async def simulate(call: Call) -> Response:
        """Simulate what a run would do, on a virtual clock; nothing is written or sent."""
        await call.receive_body()
        given, case = call.read(Asked), call.query(Wanted).case

        async def look() -> _Looked:
            async with call.process.database.read() as db:
                row = await kind.named(call, db, call.path("id"))
                assert row is not None  # noqa: S101 - an id was given
                return await _looked_at(call, db, row, given)

        return await _tried(call, look, case=case)

    return post(
        f"{kind.path}/{{id}}/simulate",
        simulate,
        can=f"{kind.noun}s:read",
        tx=None,
        takes=Asked,
        query=Wanted,
        gives={200: Simulation},
        raises=("lookup_unresolved", "contact_not_found"),
    )


def simulated_unsaved(kind: DefinitionKind) -> Endpoint:
    """The route that tries what is not saved."""
    model: Unsaved
    model = UnsavedAutomation if kind.shape == "graph" else UnsavedWorkflow

    async def simulate(call: Call) -> Response:
        """The same for a definition that is not saved; nothing is written or sent."""
        await call.receive_body()
        asked, wanted = _read(call, model), call.query(WantedUnsaved)
        values = {name: getattr(asked, name) for name in Asked.model_fields}
        given = Asked.model_construct(asked.model_fields_set - {"definition"}, **values)
        definition = asked.definition
        what = definition.graph if isinstance(definition, WritableAutomation) else definition.steps
        masks_stood_in = credentials.stood_in(what)
        draft = Draft(definition.name, "DRAFT", definition.trigger.stored(), what)

        async def look() -> _Looked:
            async with call.process.database.read() as db:
                text = activation.within_limits(kind.shape, masks_stood_in, place=WHERE)
                row = await kind.named(call, db, wanted.id)
                row = row or activation.unsaved(kind.shape, draft, await db.now())
                row = replace(row, name=draft.name, trigger_config=draft.trigger, body=text)
                return await _looked_at(call, db, row, given)

        return await _tried(call, look, case=wanted.case)

    simulate.__name__ = f"simulate_unsaved_{kind.noun}"
    return post(
        f"{kind.path}/simulate",
        simulate,
        can=f"{kind.noun}s:read",
        tx=None,
        takes=model,
        query=WantedUnsaved,
        gives={200: Simulation},
        raises=("lookup_unresolved", "contact_not_found", "not_found"),
    )


def _read(call: Call, model: Unsaved) -> UnsavedAutomation | UnsavedWorkflow:
    """Raises Problem, which says of a trigger on its node that it is there."""
    given = object_in(call.body) or {}
    definition = given.get("definition")
    if not isinstance(definition, dict):
        return call.read(model)
    try:
        moved = document.dumps({**given, "definition": trigger_node.moved(definition)})
    except ValueError:  # which the model says again
        return call.read(model)
    try:
        return body.read(model, call.request.headers, moved)
    except Problem as problem:
        at = trigger_node.place(definition)
        problem.errors = tuple(
            FieldError(WHERE + trigger_node.pointed(pointer, at), error.message)
            if (pointer := error.pointer.removeprefix(WHERE)) != error.pointer
            else error
            for error in problem.errors
        )
        raise


async def _tried(call: Call, look: Callable[[], Awaitable[_Looked]], *, case: bool) -> Response:
    compute = call.process.compute
    looked = await compute.within(look)
    program, setting = looked.subject.compiled.program, looked.setting
    if program is None or setting is None:
        return reply.ok(_answered(looked.given, looked.found, None))
    workspace_id, trigger = looked.subject.workspace_id, looked.subject.trigger
    tried = (looked.given, trigger, program, setting)
    trace = await compute.call(Computation(workspace_id, trial.run, tried, SECONDS))
    answer = _answered(looked.given, looked.found, trace)
    if case:
        noted = (looked.given, trigger, looked.subject.compiled, setting, trace)
        expected = await compute.call(Computation(workspace_id, trial.noted, noted, SECONDS))
        answer["case"] = _case(call.body, looked, setting, trace, expected)
    return reply.ok(answer)


# --- what is tried --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Looked:
    """Read what the database says: of the definition as it is now, draft or not, all that its
    activation would find; and, unless it cannot run, where."""

    subject: Subject
    found: list[Found]
    given: Given
    setting: Setting | None


async def _looked_at(call: Call, db: Handle, row: definitions.Definition, given: Asked) -> _Looked:
    workspace_id = call.member.workspace_id
    subject = findings.subject_of(call.process, workspace_id, row)
    found = [*subject.compiled.findings, *await findings.find(call.process, db, subject)]
    start_at = given.start_at or await db.now()
    known: dict[str, Any] = {"start_at": start_at}
    contact = await _contact(db, given, subject)
    if contact is not None:  # else the trigger makes one
        tags = await contacts.tags(db, workspace_id=workspace_id, contact_id=contact.id)
        known["contact"] = {
            "id": contact.id,
            **shapes.writable(contact, tags),
            "topics": contact.topics,
            "createdAt": document.text(contact.created_at),
            "updatedAt": document.text(contact.updated_at),
        }
        if "entered" not in given.model_fields_set:
            known["entered"] = await _entered(db, subject, contact.id, start_at)
        if "received" not in given.model_fields_set:
            known["received"] = await _received(db, workspace_id, contact.id, start_at)
    setting = await proofs.setting(call.process, db, subject)
    return _Looked(subject, found, given.model_copy(update=known), setting)


async def _entered(
    db: Handle, subject: Subject, contact_id: str, at: datetime
) -> scenes.Entered | None:
    """The run that would stand in the way."""
    policy = subject.trigger.get("reentry")
    if not reentry.is_limited(policy):
        return None
    of: EntrantKey = {
        "workspace_id": subject.workspace_id,
        "definition_id": subject.row.id,
        "contact_id": contact_id,
    }
    known = {
        **{one.id: (one.created_at, True) for one in await definition_entries.unfinished(db, **of)},
        **{
            one.run_id: (one.entered_at, one.is_running)
            for one in await definition_entries.of_contact(db, **of)
        },
    }
    found = reentry.obstacle(policy, [Entry(id, *one) for id, one in known.items()], at)
    if found is None:
        return None
    entered_at = document.text(found.entered_at)
    return scenes.Entered.model_validate({"at": entered_at, "running": found.is_running})


async def _received(
    db: Handle, workspace_id: str, contact_id: str, at: datetime
) -> list[scenes.Received]:
    """The marketing that the workspace's cap counts then."""
    workspace = await workspaces.by_id(db, id=workspace_id)
    cap = FrequencyCap.of(workspace.frequency_cap) if workspace else None
    if cap is None:
        return []
    counted = await messages.of_marketing(
        db,
        workspace_id=workspace_id,
        contact_id=contact_id,
        channel=cap.channel,
        since=at - cap.window,
        until=at,
        limit=cap.limit,
    )
    found = [{"at": document.text(one.intended_at), "channel": one.channel} for one in counted]
    return [scenes.Received.model_validate(one) for one in found]


async def _contact(db: Handle, given: Asked, subject: Subject) -> Contact | None:
    """The stored one, if there is one to be: the one named, or whom the intake would find."""
    if given.contact is not None and given.contact_id is not None:
        message = "Give a contactId or a contact, not both."
        raise scenes.invalid([FieldError("/contactId", message)])
    if given.contact is not None:
        return None
    id, trigger = given.contact_id, subject.trigger
    if id is None and trigger["source"] == "inbound_webhook" and trigger.get("contactLookup"):
        workspace = await workspaces.by_id(db, id=subject.workspace_id)
        country = workspace.country if workspace else None
        found = lookup.resolve(trigger, given.trigger, country)
        who = found.within(subject.workspace_id)
        known = await writing.find_all(db, [who])
        if who not in known:
            if trigger.get("createContact") and found.is_address:
                return None
            raise Problem("contact_not_found", "The intake would find no contact and create none.")
        id = known[who].id
    row = id and await contacts.by_id(db, workspace_id=subject.workspace_id, id=id)
    if id is not None and not row:
        raise scenes.invalid([FieldError("/contactId", "There is no such contact.")])
    return row or None


# --- what is answered -----------------------------------------------------------------------------


def _answered(given: Given, found: list[Found], trace: Trace | None) -> dict[str, Any]:
    return {
        "findings": activation.listed(found),
        "startAt": given.start_at,
        "steps": [_step(passage) for passage in trace.passages] if trace else [],
        "end": trace
        and {
            "status": trace.end.status,
            "reason": reasons.resource(trace.end.code, trace.end.detail),
            "at": trace.end.at,
        },
        "contact": trace and trace.contact,
        "case": None,
    }


def _step(passage: Passage) -> dict[str, Any]:
    sent = passage.sent
    return {
        "nodeId": passage.node_id,
        "kind": passage.kind,
        "visit": passage.visit,
        "status": passage.status,
        "reason": reasons.resource(passage.code, passage.detail),
        "port": passage.port,
        "output": passage.output,
        "message": sent
        and {
            "channel": sent.channel,
            "to": sent.to,
            "templateId": sent.template_id,
            "status": sent.status,
            "content": sent.content,
            "heldUntil": sent.held_until,
        },
        "changes": passage.changes
        and {name: list(values) for name, values in passage.changes.items()},
        "enteredAt": passage.entered_at,
        "leftAt": passage.left_at,
    }


_ELSEWHERE = ("contactId", "definition")


def _case(
    raw: bytes, looked: _Looked, setting: Setting, trace: Trace, expected: Mapping[str, Json]
) -> dict[str, Json]:
    """The case as a file has it: with all that it needs, and what came of it. Also with the ways
    that splits took, which differ by the definition's ID."""
    given, row = looked.given, looked.subject.row
    workspace: dict[str, Json] = {
        name: setting.workspace[name] for name in ("name", "timezone", "country", "postalAddress")
    }
    workspace["sender"] = setting.sender
    workspace |= {"channels": list(setting.channels), "startable": setting.startable}
    rules = {
        "frequencyCap": setting.gate.frequency_cap,
        "quietHours": setting.gate.quiet_hours,
        "defaultTopicId": setting.gate.default_topic_id,
    }
    workspace |= {name: rule for name, rule in rules.items() if rule is not None}
    asked = {name: value for name, value in document.parse(raw).items() if name not in _ELSEWHERE}
    known: dict[str, Any] = {} if given.contact is None else {"contact": given.contact}
    if given.entered is not None:
        known["entered"] = given.entered.model_dump(by_alias=True, exclude_none=True)
    if given.received:
        known["received"] = [one.model_dump(by_alias=True) for one in given.received]
    ways = {one.node_id: one.port for one in trace.passages if one.kind == "split" and one.port}
    if variants := {**given.variants, **ways}:
        known["variants"] = variants
    signed = {"signed": True} if row.secret_set else {}  # or a push would accept unsigned events
    return {
        "name": row.name,
        "definition": {
            "trigger": {**looked.subject.trigger, **signed},
            row.shape: credentials.masked(document.parse(row.body.encode())),
        },
        "templates": {id: _template(one) for id, one in setting.templates.items()},
        "workspace": workspace,
        "input": {**asked, **known, "startAt": given.start_at},
        "expected": expected,
    }


def _template(template: Mapping[str, Json]) -> dict[str, Json]:
    """Write a template with its topic. Else a push would make one that goes to whoever gets the
    channel."""
    topic_id = template["topic_id"]
    return {
        **{name: template[name] for name in ("name", "channel", "category")},
        **({} if topic_id is None else {portable.TOPIC: topic_id}),
        "content": template["content"],
    }


routes = [
    *(simulated_unsaved(kind) for kind in (automations.kind, workflows.kind)),
    *(simulated(kind) for kind in (automations.kind, workflows.kind)),
]
