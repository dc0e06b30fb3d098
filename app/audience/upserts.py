"""Many contacts at once: each found by its email, phone or id, or made; all in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

from app.audience import profile, reactions, subscriptions, topics
from app.audience.profile import Checked
from app.audience.subscriptions import Given, Person
from app.audience.topics import Answer
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle, new_id
from app.errors import FieldError
from app.machine import document
from app.machine.program import Json
from app.store import contact_batches, contacts, suppressions
from app.store.contacts import ADDRESS_COLUMNS, FIELD_COLUMNS
from app.store.dry_run import DryRunContacts
from app.store.topics import Topic

ADDRESSES = {"email_key": "/email", "phone": "/phone"}
APART = ("id", "tags", "topics")  # not in a contact's profile
FILE = Given("import")
MOST_BYTES = 4 * 1024 * 1024  # of the contacts that entries are about
LIGHT = 20  # contacts: they are never as heavy

Outcome: TypeAlias = Literal["created", "updated", "unchanged"] | Sequence[FieldError]


@dataclass(frozen=True, slots=True)
class Entry:
    """A contact as somebody gave it: what it leaves out stays as it is, and tags are added."""

    id: str | None
    values: Mapping[str, Json]
    checked: Checked
    answers: Sequence[Answer] = ()

    @classmethod
    def read(
        cls,
        country: str | None,
        values: Mapping[str, Json],
        known: Mapping[str, Topic] | None = None,
    ) -> Entry:
        """Read an entry; one with `checked.errors` is not to be stored. `known` are the topics."""
        rest = profile.normal({k: v for k, v in values.items() if k not in APART})
        checked = profile.part(country, rest, values.get("tags"))
        answers, errors = topics.read(values.get("topics"), known or {})
        errors = [*checked.errors, *errors]
        id = profile.read_text(profile.normal(values.get("id")), "/id", profile.ONE_LINE, errors)
        return cls(id, rest, replace(checked, errors=errors), answers)


class TooHeavy(Exception):
    """Contacts that weigh too much to be held together: fewer entries are to be given at a time."""

    def __init__(self, entries: int, bytes: int) -> None:
        super().__init__(f"the contacts of {entries} entries have {bytes} bytes")
        self.entries = max(1, entries * MOST_BYTES // bytes)


async def upsert(
    db: Handle,
    workspace: WorkspaceContext,
    entries: Sequence[Entry],
    *,
    room: int | None = None,
    dry_run_contacts: DryRunContacts | None = None,
    starts: bool = False,
    given: Given | None = None,
) -> list[Outcome]:
    """The result of each entry, in order: an entry sees those before it. At most `room` are made.
    With `dry_run_contacts` nothing is written but there, for later entries to see. Runs that wait
    for a change are told of it; others are started only when `starts` says so. An answer about a
    topic has to be `given` by somebody.

    Raises errors.Duplicate when another request got ahead of us, or when two of these contacts
    exchange an address: a second try, or one entry at a time, will do. Raises membership.TooMany
    or TooHeavy when fewer entries are to be given at a time; not of one.
    """
    held = await _held(db, workspace, entries, dry_run_contacts)
    batch = _Batch(held, room, has_source=given is not None)
    outcomes = [batch.take(entry) for entry in entries]
    touched = list(batch.touched.values())
    people = [Person(workspace.id, one.id, one.columns, one.subscribed, one.had) for one in touched]
    opting = await subscriptions.judge(
        db, workspace.vault, people, only_looks=dry_run_contacts is not None
    )
    await _find_opt_outs(db, workspace, touched)
    opted = [out for out in opting if out.reason in subscriptions.BY_PERSON]
    for out in (out for out in opted if out.address_hash is not None):
        batch.touched[out.contact_id].opted_out.add(out.channel)
    for one in touched:  # whose address, new to them, may have been left before
        answered, columns = one.was.get("topics", {}), one.columns
        left = subscriptions.left(columns["subscriptions"]) | one.opted_out
        answers = topics.changed(answered, columns["topics"])
        columns["topics"] = topics.from_file(answered, answers, left)
    for out in (out for out in opted if out.is_new):
        columns = batch.touched[out.contact_id].columns
        asked = topics.withdrawn(columns["topics"], [out.channel])
        columns["topics"] = topics.joined(columns["topics"], asked)
    if dry_run_contacts is not None:
        dry_run_contacts.keep(
            (one.id, one.columns, (one.columns, list(one.tags), sorted(one.opted_out)))
            for one in touched
        )
    else:
        await _write(db, workspace, touched)
        await subscriptions.keep(db, workspace.id, opting, FILE)
        answered = [
            (one.id, topics.changed(one.was.get("topics", {}), one.columns["topics"]))
            for one in touched
        ]
        await topics.record(db, workspace.id, answered, given or FILE)
        await _react(db, workspace, touched, starts=starts)
    return outcomes


@dataclass(slots=True)
class _Contact:
    """A contact as it is in the database, or will be."""

    id: str
    columns: dict[str, Any]
    tags: dict[str, None]  # in order
    subscribed: Mapping[str, str] = field(default_factory=dict)  # before
    # Channels on which an opt-out is recorded of the address that they have.
    opted_out: set[str] = field(default_factory=set)
    was: Mapping[str, Any] = field(default_factory=dict)  # its columns in the database
    had: Mapping[str, str] = field(default_factory=dict)  # by channel the hashes of its addresses
    is_new: bool = False
    has_new_fields: bool = False
    new_tags: list[str] = field(default_factory=list)


async def _held(
    db: Handle,
    workspace: WorkspaceContext,
    entries: Sequence[Entry],
    dry_run_contacts: DryRunContacts | None,
) -> list[_Contact]:
    columns = [entry.checked.columns for entry in entries]
    addresses = {
        "email_keys": [one["email_key"] for one in columns if one["email_key"]],
        "phones": [one["phone"] for one in columns if one["phone"]],
    }
    given = [entry.id for entry in entries if entry.id]
    ids = await contact_batches.matching(db, workspace_id=workspace.id, **addresses, ids=given)
    if len(entries) > 1 and max(len(entries), len(ids)) > LIGHT:
        weight = await contact_batches.weight(db, workspace_id=workspace.id, ids=ids)
        weight += dry_run_contacts.weight(**addresses, ids=ids) if dry_run_contacts else 0
        if weight > MOST_BYTES:
            raise TooHeavy(len(entries), weight)
    seen = dry_run_contacts.find(**addresses, ids=ids) if dry_run_contacts else {}
    held = [
        _Contact(id, columns, dict.fromkeys(tags), columns["subscriptions"], set(opted_out))
        for id, (columns, tags, opted_out) in seen.items()
    ]
    if ids := [id for id in ids if id not in seen]:
        read = contacts.by_ids if dry_run_contacts else contact_batches.locked
        rows = await read(db, workspace_id=workspace.id, ids=ids)
        tags = await contacts.tags_of(db, workspace_id=workspace.id, contact_ids=ids)
        held += [
            _Contact(row.id, row.profile(), dict.fromkeys(tags[row.id]), row.subscriptions)
            for row in rows
        ]
    for one in held:
        one.was = one.columns
        one.had = subscriptions.hashes_of(workspace.vault, workspace.id, one.columns)
    await _find_opt_outs(db, workspace, held)
    return held


async def _find_opt_outs(db: Handle, workspace: WorkspaceContext, held: Sequence[_Contact]) -> None:
    """Find opt-outs that the contacts' subscriptions do not show, for what is graver."""
    hashes_of = partial(subscriptions.hashes_of, workspace.vault, workspace.id)
    hidden = [
        (one, channel, address_hash)
        for one in held
        if not subscriptions.GRAVER.isdisjoint(one.columns["subscriptions"].values())
        for channel, address_hash in hashes_of(one.columns).items()
        if one.columns["subscriptions"].get(channel) in subscriptions.GRAVER
    ]
    if not hidden:
        return
    asked = sorted({address_hash for _, _, address_hash in hidden})
    reasons = await suppressions.reasons(db, workspace_id=workspace.id, address_hashes=asked)
    for one, channel, address_hash in hidden:
        if not subscriptions.BY_PERSON.isdisjoint(reasons[address_hash]):
            one.opted_out.add(channel)


