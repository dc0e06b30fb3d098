"""Definitions and templates by their names in files: found, written down, brought back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from app.audience.topics import wrong_channel
from app.database.db import Handle
from app.definitions import activation, portable
from app.definitions.activation import Shape
from app.definitions.portable import Mention
from app.errors import FieldError, Problem
from app.machine import content, document
from app.machine.categories import MARKETING
from app.machine.program import Json
from app.process import Process
from app.runtime.compute import Computation
from app.store import definitions, segments, templates, topics
from app.store.definitions import Definition, NamedDefinition
from app.store.row_keys import WorkspaceKey
from app.store.templates import FiledTemplate, KeyedTemplate

SECONDS = 3.0  # of CPU time for all templates of a file
Action = Literal["created", "updated", "unchanged"]
NewId: TypeAlias = Callable[[str, str], str]  # of a prefix and a key; see Call.new_id
SHAPES: Mapping[str, str] = {"workflowId": "steps", "automationId": "graph"}
MOST_ALIKE = 10  # stored templates of its name that a template of a file is compared with
TOO_LARGE = (
    f"The definition's templates have more than {templates.MOST_BYTES >> 20} MiB together: shorten"
    " them, or send some of them from another definition."
)
NO_TOPIC = "There is no topic of this name in the workspace; create it first."
NOUNS: Mapping[str, str] = {"steps": "a workflow", "graph": "an automation"}


async def exported(db: Handle, workspace_id: str, row: Definition) -> dict[str, Json]:
    """The definition as a file. Raises Problem `conflict` for templates that are too large."""
    named = portable.references(row.shape, document.parse(row.body.encode()))
    ids = named[portable.TEMPLATE]
    started = [id for name in portable.DEFINITIONS for id in named[name]]
    keys = {one.id: key for key, one in await keyed(db, workspace_id, [row.id, *started])}
    of_templates = {one.id: key for key, one in await _keyed_templates(db, workspace_id, ids)}
    sent = await _contents(db, workspace_id, ids)
    filed = await definitions.filed(db, workspace_id=workspace_id, id=row.id)
    called = await audience(db, workspace_id)
    return portable.file_of(
        key=keys[row.id],
        name=row.name,
        shape=row.shape,
        trigger=row.trigger_config,
        is_signed=row.secret_set or bool(row.trigger_config.get("signed")),
        body=row.body,
        templates={of_templates[id]: sent[id] for id in ids if id in sent},
        names={**called.segments, **called.topics, **keys, **of_templates},
        beside=document.parse((filed.beside or "{}").encode()),
    )


async def keyed(
    db: Handle, workspace_id: str, ids: Sequence[str] = ()
) -> list[tuple[str, NamedDefinition]]:
    """Read these definitions and all that are not archived, each with its key. A key is the one
    that it has already or would get."""
    known = await definitions.named(db, workspace_id=workspace_id, ids=ids)
    # Behind its prefix an ID is a time.
    known = sorted(known, key=lambda one: (one.state == "ARCHIVED", one.id[4:]))
    keys = portable.keys_of(known)
    return [(keys[one.id], one) for one in known]


async def _keyed_templates(
    db: Handle, workspace_id: str, ids: Sequence[str]
) -> list[tuple[str, KeyedTemplate]]:
    """Read these templates and all others, each with the key that it has already or would get."""
    known = await templates.keyed(db, workspace_id=workspace_id, ids=ids)
    known = sorted(known, key=lambda one: one.id)
    keys = portable.keys_of(known)
    return [(keys[one.id], one) for one in known]


@dataclass(frozen=True, slots=True)
class _Called:
    """A segment or a topic: files name it as its own name says, for none brings it in."""

    id: str
    name: str
    key: None = None


@dataclass(frozen=True, slots=True)
class Audience:
    """The keys of a workspace's segments and topics, by their IDs."""

    segments: Mapping[str, str]
    topics: Mapping[str, str]

    def key_of(self, one: Mention) -> str:
        return self._of(one).get(one.id, one.id)

    def id_of(self, one: Mention) -> str:
        """The ID of what a member means; an ID, and the key of nothing, mean themselves."""
        return next((id for id, key in self._of(one).items() if key == one.id), one.id)

    def _of(self, one: Mention) -> Mapping[str, str]:
        return self.topics if one.member == portable.TOPIC else self.segments


