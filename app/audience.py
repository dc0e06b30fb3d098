"""Every write to a contact: find or create it by an address, change it, tag it, erase it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from app import profile
from app.errors import Duplicate, FieldError, Problem, Unavailable
from app.machine import document
from app.machine.program import Json
from app.machine.reasons import Reason
from app.store import contacts, erasure, runs
from app.store.db import Handle, Row, new_id

# Of one transaction: a second or so of SQLite's one writer.
FORGOTTEN_PAGES = 5
FORGOTTEN_ROWS = 500

Erasure: TypeAlias = Literal["done", "unknown", "more"]


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a contact lives; `country` reads its national phone numbers."""

    id: str
    country: str | None


@dataclass(frozen=True, slots=True)
class Lookup:
    """What identifies a contact: an address in its clean form, our id, or a metadata field."""

    kind: Literal["email", "phone", "contact_id", "metadata"]
    value: str  # as a contact made from it would hold it
    key: str  # as it is compared
    field: str = ""


# --- reading ------------------------------------------------------------------------------------


def resource(row: Row, tags: Sequence[str]) -> dict[str, Json]:
    """A contact as the API shows it, and as templates and conditions see it."""
    return {
        "id": row["id"],
        "email": row["email"],
        "phone": row["phone"],
        "firstName": row["first_name"],
        "lastName": row["last_name"],
        "timezone": row["timezone"],
        "locale": row["locale"],
        "metadata": row["metadata"],
        "tags": list(tags),
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
    }


def writable(row: Row, tags: Sequence[str] | None = None) -> dict[str, Json]:
    """The part of a contact that its API lets be changed."""
    values = {name: resource(row, ())[name] for name in profile.WRITABLE}
    return values if tags is None else {**values, "tags": list(tags)}


async def find(db: Handle, workspace: Workspace, lookup: Lookup) -> Row | None:
    match lookup.kind:
        case "email":
            return await contacts.by_email(db, workspace_id=workspace.id, email_key=lookup.key)
        case "phone":
            return await contacts.by_phone(db, workspace_id=workspace.id, phone=lookup.key)
        case "contact_id":
            return await contacts.by_id(db, workspace_id=workspace.id, id=lookup.key)
        case "metadata":
            return await contacts.by_field(
                db, workspace_id=workspace.id, name=lookup.field, value=lookup.key
            )


# --- writing ------------------------------------------------------------------------------------


async def create(
    db: Handle, workspace: Workspace, values: Mapping[str, Json], tags: Json = None
) -> Row:
    """A new contact. Raises Problem `invalid`, or `conflict` with the `existingId`."""
    checked = profile.check(workspace.country, values, tags)
    checked.raise_errors()
    row = await _insert(db, workspace, checked)
    if row is None:
        raise await _conflict(db, workspace, checked.columns)
    return row


async def find_or_create(
    db: Handle,
    workspace: Workspace,
    lookup: Lookup,
    defaults: Mapping[str, Json],
    tags: Json = None,
) -> Row:
    """The contact with the email or phone of the lookup; fifty at once make one.

    A default that a contact may not hold is left out, never a reason to refuse.
    """
    found = await find(db, workspace, lookup)
    if found is not None:
        return found
    checked = profile.check(workspace.country, {**defaults, lookup.kind: lookup.value}, tags)
    made = await _insert(db, workspace, checked)
    # No row: another request committed the same address since we looked, so it can be read now.
    row = made or await find(db, workspace, lookup)
    if row is None:
        raise Unavailable("The contact was erased while it was being made; send the request again.")
    return row


async def _insert(db: Handle, workspace: Workspace, checked: profile.Checked) -> Row | None:
    row = await contacts.insert(
        db, workspace_id=workspace.id, id=new_id("con"), columns=checked.columns
    )
    if row is None:
        return None
    if checked.fields:
        fields = [(str(row["id"]), checked.fields)]
        await contacts.add_fields(db, workspace_id=workspace.id, fields=fields)
    if checked.tags:
        tags = [(str(row["id"]), checked.tags)]
        await contacts.add_tags(db, workspace_id=workspace.id, tags=tags)
    return row


async def change(db: Handle, workspace: Workspace, row: Row, patch: Mapping[str, Json]) -> Row:
    """A merge patch (RFC 7396) judged on its result; otherwise like `replace`."""
    return await replace(db, workspace, row, document.merge(writable(row), patch))


