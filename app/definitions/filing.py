"""Definitions and templates by their names in files: found, written down, brought back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.database.db import Handle, new_id
from app.definitions import portable
from app.errors import FieldError, Problem
from app.machine import content, document
from app.machine.program import Json
from app.process import Process
from app.runtime.compute import Job
from app.store import definitions, templates
from app.store.definitions import Definition, FiledDefinition
from app.store.templates import FiledTemplate

Action = Literal["created", "updated", "unchanged"]
MOST_ALIKE = 100  # keys that begin alike
SHAPES: Mapping[str, str] = {"workflowId": "steps", "automationId": "graph"}


async def exported(db: Handle, workspace_id: str, row: Definition) -> dict[str, Json]:
    """The definition as a file."""
    [filed] = await definitions.filed(db, workspace_id=workspace_id, ids=[row.id])
    body = document.parse(row.body.encode())
    named = portable.references(row.shape, body)
    started = [id for name in portable.DEFINITIONS for id in named[name]]
    others = await definitions.filed(db, workspace_id=workspace_id, ids=started)
    return portable.file_of(
        key=filed.key or await _free_key(db, workspace_id, row.name),
        name=row.name,
        shape=row.shape,
        trigger=row.trigger_config,
        is_signed=row.secret_set or bool(row.trigger_config.get("signed")),
        body=row.body,
        templates=await _sent(db, workspace_id, named[portable.TEMPLATE]),
        names={one.id: one.key or portable.key_of(one.name) for one in others},
        beside=document.parse((filed.beside or "{}").encode()),
    )


async def _free_key(db: Handle, workspace_id: str, name: str) -> str:
    """For what came from no file: none that another has."""
    stem = portable.key_of(name)
    keys = [stem, *(f"{stem}-{number}" for number in range(2, MOST_ALIKE))]
    others = await definitions.by_keys(db, workspace_id=workspace_id, keys=keys)
    taken = {one.key for one in others}
    return next((key for key in keys if key not in taken), stem)


async def sent_by(db: Handle, workspace_id: str, row: Definition) -> dict[str, FiledTemplate]:
    """The templates that the definition sends, by their keys in its export."""
    body = document.parse(row.body.encode())
    ids = portable.references(row.shape, body)[portable.TEMPLATE]
    sent = await _sent(db, workspace_id, ids)
    keys = portable.keys_of(sent)
    return {keys[one.id]: one for one in sent}


async def _sent(db: Handle, workspace_id: str, ids: Sequence[str]) -> list[FiledTemplate]:
    """In the order in which they are named."""
    known = {one.id: one for one in await templates.filed(db, workspace_id=workspace_id, ids=ids)}
    return [known[id] for id in ids if id in known]


# --- finding what a file means --------------------------------------------------------------------


async def find(
    db: Handle, workspace_id: str, shape: str, key: str, name: str
) -> FiledDefinition | None:
    """The definition of that key, or else the one of that name which came from no file, or whose
    key would be that one. Raises Problem `conflict`."""
    for one in await definitions.by_keys(db, workspace_id=workspace_id, keys=[key]):
        if one.shape != shape:
            kind = "automation" if one.shape == "graph" else "workflow"
            raise Problem("conflict", f"The key {key} is that of an {kind}; choose another.")
        return one
    known = await definitions.without_key(db, workspace_id=workspace_id)
    same = [one for one in known if one.shape == shape]
    found = [one for one in same if one.name == name]
    found = found or [one for one in same if portable.key_of(one.name) == key]
    if len(found) > 1:
        raise Problem("conflict", f"Several definitions are called {name}; rename all but one.")
    return found[0] if found else None


async def resolved(
    db: Handle, workspace_id: str, shape: str, body: Json, ids: Mapping[str, str]
) -> Json:
    """The body with ids instead of names; `ids` are those of its templates, by key."""
    named = portable.references(shape, body)
    wanted = [key for name in portable.DEFINITIONS for key in named[name]]
    known: dict[tuple[str, str], str] = {}
    if wanted:
        others = await definitions.without_key(db, workspace_id=workspace_id)
        known = {(one.shape, portable.key_of(one.name)): one.id for one in others}
        for one in await definitions.by_keys(db, workspace_id=workspace_id, keys=wanted):
            known[one.shape, one.key or ""] = one.id

    def id_of(name: str, key: str) -> str:
        return (
            ids.get(key, key) if name == portable.TEMPLATE else known.get((SHAPES[name], key), key)
        )

    return portable.renamed(shape, body, id_of)


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


@dataclass(frozen=True, slots=True)
class GivenTemplate:
    """A template of a file, and the one that its definition sends by that key now, if any."""

    key: str
    content: Mapping[str, Json]
    sent: FiledTemplate | None


async def keep_template(
    process: Process, db: Handle, workspace_id: str, template: GivenTemplate
) -> KeptTemplate:
    """Raises Problem `invalid`, `conflict`; Heavy."""
    key, given = template.key, template.content
    name, channel, category = given.get("name") or key, given["channel"], given["category"]
    old = template.sent or await templates.by_key(db, workspace_id=workspace_id, key=key)
    old = old or await _of_name(db, workspace_id, name, channel)
    parts = _checked(process, workspace_id, key, given, old)
    if old is None:
        new = {"name": name, "channel": channel, "category": category, "content": parts}
        row = await templates.insert(db, workspace_id=workspace_id, id=new_id("tpl"), **new)
        await templates.set_key(db, workspace_id=workspace_id, id=row.id, key=key)
        return KeptTemplate(key, row.id, name, "created", after=new)
    if old.channel != channel:
        detail = f"A template keeps its channel: {key} is for {old.channel}, not {channel}."
        raise Problem("conflict", detail)
    is_same = (old.name, old.category, dict(old.content)) == (name, category, parts)
    if is_same and old.key == key:
        return KeptTemplate(key, old.id, name, "unchanged")
    locked = await templates.locked(db, workspace_id=workspace_id, id=old.id)
    if locked is None:
        raise Problem("conflict", f"The template {key} has just been deleted; try again.")
    if not is_same:
        await templates.update(
            db,
            workspace_id=workspace_id,
            id=old.id,
            name=name,
            category=category,
            topic_id=locked.topic_id if category == "marketing" else None,
            content=parts,
            version=locked.version + (parts != locked.content),
        )
    await templates.set_key(db, workspace_id=workspace_id, id=old.id, key=key)
    if is_same:
        return KeptTemplate(key, old.id, name, "unchanged")
    before = {"name": old.name, "category": old.category, "content": old.content}
    after = {"name": name, "category": category, "content": parts}
    return KeptTemplate(key, old.id, name, "updated", before, after)


async def _of_name(db: Handle, workspace_id: str, name: str, channel: str) -> FiledTemplate | None:
    found = await templates.without_key(db, workspace_id=workspace_id, name=name, channel=channel)
    if len(found) > 1:
        raise Problem("conflict", f"Several templates are called {name}; rename all but one.")
    return found[0] if found else None


def _checked(
    process: Process,
    workspace_id: str,
    key: str,
    given: Mapping[str, Json],
    old: FiledTemplate | None,
) -> dict[str, Json]:
    place = document.pointer("file", "templates", key, "content")
    job = Job(workspace_id, content.checked, (given["channel"], given["content"], place))
    parts, found = process.compute.here(job)
    wrong = [one for one in found if not (one.limit and old and given["content"] == old.content)]
    if wrong:
        errors = [FieldError(one.pointer, one.message) for one in wrong]
        raise Problem("invalid", "A template of the file is not valid; see errors.", errors=errors)
    return parts
