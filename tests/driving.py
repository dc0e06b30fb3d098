"""A real run under a clock that jumps, and its trace read back from the database.

The case says what the run meets; the intake, runner, delivery and calls are the ones of production,
on SQLite. Between two jumps everything that is due is done, as by a worker.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import get_args

from app.audience import profile, reactions, shapes, writing
from app.audience.workspace_context import WorkspaceContext
from app.config.settings import Settings
from app.database.db import Handle, Row, new_id
from app.definitions import activation
from app.intake import webhooks
from app.machine import check, document
from app.machine.kind import Visit
from app.machine.nodes import NODES
from app.machine.program import Finding, MessageEnd, Program
from app.main import open_process
from app.net.egress import Egress
from app.process import Process
from app.runs import run_control
from app.simulation import scenes, simulation
from app.simulation.cases import Case
from app.simulation.simulation import ScenarioEvent
from app.simulation.traces import End, Passage, SentMessage, Trace
from app.store import (
    contacts,
    definition_versions,
    definitions,
    run_steps,
    runs,
    templates,
    workspaces,
)
from app.store.definitions import Definition
from tests import servers
from tests.cast import settle

MOST_JUMPS = 200


@asynccontextmanager
async def opened_on(file: Path) -> AsyncIterator[Process]:
    """A sandbox on a database of its own that is migrated already; HTTP may reach this machine."""
    environ = {
        "DATABASE_URL": f"sqlite:///{file}",
        "SECRET_KEY": "a secret key that only the tests have",
        "LOG_LEVEL": "error",
        "SHARED_SENDER": "on",  # cases do not know the IDs that addresses end in
    }
    egress = Egress([ip_network("127.0.0.0/8")])
    async with open_process(Settings.from_environ(environ)) as process:
        yield replace(process, egress=egress)
    await egress.close()


def set_clock(process: Process, moment: datetime) -> None:
    """The database's, from now on."""
    offset = moment - datetime.now(UTC)
    servers.set_clock(process.database, round(offset.total_seconds() * 1_000))


@dataclass(frozen=True, slots=True)
class Drive:
    """A real run: what its activation found, and what it went through."""

    findings: list[dict[str, str]]
    trace: Trace
    workspace_id: str
    definition_id: str


async def drive(process: Process, case: Case) -> Drive:
    """The case, for real, to its end or to where it waits for what does not come."""
    start_at = case.input.start_at
    assert start_at is not None
    set_clock(process, start_at)
    async with process.database.write() as db:
        workspace_id = await _workspace(db, case)
        for id, template in case.templates.items():
            payload = {"name": id, "category": template.category}
            await templates.insert(
                db,
                workspace_id=workspace_id,
                id=id,
                channel=template.channel,
                content=template.content,
                **payload,
            )
    for id in case.workspace.startable or ():
        empty = "[]" if id.startswith("wfl") else '{"nodes":[],"edges":[]}'
        await activate_as_is(process, workspace_id, id, empty)
    definition, findings = await _activated(process, workspace_id, case)
    contact_id = await _contact(process, workspace_id, definition.id, case)
    run_id = await _begin(process, workspace_id, definition, contact_id, case)
    await settle(process)
    await _go_on(process, workspace_id, run_id, deque(_scenario_events(case)))
    trace = await trace_of(process, workspace_id, run_id)
    return Drive(findings, trace, workspace_id, definition.id)


async def _workspace(db: Handle, case: Case) -> str:
    given = case.workspace
    row = await workspaces.insert(db, id=new_id("ws"), name=given.name, timezone=given.timezone)
    await workspaces.update(
        db,
        id=row.id,
        name=given.name,
        timezone=given.timezone,
        country=given.country,
        postal_address=given.postal_address,
        from_name=given.sender.get("fromName"),
        from_email=given.sender.get("fromEmail"),
        reply_to=given.sender.get("replyTo"),
    )
    return str(row.id)


async def _activated(
    process: Process, workspace_id: str, case: Case
) -> tuple[Definition, list[dict[str, str]]]:
    given = case.definition
    draft = activation.Draft(case.name, "ACTIVE", {"source": "manual", **given.trigger}, given.body)

    async def create() -> tuple[Definition, list[Finding]]:
        async with process.database.write() as db:
            return await activation.create(process, db, workspace_id, given.shape, draft)

    row, found = await process.compute.within(create)
    return row, [
        {"severity": one.severity, "code": one.code, "pointer": one.pointer} for one in found
    ]


async def _contact(
    process: Process, workspace_id: str, definition_id: str, case: Case
) -> str | None:
    """Stored beforehand, when there is one; with an id that every split sends the way it should."""
    if case.input.contact is None:
        return None
    now = datetime.now(UTC)
    row, tags = scenes.given_contact(case.input.contact, case.workspace.country, now)
    columns = {name: getattr(row, name) for name in profile.check(None, {}, None).columns}
    program = check.compile(case.definition.shape, case.definition.body).program
    assert program is not None
    async with process.database.write() as db:
        made = await contacts.insert(
            db,
            workspace_id=workspace_id,
            id=fitting(program, definition_id, case.input.variants),
            columns=columns,
        )
        assert made is not None
        fields = profile.as_text(columns["metadata"])
        if fields:
            await contacts.add_fields(db, workspace_id=workspace_id, fields=[(made.id, fields)])
        if tags:
            await contacts.add_tags(db, workspace_id=workspace_id, tags=[(made.id, tags)])
    return str(made.id)


def fitting(program: Program, definition_id: str, variants: Mapping[str, str]) -> str:
    """An id that the splits send by these ports."""

    def goes(id: str, node_id: str) -> str | None:
        facts = {"run": {"definitionId": definition_id}, "contact": {"id": id}, "steps": {}}
        return NODES["split"].enter(Visit(program.nodes[node_id], 1, facts)).port

    while True:
        id = new_id("con")
        if all(goes(id, node_id) == port for node_id, port in variants.items()):
            return id


