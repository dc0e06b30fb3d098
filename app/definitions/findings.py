"""Findings of an activation beyond the Program: with the trigger, the templates and what came
in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from ipaddress import ip_address

from app.audience.topics import wrong_channel
from app.database.db import Handle
from app.definitions import credentials, inspection, portable, starts, watching
from app.errors import FieldError
from app.machine import check, document, recurrence
from app.machine.nodes.wait_for import SEGMENTS
from app.machine.program import Finding, Json, warning
from app.messages import providers
from app.process import Process
from app.runtime.compute import Computation
from app.store import (
    definitions,
    runs,
    segments,
    templates,
    topics,
    watches,
    webhook_requests,
    workspaces,
)
from app.store.row_keys import DefinitionKey

SHORT_SECRET = 16
LAST4_FROM = 12  # the last four of a shorter secret would give too much of it away

BODIES = 50  # the newest say what senders send
MOST_BYTES = 64 * 1024  # of a body that is looked at
READ_AT_ONCE = 10  # definitions, of up to 256 KiB each

NO_TOPIC = "There is no such topic in this workspace."
TOO_LARGE = (
    f"The definition's templates have more than {templates.MOST_BYTES >> 20} MiB together and were"
    " not checked: shorten them, or send some of them from another definition."
)
CRON, RRULE = "/cron", "/rrule"  # of a schedule, one of them
LARGE = 8 * 1024  # characters of a definition that is not checked on the event loop
LARGE_BODIES = 32 * 1024  # bytes of recorded bodies, likewise
SECONDS = 2.0  # of CPU time for a check


@dataclass(frozen=True, slots=True)
class Subject:
    """The stored definition that is looked at, and what it is to become.

    `signing_secret`: None when the stored one is kept, "" when it is removed.
    """

    workspace_id: str
    row: definitions.Definition
    trigger: Mapping[str, Json]
    body: Json  # with its credentials
    length: int  # of it, as text
    signing_secret: str | None
    compiled: check.Compiled

    @property
    def template_ids(self) -> Sequence[str]:
        return sorted({reference.id for reference in self.compiled.templates})


def compiled(
    process: Process, workspace_id: str, shape: check.Shape, body: Json, *, length: int
) -> check.Compiled:
    """`length` is that of the body as text. Raises Heavy."""
    computation = Computation(workspace_id, check.compile, (shape, body), seconds=SECONDS)
    return process.compute.here(computation, large=length > LARGE)


def subject_of(process: Process, workspace_id: str, row: definitions.Definition) -> Subject:
    """The definition as it is stored. Raises Heavy."""
    stored, length = document.parse(row.body.encode()), len(row.body)
    body = credentials.opened(process.vault, workspace_id, row.id, stored)
    program = compiled(process, workspace_id, row.shape, body, length=length)
    return Subject(workspace_id, row, row.trigger_config, body, length, None, program)


async def find(process: Process, db: Handle, subject: Subject) -> list[Finding]:
    """The findings beside those of compiling. When the templates are too large together, one says
    so, and neither they nor what the steps read is checked. Raises Heavy."""
    sent = await templates.sent(db, workspace_id=subject.workspace_id, ids=subject.template_ids)
    workspace = await workspaces.by_id(db, id=subject.workspace_id)
    able = await providers.names(process, db, subject.workspace_id)
    found = [*await _of_trigger(process, db, subject), *_of_steps(process, subject.compiled, able)]
    found += await starts.find(process, db, subject.workspace_id, subject.row.id, subject.compiled)
    found += await _of_topics(db, subject)
    if sent is None:
        return [*found, Finding("templates_too_large", f"/{subject.row.shape}", TOO_LARGE)]
    has_address = workspace is not None and workspace.postal_address is not None
    # Of runs, and of requests that a secret let in but that started none.
    whose: DefinitionKey = {"workspace_id": subject.workspace_id, "definition_id": subject.row.id}
    of_runs = await runs.bodies(db, **whose, most=BODIES, most_bytes=MOST_BYTES)
    recorded = await webhook_requests.bodies(db, **whose, longest=MOST_BYTES, limit=BODIES)
    bodies = list(dict.fromkeys([*map(bytes, of_runs), *recorded]))
    rows = {id: asdict(row) for id, row in sent.items()}
    computation = Computation(
        subject.workspace_id,
        inspection.inspect,
        (subject.trigger, subject.compiled, rows, bodies, has_address),
        seconds=SECONDS,
        # Not the bodies: others may have come in since.
        same=lambda: [subject.trigger, subject.body, rows, has_address],
    )
    is_large = subject.length > LARGE or sum(map(len, bodies)) > LARGE_BODIES
    return [*found, *process.compute.here(computation, large=is_large)]


def unread(errors: Iterable[FieldError], found: Iterable[Finding]) -> list[Finding]:
    """List what could not be read, or cannot be kept, before the rest of what was found: nothing
    more is to be said of a place that nobody could read."""
    wrong = [Finding("invalid", error.pointer, error.message, draft=True) for error in errors]
    places = [finding.pointer for finding in wrong]
    # Where either will do, one that could not be read is not one that nobody gave.
    places += [place.removesuffix(CRON) + RRULE for place in places if place.endswith(CRON)]
    within = tuple(f"{place}/" for place in places)
    return [*wrong, *(one for one in found if not f"{one.pointer}/".startswith(within))]


# --- the trigger --------------------------------------------------------------------------------


async def _of_trigger(process: Process, db: Handle, subject: Subject) -> list[Finding]:
    found = [
        *in_trigger(subject.trigger),
        *await _of_schedule(db, subject),
        *await _of_segment(db, subject),
    ]
    if subject.trigger["source"] != "inbound_webhook":
        return found
    secret = subject.signing_secret
    if secret is None:
        secret = await signing_secret(process, db, subject.workspace_id, subject.row.id)
    length = len(secret or "")
    if subject.trigger.get("signed") and length == 0:
        message = "It was signed where it came from: give the signing secret that senders use."
        found.append(Finding("secret_missing", "/trigger/signingSecret", message))
    if 0 < length < SHORT_SECRET:
        message = f"A signing secret under {SHORT_SECRET} characters can be guessed."
        found.append(warning("short_secret", "/trigger/signingSecret", message))
    return found


def in_trigger(trigger: Mapping[str, Json]) -> Iterator[Finding]:
    """The members that it cannot do without, and those that do not go together."""
    source, lookup = trigger["source"], trigger.get("contactLookup")
    if source == "tag_added" and not trigger.get("tag"):
        message = "Say which tag starts a run when a contact gets it."
        yield Finding("tag_missing", "/trigger/tag", message)
    if source == "event" and not trigger.get("name"):
        message = "Say which event of a contact starts a run."
        yield Finding("name_missing", "/trigger/name", message)
    if source in OF_SEGMENTS and not trigger.get("segmentId"):
        yield Finding("segment_missing", "/trigger/segmentId", "Say which segment, by its id.")
    if source == "date" and not trigger.get("field"):
        message = "Say which field holds the date, such as metadata.renewsAt."
        yield Finding("field_missing", "/trigger/field", message)
    if source == "date" and trigger.get("repeat") and trigger.get("reentry") == "once":
        message = "A contact goes through once, so only its first date starts a run that goes on."
        yield warning("repeats_once", "/trigger/reentry", message)
    if source == "schedule" and bool(trigger.get("rrule")) == bool(trigger.get("cron")):
        message = "Say when, by either a rrule or a cron line."
        yield Finding("schedule_missing", "/trigger/rrule", message)
    if source == "schedule" and trigger.get("timezone") == "contact":
        message = "A schedule comes for everybody at once: say workspace, or a time zone."
        yield Finding("schedule_zone", "/trigger/timezone", message)
    if source == "inbound_webhook" and lookup is None:
        message = "Say what identifies the contact: email, phone or contact_id."
        yield Finding("lookup_missing", "/trigger/contactLookup", message)
    if source == "inbound_webhook" and lookup == "contact_id" and trigger.get("createContact"):
        message = "A contact cannot be created from an id alone; an unknown id answers 404."
        yield warning("create_without_address", "/trigger/createContact", message)


async def _of_schedule(db: Handle, subject: Subject) -> list[Finding]:
    """Check that the schedule comes again; one that never does is refused wherever it stands."""
    trigger = subject.trigger
    if trigger["source"] != "schedule" or bool(trigger.get("rrule")) == bool(trigger.get("cron")):
        return []
    workspace = await workspaces.by_id(db, id=subject.workspace_id)
    zone = workspace.timezone if workspace is not None else None
    if recurrence.next_after(trigger, await db.now(), zone) is not None:
        return []
    message = "The schedule has ended: it starts no run any more. Give it a later UNTIL, or none."
    return [Finding("schedule_over", "/trigger/rrule", message)]


OF_SEGMENTS = ("segment_entered", "segment_left", "schedule")
TRIGGER_SEGMENT = "/trigger/segmentId"
FROZEN = (
    "The segment is frozen: nobody enters or leaves it, unless its filter is saved again with"
    " ?startAutomations=true."
)
SEGMENT_GIVEN_UP = (
    "The work on the segment was given up, so it may start nothing: save the filter of the segment"
    " again."
)


async def _of_segment(db: Handle, subject: Subject) -> list[Finding]:
    """Check that the segments are there, and can still be entered where that is followed."""
    named: list[tuple[str, str]] = []
    for part in subject.compiled.parts:
        conditions = part.node.config.get("conditions", ()) if part.node.kind == "wait_for" else ()
        for index, one in enumerate(conditions):
            pointer = f"{part.config_pointer}/conditions/{index}"
            named += [(one[name], f"{pointer}/{name}") for name in SEGMENTS if name in one]
    id = subject.trigger.get("segmentId")
    if subject.trigger["source"] in OF_SEGMENTS and id:
        named.append((id, TRIGGER_SEGMENT))
    if not named:
        return []
    existing = await segments.of_workspace(db, workspace_id=subject.workspace_id)
    unasked = TRIGGER_SEGMENT if subject.trigger["source"] == "schedule" else None
    found = []
    for id, pointer in named:
        if id not in existing:
            message = "There is no such segment in this workspace."
            found.append(Finding("segment_unknown", pointer, message))
        elif existing[id].kind == "frozen" and pointer != unasked:
            found.append(warning("segment_frozen", pointer, FROZEN))
        if id in existing and existing[id].reason_code is not None:
            found.append(warning("work_given_up", pointer, SEGMENT_GIVEN_UP))
    return found


async def of_watch(db: Handle, workspace_id: str, row: definitions.Definition) -> list[Finding]:
    """A warning when a worker has given up following the stored definition's dates or times."""
    is_followed = watching.watched(row.state, row.trigger_config) is not None
    of: DefinitionKey = {"workspace_id": workspace_id, "definition_id": row.id}
    if not is_followed or not await watches.is_given_up(db, **of):
        return []
    what = f"The work on its {row.trigger_config['source']}"
    message = f"{what} was given up, so it starts no runs: pause it and activate it again."
    return [warning("work_given_up", "/trigger", message)]


