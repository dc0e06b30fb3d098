"""The Authorization header, before throw-away endpoints and with real keys and sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from starlette.responses import Response

from app.identity import identity
from app.process import Process
from app.store import workspaces
from app.web import reply
from app.web.edge import Edge
from app.web.routing import MEMBER, Call, get, mount, router
from app.web.throttle import Throttle
from tests.cast import Cast, Person
from tests.conftest import Records
from tests.tables import each_row


async def who(call: Call) -> Response:
    return reply.ok({"name": call.member.name})


@pytest.fixture
async def api(process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    gated = get("/gated", who, can="audit_logs:read", plan="scale")
    routes = mount([get("/who", who, can=MEMBER), gated], process, Throttle(None))
    transport = httpx2.ASGITransport(app=Edge(router(routes), process.settings))
    async with httpx2.AsyncClient(transport=transport, base_url="http://tidings.test") as client:
        yield client


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer   "])
async def test_a_key_opens_in_any_case_of_the_scheme(
    scheme: str, api: httpx2.AsyncClient, cast: Cast
) -> None:
    response = await api.get("/who", headers={"Authorization": f"{scheme} {cast.vic.key}"})
    assert response.json() == {"name": "vic"}


@each_row(
    "values",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        ["Basic {key}"],
        ["{key}"],
        ["Bearer{key}"],
        ["Bearer {key} {key}"],
        ["Bearer {key}, Bearer {key}"],
        ["Bearer {key}", "Bearer {key}"],
        ["Bearer {key}\t"],
        ["Bearer {key}é"],
        ["Bearer {key}\x01"],
        ["Bearer \x7f{key}"],
        ["\x1bBearer {key}"],
        ["Bearer " + "x" * 5_000],
        ["Bearer x.y.z"],
    ],
)
async def test_anything_but_one_bearer_is_unauthenticated(
    values: list[Any], api: httpx2.AsyncClient, cast: Cast
) -> None:
    given = [("Authorization", value.format(key=cast.vic.key).encode()) for value in values]
    response = await api.get("/who", headers=given)
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_suspended_workspace_is_locked_out(
    api: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    async with process.database.write() as db:
        await db.execute(
            "UPDATE workspaces SET suspended = TRUE WHERE id = :id", id=cast.vic.workspace_id
        )
    response = await api.get("/who", headers={"Authorization": f"Bearer {cast.vic.key}"})
    assert (response.status_code, response.json()["code"]) == (403, "workspace_suspended")


async def test_the_workspace_is_in_the_log_and_the_key_is_not(
    api: httpx2.AsyncClient, cast: Cast, records: Records
) -> None:
    await api.get("/who", headers={"Authorization": f"Bearer {cast.vic.key}"})
    await api.get("/who", headers={"Authorization": "Bearer nonsense"})
    known, unknown = records()
    assert known["workspace_id"] == cast.vic.workspace_id
    assert "workspace_id" not in unknown  # what one request bound does not outlive it
    assert cast.vic.key not in str([known, unknown])


async def test_a_plan_is_judged_after_the_role(
    process: Process, api: httpx2.AsyncClient, cast: Cast
) -> None:
    async def answer(person: Person) -> tuple[int, str | None]:
        headers = {"Authorization": f"Bearer {person.key}"}
        response = await api.get("/gated", headers=headers)
        return response.status_code, response.json().get("code")

    assert await answer(cast.vic) == (403, "forbidden")
    assert await answer(cast.adam) == (403, "plan_required")
    for plan, expected in (("scale", 200), ("enterprise", 200), ("starter", 403)):  # at once
        async with process.database.write() as db:
            await workspaces.change_plan(db, id=cast.adam.workspace_id, plan=plan)
        assert (await answer(cast.adam))[0] == expected


async def test_what_the_operator_gives_to_all_counts_when_it_is_more(
    process: Process, cast: Cast
) -> None:
    generous = replace(process, settings=replace(process.settings, default_plan="enterprise"))
    member = await identity.authenticate(generous, cast.vic.key)
    assert member.plan == "enterprise"
    assert (await identity.authenticate(process, cast.vic.key)).plan == "growth"