async def audience(db: Handle, workspace_id: str) -> Audience:
    of: WorkspaceKey = {"workspace_id": workspace_id}
    known = await segments.of_workspace(db, **of), await topics.of_workspace(db, **of)
    keys = (
        portable.keys_of([_Called(one.id, one.name) for one in kind.values()]) for kind in known
    )
    return Audience(*keys)


async def ids(db: Handle, workspace_id: str) -> portable.Rename:
    """The IDs of what the case of a file names: topics, segments, definitions of either shape."""
    started = {key: one.id for key, one in await keyed(db, workspace_id)}
    called = await audience(db, workspace_id)

    def id_of(one: Mention) -> str:
        if one.member in portable.DEFINITIONS:
            return started.get(one.id, one.id)
        return called.id_of(one)

    return id_of


# --- finding what a file means --------------------------------------------------------------------


async def find(
    db: Handle, workspace_id: str, shape: str, key: str | None, name: str
) -> NamedDefinition | None:
    """The definition of that key, or else one which came from no file: of the key that it would
    get, or of that name. Raises Problem `conflict`."""
    known = await keyed(db, workspace_id)
    wanted = key or portable.key_of(name)
    for _, one in known:
        if one.key == wanted:
            if one.shape != shape:
                detail = f"The key {wanted} is that of {NOUNS[one.shape]}; choose another."
                raise Problem("conflict", detail)
            return one
    others = [(made, one) for made, one in known if one.key is None and one.shape == shape]
    by_key = [one for made, one in others if made == key]
    by_name = [one for _, one in others if one.name == name]
    if by_key and by_name and by_key[0] not in by_name:
        detail = f"The key {key} is that of {by_key[0].name}, and {name} is another; rename one."
        raise Problem("conflict", detail)
    found = by_key or by_name
    if len(found) > 1:
        raise Problem("conflict", f"Several definitions are called {name}; rename all but one.")
    return found[0] if found else None


async def resolved(
    db: Handle, workspace_id: str, shape: str, body: Json, ids: Mapping[str, str]
) -> Json:
    """The body with IDs instead of names; `ids` are those of its templates, by key."""
    named = portable.references(shape, body)
    known: dict[tuple[str, str], str] = {}
    if any(named[name] for name in portable.DEFINITIONS):
        known = {(one.shape, key): one.id for key, one in await keyed(db, workspace_id)}
    called = await audience(db, workspace_id)

    def id_of(one: Mention) -> str:
        if one.member == portable.TEMPLATE:
            return ids.get(one.id, one.id)
        if one.member in SHAPES:
            return known.get((SHAPES[one.member], one.id), one.id)
        return called.id_of(one)

    return portable.renamed(shape, body, id_of)


async def segment_of(db: Handle, workspace_id: str, key: Json) -> Json:
    """The ID of the segment that a trigger names by its key."""
    if not isinstance(key, str):
        return key
    return (await audience(db, workspace_id)).id_of(Mention(portable.SEGMENTS[0], key, ""))


