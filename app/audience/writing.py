"""Every write to a contact but its end (erasing.py): find or create it, change it, tag it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from app.audience import profile, reactions, shapes, subscriptions, topics
from app.audience.subscriptions import MEMBER, Given, OptOut, Person, shown
from app.audience.topics import Answer
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle, new_id
from app.errors import Duplicate, FieldError, Problem, Unavailable
from app.machine import document
from app.machine.contact_values import Status
from app.machine.program import Json
from app.store import contact_batches, contacts, suppressions
from app.store.contacts import Contact
from app.store.row_keys import HashedAddressKey
from app.vault.vault import Vault


@dataclass(frozen=True, slots=True)
class Lookup:
    """The key of a contact: an address in its clean form, our id, or a metadata field."""

    kind: Literal["email", "phone", "contact_id", "metadata"]
    value: str  # as a contact made from it would hold it
    key: str  # as it is compared
    field: str = ""

    @property
    def is_address(self) -> bool:
        """True where a contact can be made of the lookup: an id alone creates nobody."""
        return self.kind in ("email", "phone")

    def within(self, workspace_id: str) -> Who:
        return (workspace_id, self.kind, self.field, self.key)


Who: TypeAlias = tuple[str, str, str, str]  # workspace, kind of lookup, field, key


# --- writing ------------------------------------------------------------------------------------


async def create(
    db: Handle,
    workspace: WorkspaceContext,
    values: Mapping[str, Json],
    tags: Json = None,
    *,
    answers: Sequence[Answer] = (),
    given: Given = MEMBER,
) -> Contact:
    """A new contact, with the answers about topics that were `given`. Raises Problem `invalid`, or
    `conflict` with the `existingId`."""
    checked = profile.check(workspace.country, values, tags)
    checked.raise_errors()
    read_only = [
        FieldError(f"/subscriptions/{channel}", f"{status} is read-only.")
        for channel, status in checked.columns["subscriptions"].items()
        if status in REPORTED
    ]
    if read_only:
        raise profile.invalid(read_only)
    new = Person(workspace.id, new_id("con"), dict(checked.columns))
    opting = await subscriptions.judge(db, workspace.vault, [new])
    row = await contacts.insert(db, workspace_id=workspace.id, id=new.id, columns=new.columns)
    if row is None:
        raise await _conflict(db, workspace, checked.columns)
    await subscriptions.keep(db, workspace.id, opting, MEMBER)
    await _insert_belongings(db, workspace.id, row.id, checked)
    row = await topics.keep(db, workspace.id, row, answers, given)
    await reactions.appeared(db, workspace, {row.id: checked.tags})
    return row


@dataclass(frozen=True, slots=True)
class FoundContact:
    id: str
    is_one_of_several: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """A contact to create when none is found, without the values that it may not hold."""

    workspace: WorkspaceContext
    lookup: Lookup
    values: Mapping[str, Json]
    tags: Sequence[Json]


async def find_all(db: Handle, wanted: Iterable[Who]) -> dict[Who, FoundContact]:
    """The contacts that exist: a statement for each kind of lookup, whoever they belong to."""
    by_kind: dict[str, list[Who]] = {}
    for who in set(wanted):
        by_kind.setdefault(who[1], []).append(who)
    found = {}
    for kind, some in by_kind.items():
        rows = await contact_batches.found(
            db, kind, [(workspace_id, field, key) for workspace_id, _, field, key in some]
        )
        for row in rows:
            if row.id is not None:
                who = (row.workspace_id, kind, row.field, row.value)
                found[who] = FoundContact(row.id, row.another is not None)
    return found


async def make_all(
    db: Handle, vault: Vault, missing: Mapping[Who, Missing]
) -> dict[Who, FoundContact]:
    """A contact for each email or phone; fifty requests at once make one. One that another request
    has made since we looked is found instead."""
    made, new = await insert_all(db, vault, missing)
    for workspace, some in new.items():
        await reactions.appeared(db, workspace, some)
    return made


async def insert_all(
    db: Handle, vault: Vault, missing: Mapping[Who, Missing]
) -> tuple[dict[Who, FoundContact], dict[WorkspaceContext, dict[str, Sequence[str]]]]:
    """The same where the caller says which of them `appeared`, once they have what they are made
    with: those that are new, with their tags."""
    made = {}
    people, new = [], {}
    for who in sorted(missing):
        one = missing[who]
        checked = profile.check(
            one.workspace.country, {**one.values, one.lookup.kind: one.lookup.value}, one.tags
        )
        made[who] = FoundContact(new_id("con"))
        new[made[who].id] = (one.workspace, checked)
        people.append(Person(one.workspace.id, made[who].id, dict(checked.columns)))
    await subscriptions.judge(db, vault, people)
    inserted = await contact_batches.insert_missing(
        db, [(one.workspace_id, one.id, one.columns) for one in people]
    )
    made_in: dict[WorkspaceContext, dict[str, Sequence[str]]] = {}
    for id in sorted(inserted):
        workspace, checked = new[id]
        await _insert_belongings(db, workspace.id, id, checked)
        made_in.setdefault(workspace, {})[id] = checked.tags
    overtaken = [who for who, found in made.items() if found.id not in inserted]
    found = await find_all(db, overtaken) if overtaken else {}
    if len(found) < len(overtaken):
        raise Unavailable("The contact was erased while it was being created; retry the request.")
    return {**made, **found}, made_in


async def _insert_belongings(
    db: Handle, workspace_id: str, id: str, checked: profile.Checked
) -> None:
    if checked.fields:
        await contacts.add_fields(db, workspace_id=workspace_id, fields=[(id, checked.fields)])
    if checked.tags:
        await contacts.add_tags(db, workspace_id=workspace_id, tags=[(id, checked.tags)])


async def change(
    db: Handle,
    workspace: WorkspaceContext,
    row: Contact,
    patch: Mapping[str, Json],
    given: Given = MEMBER,
) -> Contact:
    """A merge patch (RFC 7396) judged on its result; otherwise like `replace`. Whoever leaves a
    channel by it once more answers what was asked there since."""
    values = document.merge(shapes.writable(row), profile.normal(patch))
    stated = patch.get("subscriptions")
    statuses = stated.items() if isinstance(stated, Mapping) else ()
    leaving = {channel for channel, status in statuses if status == subscriptions.UNSUBSCRIBED}
    return await replace(db, workspace, row, values, given=given, leaving=leaving)


async def replace(
    db: Handle,
    workspace: WorkspaceContext,
    row: Contact,
    values: Mapping[str, Json],
    tags: Json = None,
    *,
    given: Given = MEMBER,
    leaving: Collection[str] = (),
    answers: Sequence[Answer] = (),
    answered: Given = MEMBER,
) -> Contact:
    """All writable fields of the locked contact `row`; its tags too, when they are given. When
    that is what it holds, however it is spelled, it stays as it is and nobody is told. What it says
    of subscriptions was `given` by somebody, who is `leaving` channels, left before or not; the
    answers about topics were `answered` by somebody. It is judged once, with all of that.

    Raises Problem `invalid` or `conflict`, and then nothing has changed.
    """
    checked = profile.check(workspace.country, values, tags)
    checked.raise_errors()
    is_leaving = bool(topics.withdrawn(row.topics, leaving))
    if not is_leaving and await _is_so(db, workspace, row, checked, tags):
        return await topics.answer(db, workspace, row, answers, answered)
    had = subscriptions.hashes(workspace.vault, workspace.id, row)
    new = Person(workspace.id, row.id, dict(checked.columns), row.subscriptions, had)
    await _resubscribe(db, workspace, new, shown(row), given)
    opting = await subscriptions.judge(db, workspace.vault, [new])
    try:
        async with db.savepoint():
            changed = await contacts.update(
                db, workspace_id=workspace.id, id=row.id, columns=new.columns
            )
    except Duplicate:
        raise await _conflict(db, workspace, checked.columns, other_than=row.id) from None
    await contacts.keep_former(
        db, workspace_id=workspace.id, changed=[(row.id, row.profile(), new.columns)]
    )
    await subscriptions.keep(db, workspace.id, opting, given)
    left = {*leaving, *(out.channel for out in opting if out.is_new)}
    asked = topics.withdrawn(row.topics, left)
    changed = await topics.keep(db, workspace.id, changed, asked, given)
    changed = await topics.keep(db, workspace.id, changed, answers, answered)
    if not profile.same(checked.columns["metadata"], row.metadata):
        await contacts.replace_fields(
            db, workspace_id=workspace.id, contact_id=row.id, fields=checked.fields
        )
    names = reactions.names_of(row.profile(), changed.profile())
    added: set[str] = set()
    if tags is not None:
        added, removed = await _replace_tags(db, workspace, row.id, checked.tags)
        names |= reactions.names_of_tags(added | removed)
    await reactions.changed_in(db, workspace, {row.id: sorted(added)}, {row.id: names})
    return changed


async def _is_so(
    db: Handle, workspace: WorkspaceContext, row: Contact, checked: profile.Checked, tags: Json
) -> bool:
    held = {name: getattr(row, name) for name in checked.columns} | {"subscriptions": shown(row)}
    if held != checked.columns or not profile.same(held["metadata"], checked.columns["metadata"]):
        return False
    return tags is None or set(await _held(db, workspace, row.id)) == set(checked.tags)


def _not_theirs(was: Status, wanted: Status) -> str:
    if was in REPORTED:
        return (
            f"It is {was}, as its provider said. An admin can delete the suppression that the"
            " contact names in `suppressions`."
        )
    return f"Write subscribed or unsubscribed: only a provider can report {wanted}."


async def _resubscribe(
    db: Handle,
    workspace: WorkspaceContext,
    new: Person,
    before: Mapping[str, Status],
    given: Given,
) -> None:
    """Subscribe again where a member says that the person wants it. What the person or a
    provider said is not a member's to take back: Problem `invalid`."""
    errors, known = [], subscriptions.hashes_of(workspace.vault, workspace.id, new.columns)
    for channel, was in before.items():
        wanted, pointer = new.columns["subscriptions"].get(channel), f"/subscriptions/{channel}"
        if wanted is None:
            errors.append(FieldError(pointer, "Must be subscribed or unsubscribed."))
        elif wanted != was and {wanted, was} & REPORTED:
            errors.append(FieldError(pointer, _not_theirs(was, wanted)))
        elif wanted != was == subscriptions.UNSUBSCRIBED and channel in known:
            hash = known[channel]
            await suppressions.lock(db, hash)
            where: HashedAddressKey = {"workspace_id": workspace.id, "address_hash": hash}
            await suppressions.lift(db, **where, reasons=["unsubscribed"])
            left = await suppressions.of_addresses(
                db, workspace_id=workspace.id, address_hashes=[hash]
            )
            if left:
                calls = (f"DELETE /suppressions/{row.id} ({row.reason})" for row in left)
                listed = "The address is on the suppression list. An admin can lift that"
                errors.append(FieldError(pointer, f"{listed}: {' and '.join(calls)}."))
    if errors:
        raise profile.invalid(errors)
    again = [
        OptOut(new.id, channel, None, None)
        for channel, was in before.items()
        if was == "unsubscribed" and new.columns["subscriptions"][channel] == "subscribed"
    ]
    await subscriptions.record(
        db,
        workspace.id,
        again,
        kind="opted_in",
        reason=None,
        source=given.source,
        evidence=given.evidence,
    )


