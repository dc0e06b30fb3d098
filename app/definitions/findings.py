"""What an activation finds beyond the Program: with the trigger, the templates and what came in."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.definitions import starts
from app.errors import FieldError
from app.machine import check, content, sample, template
from app.machine.fields import Place
from app.machine.lint import Read, lint, unseen
from app.machine.path import Path
from app.machine.program import Finding, Json, Part
from app.messages import providers
from app.process import Process
from app.store import runs, templates, webhook_requests
from app.store.db import Handle, Row

SHORT_SECRET = 16
LAST4_FROM = 12  # the last four of a shorter secret would give too much of it away

BODIES = 50  # the newest say what senders send
MOST_BYTES = 64 * 1024  # of a body that is looked at


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at: the stored definition, and what it is to become.

    `signing_secret`: None when the stored one is kept, "" when it is removed.
    """

    workspace_id: str
    row: Row
    trigger: Mapping[str, Json]
    signing_secret: str | None
    compiled: check.Compiled

    @property
    def template_ids(self) -> Sequence[str]:
        return sorted({reference.id for reference in self.compiled.templates})


async def find(process: Process, db: Handle, subject: Subject) -> list[Finding]:
    """Everything but what compiling has found."""
    known = await templates.named(db, workspace_id=subject.workspace_id, ids=subject.template_ids)
    able = await providers.names(process, db, subject.workspace_id)
    found = [*_of_trigger(subject), *_of_channels(subject.compiled, able)]
    found += await starts.find(db, subject.workspace_id, subject.row["id"], subject.compiled)
    return [
        *found,
        *find_static(subject.trigger, subject.compiled, known, await _bodies(db, subject)),
    ]


def find_static(
    trigger: Mapping[str, Json],
    compiled: check.Compiled,
    known: Mapping[str, Mapping[str, Json]],
    bodies: Sequence[Json],
) -> list[Finding]:
    """The findings that need no database: of the templates and of some recorded bodies."""
    found = [*_of_templates(compiled.templates, known), *unseen(_defaults(trigger), bodies)]
    parts = _sound(compiled)
    found += _adding_its_trigger(trigger, parts)
    found += lint(
        compiled.program,
        parts,
        addresses=_sure_of(trigger),
        templates={id: _read_by(template) for id, template in known.items()},
        bodies=bodies,
    )
    return found


def _sound(compiled: check.Compiled) -> Sequence[Part]:
    """Those that can be read; none where so much is wrong that not all of it was kept."""
    if len(compiled.findings) >= check.MOST_FINDINGS:
        return compiled.parts if compiled.program is not None else ()
    broken = check.places(finding for finding in compiled.findings if finding.draft)
    return [part for part in compiled.parts if part.config_pointer not in broken]


def unread(errors: Iterable[FieldError], found: Iterable[Finding]) -> list[Finding]:
    """What could not be read, or cannot be kept, before the rest of what was found: nothing more is
    to be said of a place that nobody could read."""
    wrong = [Finding("invalid", error.pointer, error.message, draft=True) for error in errors]
    within = tuple(f"{finding.pointer}/" for finding in wrong)
    return [*wrong, *(one for one in found if not f"{one.pointer}/".startswith(within))]


# --- the trigger --------------------------------------------------------------------------------


def _of_trigger(subject: Subject) -> Iterator[Finding]:
    trigger = subject.trigger
    if trigger["source"] != "inbound_webhook":
        yield from _missing_from(trigger)
        return
    lookup = trigger.get("contactLookup")
    if lookup is None:
        message = "Say what identifies the contact: email, phone or contact_id."
        yield Finding("lookup_missing", "/trigger/contactLookup", message)
    if trigger.get("createContact") and lookup == "contact_id":
        message = "A contact cannot be created from an id alone; an unknown id answers 404."
        yield _warning("create_without_address", "/trigger/createContact", message)
    if _has_short_secret(subject):
        message = f"A signing secret under {SHORT_SECRET} characters can be guessed."
        yield _warning("short_secret", "/trigger/signingSecret", message)