async def with_topics(
    db: Handle,
    workspace_id: str,
    given: Mapping[str, Mapping[str, Json]],
    named: Sequence[Mention],
) -> dict[str, dict[str, Json]]:
    """Templates of a file, by their keys, with the IDs of their topics; `named` is all that its
    definition names. Raises Problem `invalid` for topics that are not there: what it is about
    decides who gets something."""
    found = {key: dict(one) for key, one in given.items()}
    about = [one for one in named if one.member == portable.TOPIC]
    if not about and all(one["topic_id"] is None for one in given.values()):
        return found
    called, errors = await audience(db, workspace_id), []
    known = await topics.of_workspace(db, workspace_id=workspace_id)
    for key, one in found.items():
        if one["topic_id"] is None:
            continue
        at = document.pointer("file", "templates", key, portable.TOPIC)
        one["topic_id"] = called.id_of(Mention(portable.TOPIC, str(one["topic_id"]), at))
        topic = known.get(one["topic_id"])
        if one["category"] != MARKETING:
            message = "Only marketing has a topic."
        elif topic is None:
            message = NO_TOPIC
        else:
            message = wrong_channel(topic, str(one["channel"])) or ""
        if message:
            errors.append(FieldError(at, message))
    errors += [
        FieldError(f"/file/definition{one.pointer}", NO_TOPIC)
        for one in about
        if called.id_of(one) not in known
    ]
    if errors:
        raise Problem("invalid", "The file names topics wrongly; see errors.", errors=errors)
    return found


async def stand_in(
    db: Handle, workspace_id: str, shapes: Mapping[str, Shape], new_id: NewId
) -> None:
    """An empty definition of each key that none has, or would get: for a dry run alone."""
    known = await keyed(db, workspace_id)
    # A key that is made of a name is one's own among its kind alone; a file takes it from others.
    taken = {(made, one.shape) for made, one in known}
    stored = {one.key for _, one in known}
    named = [
        (new_id("aut" if shape == "graph" else "wfl", key), key, shape, activation.EMPTY[shape])
        for key, shape in shapes.items()
        if key not in stored and (key, shape) not in taken
    ]
    if named:
        manual = {"source": "manual"}
        await definitions.insert_stand_ins(
            db, workspace_id=workspace_id, named=named, trigger_config=manual
        )


# --- templates ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptTemplate:
    """A template of a file, as it is kept now."""

    key: str
    id: str
    name: str
    action: Action
    before: Mapping[str, Json] | None = None  # where that was changed, of what
    after: Mapping[str, Json] | None = None  # … became what

    @property
    def sends_otherwise(self) -> bool:
        """True where more than the name was changed."""
        before, after = self.before or {}, self.after or {}
        return any(before.get(one) != after.get(one) for one in {*before, *after} - {"name"})


@dataclass(frozen=True, slots=True)
class GivenTemplate:
    """A template of a file.

    `known` is the stored one that its key means, if any; `alike` are the ids of stored ones of its
    name and channel that came from no file, the oldest.
    """

    key: str
    name: str
    content: Mapping[str, Json]
    known: FiledTemplate | None
    alike: Sequence[str]


async def lock_templates(
    db: Handle,
    workspace_id: str,
    row: Definition | None,
    given: Mapping[str, Mapping[str, Json]],
) -> list[GivenTemplate]:
    """The templates of a file, by their keys. They, and all that the definition sends now, stay
    locked until the transaction ends. A key means the template that a file brought in with it, or
    that has it in the export of the definition: no other one is changed. Raises Problem `conflict`
    for templates that are too large."""
    body = document.parse(row.body.encode()) if row else []
    sent = portable.references(row.shape if row else "steps", body)[portable.TEMPLATE]
    known = await _keyed_templates(db, workspace_id, sent)
    meant = {key: one.id for key, one in known if one.key is not None or one.id in sent}
    called = {key: (one.get("name") or key, one["channel"]) for key, one in given.items()}
    alike = defaultdict[tuple[str, str], list[str]](list)
    for _, one in known:
        of_name = alike[one.name, one.channel]
        if one.key is None and len(of_name) < MOST_ALIKE:
            of_name.append(one.id)
    wanted = [meant[key] for key in given if key in meant]
    ids = {*sent, *wanted, *(id for one in called.values() for id in alike[one])}
    await templates.lock_for_change(db, workspace_id=workspace_id, ids=sorted(ids))
    locked = await _contents(db, workspace_id, wanted)
    return [
        GivenTemplate(
            key,
            called[key][0],
            content,
            locked.get(meant.get(key, "")),
            alike[called[key]],
        )
        for key, content in given.items()
    ]


