"""Administration by super-admins: all workspaces and users, their failures, and suspension."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field
from starlette.responses import Response

from app.audit import trail
from app.billing import quotas
from app.database.db import Handle
from app.messages import parking
from app.routes.audit_logs import AuditLog
from app.routes.audit_logs import Filters as AuditFilters
from app.routes.audit_logs import resource as audit_resource
from app.routes.ids import UserId, WorkspaceId
from app.routes.messages import DeliveryAttempt, attempt
from app.routes.runs import RunSummary, summary
from app.store import admin, directory, directory_sweep, health, job_sweep, jobs
from app.store import workspaces as stored
from app.store.directory_sweep import Keyed
from app.store.job_sweep import Key
from app.store.jobs import Kind
from app.store.messages import MessageStatus
from app.store.runs import RunStatus
from app.web import paging, reply
from app.web.body import Shape, Writable
from app.web.paging import Paging
from app.web.reply import JsonResponse, Page
from app.web.routing import ADMIN, Call, get, patch, post

LATE = timedelta(minutes=5)  # nobody is going to do it any more
LARGEST_LIMIT = 999_999_999
LOOK_SECONDS = 10.0  # in all, among unfinished rows, jobs and keys: there may be millions
LOOKED_AT_ONCE = 10_000

Search = Annotated[str, Field(min_length=1, max_length=200)]
IN_WORKSPACE = Field(None, description="In this workspace.")


# --- shapes -------------------------------------------------------------------------------------


class WorkspaceFilters(Paging):
    q: Search | None = Field(None, description="Prefix of the name; case does not matter.")
    suspended: bool | None = Field(None, description="Filter by whether it is suspended.")
    user_id: UserId | None = Field(None, description="Filter by member: the ID of a user.")


class UserFilters(Paging):
    q: Search | None = Field(None, description="Prefix of the address; case does not matter.")
    workspace_id: WorkspaceId | None = Field(None, description="Members of this workspace.")


class RunFilters(Paging):
    workspace_id: WorkspaceId | None = IN_WORKSPACE
    status: RunStatus | None = Field(None, description="How far it is.")


class AttemptFilters(Paging):
    workspace_id: WorkspaceId | None = IN_WORKSPACE
    status: MessageStatus | None = Field(None, description="Its status.")


class AnyAuditFilters(AuditFilters):
    workspace_id: WorkspaceId | None = IN_WORKSPACE


class WritableLimits(Writable):
    """`dailyLimit`: messages a day through the operator's channels, for as long as it is set; null
    means the default, 200 in the first seven days of a workspace that does not pay, shared by all
    such workspaces of an owner."""

    daily_limit: Annotated[int, Field(ge=0, le=LARGEST_LIMIT)] | None = None


class AdminWorkspace(Shape):
    id: WorkspaceId
    name: str
    suspended: bool
    deleted: bool
    daily_limit: int | None
    members: int
    created_at: datetime


class AdminUser(Shape):
    id: UserId
    email: str
    name: str
    super_admin: bool
    email_verified: bool
    workspaces: int
    created_at: datetime


class AdminRun(RunSummary):
    workspace_id: WorkspaceId


class AdminAttempt(DeliveryAttempt):
    workspace_id: WorkspaceId


class AdminAuditLog(AuditLog):
    workspace_id: WorkspaceId


class AdminStats(Shape):
    workspaces: int
    suspended: int
    users: int
    active_definitions: int
    due_runs: int
    due_messages: int


class Invariants(Shape):
    """All zero when healthy. `oldestDueSeconds` is how late the oldest due row of any kind is.
    `givenUp` are segments, dates and schedules whose work ended its worker every time; GET
    `/troubles` names those of a workspace.
    `orphans` are runs whose wait has ended or no longer exists and that nothing will move.
    `missingJobs` are rows that should be worked on and have no job, `strayJobs` are jobs without a
    row that is to be worked on, and `overdue` jobs that nobody has done for five minutes, by kind.
    `unlistedKeys` are tokens of webhooks, API keys and customers that are answered as unknown,
    because the directory does not lead from them to their row. With `orphansLeft`, `missingLeft`,
    `straysLeft` or `unlistedLeft` there may be more, because not all could be checked in two
    seconds."""

    healthy: bool
    orphans: int
    orphans_left: bool
    missing_jobs: int
    missing_left: bool
    stray_jobs: int
    strays_left: bool
    unlisted_keys: int
    unlisted_left: bool
    overdue: dict[str, int]
    unknown_deliveries: int
    unchained_audit_logs: int
    given_up: int
    oldest_due_seconds: float


def workspace(row: admin.AnyWorkspace) -> dict[str, Any]:
    return AdminWorkspace.of(row, deleted=row.deleted_at is not None)


def user(row: admin.AnyUser) -> dict[str, Any]:
    return AdminUser.of(row, email_verified=row.email_verified_at is not None)


# --- lists --------------------------------------------------------------------------------------


def _searched(query: Paging) -> dict[str, Any]:
    filters = query.filters()
    return {**filters, "q": admin.beginning(filters["q"])} if "q" in filters else filters


async def index_workspaces(call: Call) -> Response:
    query = call.query(WorkspaceFilters)
    before, limit = paging.position(call, query), query.limit + 1
    rows = await admin.workspaces(call.db, filters=_searched(query), before=before, limit=limit)
    return paging.page(call, query, rows, workspace)


async def show_workspace(call: Call) -> Response:
    return reply.ok(workspace(await _found(call)))


async def index_users(call: Call) -> Response:
    query = call.query(UserFilters)
    before, limit = paging.position(call, query), query.limit + 1
    rows = await admin.users(call.db, filters=_searched(query), before=before, limit=limit)
    return paging.page(call, query, rows, user)


async def index_runs(call: Call) -> Response:
    """List those of one workspace, or of all of them."""
    query = call.query(RunFilters)
    before, limit = paging.position(call, query), query.limit + 1
    rows = await admin.runs_page(call.db, filters=query.filters(), before=before, limit=limit)
    return paging.page(
        call, query, rows, lambda row: {**summary(row), "workspaceId": row.workspace_id}
    )


async def index_attempts(call: Call) -> Response:
    """List those of one workspace, or of all of them."""
    query = call.query(AttemptFilters)
    before, limit = paging.position(call, query), query.limit + 1
    rows = await admin.attempts_page(call.db, filters=query.filters(), before=before, limit=limit)
    return paging.page(
        call, query, rows, lambda row: {**attempt(row), "workspaceId": row.workspace_id}
    )


async def index_audit_logs(call: Call) -> Response:
    query = call.query(AnyAuditFilters)
    before, limit = paging.position(call, query), query.limit + 1
    rows = await admin.audit_page(call.db, filters=query.filters(), before=before, limit=limit)
    return paging.page(
        call, query, rows, lambda row: {**audit_resource(row), "workspaceId": row.workspace_id}
    )


# --- how it goes --------------------------------------------------------------------------------


async def show_stats(call: Call) -> Response:
    counted = await admin.counts(call.db)
    runs, messages = [await health.due(call.db, kind) for kind in ("run", "message")]
    return reply.ok(
        {
            "workspaces": counted.workspaces,
            "suspended": counted.suspended,
            "users": counted.users,
            "activeDefinitions": counted.active,
            "dueRuns": runs.count,
            "dueMessages": messages.count,
        }
    )


async def show_invariants(call: Call) -> Response:
    now = await call.db.now()
    late = now - LATE
    until = time.monotonic() + LOOK_SECONDS
    orphans, orphans_left = await _all(partial(admin.orphans, call.db), until)
    missing = [await _all(partial(_missing_of, call.db, kind), until) for kind in jobs.KINDS]
    strays, strays_left = await _all(partial(_strays, call.db, late), until)
    keys = [await _all(partial(_unlisted, call.db, kind), until) for kind in directory_sweep.ROWS]
    found = {
        "orphans": orphans,
        "missingJobs": sum(count for count, _ in missing),
        "strayJobs": strays,
        "unlistedKeys": sum(count for count, _ in keys),
        "unknownDeliveries": await health.unknown_deliveries(call.db),
        "unchainedAuditLogs": await admin.unchained(call.db, late=late),
        "givenUp": await health.given_up(call.db),
    }
    overdue = {kind: await admin.overdue(call.db, kind, late=late) for kind in jobs.KINDS}
    oldest = [(await health.due(call.db, kind)).oldest_at for kind in jobs.KINDS]
    seconds = max((now - at).total_seconds() if at else 0 for at in oldest)
    bad = [*found.values(), *overdue.values()]
    return reply.ok(
        {
            "healthy": not any(bad) and seconds <= LATE.total_seconds(),
            **found,
            "overdue": overdue,
            "orphansLeft": orphans_left,
            "missingLeft": any(left for _, left in missing),
            "straysLeft": strays_left,
            "unlistedLeft": any(left for _, left in keys),
            "oldestDueSeconds": seconds,
        }
    )


async def _missing_of(db: Handle, kind: Kind, *, after: Key | None) -> tuple[int, Key | None]:
    found, last = await job_sweep.missing(db, kind, after=after, limit=LOOKED_AT_ONCE)
    return len(found), last


async def _strays(db: Handle, late: datetime, *, after: Key | None) -> tuple[int, Key | None]:
    found, last = await job_sweep.strays(db, late=late, after=after, limit=LOOKED_AT_ONCE)
    return len(found), last


async def _unlisted(
    db: Handle, kind: directory.Kind, *, after: Key | None
) -> tuple[int, Key | None]:
    """Count what is found twice: between two statements somebody may have changed a key."""
    found: list[set[Keyed]] = []
    for _ in range(2):
        rows, last = await directory_sweep.keyed(db, kind, after=after, limit=LOOKED_AT_ONCE)
        found.append({*await directory_sweep.unlisted(db, kind, rows)})
    return len(set.intersection(*found)), last


class CountPage(Protocol):
    """Function that counts the wrong ones among the next rows. It names the last of these, if more
    follow."""

    async def __call__(self, *, after: Key | None) -> tuple[int, Key | None]: ...


async def _all(count: CountPage, until: float) -> tuple[int, bool]:
    """Count the wrong rows. Returns also whether more may be left that could not be counted in
    time."""
    found, after = 0, None
    while True:
        more, after = await count(after=after)
        found += more
        if after is None or time.monotonic() > until:
            return found, after is not None


# --- how much -------------------------------------------------------------------------------------


async def update_workspace(call: Call) -> Response:
    """Change a workspace's daily limit, which counts from the next message on."""
    await stored.locked(call.db, id=call.path("id"))
    row = await _found(call)
    call.match_shown(workspace(row))
    new = call.patch(WritableLimits, {"dailyLimit": row.daily_limit})
    await quotas.set_daily_limit(
        call.process, call.db, call.origin, row.id, before=row.daily_limit, limit=new.daily_limit
    )
    return reply.ok(workspace(replace(row, daily_limit=new.daily_limit)))