async def _begin(
    process: Process, workspace_id: str, definition: Definition, contact_id: str | None, case: Case
) -> str:
    if definition.token is not None:
        body = document.dumps(case.input.trigger)
        accepted = await webhooks.receive(process, token=definition.token, body=body)
        assert contact_id in (None, accepted.contact_id)
        return accepted.run_id
    assert contact_id is not None
    async with process.database.write() as db:
        return await run_control.start(
            process,
            db,
            workspace_id,
            definition_id=definition.id,
            contact_id=contact_id,
            data=case.input.trigger,
        )


def _scenario_events(case: Case) -> Sequence[ScenarioEvent]:
    start_at = case.input.start_at
    assert start_at is not None
    return sorted(
        (scenes.scenario_event(event, start_at) for event in case.input.events),
        key=lambda one: one.at,
    )


async def _go_on(
    process: Process, workspace_id: str, run_id: str, coming: deque[ScenarioEvent]
) -> None:
    for _ in range(MOST_JUMPS):
        async with process.database.read() as db:
            run = await runs.by_id(db, workspace_id=workspace_id, id=run_id)
            assert run is not None
            due = await db.fetch_value("SELECT wake_at FROM jobs WHERE id = :id", id=run_id)
        due = due and datetime.fromisoformat(str(due))
        if run.finished_at is not None or not (due or coming):
            return
        if coming and (due is None or coming[0].at <= due):
            event = coming.popleft()
            set_clock(process, event.at)
            await _apply_event(process, workspace_id, run.contact_id, event)
        else:
            set_clock(process, due)
        await settle(process)
    raise AssertionError("the run goes on and on")


async def _apply_event(
    process: Process, workspace_id: str, contact_id: str, event: ScenarioEvent
) -> None:
    async with process.database.write() as db:
        workspace = WorkspaceContext(workspace_id, None, process.vault)
        row = await contacts.locked(db, workspace_id=workspace_id, id=contact_id)
        assert row is not None
        if event.name is not None:
            await reactions.happened(db, workspace, contact_id, event.name, event.properties)
        if event.changes is not None:
            patch = dict(event.changes)
            tags = patch.pop("tags", None)
            values = document.merge(shapes.writable(row), patch)
            await writing.replace(db, workspace, row, values, tags)


# --- reading it back ------------------------------------------------------------------------------


async def trace_of(process: Process, workspace_id: str, run_id: str) -> Trace:
    async with process.database.read() as db:
        run = await runs.by_id(db, workspace_id=workspace_id, id=run_id)
        assert run is not None
        steps = await run_steps.of_run(db, workspace_id=workspace_id, run_id=run_id)
        sent = await db.fetch_all("SELECT * FROM messages WHERE run_id = :id", id=run_id)
        contact = await contacts.by_id(db, workspace_id=workspace_id, id=run.contact_id)
        assert contact is not None
        ids = [contact.id]
        tags = await contacts.tags_of(db, workspace_id=workspace_id, contact_ids=ids)
        now = await db.now()
    text = {(row["node_id"], row["visit"]): _said(row) for row in sent}
    end = End(run.status, run.finished_at or now, run.reason_code, run.reason_detail)
    return Trace(
        run.created_at,
        [_passage(step, text.get((step.node_id, step.visit))) for step in steps],
        end,
        shapes.resource(contact, tags[contact.id]),
    )


def _passage(row: run_steps.RunStep, text: SentMessage | None) -> Passage:
    return Passage(
        row.node_id,
        row.kind,
        row.visit,
        row.status,
        row.reason_code,
        row.reason_detail,
        row.port,
        None if row.output is None else document.parse(row.output.encode()),
        entered_at=row.started_at,
        left_at=row.finished_at,
        sent=text,
    )


def _said(row: Row) -> SentMessage:
    """The message, with the link that every simulation has: a real one names the contact."""
    text = row["content"] and re.sub(r"https?://[^/\s]+/u/[\w-]+", simulation.LINK, row["content"])
    content = document.parse(text.encode()) if text else None
    return SentMessage(
        row["channel"], row["to_address"], row["status"], row["template_id"], content
    )


def endings(trace: Trace) -> dict[str, list[simulation.MessageOutcome]]:
    """List what became of each message that a provider was asked to send, to be foreseen."""
    found: dict[str, list[simulation.MessageOutcome]] = {}
    for passage in trace.passages:
        if passage.sent is not None and passage.sent.content is not None:
            status = next(end for end in get_args(MessageEnd) if end == passage.sent.status)
            came = simulation.MessageOutcome(status, passage.code, passage.detail)
            found.setdefault(passage.node_id, []).append(came)
    return found


async def activate_as_is(process: Process, workspace_id: str, id: str, body: str) -> None:
    """A definition under an id of one's own, ACTIVE, to be started by others."""
    manual = {"source": "manual"}
    shape = "steps" if id.startswith("wfl") else "graph"
    async with process.database.write() as db:
        await definitions.insert(
            db, workspace_id=workspace_id, id=id, shape=shape, name="Started",
            trigger_config=manual, body=body,
        )  # fmt: skip
        await definition_versions.pin(
            db, workspace_id=workspace_id, definition_id=id, version=1,
            trigger_config=manual, body=body,
        )  # fmt: skip
        await definitions.update(
            db, workspace_id=workspace_id, id=id, name="Started", state="ACTIVE", version=1,
            token=None, cases_gate=False, trigger_config=manual, body=body,
        )  # fmt: skip