class _Batch:
    """The contacts that the entries are about, and how each entry changes them."""

    def __init__(self, held: Sequence[_Contact], room: int | None, *, has_source: bool) -> None:
        self._room = room
        self._has_source = has_source
        self.touched: dict[str, _Contact] = {}  # by id, the one touched last at the end
        self._by_id = {contact.id: contact for contact in held}
        self._by: dict[str, dict[str, _Contact]] = {
            name: {contact.columns[name]: contact for contact in held if contact.columns[name]}
            for name in ADDRESSES
        }

    def take(self, entry: Entry) -> Outcome:
        given, tags = entry.checked.columns, dict.fromkeys(entry.checked.tags)
        by_address = (self._by[name].get(given[name]) for name in ADDRESSES)
        known = next(filter(None, by_address), self._by_id.get(entry.id or ""))
        if known is not None:
            return self._change(known, entry)
        columns = {
            **given,
            "subscriptions": _subscriptions({}, entry),
            "topics": topics.from_file({}, entry.answers, ()),  # those who left: see upsert
        }
        if not (columns["email"] or columns["phone"]):
            return [_UNKNOWN if entry.id else _NOBODY]
        if errors := [*profile.whole(columns, list(tags)), *self._unfounded({}, columns)]:
            return errors
        if self._room is not None:
            if self._room < 1:
                return [_FULL]
            self._room -= 1
        self._keep(_Contact(new_id("con"), columns, tags, is_new=True, new_tags=list(tags)))
        return "created"

    def _change(self, contact: _Contact, entry: Entry) -> Outcome:
        columns = _joined(contact.columns, entry)
        moved = {name for name in ADDRESSES if columns[name] != contact.columns[name]}
        opted_out = {one for one in contact.opted_out if ADDRESS_COLUMNS[one] not in moved}
        columns["subscriptions"] = _subscriptions(columns["subscriptions"], entry, opted_out)
        left = subscriptions.left(columns["subscriptions"]) | opted_out
        columns["topics"] = topics.from_file(columns["topics"], entry.answers, left)
        added = [tag for tag in dict.fromkeys(entry.checked.tags) if tag not in contact.tags]
        # A row names one contact: by whatever of its addresses, and by its id.
        errors = [
            FieldError(pointer, f"Another contact, {other.id}, has it.")
            for name, pointer in ADDRESSES.items()
            if (other := self._by[name].get(columns[name])) is not None and other is not contact
        ]
        if self._by_id.get(entry.id or contact.id, contact) is not contact:
            detail = f"The email or phone of this row is that of another contact, {contact.id}."
            errors.append(FieldError("/id", detail))
        errors += self._unfounded(contact.columns["topics"], columns)
        errors += profile.whole(columns, [*contact.tags, *added])
        if errors:
            return errors
        renewed = not profile.same(columns["metadata"], contact.columns["metadata"])
        if columns == contact.columns and not renewed and not added:
            return "unchanged"
        for name in ADDRESSES:
            self._by[name].pop(contact.columns[name], None)
        contact.has_new_fields |= renewed
        contact.columns = columns
        contact.opted_out = opted_out
        contact.new_tags += added
        contact.tags |= dict.fromkeys(added)
        self._keep(contact)
        return "updated"

    def _unfounded(self, before: topics.Answers, columns: Mapping[str, Any]) -> list[FieldError]:
        """Answers about topics of which nobody says where they come from."""
        if self._has_source or columns["topics"] == before:
            return []
        return [FieldError("/topics", NO_SOURCE)]

    def _keep(self, contact: _Contact) -> None:
        self.touched.pop(contact.id, None)
        self.touched[contact.id] = self._by_id[contact.id] = contact
        for name in ADDRESSES:
            if contact.columns[name]:
                self._by[name][contact.columns[name]] = contact


