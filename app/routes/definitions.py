"""What automations and workflows have in common: all but the shape of their body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from starlette.responses import Response

from app.contacts import profile
from app.definitions import activation, credentials
from app.definitions.activation import Draft
from app.errors import FieldError, Problem
from app.machine import document, path, program, template
from app.routes import partly
from app.routes.ids import AutomationId, WorkflowId
from app.store import definitions, runs
from app.store.db import Row
from app.web import paging, reply
from app.web.body import WRITE_ONLY, Name, Shape, Writable
from app.web.paging import Changing
from app.web.reply import Page, Revised
from app.web.routing import Call, Endpoint, get, patch, post
from app.webhooks import lookup

States = Literal["DRAFT", "ACTIVE", "PAUSED", "ARCHIVED"]
LONGEST_SECRET = 1_024
MOST_RUNS = 1_000  # that stats count: the newest say what goes on now


# --- shapes -------------------------------------------------------------------------------------


def _path(text: str) -> str:
    path.parse(text)  # BadPath is a ValueError that says what is wrong
    return text


def _liquid(value: Any) -> Any:
    """Strings inside defaults are Liquid over the trigger; numbers as a contact will hold them."""
    match value:
        case str():
            template.parse(value, roots=frozenset({"trigger"}))
            if told := template.excess(value):
                raise ValueError(told)
            return value
        case dict():
            return {name: _liquid(inner) for name, inner in value.items()}
        case list():
            return [_liquid(inner) for inner in value]
        case _:
            if not profile.is_scalar(value):
                raise ValueError(f"Must be {profile.NUMBER}.")
            return profile.plain(value)


def _tag(text: str) -> str:
    """As contacts hold it, so that it is the same one."""
    errors: list[FieldError] = []
    tags = profile.check_tags([text], errors)
    if errors or not tags:
        raise ValueError(errors[0].message if errors else "A tag is not empty.")
    return tags[0]


Defaulted = Annotated[str, AfterValidator(_liquid)]


class ContactDefaults(Shape):
    """Values of a contact created by the intake, in addition to the address it was looked up by."""

    first_name: Defaulted | None = None
    last_name: Defaulted | None = None
    timezone: Defaulted | None = None
    locale: Defaulted | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(_liquid)] = Field(default_factory=dict)
    tags: list[Defaulted] = Field(default_factory=list)


class WritableTrigger(Shape):
    source: Literal["inbound_webhook", "manual", "contact_created", "tag_added", "event"] = "manual"
    tag: Annotated[str, AfterValidator(_tag)] | None = None
    name: Name | None = None
    contact_lookup: Literal["email", "phone", "contact_id"] | None = None
    contact_path: Annotated[str, AfterValidator(_path)] | None = None
    metadata_field: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    create_contact: bool = False
    contact_defaults: ContactDefaults | None = None
    dedupe_path: Annotated[str, AfterValidator(_path)] | None = None
    signing_secret: Annotated[str, Field(max_length=LONGEST_SECRET)] | None = Field(
        None, json_schema_extra=WRITE_ONLY
    )

    @property
    def secret(self) -> str | None:
        """None keeps the stored one; "" removes it, and so does its own null."""
        return (self.signing_secret or "") if "signing_secret" in self.model_fields_set else None

    def stored(self) -> dict[str, Any]:
        """As it is kept and versioned: without its secret."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"signing_secret"})


class WritableAutomation(Writable):
    name: Name
    state: States = "DRAFT"
    trigger: WritableTrigger = WritableTrigger()
    graph: dict[str, Any] = Field(default_factory=lambda: {"nodes": [], "edges": []})


class WritableWorkflow(Writable):
    name: Name
    state: States = "DRAFT"
    trigger: WritableTrigger = WritableTrigger()
    steps: list[Any] = Field(default_factory=list)


class Filters(Changing):
    state: States | None = Field(None, description="Its state.")
    name: str | None = Field(None, description="The exact name.")


# --- resources ----------------------------------------------------------------------------------


class Trigger(Shape):
    """What starts it. Shows whether there is a signing secret, never the secret itself."""

    source: str
    tag: str | None = None
    name: str | None = None
    contact_lookup: str | None = None
    contact_path: str | None
    metadata_field: str | None = None
    create_contact: bool
    contact_defaults: dict[str, Any] | None = None
    dedupe_path: str | None = None
    signing_secret_set: bool
    signing_secret_last4: str | None
    webhook_url: str | None


class Finding(Shape):
    """One result of the check of a definition, and where it is (RFC 6901)."""

    severity: Literal["error", "warning"]
    code: str
    pointer: str
    message: str


class _Summary(Shape):
    name: str
    state: States
    version: int
    trigger_source: str
    created_at: datetime
    updated_at: datetime


class AutomationSummary(_Summary):
    id: AutomationId


class WorkflowSummary(_Summary):
    id: WorkflowId


class NodeStats(Shape):
    """Runs that are at a node or step now, and visits that have passed it."""

    here: int
    passed: int


class Stats(Shape):
    """Over the newest runs, at most a thousand: the number per status, and the counts of each node
    or step, by its ID. They change without the revision: the ETag covers both, and If-Match
    compares only the revision."""

    runs: dict[str, int]
    nodes: dict[str, NodeStats]


class _Definition(Revised):
    name: str
    state: States
    trigger: Trigger
    version: int
    findings: list[Finding]
    stats: Stats
    created_at: datetime
    updated_at: datetime


class Automation(_Definition):
    id: AutomationId
    graph: dict[str, Any]


