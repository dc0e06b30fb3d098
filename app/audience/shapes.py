"""The shape of a contact: how the API shows it, and what it lets be changed."""

from __future__ import annotations

from collections.abc import Sequence

from app.audience import profile
from app.audience.subscriptions import shown
from app.machine.content import ADDRESS_FIELD
from app.machine.program import Json
from app.store.contacts import Contact


def resource(row: Contact, tags: Sequence[str]) -> dict[str, Json]:
    """A contact as the API shows it, and as templates and conditions see it."""
    return {
        "id": row.id,
        "email": row.email,
        "phone": row.phone,
        "firstName": row.first_name,
        "lastName": row.last_name,
        "timezone": row.timezone,
        "locale": row.locale,
        "metadata": row.metadata,
        "tags": list(tags),
        "subscriptions": shown(row),
        "topics": row.topics,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }


def address(contact: Contact, channel: str) -> str | None:
    return contact.phone if ADDRESS_FIELD[channel] == "phone" else contact.email


def writable(row: Contact, tags: Sequence[str] | None = None) -> dict[str, Json]:
    """The part of a contact that its API lets be changed."""
    values = {name: resource(row, ())[name] for name in profile.WRITABLE}
    return values if tags is None else {**values, "tags": list(tags)}