def _missing_from(trigger: Mapping[str, Json]) -> Iterator[Finding]:
    """What a trigger cannot do without."""
    if trigger["source"] == "tag_added" and not trigger.get("tag"):
        message = "Say which tag starts a run when a contact gets it."
        yield Finding("tag_missing", "/trigger/tag", message)
    if trigger["source"] == "event" and not trigger.get("name"):
        message = "Say which event of a contact starts a run."
        yield Finding("name_missing", "/trigger/name", message)


def _has_short_secret(subject: Subject) -> bool:
    """Of a secret that is kept, only whether it is long enough to show its end is known."""
    if subject.signing_secret is None:
        return bool(subject.row["secret_set"]) and subject.row["secret_last4"] is None
    return 0 < len(subject.signing_secret) < SHORT_SECRET


def _adding_its_trigger(trigger: Mapping[str, Json], parts: Iterable[Part]) -> Iterator[Finding]:
    wanted = trigger.get("tag") if trigger["source"] == "tag_added" else None
    for part in parts:
        tag = part.node.config.get("tag")
        if wanted and part.node.kind == "add_tag" and tag and tag.source.strip() == wanted:
            message = "This tag is what starts a run: should the contact lose it, it begins again."
            yield _warning("tag_starts_again", f"{part.config_pointer}/tag", message)


def _sure_of(trigger: Mapping[str, Json]) -> frozenset[str]:
    """Whoever is found by an address has it."""
    if trigger["source"] != "inbound_webhook":
        return frozenset()
    return frozenset({"email", "phone"} & {trigger.get("contactLookup")})


def _defaults(trigger: Mapping[str, Json]) -> Iterator[Read]:
    """What the values of a new contact read."""
    waiting = [(trigger.get("contactDefaults"), Place("/trigger/contactDefaults", []))]
    for value, place in waiting:
        if isinstance(value, str):
            for segments in template.parse(value, roots=frozenset({"trigger"})).paths:
                yield Read(Path(segments), place.pointer)
        elif isinstance(value, dict):
            waiting += [(member, place.at(name)) for name, member in value.items()]
        elif isinstance(value, list):
            waiting += [(item, place.at(index)) for index, item in enumerate(value)]


async def _bodies(db: Handle, subject: Subject) -> list[Json]:
    """Of runs, and of requests that a secret let in but that started none."""
    of_runs = await runs.bodies(
        db,
        workspace_id=subject.workspace_id,
        definition_id=subject.row["id"],
        most=BODIES,
        most_bytes=MOST_BYTES,
    )
    recorded = await webhook_requests.bodies(
        db,
        workspace_id=subject.workspace_id,
        definition_id=subject.row["id"],
        longest=MOST_BYTES,
        limit=BODIES,
    )
    bodies = dict.fromkeys(bytes(body) for body in [*of_runs, *(row["body"] for row in recorded)])
    return await asyncio.to_thread(lambda: list(sample.objects(bodies)))


# --- templates and channels ---------------------------------------------------------------------


def _of_templates(
    references: Iterable[check.Reference], known: Mapping[str, Mapping[str, Json]]
) -> Iterator[Finding]:
    for reference in references:
        row = known.get(reference.id)
        if row is None:
            message = "There is no such template in this workspace."
            yield Finding("template_unknown", reference.pointer, message)
        elif row["channel"] != reference.channel:
            message = (
                f"This template is for {row['channel']}, the step sends by {reference.channel}."
            )
            yield Finding("template_channel", reference.pointer, message)


def _read_by(template: Mapping[str, Json]) -> Sequence[Path]:
    return [path for _, path in content.reads(template["channel"], template["content"])]


def _of_channels(compiled: check.Compiled, able: Collection[str]) -> Iterator[Finding]:
    for part in compiled.parts:
        channel = part.node.config.get("channel")
        if channel is not None and channel not in able:
            message = f"No provider is set up for {channel}: until then its messages fail."
            yield _warning("channel_not_configured", f"{part.config_pointer}/channel", message)


def _warning(code: str, pointer: str, message: str) -> Finding:
    return Finding(code, pointer, message, severity="warning")
