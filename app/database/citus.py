"""PostgreSQL sharded by Citus: a workspace's rows lie together on one node.

Every table whose primary key begins with the workspace is distributed by it, all in one group, so
that rows of a workspace can be joined and refer to one another. What is found before the workspace
is known (people, the directory) stays on the coordinator. Nothing is replicated to all nodes: a
request that wrote there would need all of them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import orjson

from app.database.engine import Remark
from app.database.opening import Connection
from app.database.sql import parsed

log = logging.getLogger(__name__)

ROOT = "workspaces"  # is the workspace itself: distributed by its id

# In the order of their ids: a table comes after those that it refers to.
DISTRIBUTABLE = f"""
    SELECT c.relname AS name, a.attname AS by
    FROM pg_class c
    JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.conkey[1]
    WHERE c.relnamespace = to_regnamespace(current_schema()) AND c.relkind = 'r'
      AND (a.attname = 'workspace_id' OR c.relname = '{ROOT}')
      AND NOT EXISTS (SELECT 1 FROM pg_dist_partition p WHERE p.logicalrelid = c.oid)
    ORDER BY c.relname <> '{ROOT}', c.oid
    """
REFERENCES = """
    SELECT conrelid::regclass::text AS referring, conname AS name,
           pg_get_constraintdef(oid) AS definition
    FROM pg_constraint
    WHERE contype = 'f' AND conparentid = 0
      AND (conrelid = ANY($1::regclass[]) OR confrelid = ANY($1::regclass[]))
    ORDER BY oid
    """

# The number of the one that has the workspace.
NODE = f"""
    SELECT groupid FROM pg_dist_placement
    WHERE shardid = get_shard_id_for_distribution_column('{ROOT}', $1::text) AND shardstate = 1
    """
# Each node, and what these settings are in sessions of our role there. One that is disabled is not
# asked, and counts while it has shards: it may be drained, or not yet in use.
NODES = """
    SELECT n.nodename || ':' || n.nodeport AS name, n.isactive AS is_active, r.success,
           r.result AS settings
    FROM pg_dist_node n
    LEFT JOIN run_command_on_workers(format(
             'SELECT json_object_agg(name, setting) FROM pg_settings WHERE name = ANY(%L)',
             $1::text[])) r USING (nodename, nodeport)
    WHERE n.groupid <> 0 AND n.noderole = 'primary'
      AND (n.isactive OR EXISTS (SELECT FROM pg_dist_placement p WHERE p.groupid = n.groupid))
    ORDER BY n.nodeid
    """
HERE = """
    SELECT json_object_agg(name, setting) AS settings,
           current_setting('is_superuser') = 'on' AS is_superuser, quote_ident(current_user) AS role
    FROM pg_settings
    WHERE name = ANY($1::text[])
    """
# By which the coordinator gives up a node whose host is gone, and of which it hears nothing more.
CONNINFO = "citus.node_conninfo"
GIVES_UP = ("keepalives_idle", "tcp_user_timeout")
ADVISED = "keepalives_idle=5 keepalives_interval=2 keepalives_count=3 tcp_user_timeout=5000"
OF_SERVERS = ("max_prepared_transactions", "wal_level")

# Tables that name workspaces and lie on the coordinator: no node is asked.
AT_COORDINATOR = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+(?:directory|sign_in_domains)\b", re.I)

# One question of all shards of a node, over a connection of its own: in `question` the shards of
# the tables, which lie together, stand as %1$s and so on, then the values. What a node says is
# JSON, and each column of it is read as what it was.
SILENT = ":silent"
ON_NODES = """
    WITH shards AS (
        SELECT n.nodename, n.nodeport,
               array_agg(shard_name(s.logicalrelid, s.shardid) ORDER BY asked.place) AS names
        FROM unnest(CAST(:tables AS TEXT[])) WITH ORDINALITY AS asked (name, place)
        JOIN pg_dist_shard s ON s.logicalrelid = CAST(asked.name AS regclass)
        JOIN pg_dist_placement p ON p.shardid = s.shardid AND p.shardstate = 1
        JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'
        GROUP BY n.nodename, n.nodeport, s.shardminvalue
    ), nodes AS (
        SELECT CAST(nodename AS TEXT) AS name, nodeport AS port,
               'SELECT json_agg(found) FROM ('
               || string_agg('(' || format(CAST(:question AS TEXT),
                                           VARIADIC names || CAST(:given AS TEXT[])) || ')',
                             ' UNION ALL ')
               || ') AS found' AS question
        FROM shards
        GROUP BY nodename, nodeport
    ), said AS MATERIALIZED (
        SELECT ran.success, NULLIF(ran.result, '') AS result,
               ran.node_name || ':' || ran.node_port AS node
        FROM (SELECT array_agg(name) AS names, array_agg(port) AS ports,
                     array_agg(question) AS questions FROM nodes) AS every
        CROSS JOIN LATERAL
            master_run_on_worker(every.names, every.ports, every.questions, TRUE) AS ran
    )
    SELECT CASE WHEN NOT said.success THEN said.node || COALESCE(': ' || said.result, '') END
               AS "{silent}",
           one.*
    FROM said
    LEFT JOIN LATERAL json_to_recordset(CASE WHEN said.success THEN CAST(said.result AS JSON) END)
        AS one ({columns}) ON TRUE
    WHERE NOT said.success OR NOT (one IS NULL)
    {order}
    """
_TABLE = re.compile(r"\b(?P<word>FROM|JOIN)\s+(?P<name>[a-z_]+)\b(?!\s*\()", re.I)
_WITHIN = re.compile(r"\b(\w+)\s*(?:\([^()]*\)\s*)?\bAS\s+(?:MATERIALIZED\s+)?\(", re.I)
_ORDER = re.compile(r"\bORDER\s+BY\s+(?P<by>[\w\s.,]+?)\s+LIMIT\s+:?(?P<limit>\w+)\s*$", re.I)


@dataclass(frozen=True, slots=True)
class OnNodes:
    """A statement that looks at all shards, to be asked of each node by itself. All the rows that
    they give are in its order, and no more of them count than it wants."""

    text: str
    tables: Sequence[str]
    question: str
    names: Sequence[str]  # of the values
    limit: str | None  # the name of one, or a number

    def values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        given = [
            None if one is None else one.isoformat() if isinstance(one, datetime) else str(one)
            for one in (values[name] for name in self.names)
        ]
        return {"tables": list(self.tables), "question": self.question, "given": given}

    def most(self, values: Mapping[str, Any]) -> int | None:
        return None if self.limit is None else int(values.get(self.limit, self.limit))


def on_nodes(sql: str, columns: Sequence[tuple[str, str]]) -> OnNodes:
    """`columns`: the names and types of what it returns."""
    within = set(_WITHIN.findall(sql))
    tables = dict.fromkeys(
        found["name"] for found in _TABLE.finditer(sql) if found["name"] not in within
    )
    places = {name: place for place, name in enumerate(tables, 1)}

    def replaced(found: re.Match[str]) -> str:
        place = places.get(found["name"])
        return found[0] if place is None else f"{found['word']} %{place}$s"

    statement = parsed(
        sql,
        text=_TABLE.sub(replaced, sql.replace("%", "%%")),
        now=None,
        mark=lambda place, _: f"%{len(tables) + place}$L",
    )
    order = _ORDER.search(sql)
    text = ON_NODES.format(
        silent=SILENT,
        columns=", ".join(f'"{name}" {kind}' for name, kind in columns),
        order="ORDER BY " + re.sub(r"\b\w+\.", "", order["by"]) if order else "",
    )
    limit = order["limit"] if order else None
    return OnNodes(text, tuple(tables), statement.text, statement.order, limit)


def constraint(message: str) -> str:
    """The unique constraint that a node's error names: it has the number of its shard."""
    found = re.search(r'unique constraint "(\w+?)(?:_\d{6,})?"', message)
    return found[1] if found else ""