REPORTED = frozenset({"bounced", "complained"})  # of an address; no member says so


async def add_tags(
    db: Handle, workspace: WorkspaceContext, contact_id: str, tags: Sequence[str]
) -> None:
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
        names = reactions.names_of_tags(added)
        await reactions.changed_in(db, workspace, {contact_id: sorted(added)}, {contact_id: names})


async def remove_tag(db: Handle, workspace: WorkspaceContext, contact_id: str, tag: str) -> bool:
    """True when the contact had it."""
    tag = profile.normal(tag)
    removed = await contacts.remove_tag(
        db, workspace_id=workspace.id, contact_id=contact_id, tag=tag
    )
    if removed:
        await contacts.touch(db, workspace_id=workspace.id, id=contact_id)
        names = reactions.names_of_tags([tag])
        await reactions.changed_in(db, workspace, {contact_id: ()}, {contact_id: names})
    return removed


async def _held(db: Handle, workspace: WorkspaceContext, contact_id: str) -> list[str]:
    return await contacts.tags(db, workspace_id=workspace.id, contact_id=contact_id)


async def _replace_tags(
    db: Handle, workspace: WorkspaceContext, contact_id: str, tags: Sequence[str]
) -> tuple[set[str], set[str]]:
    """The tags that it did not have, and those that it has no more."""
    held = await _held(db, workspace, contact_id)
    removed = set(held) - set(tags)
    for tag in removed:
        await contacts.remove_tag(db, workspace_id=workspace.id, contact_id=contact_id, tag=tag)
    if added := set(tags) - set(held):
        await contacts.add_tags(db, workspace_id=workspace.id, tags=[(contact_id, added)])
    return added, removed


GONE = "Another contact had this email or phone a moment ago; try again."


async def _conflict(
    db: Handle,
    workspace: WorkspaceContext,
    columns: Mapping[str, Any],
    other_than: str | None = None,
) -> Problem:
    found = {
        "email": await contacts.by_email(
            db, workspace_id=workspace.id, email_key=columns["email_key"]
        )
        if columns["email_key"]
        else None,
        "phone": await contacts.by_phone(db, workspace_id=workspace.id, phone=columns["phone"])
        if columns["phone"]
        else None,
    }
    others = {kind: row.id for kind, row in found.items() if row and row.id != other_than}
    ids = list(dict.fromkeys(others.values()))
    has = {id: " and ".join(kind for kind in others if others[kind] == id) for id in ids}
    named = ", and ".join(f"{id} has this {kinds}" for id, kinds in has.items())
    which = "that one" if len(ids) == 1 else "one of them"
    return Problem(
        "conflict",
        f"Contact {named}; change {which} instead." if named else GONE,
        existingId=next(iter(others.values()), None),
    )