# --- the brake ----------------------------------------------------------------------------------


async def suspend(call: Call) -> Response:
    """Its intake answers 404, its API 403, and nothing of it is sent, with immediate effect;
    nothing is lost."""
    return await _set(call, "suspended", suspended=True)


async def _await_senders(call: Call, answer: JsonResponse) -> Response:
    if answer.shown.get("suspended"):
        await parking.await_senders(call.process, call.path("id"))
    return answer


async def resume(call: Call) -> Response:
    """Work continues where it stopped; waiting messages are sent."""
    response = await _set(call, "resumed", suspended=False)
    await parking.resume(call.db, call.path("id"))
    return response


async def _set(call: Call, verb: Literal["suspended", "resumed"], *, suspended: bool) -> Response:
    row = await _found(call)
    if await admin.suspend(call.db, id=row.id, suspended=suspended):
        await trail.note(
            call.db,
            call.process.vault,
            call.origin,
            workspace_id=row.id,
            action=f"workspace.{verb}",
            resource_id=row.id,
            before={"suspended": row.suspended},
            after={"suspended": suspended},
        )
    return reply.ok(workspace(replace(row, suspended=suspended)))


async def _found(call: Call) -> admin.AnyWorkspace:
    return reply.found(await admin.workspace(call.db, id=call.path("id")), "workspace")


