"""What automations and workflows have in common: all but the shape of their body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from starlette.responses import Response

from app import activation, intake, profile
from app.activation import Draft
from app.errors import FieldError, Problem
from app.machine import document, path, template
from app.machine.program import Finding
from app.store import definitions
from app.store.db import Row
from app.web import paging, reply
from app.web.body import Name, Shape
from app.web.paging import Paging
from app.web.routing import Call, Endpoint, get, patch, post

States = Literal["DRAFT", "ACTIVE", "PAUSED", "ARCHIVED"]
LONGEST_SECRET = 1_024


# --- shapes -------------------------------------------------------------------------------------


def _path(text: str) -> str:
    path.parse(text)  # BadPath is a ValueError that says what is wrong
    return text


def _liquid(value: Any) -> Any:
    """Strings inside defaults are Liquid over the trigger; numbers as a contact will hold them."""
    match value:
        case str():
            template.parse(value, roots=frozenset({"trigger"}))
            return value
        case dict():
            return {name: _liquid(inner) for name, inner in value.items()}
        case list():
            return [_liquid(inner) for inner in value]
        case _:
            return profile.plain(value)


Defaulted = Annotated[str, AfterValidator(_liquid)]


class ContactDefaults(Shape):
    """What a contact made by the intake starts with, beside the address it was found by."""

    first_name: Defaulted | None = None
    last_name: Defaulted | None = None
    timezone: Defaulted | None = None
    locale: Defaulted | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(_liquid)] = Field(default_factory=dict)
    tags: list[Defaulted] = Field(default_factory=list)


class Trigger(Shape):
    source: Literal["inbound_webhook", "manual"] = "manual"
    contact_lookup: Literal["email", "phone", "contact_id"] | None = None
    contact_path: Annotated[str, AfterValidator(_path)] | None = None
    metadata_field: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    create_contact: bool = False
    contact_defaults: ContactDefaults | None = None
    signing_secret: Annotated[str, Field(max_length=LONGEST_SECRET)] | None = None

    def stored(self) -> dict[str, Any]:
        """As it is kept and versioned: without its secret."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"signing_secret"})


class Automation(Shape):
    name: Name
    state: States = "DRAFT"
    trigger: Trigger = Trigger()
    graph: dict[str, Any] = Field(default_factory=lambda: {"nodes": [], "edges": []})


class Workflow(Shape):
    name: Name
    state: States = "DRAFT"
    trigger: Trigger = Trigger()
    steps: list[Any] = Field(default_factory=list)


class Filters(Paging):
    state: States | None = None
    name: str | None = None


# --- the two kinds ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells automations from workflows."""

    shape: Literal["graph", "steps"]
    noun: str  # "automation": of paths, permissions and sentences
    model: type[Automation] | type[Workflow]

    @property
    def path(self) -> str:
        return f"/{self.noun}s"

    # --- handlers ---

    async def index(self, call: Call) -> Response:
        query = call.query(Filters)
        rows = await definitions.page(
            call.db,
            workspace_id=call.member.workspace_id,
            shape=self.shape,
            filters=query.filters(),
            before=paging.position(call, query),
            limit=query.limit + 1,
        )
        return paging.page(call, query, rows, self.summary)

    async def show(self, call: Call) -> Response:
        row = await definitions.by_id(
            call.db,
            workspace_id=call.member.workspace_id,
            shape=self.shape,
            id=call.path("id"),
        )
        if row is None:
            raise self.unknown()
        return reply.ok(self.resource(call, row), revision=row["revision"])

    async def create(self, call: Call) -> Response:
        new = call.read(self.model)
        row, warnings = await activation.create(
            call.process, call.db, call.member.workspace_id, self.shape, self.draft(call, new)
        )
        return reply.created(
            f"{self.path}/{row['id']}",
            self.resource(call, row, warnings),
            revision=row["revision"],
        )

    async def update(self, call: Call) -> Response:
        row = await self.locked(call)
        new = call.patch(self.model, self.writable(row))
        changed, warnings = await activation.change(
            call.process, call.db, call.member.workspace_id, row, self.draft(call, new)
        )
        return reply.ok(self.resource(call, changed, warnings), revision=changed["revision"])

    async def remove(self, call: Call) -> Response:
        row = await self.locked(call)
        await activation.archive(call.db, call.member.workspace_id, row)
        return reply.no_content()

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

    def draft(self, call: Call, new: Automation | Workflow) -> Draft:
        if new.trigger.metadata_field and new.trigger.contact_lookup != "contact_id":
            raise Problem(
                "invalid",
                f"The {self.noun} cannot be saved like this; see errors.",
                errors=[
                    FieldError("/trigger/metadataField", "Only with contactLookup contact_id.")
                ],
            )
        return Draft(
            name=new.name,
            state=new.state,
            trigger=new.trigger.stored(),
            body=new.graph if isinstance(new, Automation) else new.steps,
            signing_secret=_secret(call, new.trigger),
        )

    def writable(self, row: Row) -> dict[str, Any]:
        return {
            "name": row["name"],
            "state": row["state"],
            "trigger": row["trigger_config"],
            self.shape: document.parse(row["body"].encode()),
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

    def resource(self, call: Call, row: Row, warnings: Sequence[Finding] = ()) -> dict[str, Any]:
        return {
            "id": row["id"],
            **self.writable(row),
            "trigger": _trigger(call, row),
            "version": row["version"],
            "findings": activation.told(warnings),
            "createdAt": row["created_at"],
            "updatedAt": row["updated_at"],
        }

    def routes(self) -> list[Endpoint]:
        read, write = f"{self.noun}s:read", f"{self.noun}s:write"
        return [
            get(self.path, self.index, can=read),
            post(self.path, self.create, can=write),
            get(f"{self.path}/{{id}}", self.show, can=read),
            patch(f"{self.path}/{{id}}", self.update, can=write),
        ]


def _secret(call: Call, trigger: Trigger) -> str | None:
    """None keeps the stored one; "" removes it, and so does a null, its own or the trigger's."""
    if trigger.signing_secret is not None:
        return trigger.signing_secret
    given = document.parse(call.body).get("trigger", {})
    return "" if given is None or "signingSecret" in given else None


def _trigger(call: Call, row: Row) -> dict[str, Any]:
    """The trigger as it is read: whether there is a secret, never which."""
    token = row["token"]
    return {
        **row["trigger_config"],
        "contactPath": intake.contact_path(row["trigger_config"]),
        "signingSecretSet": row["secret_set"],
        "signingSecretLast4": row["secret_last4"],
        "webhookUrl": token and f"{call.process.settings.base_url}/v1/webhooks/in/{token}",
    }