_UNKNOWN = FieldError("/id", "There is no such contact; to create one, give an email or a phone.")
NO_SOURCE = "Say where these answers come from: ?consentSource=…, such as the name of a form."
_FULL = FieldError("", "The plan of the workspace allows no more contacts.")
_NOBODY = FieldError("", "Give an email, a phone or an id that identifies the contact.")


def _joined(columns: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    """The contact's columns with what the entry gives."""
    joined = dict(columns)
    for name in entry.values.keys() & FIELD_COLUMNS.keys():
        joined[FIELD_COLUMNS[name]] = entry.checked.columns[FIELD_COLUMNS[name]]
    if "email" in entry.values:
        joined["email_key"] = entry.checked.columns["email_key"]
    if "metadata" not in entry.values:
        return joined
    held, given = columns["metadata"], entry.values["metadata"]
    metadata: dict[str, Json] = {}
    if given is not None:  # null removes, all of them or one (RFC 7396)
        metadata = {name: one for name, one in held.items() if given.get(name, one) is not None}
        for name, value in entry.checked.columns["metadata"].items():
            # What reads the same is the same: a sheet knows text alone.
            if name not in held or document.text(held[name]) != entry.checked.fields[name]:
                metadata[name] = value
    joined["metadata"] = metadata
    return joined


def _subscriptions(
    held: Mapping[str, str], entry: Entry, opted_out: Collection[str] = ()
) -> dict[str, str]:
    """A file takes consent away and never gives it: it may be older than somebody's opt-out. What
    it says of an address that bounced, or whose owner complained, holds wherever it is brought.
    What was recorded before, though something graver hides it, is no change."""
    now = dict(held)
    for channel, status in entry.checked.columns["subscriptions"].items():
        is_out = status == "unsubscribed" and channel not in opted_out
        if is_out or (status in subscriptions.GRAVER and held.get(channel) != "complained"):
            now[channel] = status
    return now


async def _write(db: Handle, workspace: WorkspaceContext, touched: Sequence[_Contact]) -> None:
    new = sorted((one for one in touched if one.is_new), key=_by_address)
    changed = [one for one in touched if not one.is_new]
    refielded = [one for one in changed if one.has_new_fields]
    if changed:
        await contact_batches.update(
            db, workspace_id=workspace.id, rows=[(one.id, one.columns) for one in changed]
        )
        moved = [(one.id, one.was, one.columns) for one in changed]
        await contacts.keep_former(db, workspace_id=workspace.id, changed=moved)
    if new:
        await contact_batches.insert(
            db, workspace_id=workspace.id, rows=[(one.id, one.columns) for one in new]
        )
    if refielded:
        ids = [one.id for one in refielded]
        await contact_batches.remove_fields(db, workspace_id=workspace.id, contact_ids=ids)
    fields = [(one.id, profile.as_text(one.columns["metadata"])) for one in (*new, *refielded)]
    if any(named for _, named in fields):
        await contacts.add_fields(db, workspace_id=workspace.id, fields=fields)
    if any(one.new_tags for one in touched):
        await contacts.add_tags(
            db, workspace_id=workspace.id, tags=[(one.id, one.new_tags) for one in touched]
        )


async def _react(
    db: Handle, workspace: WorkspaceContext, touched: Sequence[_Contact], *, starts: bool
) -> None:
    made = {one.id: one.new_tags for one in touched if one.is_new}
    changed = {one.id: one.new_tags for one in touched if not one.is_new}
    if changed:
        names = {
            one.id: reactions.names_of_tags(one.new_tags) | reactions.names_of(one.was, one.columns)
            for one in touched
            if not one.is_new
        }
        await reactions.changed_in(db, workspace, changed, names, starts=starts)
    if made:
        await reactions.appeared(db, workspace, made, starts=starts)


def _by_address(contact: _Contact) -> tuple[str, str]:
    """Two batches that make the same contacts wait for each other in one order."""
    return contact.columns["email_key"] or "", contact.columns["phone"] or ""