async def _contents(db: Handle, workspace_id: str, ids: Sequence[str]) -> dict[str, FiledTemplate]:
    """The templates by id. Raises Problem `conflict` when they are too large together."""
    found = await templates.filed(db, workspace_id=workspace_id, ids=ids)
    if found is None:
        raise Problem("conflict", TOO_LARGE)
    return found


async def keep_templates(
    process: Process,
    db: Handle,
    workspace_id: str,
    given: Sequence[GivenTemplate],
    new_id: NewId,
) -> list[KeptTemplate]:
    """Raises Problem `conflict`, and `invalid` with all that is wrong; Heavy."""
    asked = [
        (
            one.content["channel"],
            one.content["content"],
            document.pointer("file", "templates", one.key, "content"),
        )
        for one in given
    ]
    # One computation for all, since a transaction is begun anew for few.
    computation = Computation(workspace_id, content.all_checked, (asked,), seconds=SECONDS)
    checked = process.compute.here(computation)
    errors = [
        FieldError(found.pointer, found.message)
        for one, (_, findings) in zip(given, checked, strict=True)
        for found in findings
        if not (found.limit and one.known and one.content["content"] == one.known.content)
    ]
    if errors:
        raise Problem("invalid", "A template of the file is not valid; see errors.", errors=errors)
    kept: list[KeptTemplate] = []
    for one, (parts, _) in zip(given, checked, strict=True):
        others = [other for other in one.alike if other not in {known.id for known in kept}]
        template = replace(one, alike=others)
        id = new_id("tpl", one.key)
        kept.append(await _keep_template(db, workspace_id, template, parts, id))
    return kept


async def _keep_template(
    db: Handle, workspace_id: str, template: GivenTemplate, parts: dict[str, Json], new_id: str
) -> KeptTemplate:
    key, name, old = template.key, template.name, template.known
    channel, category = template.content["channel"], template.content["category"]
    topic_id = template.content["topic_id"]
    wanted = (name, category, topic_id, parts)
    if old is None:
        # When they are too large together to be compared, a new one is made.
        alike = await templates.filed(db, workspace_id=workspace_id, ids=template.alike) or {}
        same = (
            alike[id] for id in template.alike if id in alike and _compared(alike[id]) == wanted
        )
        old = next(same, None)
    if old is None:
        about = {} if topic_id is None else {portable.TOPIC: topic_id}
        new = {"name": name, "channel": channel, "category": category, "content": parts}
        row = await templates.insert(
            db, workspace_id=workspace_id, id=new_id, **new, topic_id=topic_id
        )
        await templates.set_key(db, workspace_id=workspace_id, id=row.id, key=key)
        return KeptTemplate(key, row.id, name, "created", after={**new, **about})
    if old.channel != channel:
        detail = f"A template keeps its channel: {key} is for {old.channel}, not {channel}."
        raise Problem("conflict", detail)
    if old.key != key:
        await templates.set_key(db, workspace_id=workspace_id, id=old.id, key=key)
    if _compared(old) == wanted:
        return KeptTemplate(key, old.id, name, "unchanged")
    await templates.update(
        db,
        workspace_id=workspace_id,
        id=old.id,
        name=name,
        category=category,
        topic_id=topic_id,
        content=parts,
        version=old.version + (parts != old.content),
    )
    before, after = (
        dict(zip(("name", "category", portable.TOPIC, "content"), one, strict=True))
        for one in (_compared(old), wanted)
    )
    return KeptTemplate(key, old.id, name, "updated", before, after)


def _compared(template: FiledTemplate) -> tuple[str, str, str | None, Mapping[str, Json]]:
    return template.name, template.category, template.topic_id, template.content
