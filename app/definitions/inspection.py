"""Find faults in a definition without a database: with its trigger, the templates that it
sends and some bodies that came in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.machine import check, content, defaults, document, lint, sample, template
from app.machine.categories import MARKETING
from app.machine.fields import Place
from app.machine.lint import Read, Review
from app.machine.path import Path
from app.machine.program import Finding, Json, Part, warning
from app.messages import footers


def inspect(
    trigger: Mapping[str, Json],
    compiled: check.Compiled,
    known: Mapping[str, Mapping[str, Json]],
    bodies: Sequence[bytes],
    has_postal_address: bool,
) -> list[Finding]:
    """Inspect a definition over bodies as they came in. Without a postal address, marketing
    mail is warned of."""
    found = find_static(trigger, compiled, known, list(sample.objects(bodies)))
    if has_postal_address:
        return found
    marketing = _marketing(_sound(compiled), known)
    mails = [mark.pointer for mark in marketing if mark.channel == "email"]
    return [*found, *map(postal_address_missing, mails)]


def review(channel: str, category: str, written: Mapping[str, Json]) -> Review:
    """The paths that a template reads, and the findings about it alone."""
    reviewed = lint.review(channel, written)
    if category == MARKETING and footers.is_added(channel, written):
        reviewed.findings.append(_footer_added("/content"))
    return reviewed


def starts_of(bodies: Sequence[tuple[check.Shape, str]]) -> list[frozenset[str]]:
    """The definitions that each of these starts."""
    return [
        frozenset(start.id for start in check.compile(shape, document.parse(body.encode())).starts)
        if "start_workflow" in body
        else frozenset()
        for shape, body in bodies
    ]


def templates_of(shape: check.Shape, body: str) -> list[str]:
    """The ids of those that it sends."""
    compiled = check.compile(shape, document.parse(body.encode()))
    return sorted({reference.id for reference in compiled.templates})


def find_static(
    trigger: Mapping[str, Json],
    compiled: check.Compiled,
    known: Mapping[str, Mapping[str, Json]],
    bodies: Sequence[Json],
) -> list[Finding]:
    """The findings that need no database: of the templates and of some recorded bodies."""
    found = [*_of_templates(compiled.templates, known), *lint.unseen(_defaults(trigger), bodies)]
    parts = _sound(compiled)
    found += [_footer_added(mark.pointer) for mark in _marketing(parts, known) if mark.is_unmarked]
    own_tag = trigger.get("tag") if trigger["source"] == "tag_added" else None
    for part in parts:
        tag = part.node.config.get("tag")
        if own_tag and part.node.kind == "add_tag" and tag and tag.source.strip() == own_tag:
            message = "This tag is what starts a run: should the contact lose it, it begins again."
            found.append(warning("tag_starts_again", f"{part.config_pointer}/tag", message))
    templates = {
        id: [path for _, path in content.reads(template["channel"], template["content"])]
        for id, template in known.items()
    }
    # Whom a lookup has found by an address has it.
    is_looked_up = trigger["source"] == "inbound_webhook"
    addresses = {"email", "phone"} & {trigger.get("contactLookup")} if is_looked_up else set()
    found += lint.lint(
        compiled.program,
        parts,
        addresses=addresses,
        templates=templates,
        bodies=bodies,
    )
    return found


def _sound(compiled: check.Compiled) -> Sequence[Part]:
    """The steps that can be read; none where so much is wrong that not all of it was kept."""
    if len(compiled.findings) >= check.MOST_FINDINGS:
        return compiled.parts if compiled.program is not None else ()
    broken = check.places(finding for finding in compiled.findings if finding.draft)
    return [part for part in compiled.parts if part.config_pointer not in broken]


def _defaults(trigger: Mapping[str, Json]) -> Iterator[Read]:
    """The paths that the values of a new contact read."""
    waiting = [(trigger.get("contactDefaults"), Place("/trigger/contactDefaults", []))]
    for value, place in waiting:
        if isinstance(value, str):
            for segments in template.parse(value, roots=defaults.ROOTS).paths:
                yield Read(Path(segments), place.pointer)
        elif isinstance(value, dict):
            waiting += [(member, place.at(name)) for name, member in value.items()]
        elif isinstance(value, list):
            waiting += [(item, place.at(index)) for index, item in enumerate(value)]


def _of_templates(
    references: Iterable[check.Reference], known: Mapping[str, Mapping[str, Json]]
) -> Iterator[Finding]:
    for reference in references:
        template = known.get(reference.id)
        if template is None:
            message = "There is no such template in this workspace."
            yield Finding("template_unknown", reference.pointer, message)
        elif template["channel"] != reference.channel:
            channel = template["channel"]
            message = f"This template is for {channel}, the step sends by {reference.channel}."
            yield Finding("template_channel", reference.pointer, message)


@dataclass(frozen=True, slots=True)
class _Marketing:
    """A step that sends marketing, whose author may have left the way out to the footer."""

    channel: str
    pointer: str
    is_unmarked: bool


def _marketing(
    parts: Iterable[Part], known: Mapping[str, Mapping[str, Json]]
) -> Iterator[_Marketing]:
    for part in parts:
        config = part.node.config
        written, place, channel = config.get("content"), "content", config.get("channel")
        category = (written or {}).get("category")
        if template := known.get(config.get("templateId", "")):
            written, place, category = template["content"], "templateId", template["category"]
        if channel is not None and written and category == MARKETING:
            pointer = f"{part.config_pointer}/{place}"
            yield _Marketing(channel, pointer, footers.is_added(channel, written))


def _footer_added(pointer: str) -> Finding:
    return warning("footer_added", pointer, footers.ADDED)


def postal_address_missing(pointer: str) -> Finding:
    """The finding about marketing mail of a workspace that has not said where it is."""
    message = (
        "Marketing mail has to show where its sender is, and the workspace has no postalAddress:"
        " PATCH /settings/workspace."
    )
    return warning("postal_address_missing", pointer, message)
