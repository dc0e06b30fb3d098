"""Say what figures are measured on: versions of the servers, the commit with its date; and when."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import asyncpg
from redis import Redis

from tests.deployment import ROOT

WHEN = "%-d %B %Y, %-H:%M"
CITUS = "SELECT count(*) FROM pg_extension WHERE extname = 'citus'"


async def versions(
    database_url: str, *, redis_url: str | None = None, others: Sequence[str] = ()
) -> str:
    """Describe the versions in one line. The servers must run; `others` are versions of what else
    takes part."""
    found = [await of_database(database_url), *others]
    if redis_url is not None:
        found.append(of_redis(redis_url))
    return f"{', '.join(found)}; {commit()}; measured {datetime.now(UTC):{WHEN}} UTC"


async def of_database(url: str) -> str:
    """Read the versions of a database, behind a pooler too: nothing is prepared there."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        version = await connection.fetchval("SHOW server_version")
        found = f"PostgreSQL {version.split()[0]}"
        if await connection.fetchval(CITUS):
            shown = await connection.fetchval("SELECT citus_version()")
            found += f" with {' '.join(shown.split()[:2])}"
    finally:
        await connection.close()
    return found


def of_redis(url: str) -> str:
    return f"Redis {redis_info(url, 'server')['redis_version']}"


def redis_info(url: str, section: str) -> Mapping[str, str | int]:
    with Redis.from_url(url) as redis:
        return cast(Mapping[str, str | int], redis.info(section))


def commit() -> str:
    """Name the newest as `commit 1a2b3c4d of 29 November 2026, 23:40`; and whether files differ."""
    found = _newest()
    if found is None:
        return "no commit"
    id, made, is_changed = found
    return f"commit {id} of {made:{WHEN}} UTC{' and changes since' if is_changed else ''}"


def short_commit() -> str:
    """Name the newest as `1a2b3c4d`, or `1a2b3c4d+` where files differ."""
    found = _newest()
    return "none" if found is None else f"{found[0]}{'+' if found[2] else ''}"


def _newest() -> tuple[str, datetime, bool] | None:
    """The id of the newest commit, when it was made, and whether files differ; None in a copy
    without its history."""
    try:
        id, seconds = _git("log", "-1", "--abbrev=8", "--format=%h %ct").split()
        # Not in what the benchmarks write themselves.
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/plots")
    except (OSError, subprocess.CalledProcessError):
        return None
    return id, datetime.fromtimestamp(int(seconds), UTC), bool(changed)


def _git(*words: str) -> str:
    return subprocess.check_output(("git", *words), cwd=ROOT, text=True, stderr=subprocess.DEVNULL)
