"""The surroundings of a PostgreSQL server: the pooler in front of it, the standbys behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from app.database import citus
from app.database.engine import Remark
from app.database.opening import Connection, Opener, session_settings

UNSAFE_SETTINGS = {
    "fsync": "fsync is off: a crash of the server's machine can corrupt the database.",
    "synchronous_commit": "synchronous_commit is off: a crash can lose what was answered with 202.",
    "full_page_writes": "full_page_writes is off: a crash of the machine can corrupt the database.",
}

STANDBYS = """
    SELECT count(*) AS standbys,
           count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS in_step,
           COALESCE(bool_or(sync_state IS NULL), FALSE) AS hidden,
           quote_ident(current_user) AS role,
           current_setting('synchronous_standby_names') AS named,
           current_setting('synchronous_commit') AS waits
    FROM pg_stat_replication
    WHERE application_name <> 'pg_basebackup'
    """


async def durability(connection: Connection) -> list[str]:
    """A sentence for each setting by which a crash can lose a committed transaction."""
    return [
        sentence
        for name, sentence in UNSAFE_SETTINGS.items()
        if await connection.fetchval(f"SHOW {name}") == "off"
    ]


async def remarks(connection: Connection, opener: Opener) -> AsyncIterator[Remark]:
    unset = ", ".join(opener.unset)
    if opener.pooler is None:
        if unset:
            sentence = f"Our role lacks {unset}: run python -m app migrate as that role."
            yield Remark("sessions", sentence)
    elif unset:
        sentence = (
            f"Sessions through the pooler lack {unset}: run python -m app migrate"
            " as the same role, then have the pooler reconnect (RECONNECT in its console)."
        )
        yield Remark("pooler", sentence, "FAIL")
    elif opener.pooler.keeps_statements:
        yield Remark("pooler", "keeps prepared statements", "ok")
    else:
        sentence = (
            "keeps no prepared statements, so each is parsed again: PgBouncer 1.21 and later keep"
            " them with max_prepared_statements above 0."
        )
        yield Remark("pooler", sentence)
    if len(opener.hosts) > 1 and len(writers := await opener.writers()) > 1:
        sentence = (
            f"{' and '.join(writers)} accept writes, and processes use whichever answers first:"
            " stop all but one, and let the others return as standbys of it."
        )
        yield Remark("hosts", sentence, "FAIL")
    async for remark in _standbys(connection, len(opener.hosts)):
        yield remark
    if opener.is_sharded:
        session = session_settings(opener.deadlines, is_sharded=False)  # what is Citus' stays here
        async for remark in citus.remarks(
            connection, unsafe=tuple(UNSAFE_SETTINGS), session=session
        ):
            yield remark


async def _standbys(connection: Connection, hosts: int) -> AsyncIterator[Remark]:
    found = await connection.fetchrow(STANDBYS)
    assert found is not None  # noqa: S101  an aggregate is one row
    if found["standbys"] == 0 and not found["named"]:
        if hosts > 1:
            yield Remark("standbys", "DATABASE_URL names several hosts, but no standby follows.")
        return
    if not found["named"]:
        sentence = (
            "synchronous_standby_names is empty: what only this server has committed is lost with"
            " it, although it was answered with 202."
        )
        yield Remark("standbys", sentence)
    elif found["waits"] in {"off", "local"}:
        sentence = f"synchronous_commit is {found['waits']}: no commit waits for the standby."
        yield Remark("standbys", sentence, "FAIL")
    elif found["waits"] == "remote_write":
        sentence = (
            "synchronous_commit is remote_write: what the standby has not yet flushed is lost when"
            " both machines crash. Set it to on."
        )
        yield Remark("standbys", sentence)
    elif found["hidden"]:  # an ordinary role sees that somebody follows, and no more
        sentence = (
            "Our role may not see whether a standby is in step: have a superuser run"
            f" GRANT pg_read_all_stats TO {found['role']}."
        )
        yield Remark("standbys", sentence)
    elif found["in_step"] == 0:
        sentence = "No standby is in step, so every commit waits until one is."
        yield Remark("standbys", sentence, "FAIL")
    else:
        yield Remark("standbys", f"{found['in_step']} of {found['standbys']} in step", "ok")
