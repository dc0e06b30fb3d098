"""PostgreSQL sharded by Citus: a workspace's rows lie together on one node.

Every table whose primary key begins with the workspace is distributed by it, all in one group, so
that rows of a workspace can be joined and refer to one another. What is found before the workspace
is known (people, the directory) stays on the coordinator. Nothing is replicated to all nodes: a
request that wrote there would need all of them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Sequence

import asyncpg

from app.database.engine import Remark
from app.database.opening import Connection

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
    WHERE shardid = get_shard_id_for_distribution_column('{ROOT}', $1::text)
    """
# Each node, and which of these settings is off there.
NODES = """
    SELECT n.nodename || ':' || n.nodeport AS name, r.success, r.result AS off
    FROM run_command_on_workers(format(
             'SELECT string_agg(name, %L) FROM pg_settings WHERE setting = %L AND name = ANY(%L)',
             ', ', 'off', $1::text[])) r
    JOIN pg_dist_node n USING (nodename, nodeport)
    ORDER BY n.nodeid
    """


def constraint(message: str) -> str:
    """The unique constraint that a node's error names: it has the number of its shard."""
    found = re.search(r'unique constraint "(\w+?)(?:_\d{6,})?"', message)
    return found[1] if found else ""


def is_of_lost_node(error: Exception) -> bool:
    """Whether the coordinator says by it that a node was lost. It is an ERROR also where the node
    was lost in the midst of COMMIT, and may have committed."""
    return isinstance(error, asyncpg.InternalServerError | asyncpg.PostgresConnectionError)


async def is_installed(connection: Connection) -> bool:
    found = await connection.fetchval("SELECT count(*) FROM pg_extension WHERE extname = 'citus'")
    return bool(found)


async def remarks(connection: Connection, wanted: Sequence[str]) -> AsyncIterator[Remark]:
    """Whether everything is distributed, and every node answers and has the wanted settings on."""
    left = [name for (name,) in await connection.fetch(DISTRIBUTABLE)]
    if left:
        sentence = f"Not distributed: {', '.join(left)}. Run python -m app migrate."
        yield Remark("shards", sentence, "FAIL")
    nodes = await connection.fetch(NODES, wanted)
    for node in nodes:
        if not node["success"]:
            sentence = f"The node {node['name']} does not answer: its workspaces get 503."
            yield Remark("shards", sentence, "FAIL")
        elif node["off"]:
            sentence = f"On {node['name']}, off: {node['off']}. A crash of it can lose events."
            yield Remark("shards", sentence, "FAIL")
    if nodes and all(node["success"] for node in nodes):
        yield Remark("shards", f"{len(nodes)} nodes answer", "ok")
    elif not nodes:
        yield Remark("shards", "Citus has no nodes but the coordinator, which has every shard.")


async def distribute(connection: Connection, deadline: float) -> list[str]:
    """Within a transaction: distributes the tables that are not yet; their names. References stand
    in the way until both tables are distributed. `deadline`, in seconds, is that of each step."""
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
