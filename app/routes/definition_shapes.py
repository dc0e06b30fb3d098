"""The shapes of automations and workflows: what is written, and what is shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, RootModel, model_validator

from app.audience import profile
from app.definitions import trigger_node
from app.machine import (
    defaults,
    description,
    occasions,
    path,
    recurrence,
    reentry,
    template,
    triggers,
)
from app.machine.schema import READ_BACK, ref
from app.routes.ids import AutomationId, WorkflowId
from app.web.body import WRITE_ONLY, Name, Query, Shape, TimeOfDay, Writable
from app.web.paging import Changing
from app.web.reply import Revised
from app.web.schemas import described

States = Literal["DRAFT", "ACTIVE", "PAUSED", "ARCHIVED"]
LONGEST_SECRET = 1_024

# --- what is written ------------------------------------------------------------------------------


def _path(text: str) -> str:
    path.parse(text)  # BadPath is a ValueError that says what is wrong
    return text


def _liquid(value: Any) -> Any:
    """Strings inside defaults are Liquid over the trigger; numbers as a contact will hold them."""
    match value:
        case str():
            if fault := template.excess(template.parse(value, roots=defaults.ROOTS)):
                raise ValueError(fault)
            return value
        case dict():
            return {name: _liquid(inner) for name, inner in value.items()}
        case list():
            return [_liquid(inner) for inner in value]
        case _:
            if not profile.is_scalar(value):
                raise ValueError(f"Must be {profile.NUMBER}.")
            return profile.plain(value)


def _if_so(wanted: bool) -> bool | None:
    return wanted or None


Defaulted = Annotated[str, AfterValidator(_liquid)]


class ContactDefaults(Shape):
    """Values of a contact created by the intake, in addition to the address it was looked up by."""

    first_name: Defaulted | None = None
    last_name: Defaulted | None = None
    timezone: Defaulted | None = None
    locale: Defaulted | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(_liquid)] = Field(default_factory=dict)
    tags: list[Defaulted] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _are_few(cls, raw: Any) -> Any:
        defaults.refuse_many(raw)  # before each is parsed
        return raw


# A patch may repeat them as they were read.
_READ_BACK: dict[str, JsonValue] = {
    READ_BACK: {
        "id": {"type": "string"},
        "version": {"type": "integer"},
        "findings": {"type": "array", "items": {}},
        "stats": {"type": "object"},
        "createdAt": {"type": "string"},
        "updatedAt": {"type": "string"},
    }
}


Policy = Annotated[Any, described(reentry.SCHEMA)]
WritablePolicy = Annotated[Policy, AfterValidator(reentry.read)]
Graph = Annotated[dict[str, Any], described(ref("Graph"))]
Steps = Annotated[list[Any], described(description.STEPS)]


SourceName = Literal[
    "inbound_webhook",
    "manual",
    "contact_created",
    "tag_added",
    "event",
    "segment_entered",
    "segment_left",
    "date",
    "schedule",
]


class WritableTrigger(Shape):
    """The start of its runs. Each source has its own members; those of others are kept and not
    read."""

    source: SourceName = "manual"
    reentry: WritablePolicy | None = None
    tag: Annotated[str, AfterValidator(profile.tag)] | None = None
    name: Name | None = None
    segment_id: Annotated[str, Field(max_length=200)] | None = None
    field: Annotated[str, AfterValidator(occasions.check_field)] | None = None
    offset: Annotated[str, AfterValidator(occasions.check_offset)] | None = None
    time: TimeOfDay | None = None
    repeat: Literal["yearly"] | None = None
    rrule: Annotated[str, AfterValidator(recurrence.check_rule)] | None = None
    cron: Annotated[str, AfterValidator(recurrence.check_cron)] | None = None
    timezone: Annotated[str, AfterValidator(occasions.check_timezone)] | None = None
    grace_window: Annotated[str, AfterValidator(occasions.check_grace)] | None = None
    contact_lookup: Literal["email", "phone", "contact_id"] | None = None
    contact_path: Annotated[str, AfterValidator(_path)] | None = None
    metadata_field: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    create_contact: bool = False
    contact_defaults: ContactDefaults | None = None
    dedupe_path: Annotated[str, AfterValidator(_path)] | None = None
    signing_secret: Annotated[str, Field(max_length=LONGEST_SECRET)] | None = Field(
        None, json_schema_extra=WRITE_ONLY
    )
    signed: Annotated[bool, AfterValidator(_if_so)] | None = None

    @property
    def is_misplaced(self) -> bool:
        """True where the trigger names a field that only a lookup by ID reads."""
        return bool(self.metadata_field) and self.contact_lookup != "contact_id"

    @property
    def secret(self) -> str | None:
        """None keeps the stored one; "" removes it, and so does its own null."""
        return (self.signing_secret or "") if "signing_secret" in self.model_fields_set else None

    def stored(self) -> dict[str, Any]:
        """The trigger as it is kept and versioned: without its secret."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude={"signing_secret"})