async def signing_secret(process: Process, db: Handle, workspace_id: str, id: str) -> str | None:
    """The stored one."""
    sealed = await definitions.signing_secret(db, workspace_id=workspace_id, id=id)
    if sealed is None:
        return None
    return process.vault.decrypt("signing secret", sealed, workspace_id, id).decode()


# --- topics, channels and calls -----------------------------------------------------------------


async def _of_topics(db: Handle, subject: Subject) -> list[Finding]:
    """Findings of content that a step has itself, and of conditions, that name one."""
    mentions = portable.mentions(subject.row.shape, subject.body)
    named = [one for one in mentions if one.member == portable.TOPIC]
    if not named:
        return []
    known = await topics.of_workspace(db, workspace_id=subject.workspace_id)
    found = []
    for one in named:
        topic = known.get(one.id)
        message = wrong_channel(topic, one.channel) if isinstance(one.channel, str) else None
        if topic is None:
            found.append(Finding("topic_unknown", one.pointer, NO_TOPIC))
        elif message:
            found.append(Finding("topic_channel", one.pointer, message, draft=True))
    return found


def _of_steps(
    process: Process, compiled: check.Compiled, able: Collection[str]
) -> Iterator[Finding]:
    """Check that the steps' messages and calls can leave. `able` are the channels with a
    provider."""
    for part in compiled.parts:
        channel = part.node.config.get("channel")
        if channel is not None and channel not in able:
            message = f"No provider is set up for {channel}: until then its messages fail."
            yield warning("channel_not_configured", f"{part.config_pointer}/channel", message)
    for part in compiled.parts:
        url = part.node.config.get("url") if part.node.kind == "http_request" else None
        target = url and _literal_target(url.source)
        if target and not process.egress.may_reach(*target):
            message = (
                "This address is not on the public internet, so the call is refused, unless the"
                " operator allows it (EGRESS_ALLOW)."
            )
            yield warning("private_address", f"{part.config_pointer}/url", message)


