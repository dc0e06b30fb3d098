"""Lookups: a value that somebody sent, read as what finds a contact, and the contact it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.audience import addresses, profile, writing
from app.audience.writing import Lookup
from app.database.db import Handle
from app.errors import Problem, Unavailable
from app.machine import document
from app.machine.program import Json
from app.machine.text import is_storable
from app.store import contacts
from app.store.contacts import Addresses, Contact
from app.vault.vault import Vault

TRIES = 5  # a contact may get another address while its lock is awaited, but hardly time and again


def read(kind: str, value: Json, country: str | None, field: str | None = None) -> Lookup:
    """The lookup by an email, a phone or a contact_id, which is the metadata field `field` where
    one is given. Raises ValueError."""
    return _KINDS[kind](value, country, field)


def _by_email(value: Json, _country: str | None, _field: str | None) -> Lookup:
    email = addresses.email(_text(value))
    return Lookup("email", value=email.address, key=email.key)


def _by_phone(value: Json, country: str | None, _field: str | None) -> Lookup:
    number = addresses.phone(_text(value), country)
    return Lookup("phone", value=number, key=number)


def _by_id(value: Json, _country: str | None, field: str | None) -> Lookup:
    # A sender's own id may be a number: 981230455 equals "981230455".
    number = isinstance(value, int) and not isinstance(value, bool)
    if not number and not isinstance(value, str):
        raise ValueError("It must be a string or a whole number.")
    text = document.text(value) if number else str(value)
    if not is_storable(text):
        raise ValueError("It contains characters that no ID has.")
    if field is None:
        return Lookup("contact_id", value=text, key=text)
    text = profile.normal(text)
    return Lookup("metadata", value=text, key=text, field=profile.normal(field))


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("It must be a string.")
    return value


_KINDS: Mapping[str, Callable[[Json, str | None, str | None], Lookup]] = {
    "email": _by_email,
    "phone": _by_phone,
    "contact_id": _by_id,
}


# --- whom it names ------------------------------------------------------------------------------


def keyed_hash(vault: Vault, workspace_id: str, lookup: Lookup) -> str:
    """The hash by which a refused request is found again that named somebody so."""
    return vault.keyed_hash("lookup", document.dumps(lookup.within(workspace_id))).hex()


def hashes(
    vault: Vault, workspace_id: str, row: Contact, former: Sequence[Addresses] = ()
) -> list[str]:
    """The hashes of every lookup that finds the contact, or found it by a former address."""
    fields = {name: document.text(value) for name, value in row.metadata.items()}
    found = [
        Lookup("contact_id", row.id, row.id),
        *(Lookup("metadata", text, text, name) for name, text in fields.items()),
    ]
    for one in (row, *former):
        if one.email_key:
            found.append(Lookup("email", one.email_key, one.email_key))
        if one.phone:
            found.append(Lookup("phone", one.phone, one.phone))
    return [keyed_hash(vault, workspace_id, lookup) for lookup in found]


# --- the contact --------------------------------------------------------------------------------


async def find_locked(db: Handle, workspace_id: str, lookup: Lookup) -> Contact | None:
    """The contact, locked. When there is none, and only metadata would tell two new ones apart,
    whoever looks for the same waits until this transaction ends, and finds what it has created.

    Raises Problem `conflict` when several match.
    """
    row = await _find(db, workspace_id, lookup)
    if row is None and lookup.kind == "metadata":
        await db.lock_name(document.dumps([workspace_id, lookup.field, lookup.key]).decode())
        row = await _find(db, workspace_id, lookup)
    return row


async def _find(db: Handle, workspace_id: str, lookup: Lookup) -> Contact | None:
    who = lookup.within(workspace_id)
    for _ in range(TRIES):
        found = (await writing.find_all(db, [who])).get(who)
        if found is None:
            return None
        if found.is_one_of_several:
            raise several(lookup)
        row = await contacts.locked(db, workspace_id=workspace_id, id=found.id)
        if row is not None and fits(row, lookup):
            return row
    raise Unavailable("The contact is being changed by others; retry the request.")


def fits(row: Contact, lookup: Lookup) -> bool:
    """Return whether the lookup finds the contact."""
    match lookup.kind:
        case "email":
            return bool(row.email_key == lookup.key)
        case "phone":
            return bool(row.phone == lookup.key)
        case "contact_id":
            return bool(row.id == lookup.key)
        case "metadata":
            held = row.metadata
            return lookup.field in held and document.text(held[lookup.field]) == lookup.key


def several(lookup: Lookup) -> Problem:
    return Problem(
        "conflict",
        f"Several contacts have this value of the metadata field {lookup.field}; name one of them"
        " by its contactId, email or phone.",
    )


def unknown(
    lookup: Lookup,
    advice: str = "create it first",
    *,
    by_address: str = "",
    path: str | None = None,
) -> Problem:
    """`by_address` is the other advice where an address would create the contact; `path` is where
    the value was found."""
    kind = lookup.kind.replace("_", " ")
    what = f"the metadata field {lookup.field}" if lookup.kind == "metadata" else f"the {kind}"
    where = f" at {path}" if path else ""
    other = f", or {by_address}" if by_address and lookup.is_address else ""
    return Problem("contact_not_found", f"No contact matches {what}{where}; {advice}{other}.")
