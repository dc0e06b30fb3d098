"""The data can be sharded by workspace: what the catalogues of both engines say of every key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pytest

from app.database.db import Database, Handle
from app.database.engine import Engine

# What belongs to no workspace, and why.
NOT_TENANTS: Mapping[str, str] = {
    "users": "a person may belong to several workspaces, or to none",
    "user_identities": "a person's, by what single sign-on calls them",
    "foundings": "a person's, before the workspace exists",
    "directory": "read to find out the workspace",
    "sign_in_domains": "read to find out the workspace; of all workspaces one has a domain",
    "data_keys": "the installation's",
    "counters": "sums over all workspaces",
    "sweeps": "over all workspaces",
    "schema_migrations": "the database's own",
}
WORKSPACE = {"workspaces": "id"}  # the column that names it, where that is not workspace_id


@dataclass(frozen=True, slots=True)
class Key:
    """A primary key, a unique constraint or index, or a foreign key and what it refers to."""

    table: str
    columns: Sequence[str]
    is_primary: bool = False
    target: str | None = None
    target_columns: Sequence[str] = ()


TABLES: Mapping[Engine, str] = {
    "postgresql": "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'",
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
}
NAMES = """
    CAST(ARRAY(SELECT a.attname FROM unnest({numbers}) WITH ORDINALITY AS o (number, place)
               JOIN pg_attribute a ON a.attrelid = {table} AND a.attnum = o.number
               ORDER BY o.place) AS TEXT[])
    """
INDEXED, REFERRING, REFERRED = (
    NAMES.format(numbers=numbers, table=table)
    for numbers, table in (
        ("i.indkey", "i.indrelid"),
        ("k.conkey", "k.conrelid"),
        ("k.confkey", "k.confrelid"),
    )
)
UNIQUE: Mapping[Engine, str] = {
    "postgresql": f"""
        SELECT CAST(i.indrelid AS REGCLASS) AS whose, i.indisprimary AS is_primary,
               {INDEXED} AS columns
        FROM pg_index i
        JOIN pg_class c ON c.oid = i.indrelid AND c.relkind = 'r'
        WHERE i.indisunique AND c.relnamespace = CAST('public' AS REGNAMESPACE)
        """,
    "sqlite": """
        SELECT m.name AS whose, l.origin = 'pk' AS is_primary,
               (SELECT group_concat(i.name)
                FROM (SELECT name FROM pragma_index_info(l.name) ORDER BY seqno) AS i) AS columns
        FROM sqlite_master m, pragma_index_list(m.name) l
        WHERE m.type = 'table' AND l."unique"
        """,
}
FOREIGN: Mapping[Engine, str] = {
    "postgresql": f"""
        SELECT CAST(k.conrelid AS REGCLASS) AS whose, CAST(k.confrelid AS REGCLASS) AS target,
               {REFERRING} AS columns, {REFERRED} AS target_columns
        FROM pg_constraint k
        WHERE k.contype = 'f' AND k.connamespace = CAST('public' AS REGNAMESPACE)
        """,
    "sqlite": """
        SELECT whose, target, group_concat("from") AS columns, group_concat("to") AS target_columns
        FROM (SELECT m.name AS whose, f.id, f."table" AS target, f."from", f."to"
              FROM sqlite_master m, pragma_foreign_key_list(m.name) f
              WHERE m.type = 'table'
              ORDER BY m.name, f.id, f.seq) AS pairs
        GROUP BY whose, id, target
        """,
}


def _listed(columns: str | Sequence[str] | None) -> Sequence[str]:
    return columns.split(",") if isinstance(columns, str) else columns or ()


async def catalogue(db: Handle) -> tuple[set[str], list[Key]]:
    tables = {row["name"] for row in await db.fetch_all(TABLES[db.engine])}
    keys = [
        Key(str(row["whose"]), _listed(row["columns"]), is_primary=bool(row["is_primary"]))
        for row in await db.fetch_all(UNIQUE[db.engine])
    ]
    keys += [
        Key(
            str(row["whose"]),
            _listed(row["columns"]),
            target=str(row["target"]),
            target_columns=_listed(row["target_columns"]),
        )
        for row in await db.fetch_all(FOREIGN[db.engine])
    ]
    return tables, keys


async def offences(db: Handle) -> set[str]:
    tables, keys = await catalogue(db)
    keyed = {key.table for key in keys if key.is_primary}
    found = {f"{table} has no primary key" for table in tables - keyed}
    for key in keys:
        named = f"{key.table} ({', '.join(key.columns)})"
        is_tenant = key.table not in NOT_TENANTS
        if is_tenant and key.columns[0] != WORKSPACE.get(key.table, "workspace_id"):
            found.add(f"{named} does not begin with the workspace")
        if key.target is None:
            continue
        if is_tenant != (key.target not in NOT_TENANTS):
            found.add(f"{named} refers from a workspace to what is in none, or back")
        elif is_tenant and key.target_columns[0] != WORKSPACE.get(key.target, "workspace_id"):
            found.add(f"{named} refers to something else than the workspace")
    return found


async def test_every_key_of_a_workspace_s_table_begins_with_the_workspace(
    database: Database,
) -> None:
    async with database.read() as db:
        tables, keys = await catalogue(db)
        assert await offences(db) == set()
    assert NOT_TENANTS.keys() < tables
    assert len(tables) > 40
    assert len([key for key in keys if key.target is None]) > len(tables)  # both kinds are seen
    assert len([key for key in keys if key.target is not None]) > 30


class Undone(Exception):
    pass


OF_ONE = "workspace_id TEXT NOT NULL"
# The columns of a table named wrong, and what is found of it.
WRONG: Mapping[str, tuple[str, str]] = {
    "no key": (f"{OF_ONE}, id TEXT", "wrong has no primary key"),
    "a key without the workspace": (
        f"{OF_ONE}, id TEXT PRIMARY KEY",
        "wrong (id) does not begin with the workspace",
    ),
    "a key that begins with something else": (
        f"{OF_ONE}, id TEXT, PRIMARY KEY (id, workspace_id)",
        "wrong (id, workspace_id) does not begin with the workspace",
    ),
    "a token unique over all": (
        f"{OF_ONE}, token TEXT UNIQUE, PRIMARY KEY (workspace_id)",
        "wrong (token) does not begin with the workspace",
    ),
    "a reference to a person": (
        f"{OF_ONE}, made_by TEXT REFERENCES users (id), PRIMARY KEY (workspace_id)",
        "wrong (made_by) refers from a workspace to what is in none, or back",
    ),
    "no workspace, and no reason": (
        "id TEXT PRIMARY KEY",
        "wrong (id) does not begin with the workspace",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
async def test_a_table_that_breaks_the_rule_is_found(database: Database, mistake: str) -> None:
    columns, sentence = WRONG[mistake]
    assert sentence in await offences_with(database, f"CREATE TABLE wrong ({columns})")


async def test_a_table_that_keeps_the_rule_is_not_found(database: Database) -> None:
    columns = f"{OF_ONE} REFERENCES workspaces (id), id TEXT, PRIMARY KEY (workspace_id, id)"
    assert await offences_with(database, f"CREATE TABLE good ({columns})") == set()


async def test_a_unique_index_that_breaks_the_rule_is_found(database: Database) -> None:
    index = "CREATE UNIQUE INDEX wrong ON runs (id) WHERE state IS NULL"
    found = await offences_with(database, index)
    assert found == {"runs (id) does not begin with the workspace"}


async def offences_with(database: Database, sql: str) -> set[str]:
    """Find the offences that there would be with the statement; it is undone."""
    with suppress(Undone):
        async with database.write() as db:
            await db.execute(sql)
            found = await offences(db)
            raise Undone
    return found