async def about_topic(
    db: Handle, *, workspace_id: str, topic_id: str, channels: Sequence[str]
) -> list[str]:
    """The ids of definitions whose own content or conditions name the topic on one of the channels.
    A body may be large, so other tasks run between two."""
    users, after = list[str](), ""
    while True:
        rows = await definitions.bodies_mentioning(
            db, workspace_id=workspace_id, id=topic_id, after=after, limit=READ_AT_ONCE
        )
        for one in rows:
            mentions = portable.mentions(one.shape, document.parse(one.body.encode()))
            if any(mention.id == topic_id and mention.channel in channels for mention in mentions):
                users.append(one.id)
            await asyncio.sleep(0)
        if len(rows) < READ_AT_ONCE:
            return users
        after = rows[-1].id


def _literal_target(url: str) -> tuple[str, int] | None:
    """The address and the port, where they stand in the URL and no Liquid makes them."""
    server = _SERVER.match(url.strip())
    if server is None:
        return None
    host = server["host"].strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        host = "127.0.0.1"
    usual = 443 if server["scheme"].lower() == "https" else 80
    with suppress(ValueError):
        return str(ip_address(host)), int(server["port"] or usual)
    return None


_SERVER = re.compile(
    r"(?P<scheme>https?)://(?:[^/?#@{}]*@)?(?P<host>\[[0-9a-f:.]+\]|[^/?#:{}@]+)(?::(?P<port>\d{1,5}))?(?=[/?#]|$)",
    re.IGNORECASE | re.ASCII,
)