class Workflow(_Definition):
    id: WorkflowId
    steps: list[Any]


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
        if row is None:
            raise self.unknown()
        found = await activation.look_at(call.process, call.db, call.member.workspace_id, row)
        shown = await self.with_stats(call, self.resource(call, row, found))
        return reply.ok(shown, revision=row["revision"], beside=_beside(shown))

    async def create(self, call: Call) -> Response:
        row, warnings = await activation.create(
            call.process, call.db, call.member.workspace_id, self.shape, self.draft(call)
        )
        shown = self.resource(call, row, warnings)
        await call.note(f"{self.noun}.created", row["id"], after=shown)
        shown = await self.with_stats(call, shown)
        at, told = f"{self.path}/{row['id']}", _beside(shown)
        return reply.created(at, shown, revision=row["revision"], beside=told)

    async def update(self, call: Call) -> Response:
        row = await self.locked(call)
        changed, warnings = await activation.change(
            call.process, call.db, call.member.workspace_id, row, self.draft(call, row)
        )
        shown = self.resource(call, changed, warnings)
        await call.note(f"{self.noun}.updated", row["id"], self.resource(call, row), shown)
        shown = await self.with_stats(call, shown)
        return reply.ok(shown, revision=changed["revision"], beside=_beside(shown))

    async def remove(self, call: Call) -> Response:
        row = await self.locked(call)
        await activation.archive(call.db, call.member.workspace_id, row)
        await call.note(f"{self.noun}.deleted", row["id"], before=self.resource(call, row))
        return reply.no_content()

    async def rotate(self, call: Call) -> Response:
        """A new webhook URL; the old one stops working as soon as this is answered."""
        row = await self.locked(call)
        changed = await activation.rotate(call.db, call.member.workspace_id, row)
        before, after = self.resource(call, row), self.resource(call, changed)
        await call.note(f"{self.noun}.webhook_rotated", row["id"], before, after)
        return reply.ok(after["trigger"])

    # --- pieces ---

    async def locked(self, call: Call) -> Row:
        row = await definitions.locked(
            call.db,
            workspace_id=call.member.workspace_id,
            shape=self.shape,
            id=call.path("id"),
        )
        if row is None:
            raise self.unknown()
        call.match(row["revision"])
        return row

    def unknown(self) -> Problem:
        return Problem("not_found", f"There is no such {self.noun}.")

    def draft(self, call: Call, row: Row | None = None) -> Draft:
        """What the body makes of the definition `row`, or of nothing. Raises Problem for what is no
        JSON object."""
        stored = None if row is None else self.writable(row)
        new, wrong, gone = partly.read(call, self.model, stored, without={"name": "…"})
        if new.trigger.metadata_field and new.trigger.contact_lookup != "contact_id":
            only = "Only with contactLookup contact_id."
            wrong.append(FieldError("/trigger/metadataField", only))
        return Draft(
            name=new.name,
            state=new.state,
            trigger=new.trigger.stored(),
            body=new.graph if isinstance(new, WritableAutomation) else new.steps,
            signing_secret=new.trigger.secret,
            wrong=wrong,
            whole=not any(f"{one}/".startswith(f"/{self.shape}/") for one in gone),
        )

    def writable(self, row: Row) -> dict[str, Any]:
        return {
            "name": row["name"],
            "state": row["state"],
            "trigger": row["trigger_config"],
            self.shape: credentials.masked(document.parse(row["body"].encode())),
        }

    def summary(self, row: Row) -> dict[str, Any]:
        return {
            "id": row["id"],
            "name": row["name"],
            "state": row["state"],
            "version": row["version"],
            "triggerSource": row["trigger_config"]["source"],
            "createdAt": row["created_at"],
            "updatedAt": row["updated_at"],
        }

    def resource(
        self, call: Call, row: Row, warnings: Sequence[program.Finding] = ()
    ) -> dict[str, Any]:
        return {
            "id": row["id"],
            **self.writable(row),
            "trigger": _trigger(call, row),
            "version": row["version"],
            "findings": activation.told(warnings),
            "createdAt": row["created_at"],
            "updatedAt": row["updated_at"],
        }

    async def with_stats(self, call: Call, resource: dict[str, Any]) -> dict[str, Any]:
        """Not part of what is audited."""
        of = {
            "workspace_id": call.member.workspace_id,
            "definition_id": resource["id"],
            "most": MOST_RUNS,
        }
        nodes = await runs.counts(call.db, **of)
        stats = {
            "runs": await runs.statuses(call.db, **of),
            "nodes": {
                node["node_id"]: {"here": int(node["here"]), "passed": int(node["passed"])}
                for node in nodes
            },
        }
        return {**resource, "stats": stats}

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
                f"{self.path}/{{id}}/webhook/rotate",
                self.rotate,
                can=write,
                gives={200: Trigger},
                raises=("conflict",),
            ),
        ]


def _beside(shown: Mapping[str, Any]) -> Any:
    """What of it changes while nobody changes the definition, if there is any."""
    stats, found = shown["stats"], shown["findings"]
    return [stats, found] if found or any(stats.values()) else None


def _trigger(call: Call, row: Row) -> dict[str, Any]:
    """The trigger as it is read: whether there is a secret, never which."""
    config, token = row["trigger_config"], row["token"]
    serves = config["source"] == "inbound_webhook" and row["state"] != "ARCHIVED"
    return {
        **config,
        "contactPath": lookup.contact_path(config),
        "signingSecretSet": row["secret_set"],
        "signingSecretLast4": row["secret_last4"],
        "webhookUrl": f"{call.process.settings.base_url}/v1/webhooks/in/{token}"
        if token and serves
        else None,
    }