Started = Annotated[WritableTrigger, described(ref("WritableTrigger"))]
GATE = "Whether a case that fails prevents the activation; otherwise it is a warning."


class WritableAutomation(Writable, json_schema_extra=_READ_BACK):
    name: Name
    state: States = "DRAFT"
    cases_gate: bool = Field(False, description=GATE)
    trigger: Started = WritableTrigger()
    graph: Graph = Field(default_factory=lambda: {"nodes": [], "edges": []})

    _moved = model_validator(mode="before")(trigger_node.moved)


class WritableWorkflow(Writable, json_schema_extra=_READ_BACK):
    name: Name
    state: States = "DRAFT"
    cases_gate: bool = Field(False, description=GATE)
    trigger: Started = WritableTrigger()
    steps: Steps = Field(default_factory=list)


class Copy(Shape):
    name: Name | None = Field(None, description="Default: `Copy of` and the name of the original.")


class Filters(Changing):
    state: States | None = Field(None, description="Its state.")
    name: str | None = Field(None, description="The exact name.")


# --- what is shown --------------------------------------------------------------------------------


class Trigger(Shape):
    """The start of its runs. Shows whether there is a signing secret, never the secret itself."""

    source: str
    reentry: Policy | None = None
    tag: str | None = None
    name: str | None = None
    segment_id: str | None = None
    field: str | None = None
    offset: str | None = None
    time: str | None = None
    repeat: str | None = None
    rrule: str | None = None
    cron: str | None = None
    timezone: str | None = None
    grace_window: str | None = None
    contact_lookup: str | None = None
    contact_path: str | None
    metadata_field: str | None = None
    create_contact: bool
    contact_defaults: dict[str, Any] | None = None
    dedupe_path: str | None = None
    signed: bool | None = None
    signing_secret_set: bool
    signing_secret_last4: str | None
    webhook_url: str | None = Field(description=triggers.CREDENTIAL)


class Finding(Shape):
    """One result of the check of a definition or of a filter, and where it is (RFC 6901)."""

    severity: Literal["error", "warning"]
    code: str
    pointer: str
    message: str


class DefinitionSummary(Shape):
    name: str
    state: States
    version: int
    trigger_source: str
    created_at: datetime
    updated_at: datetime


class AutomationSummary(DefinitionSummary):
    id: AutomationId


class WorkflowSummary(DefinitionSummary):
    id: WorkflowId


class Unchecked(RootModel[dict[str, Any]]):
    """A definition as its POST takes it. What is wrong with it is found, and not refused."""


class Position(Shape):
    x: float
    y: float


class CheckResult(Shape):
    """All that an activation would find. `positions` are where the picture of the definition has
    its nodes or steps, by ID, for editors that tidy up; null if it is too large to be arranged."""

    findings: list[Finding]
    positions: dict[str, Position] | None


class Against(Query):
    id: str | None = Field(
        None,
        description="The definition that this would change: its credentials, its signing secret and"
        " the bodies that it received count.",
    )


class NodeStats(Shape):
    """Runs that are at a node or step now, and visits that have passed it."""

    here: int
    passed: int


class DefinitionStats(Shape):
    """Counts over the newest runs, at most a thousand. They are the number per status, and the
    counts of each node or step, by its ID. `underWay` is how many have not ended, however old, up
    to a thousand. They change without the revision: the ETag covers both, and If-Match compares
    only the revision."""

    runs: dict[str, int]
    under_way: int
    nodes: dict[str, NodeStats]


class _Definition(Revised):
    name: str
    state: States
    cases_gate: bool
    trigger: Trigger
    version: int
    findings: list[Finding]
    stats: DefinitionStats
    created_at: datetime
    updated_at: datetime


class Automation(_Definition):
    id: AutomationId
    graph: Graph


class Workflow(_Definition):
    id: WorkflowId
    steps: Steps