def is_of_lost_node(error: Exception) -> bool:
    """Return whether the error may be the coordinator's sign that a node was lost. It is an ERROR
    also where the node was lost in the midst of COMMIT, and may have committed.

    A connection that breaks during a statement is an internal error (XX000) to Citus, and so is a
    fault of a server: they differ in words alone, which are in the server's language. So such a
    one is answered with 503, and does not count as a node's silence; the next statement opens a
    connection, and if the node is gone, its error says so (08).
    """
    return isinstance(error, asyncpg.InternalServerError | asyncpg.PostgresConnectionError)


async def is_installed(connection: Connection) -> bool:
    found = await connection.fetchval("SELECT count(*) FROM pg_extension WHERE extname = 'citus'")
    return bool(found)


async def remarks(
    connection: Connection, *, unsafe: Sequence[str], session: Mapping[str, str]
) -> AsyncIterator[Remark]:
    """Check that everything is distributed, and every node answers and is set up as we need it.
    Needed are the `unsafe` settings, and those of a `session` of our role."""
    left = [name for (name,) in await connection.fetch(DISTRIBUTABLE)]
    if left:
        sentence = f"Not distributed: {', '.join(left)}. Run python -m app migrate."
        yield Remark("shards", sentence, "FAIL")
    here = await connection.fetchrow(HERE, [*OF_SERVERS, CONNINFO])
    assert here is not None  # noqa: S101  an aggregate is one row
    if here["is_superuser"]:  # whose settings Citus may leave to each server
        session = {}
    nodes = await connection.fetch(NODES, [*unsafe, *OF_SERVERS, *session])
    for node in nodes:
        if not node["success"]:
            how = "does not answer" if node["is_active"] else "is disabled"
            sentence = f"The node {node['name']} {how}: its workspaces get 503."
            yield Remark("shards", sentence, "FAIL")
            continue
        settings = orjson.loads(node["settings"])
        for remark in of_node(node["name"], settings, unsafe=unsafe, session=session):
            yield remark
    for remark in of_coordinator(orjson.loads(here["settings"]), role=here["role"]):
        yield remark
    if nodes and all(node["success"] for node in nodes):
        yield Remark("shards", f"{len(nodes)} nodes answer", "ok")
    elif not nodes:
        yield Remark("shards", "Citus has no nodes but the coordinator, which has every shard.")