routes = [
    get(
        "/admin/workspaces",
        index_workspaces,
        can=ADMIN,
        query=WorkspaceFilters,
        gives={200: Page[AdminWorkspace]},
    ),
    get("/admin/workspaces/{id}", show_workspace, can=ADMIN, gives={200: AdminWorkspace}),
    patch(
        "/admin/workspaces/{id}",
        update_workspace,
        can=ADMIN,
        takes=WritableLimits,
        gives={200: AdminWorkspace},
    ),
    post(
        "/admin/workspaces/{id}/suspend",
        suspend,
        can=ADMIN,
        gives={200: AdminWorkspace},
        awaits=_await_senders,
    ),
    post("/admin/workspaces/{id}/resume", resume, can=ADMIN, gives={200: AdminWorkspace}),
    get("/admin/users", index_users, can=ADMIN, query=UserFilters, gives={200: Page[AdminUser]}),
    get("/admin/runs", index_runs, can=ADMIN, query=RunFilters, gives={200: Page[AdminRun]}),
    get(
        "/admin/delivery-attempts",
        index_attempts,
        can=ADMIN,
        query=AttemptFilters,
        gives={200: Page[AdminAttempt]},
    ),
    get(
        "/admin/audit-logs",
        index_audit_logs,
        can=ADMIN,
        query=AnyAuditFilters,
        gives={200: Page[AdminAuditLog]},
    ),
    get("/admin/stats", show_stats, can=ADMIN, gives={200: AdminStats}),
    get("/admin/invariants", show_invariants, can=ADMIN, gives={200: Invariants}),
]
