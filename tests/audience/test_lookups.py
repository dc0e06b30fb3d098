"""Lookups that find a contact, and the lock under which they still do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.audience import lookups, writing
from app.audience.workspace_context import WorkspaceContext
from app.errors import Problem
from app.process import Process
from app.store import contacts
from app.store.contacts import Contact
from tests.cast import lock_waiters, workspace

ADA = lookups.read("email", "Ada@Example.com", None)


async def found(process: Process, workspace_id: str, lookup: writing.Lookup) -> Contact | None:
    async with process.database.write() as db:
        return await lookups.find_locked(db, workspace_id, lookup)


async def made(process: Process, acme: WorkspaceContext, **values: Any) -> Contact:
    async with process.database.write() as db:
        return await writing.create(db, acme, values)


async def test_a_contact_is_found_by_each_of_its_keys_and_in_its_workspace_alone(
    process: Process,
) -> None:
    acme, rival = await workspace(process, "Acme"), await workspace(process, "Rival")
    context = WorkspaceContext(acme, "DE", process.vault)
    row = await made(
        process, context, email="ada@example.com", phone="+4915112345678", metadata={"crm": 7}
    )
    for lookup in (
        ADA,
        lookups.read("phone", "01511 2345678", "DE"),
        lookups.read("contact_id", row.id, None),
        lookups.read("contact_id", 7, None, "crm"),
        lookups.read("contact_id", "7", None, "crm"),
    ):
        ours = await found(process, acme, lookup)
        assert ours is not None
        assert ours.id == row.id
        assert await found(process, rival, lookup) is None


@pytest.mark.parametrize(
    ("kind", "field", "path", "sentence"),
    [
        ("email", None, None, "the email; create it first, or say so."),
        ("email", None, "a.b", "the email at a.b; create it first, or say so."),
        ("contact_id", None, "id", "the contact id at id; create it first."),
        ("contact_id", "crm", None, "the metadata field crm; create it first."),
    ],
)
def test_whom_nothing_finds_is_named_with_what_helps(
    kind: str, field: str | None, path: str | None, sentence: str
) -> None:
    """An id alone creates nobody, whatever is switched on."""
    lookup = lookups.read(kind, "ada@example.com", None, field)
    problem = lookups.unknown(lookup, by_address="say so", path=path)
    assert problem.detail == f"No contact matches {sentence}"


async def test_several_with_one_value_are_a_conflict(process: Process) -> None:
    context = WorkspaceContext(await workspace(process, "Acme"), None, process.vault)
    for name in ("ada", "bob"):
        await made(process, context, email=f"{name}@x.test", metadata={"crm": 7})
    with pytest.raises(Problem) as refused:
        await found(process, context.id, lookups.read("contact_id", 7, None, "crm"))
    assert refused.value.code == "conflict"


async def test_who_gets_another_address_while_the_lock_is_awaited_is_not_taken(
    process: Process,
) -> None:
    context = WorkspaceContext(await workspace(process, "Acme"), None, process.vault)
    row = await made(process, context, email="ada@example.com")
    async with process.database.write() as db:
        locked = await contacts.locked(db, workspace_id=context.id, id=row.id)
        assert locked is not None
        await writing.change(db, context, locked, {"email": "bea@example.com"})
        finding = asyncio.create_task(found(process, context.id, ADA))
        await lock_waiters(process, 1)
    assert await finding is None


@pytest.mark.parametrize(
    ("kind", "value"), [("email", "ada"), ("email", 7), ("phone", "12"), ("contact_id", True)]
)
def test_a_value_that_finds_nobody_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        lookups.read(kind, value, None)