def of_node(
    name: str, settings: Mapping[str, str], *, unsafe: Sequence[str], session: Mapping[str, str]
) -> Iterator[Remark]:
    if off := sorted(one for one in unsafe if settings.get(one) == "off"):
        sentence = f"On {name}, off: {', '.join(off)}. A crash of it can lose events."
        yield Remark("shards", sentence, "FAIL")
    yield from _of_server(name, settings)
    if different := [one for one, value in session.items() if settings.get(one) != value]:
        sentence = (
            f"On {name} our role lacks {', '.join(different)}: run there what migrate ran for it on"
            " the coordinator (ALTER ROLE), with citus.enable_ddl_propagation off."
        )
        yield Remark("shards", sentence)


def of_coordinator(settings: Mapping[str, str], *, role: str) -> Iterator[Remark]:
    yield from _of_server("the coordinator", settings)
    if CONNINFO not in settings:
        sentence = (
            f"Our role may not see {CONNINFO}: have a superuser run"
            f" GRANT pg_read_all_settings TO {role}."
        )
        yield Remark("shards", sentence)
    elif missing := [one for one in GIVES_UP if not re.search(rf"\b{one}\s*=", settings[CONNINFO])]:
        sentence = (
            f"{CONNINFO} has no {' and no '.join(missing)}: sessions wait for a quarter of an hour"
            f" or more for a node whose host is gone. Add {ADVISED} to it on the coordinator."
        )
        yield Remark("shards", sentence)


def _of_server(name: str, settings: Mapping[str, str]) -> Iterator[Remark]:
    if settings["max_prepared_transactions"] == "0":
        sentence = (
            f"On {name} max_prepared_transactions is 0: what changes on two nodes at once fails,"
            " as a move of a shard does. Set it to 200, and restart it."
        )
        yield Remark("shards", sentence, "FAIL")
    if settings["wal_level"] != "logical":
        sentence = (
            f"On {name} wal_level is {settings['wal_level']}: no shard can be moved from it while"
            " it is written to. Set it to logical, and restart it."
        )
        yield Remark("shards", sentence)


async def distribute(connection: Connection, deadline: float) -> list[str]:
    """Distribute, within a transaction, the tables that are not yet; returns their names.
    References stand in the way until both tables are distributed. `deadline`, in seconds, is that
    of each step."""
    tables = await connection.fetch(DISTRIBUTABLE)
    if not tables:
        return []
    names = [table["name"] for table in tables]
    references = await connection.fetch(REFERENCES, names)
    for one in references:
        await connection.execute(f'ALTER TABLE {one["referring"]} DROP CONSTRAINT "{one["name"]}"')
    for table in tables:
        group = "none" if table["name"] == ROOT else ROOT
        await connection.execute(
            f"SELECT create_distributed_table('{table['name']}', '{table['by']}',"
            f" colocate_with => '{group}')",
            timeout=deadline,
        )
    for one in references:
        await connection.execute(
            f'ALTER TABLE {one["referring"]} ADD CONSTRAINT "{one["name"]}" {one["definition"]}',
            timeout=deadline,
        )
    log.info("distributed by workspace: %s", ", ".join(names))
    return names