async def replace(
    db: Handle,
    workspace: Workspace,
    row: Row,
    values: Mapping[str, Json],
    tags: Json = None,
) -> Row:
    """All writable fields of the locked contact `row`; its tags too, when they are given.

    Raises Problem `invalid` or `conflict`, and then nothing has changed.
    """
    checked = profile.check(workspace.country, values, tags)
    checked.raise_errors()
    try:
        async with db.savepoint():
            changed = await contacts.update(
                db, workspace_id=workspace.id, id=row["id"], columns=checked.columns
            )
    except Duplicate:
        raise await _conflict(db, workspace, checked.columns, other_than=row["id"]) from None
    if checked.columns["metadata"] != row["metadata"]:
        await contacts.replace_fields(
            db, workspace_id=workspace.id, contact_id=row["id"], fields=checked.fields
        )
    if tags is not None:
        await _replace_tags(db, workspace, row["id"], checked.tags)
    return changed


async def add_tags(db: Handle, workspace: Workspace, contact_id: str, tags: Sequence[str]) -> None:
    """Raises Problem `invalid` for a tag that cannot be one, or for one too many."""
    errors: list[FieldError] = []
    tags = profile.check_tags(tags, errors)
    held = await _held(db, workspace, contact_id)
    if len({*held, *tags}) > profile.TAGS:
        errors.append(FieldError("/tags", f"A contact has at most {profile.TAGS} tags."))
    if errors:
        raise profile.invalid(errors)
    added = set(tags) - set(held)
    if added:
        await contacts.add_tags(db, workspace_id=workspace.id, tags=[(contact_id, added)])
        await contacts.touch(db, workspace_id=workspace.id, id=contact_id)


async def remove_tag(db: Handle, workspace: Workspace, contact_id: str, tag: str) -> bool:
    """True when the contact had it."""
    removed = await contacts.remove_tag(
        db, workspace_id=workspace.id, contact_id=contact_id, tag=tag
    )
    if removed:
        await contacts.touch(db, workspace_id=workspace.id, id=contact_id)
    return removed


async def erase(
    db: Handle,
    workspace: Workspace,
    contact_id: str,
    match: Callable[[int], None] | None = None,
) -> Erasure:
    """Its unfinished runs end before anything else is sent; what they and its messages held is
    forgotten, and the contact is gone. When its history is long, that is "more": again, in another
    transaction.

    `match` is given its revision, and may raise: then nothing has happened.
    """
    # Runs first, as a worker locks them: in the other order the two could wait for each other.
    await runs.cancel_all(
        db,
        workspace_id=workspace.id,
        contact_id=contact_id,
        reason_code=Reason.CONTACT_ERASED,
    )
    row = await contacts.locked(db, workspace_id=workspace.id, id=contact_id)
    if row is None:
        return "unknown"
    if match is not None:
        match(row["revision"])
    for _ in range(FORGOTTEN_PAGES):
        if not await erasure.forget_some(
            db, workspace_id=workspace.id, contact_id=contact_id, limit=FORGOTTEN_ROWS
        ):
            await contacts.delete(db, workspace_id=workspace.id, id=contact_id)
            return "done"
    return "more"


async def _held(db: Handle, workspace: Workspace, contact_id: str) -> list[str]:
    tags = await contacts.tags_of(db, workspace_id=workspace.id, contact_ids=[contact_id])
    return tags[contact_id]


async def _replace_tags(
    db: Handle, workspace: Workspace, contact_id: str, tags: Sequence[str]
) -> None:
    held = await _held(db, workspace, contact_id)
    for tag in set(held) - set(tags):
        await contacts.remove_tag(db, workspace_id=workspace.id, contact_id=contact_id, tag=tag)
    if added := set(tags) - set(held):
        await contacts.add_tags(db, workspace_id=workspace.id, tags=[(contact_id, added)])


async def _conflict(
    db: Handle,
    workspace: Workspace,
    columns: Mapping[str, Any],
    other_than: str | None = None,
) -> Problem:
    found = [
        await contacts.by_email(db, workspace_id=workspace.id, email_key=columns["email_key"])
        if columns["email_key"]
        else None,
        await contacts.by_phone(db, workspace_id=workspace.id, phone=columns["phone"])
        if columns["phone"]
        else None,
    ]
    others = [row["id"] for row in found if row and row["id"] != other_than]
    return Problem(
        "conflict",
        "Another contact has this email or phone; change that one instead.",
        existingId=others[0] if others else None,
    )
