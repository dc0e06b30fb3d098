"""Routes that automations and workflows have in common: all but the shape of their body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from starlette.responses import Response

from app.database.db import Handle
from app.definitions import activation, credentials, drawing, findings, trigger_node
from app.definitions.activation import Draft
from app.errors import FieldError
from app.intake import lookup
from app.machine import document, program
from app.routes import partly
from app.routes.definition_shapes import (
    Against,
    Automation,
    AutomationSummary,
    CheckResult,
    Copy,
    DefinitionSummary,
    Filters,
    Trigger,
    Unchecked,
    Workflow,
    WorkflowSummary,
    WritableAutomation,
    WritableWorkflow,
)
from app.runtime.compute import Computation, Unfinished
from app.simulation import proofs
from app.store import definitions, run_steps, runs
from app.store.definitions import Definition, ListedDefinition
from app.web import paging, reply
from app.web.body import ESCAPES, MOST_VALUES
from app.web.reply import Page
from app.web.routing import Call, Endpoint, get, patch, post

LONGEST_NAME = 200
READ_ONLY = ("id", "version", "createdAt", "updatedAt")
MOVING: Mapping[str, type] = {"findings": list, "stats": dict}
MOST_RUNS = 1_000  # that stats count: the newest say what goes on now


# --- the two kinds ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DefinitionKind:
    """Automations or workflows: their names, shapes and handlers."""

    shape: Literal["graph", "steps"]
    noun: str  # "automation": of paths, permissions and sentences
    model: type[WritableAutomation] | type[WritableWorkflow]
    shown: type[Automation] | type[Workflow]
    listed: type[Page[AutomationSummary]] | type[Page[WorkflowSummary]]

    @property
    def path(self) -> str:
        return f"/{self.noun}s"

    # --- handlers ---

    async def index(self, call: Call) -> Response:
        read = partial(definitions.page, shape=self.shape)
        return await paging.index(call, Filters, read, self.summary)

    async def show(self, call: Call) -> Response:
        row = await definitions.by_id(
            call.db,
            workspace_id=call.member.workspace_id,
            shape=self.shape,
            id=call.path("id"),
        )
        row = reply.found(row, self.noun)
        found = await activation.look_at(
            call.process, call.db, call.member.workspace_id, row, run_cases=proofs.run
        )
        shown = await self.with_stats(call, self.resource(call, row, found))
        return reply.ok(shown, revision=row.revision, beside=self._beside(call, shown))

    async def create(self, call: Call) -> Response:
        row, warnings = await activation.create(
            call.process, call.db, call.member.workspace_id, self.shape, self.draft(call)
        )
        shown = self.resource(call, row, warnings)
        await call.note(f"{self.noun}.created", row.id, after=shown)
        shown = await self.with_stats(call, shown)
        at, beside = f"{self.path}/{row.id}", self._beside(call, shown)
        return reply.created(at, shown, revision=row.revision, beside=beside)

    async def duplicate(self, call: Call) -> Response:
        """A DRAFT that says the same, with its credentials, its signing secret and its cases, and a
        webhook URL of its own once it is activated."""
        new = call.read(Copy)
        original = await self.named(call, call.db, call.path("id"))
        assert original is not None  # noqa: S101 - an id was given
        name = new.name or f"Copy of {original.name}"[:LONGEST_NAME]
        row, found = await activation.duplicate(
            call.process, call.db, call.member.workspace_id, original, name, run_cases=proofs.run
        )
        shown = self.resource(call, row, found)
        await call.note(f"{self.noun}.created", row.id, after=shown)
        shown = await self.with_stats(call, shown)
        at, beside = f"{self.path}/{row.id}", self._beside(call, shown)
        return reply.created(at, shown, revision=row.revision, beside=beside)

    async def update(self, call: Call) -> Response:
        row = await self.locked(call)
        changed, warnings = await activation.change(
            call.process,
            call.db,
            call.member.workspace_id,
            row,
            self.draft(call, row),
            run_cases=proofs.run,
        )
        shown = self.resource(call, changed, warnings)
        await call.note(f"{self.noun}.updated", row.id, self.resource(call, row), shown)
        shown = await self.with_stats(call, shown)
        return reply.ok(shown, revision=changed.revision, beside=self._beside(call, shown))

    async def check(self, call: Call) -> Response:
        """Return what an activation would say of a definition that is not saved. Nothing is
        written."""
        await call.receive_body()
        workspace_id, compute = call.member.workspace_id, call.process.compute
        draft = self.draft(call)

        async def look() -> list[program.Finding]:
            async with call.process.database.read() as db:
                row = await self.named(call, db, call.query(Against).id)
                row = row or activation.unsaved(self.shape, draft, await db.now())
                return await activation.check(
                    call.process, db, workspace_id, row, draft, run_cases=proofs.run
                )

        found = await compute.within(look)
        given = self.shape, draft.body, draft.trigger
        try:
            computation = Computation(workspace_id, drawing.positions_of, given, findings.SECONDS)
            places = (await compute.call(computation)).items()
            positions = {name: {"x": round(x, 1), "y": round(y, 1)} for name, (x, y) in places}
        except Unfinished:
            positions = None
        return reply.ok({"findings": activation.listed(found), "positions": positions})

    async def named(self, call: Call, db: Handle, id: str | None) -> Definition | None:
        """The definition with that ID, which has to be there, or None without one."""
        if id is None:
            return None
        workspace_id = call.member.workspace_id
        row = await definitions.by_id(db, workspace_id=workspace_id, shape=self.shape, id=id)
        return reply.found(row, self.noun)

    async def remove(self, call: Call) -> Response:
        row = await self.locked(call)
        await activation.archive(call.process, call.db, call.member.workspace_id, row)
        await call.note(f"{self.noun}.deleted", row.id, before=self.resource(call, row))
        return reply.no_content()

    async def rotate(self, call: Call) -> Response:
        """A new webhook URL; the old one stops working as soon as this is answered."""
        row = await self.locked(call)
        changed = await activation.rotate(call.db, call.member.workspace_id, row)
        before, after = self.resource(call, row), self.resource(call, changed)
        await call.note(f"{self.noun}.webhook_rotated", row.id, before, after)
        return reply.ok(after["trigger"])

    # --- pieces ---

    async def locked(self, call: Call) -> Definition:
        row = await definitions.locked(
            call.db,
            workspace_id=call.member.workspace_id,
            shape=self.shape,
            id=call.path("id"),
        )
        row = reply.found(row, self.noun)
        call.match(row.revision)
        return row

    def draft(self, call: Call, row: Definition | None = None) -> Draft:
        """The definition that the body makes of `row`, or of nothing. Raises Problem for what is no
        JSON object."""
        stored = None if row is None else self.writable(row)
        body, changed, different = object_in(call.body), None, list[FieldError]()
        if row is not None and stored is not None and body is not None:
            # Without what only a GET says, if that is as a GET would say it.
            changes = dict(body)
            shown = document.parse(document.dumps(self.resource(call, row)))
            for name in READ_ONLY:
                if name in changes and changes[name] == shown[name]:
                    del changes[name]
            for name, kind in MOVING.items():  # while nobody changes the definition
                if isinstance(changes.get(name), kind):
                    del changes[name]
            patched, different = trigger_node.patched(changes, {"graph": None, **stored}, shown)
            changed = document.dumps(patched)
        elif body is not None:
            with suppress(ValueError):  # which the model says again
                changed = document.dumps(trigger_node.moved(body))
        draft = self.read(call, stored, changed)
        at = trigger_node.place(body or {})
        pointed = [
            FieldError(trigger_node.pointed(one.pointer, at), one.message) for one in draft.wrong
        ]
        return replace(draft, trigger_at=at, wrong=[*different, *pointed])

    def read(self, call: Call, stored: Mapping[str, Any] | None, changed: bytes | None) -> Draft:
        """The draft that the body, or `changed` in its place, makes of what is `stored`, or of
        nothing."""
        new, wrong, gone = partly.read(
            call, self.model, stored, without={"name": "…"}, changed=changed
        )
        is_lookup_wrong = any(one.pointer == "/trigger/contactLookup" for one in wrong)
        if new.trigger.is_misplaced and not is_lookup_wrong:
            only = "Only with contactLookup contact_id."
            wrong.append(FieldError("/trigger/metadataField", only))
        return Draft(
            name=new.name,
            state=new.state,
            trigger=new.trigger.stored(),
            body=new.graph if isinstance(new, WritableAutomation) else new.steps,
            signing_secret=new.trigger.secret,
            cases_gate=new.cases_gate,
            wrong=wrong,
            whole=not any(f"{one}/".startswith(f"/{self.shape}/") for one in gone),
        )

    def writable(self, row: Definition) -> dict[str, Any]:
        body = {self.shape: credentials.masked(document.parse(row.body.encode()))}
        return self.model.of(row, trigger=row.trigger_config, **body)

    def summary(self, row: ListedDefinition) -> dict[str, Any]:
        return {"id": row.id, **DefinitionSummary.of(row)}

    def resource(
        self, call: Call, row: Definition, warnings: Sequence[program.Finding] = ()
    ) -> dict[str, Any]:
        config, token = row.trigger_config, row.token
        serves = config["source"] == "inbound_webhook" and row.state != "ARCHIVED"
        # The webhook's URL is a credential: who only reads does not get it.
        is_shown = token and serves and self._may_write(call)
        return {
            "id": row.id,
            **self.writable(row),
            "trigger": {  # as it is read: whether there is a secret, never which
                **config,
                "contactPath": lookup.contact_path(config),
                "signingSecretSet": row.secret_set,
                "signingSecretLast4": row.secret_last4,
                "webhookUrl": f"{call.process.settings.base_url}/v1/webhooks/in/{token}"
                if is_shown
                else None,
            },
            "version": row.version,
            "findings": activation.listed(warnings),
            "createdAt": row.created_at,
            "updatedAt": row.updated_at,
        }

    def _may_write(self, call: Call) -> bool:
        return f"{self.noun}s:write" in call.member.permissions

    def _beside(self, call: Call, shown: Mapping[str, Any]) -> Any:
        """The difference between two answers of one revision, if there is one: who is shown the
        webhook's URL, and what changes while nobody changes the definition."""
        stats, found, hides = shown["stats"], shown["findings"], not self._may_write(call)
        return [stats, found, hides] if found or hides or any(stats.values()) else None

    async def with_stats(self, call: Call, resource: dict[str, Any]) -> dict[str, Any]:
        """The resource as it is shown: with what is not part of what is audited."""
        of = {
            "workspace_id": call.member.workspace_id,
            "definition_id": resource["id"],
            "most": MOST_RUNS,
        }
        nodes = await run_steps.counts(call.db, **of)
        stats = {
            "runs": await runs.statuses(call.db, **of),
            "underWay": sum((await runs.unfinished_by_version(call.db, **of)).values()),
            "nodes": {
                node.node_id: {"here": int(node.here), "passed": int(node.passed)} for node in nodes
            },
        }
        shown = {**resource, "stats": stats}
        if self.shape == "graph":
            graph = trigger_node.with_data(resource["graph"], resource["trigger"])
            return {**shown, "graph": graph}
        return shown

    def routes(self) -> list[Endpoint]:
        read, write = f"{self.noun}s:read", f"{self.noun}s:write"
        return [
            get(self.path, self.index, can=read, query=Filters, gives={200: self.listed}),
            post(
                self.path,
                self.create,
                can=write,
                takes=self.model,
                gives={201: self.shown},
                raises=("not_activatable",),
            ),
            post(
                f"{self.path}/check",
                self.check,
                can=read,
                tx=None,
                takes=Unchecked,
                query=Against,
                gives={200: CheckResult},
                raises=("not_found",),
            ),
            get(f"{self.path}/{{id}}", self.show, can=read, gives={200: self.shown}),
            patch(
                f"{self.path}/{{id}}",
                self.update,
                can=write,
                takes=self.model,
                gives={200: self.shown},
                raises=("not_activatable", "conflict"),
            ),
            post(
                f"{self.path}/{{id}}/duplicate",
                self.duplicate,
                can=write,
                takes=Copy,
                gives={201: self.shown},
            ),
            post(
                f"{self.path}/{{id}}/webhook/rotate",
                self.rotate,
                can=write,
                gives={200: Trigger},
                raises=("conflict",),
            ),
        ]


def object_in(body: bytes) -> dict[str, Any] | None:
    """None for what the model has to refuse."""
    try:
        document.refuse_many(body, MOST_VALUES)
        found = document.parse(body)
    except (document.TooManyValues, document.MalformedJson):
        return None
    return found if isinstance(found, dict) and not ESCAPES.search(body) else None
