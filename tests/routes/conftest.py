"""Fixtures of tests of people: a visitor of their own address, and the letters they get."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import httpx2
import pytest

from app.accounts import account_mail
from app.process import Process
from app.web.edge import Edge
from tests.cast import PASSWORD, Cast, Person, any_address, caller, settle
from tests.cast import client as cast_client

Letter: TypeAlias = Callable[[str], Awaitable[str]]
SignIn: TypeAlias = Callable[[Person], Awaitable[dict[str, Any]]]


@asynccontextmanager
async def visiting(process: Process, app: Edge | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """Visit from an address of its own."""
    address = any_address()
    async with caller(process, app, address) if app else cast_client(process, address) as client:
        yield client


@pytest.fixture
async def visitor(process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with visiting(process) as client:
        yield client


@pytest.fixture
def token_to(process: Process) -> Letter:
    """The token in the newest letter to an address, which is sent first if it is still to be."""

    async def token_to(address: str) -> str:
        await settle(process)
        async with process.database.read() as db:
            text = await db.fetch_value(
                """
                SELECT text FROM captured_messages
                WHERE to_address = :address AND account_mail = ANY(:kinds)
                ORDER BY id DESC
                LIMIT 1
                """,
                address=address,
                kinds=list(account_mail.CONTENTS),
            )
        assert text is not None, f"no letter to {address}"
        [token] = re.findall(r"[#&]token=([\w-]+)", text)
        return str(token)

    return token_to


@pytest.fixture
def sign_in(visitor: httpx2.AsyncClient, cast: Cast) -> SignIn:
    """Somebody of the cast, at the door with their password."""

    async def sign_in(person: Person) -> dict[str, Any]:
        response = await visitor.post(
            "/auth/token", json={"email": person.email, "password": PASSWORD}
        )
        assert response.status_code == 200, response.text
        signed_in: dict[str, Any] = response.json()
        return signed_in

    return sign_in
