"""The surroundings of a PostgreSQL server: the pooler in front of it, the standbys behind it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import asyncpg

from app.database import citus
from app.database.engine import Remark
from app.database.opening import Connection, Opener, session_settings

UNSAFE_SETTINGS = {
    "fsync": "fsync is off: a crash of the server's machine can corrupt the database.",
    "synchronous_commit": "synchronous_commit is off: a crash can lose what was answered with 202.",
    "full_page_writes": "full_page_writes is off: a crash of the machine can corrupt the database.",
}

# A commit counts whoever flushes the log and has a name that is asked for, so a subscriber or
# pg_receivewal may be among them: the one reads a logical slot and has not the log itself, the
# other holds the log, as for Barman, and applies nothing.
STANDBYS = """
    SELECT count(*) FILTER (WHERE is_standby) AS standbys,
           count(*) FILTER (WHERE in_step) AS in_step,
           count(*) FILTER (WHERE in_step AND is_logical) AS subscribers,
           count(*) FILTER (WHERE in_step AND NOT is_standby) AS others,
           COALESCE(bool_or(sync_state IS NULL), FALSE) AS hidden,
           quote_ident(current_user) AS role,
           current_setting('synchronous_standby_names') AS named,
           current_setting('synchronous_commit') AS waits
    FROM (SELECT sync_state, sync_state IN ('sync', 'quorum') AS in_step, is_logical,
                 (sync_state IS NULL OR replay_lsn IS NOT NULL) AND NOT is_logical AS is_standby
          FROM pg_stat_replication
          CROSS JOIN LATERAL (
              SELECT EXISTS (SELECT FROM pg_replication_slots s
                             WHERE s.active_pid = pid AND s.slot_type = 'logical') AS is_logical
          ) AS slot
          WHERE application_name <> 'pg_basebackup') AS senders
    """
_ASKED = re.compile(r"\s*(?:(?:FIRST|ANY)\s+)?(\d+)\s*\(", re.I)  # FIRST 2 (s1, s2), 2 (s1, s2)


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
    if len(opener.hosts) > 1:
        async for remark in _hosts(opener):
            yield remark
    async for remark in _standbys(connection, len(opener.hosts)):
        yield remark
    if opener.is_sharded:
        session = session_settings(opener.deadlines, is_sharded=False)  # what is Citus' stays here
        async for remark in citus.remarks(
            connection, unsafe=tuple(UNSAFE_SETTINGS), session=session
        ):
            yield remark


async def _hosts(opener: Opener) -> AsyncIterator[Remark]:
    verdicts = await opener.survey()
    writers = [host for host, error in verdicts.items() if error is None]
    if len(writers) > 1:
        sentence = (
            f"{' and '.join(writers)} accept writes, and processes use whichever answers first:"
            " stop all but one, and let the others return as standbys of it."
        )
        yield Remark("hosts", sentence, "FAIL")
    for host, error in verdicts.items():
        if error is None or isinstance(error, asyncpg.TargetServerAttributeNotMatched):
            continue
        is_there = isinstance(error, asyncpg.PostgresError)
        how = (
            "answers, but refuses us" if is_there else "cannot be reached, and could not take over"
        )
        yield Remark("hosts", f"{host} {how}: {str(error) or type(error).__name__}.")


async def _standbys(connection: Connection, hosts: int) -> AsyncIterator[Remark]:
    found = await connection.fetchrow(STANDBYS)
    assert found is not None  # noqa: S101  an aggregate is one row
    number = _ASKED.match(found["named"])
    asked = int(number[1]) if number else 1
    # pg_receivewal applies nothing: a commit that waits until it has waits for ever.
    stuck = found["others"] - found["subscribers"] if found["waits"] == "remote_apply" else 0
    in_step = found["in_step"] - stuck
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
    elif not found["hidden"] and in_step < asked:
        sentence = (
            f"{in_step} in step of the {asked} that synchronous_standby_names asks for, so"
            " every commit waits until they are."
        )
        yield Remark("standbys", sentence, "FAIL")
    elif not found["hidden"] and found["subscribers"] >= asked:
        sentence = (
            "A subscriber counts as a standby: what only it has is lost with this server. Have"
            " synchronous_standby_names name none."
        )
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
    elif found["others"] >= asked:
        sentence = (
            "pg_receivewal counts as a standby: it holds the log, but cannot take over. What only"
            " it has comes back with its log and a base backup."
        )
        yield Remark("standbys", sentence)
    else:
        standbys = found["in_step"] - found["others"]
        yield Remark("standbys", f"{standbys} of {found['standbys']} in step", "ok")
