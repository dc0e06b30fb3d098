"""Passwords, as they are kept and compared."""

from __future__ import annotations

import asyncio

import pytest

from app.identity import passwords

PASSWORD = "correct horse battery"

pytestmark = pytest.mark.usefixtures("costly_passwords")


async def test_a_password_is_kept_as_argon2id() -> None:
    kept = await passwords.hashed(PASSWORD)
    assert kept.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert await passwords.match(PASSWORD, kept)
    assert not await passwords.match(PASSWORD + " ", kept)


async def test_a_password_is_the_same_however_the_keyboard_composes_it() -> None:
    kept = await passwords.hashed("Stra\u00dfencaf\u00e9")
    assert await passwords.match("Stra\u00dfencafe\u0301", kept)


async def test_hashing_leaves_the_loop_free() -> None:
    hashing = asyncio.create_task(passwords.hashed(PASSWORD))
    turns = 0
    while not hashing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10


async def test_nobody_s_password_costs_what_anybody_s_does() -> None:
    assert not passwords.HASHER.check_needs_rehash(passwords.NOBODY)
    assert not await passwords.match(PASSWORD, passwords.NOBODY)
