"""schema.sql, applied section by section, on both engines and by several processes at once."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import asyncpg
import pytest

from app.database.db import Database, Deadlines, migrate, outstanding
from app.database.migrations import MigrationError, sections
from app.errors import Unavailable
from tests import servers

SCHEMA = Path(__file__).parents[2] / "schema.sql"

FIRST = """-- Words before the first section are welcome.

-- section 0001: people
CREATE TABLE people (
    id    TEXT PRIMARY KEY,  -- one; or two
    name  TEXT NOT NULL DEFAULT 'it''s; -- fine'
);
CREATE INDEX people_by_name ON people (name);
"""
SECOND = """
-- section 0002: places and things
CREATE TABLE places (id TEXT PRIMARY KEY, seen_at TIMESTAMPTZ, document JSONB, flag BOOLEAN);
ALTER TABLE people ADD COLUMN place_id TEXT REFERENCES places (id);
"""


@pytest.fixture
def database_url(
    request: pytest.FixtureRequest, postgres_server: servers.PostgresServer, tmp_path: Path
) -> str:
    """The URL of a database without any table."""
    if request.node.callspec.params["engine"] == "postgresql":
        return asyncio.run(servers.new_database(postgres_server.url, ""))
    return f"sqlite:///{tmp_path}/new.db"


@pytest.fixture(autouse=True, params=["postgresql", "sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    engine: str = request.param
    return engine


async def tables(database: Database) -> set[str]:
    sql = {
        "postgresql": "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'",
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    }
    async with database.read() as db:
        return {row["name"] for row in await db.fetch_all(sql[database.engine])}


async def test_sections_are_applied_once_and_recorded(database: Database) -> None:
    assert await migrate(database, FIRST) == ["0001"]
    assert await migrate(database, FIRST) == []
    assert await migrate(database, FIRST + SECOND) == ["0002"]
    assert await migrate(database, FIRST + SECOND) == []
    assert await migrate(database, FIRST) == []  # older code on the newer schema
    async with database.write() as db:
        await db.execute("INSERT INTO people (id) VALUES ('a')")
        assert await db.fetch_value("SELECT name FROM people") == "it's; -- fine"
        rows = await db.fetch_all("SELECT * FROM schema_migrations ORDER BY section")
        assert [(row["section"], row["name"]) for row in rows] == [
            ("0001", "people"),
            ("0002", "places and things"),
        ]
        moment = await db.now()
        assert all(row["applied_at"] < moment for row in rows)


async def test_what_is_outstanding_is_known_without_changing_anything(database: Database) -> None:
    async with database.read() as db:
        assert await outstanding(db, FIRST + SECOND) == ["0001", "0002"]
    assert await tables(database) == set()
    await migrate(database, FIRST)
    async with database.read() as db:
        assert await outstanding(db, FIRST + SECOND) == ["0002"]


async def test_a_section_that_fails_leaves_nothing_and_those_before_it_stay(
    database: Database,
) -> None:
    broken = SECOND + "\nCREATE TABLE people (id TEXT);"
    with pytest.raises((asyncpg.DuplicateTableError, sqlite3.OperationalError)):
        await migrate(database, FIRST + broken)
    assert await tables(database) == {"people", "schema_migrations"}
    assert await migrate(database, FIRST + SECOND) == ["0002"]


async def test_a_changed_section_is_refused_and_better_words_are_not(database: Database) -> None:
    await migrate(database, FIRST + SECOND)
    reworded = FIRST.replace("-- one; or two", "-- a person's id").replace("    id", "  id")
    assert reworded != FIRST
    assert await migrate(database, reworded + SECOND) == []
    for changed in (
        FIRST.replace("TEXT NOT NULL", "TEXT"),
        FIRST.replace("-- fine", "--  fine"),  # inside a literal
    ):
        with pytest.raises(MigrationError, match=r"Section 0001 \(people\) was changed"):
            await migrate(database, changed + SECOND)


async def test_a_section_put_before_applied_ones_is_refused(database: Database) -> None:
    await migrate(database, SECOND.replace("ALTER TABLE people", "-- "))
    with pytest.raises(MigrationError, match=r"Section 0001 \(people\) is older than 0002"):
        await migrate(database, FIRST + SECOND.replace("ALTER TABLE people", "-- "))


async def test_several_tasks_apply_each_section_once(database: Database) -> None:
    applied = await asyncio.gather(*(migrate(database, FIRST + SECOND) for _ in range(4)))
    assert sorted(number for numbers in applied for number in numbers) == ["0001", "0002"]


async def test_two_processes_apply_each_section_once(database_url: str, tmp_path: Path) -> None:
    """On SQLite they also create the file and switch it to its write-ahead log at once."""
    many = "".join(
        f"-- section {number:04}: table {number}\nCREATE TABLE t{number} (id TEXT);\n"
        for number in range(1, 21)
    )
    schema, program = tmp_path / "schema.sql", tmp_path / "program.py"
    schema.write_text(many)
    program.write_text(
        "import asyncio, pathlib, sys\n"
        "from app.database.db import Database, migrate\n"
        "async def main():\n"
        "    database = Database(sys.argv[1])\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    await database.connect()\n"
        "    print(*await migrate(database, pathlib.Path(sys.argv[2]).read_text()))\n"
        "    await database.disconnect()\n"
        "asyncio.run(main())\n"
    )
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, program, database_url, schema),
            stdin=pipe,
            stdout=pipe,
            env={"PYTHONPATH": str(Path(__file__).parents[2])},
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [process.returncode for process in processes] == [0, 0]
    applied = [output.decode().split() for output, _ in outputs]
    assert sorted(applied[0] + applied[1]) == [f"{number:04}" for number in range(1, 21)]


async def test_a_locked_table_stops_a_section_at_its_deadline(
    database: Database, database_url: str
) -> None:
    """A deploy must not queue all traffic behind a long transaction."""
    await migrate(database, FIRST)
    hasty = Database(database_url, deadlines=Deadlines(lock_ms=100, writer_ms=100))
    await hasty.connect()
    async with database.write() as db:
        await db.execute("INSERT INTO people (id) VALUES ('a')")
        with pytest.raises(Unavailable):
            await migrate(hasty, FIRST + SECOND)
    assert await migrate(hasty, FIRST + SECOND) == ["0002"]
    await hasty.disconnect()


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("CREATE TABLE early (id TEXT);\n" + FIRST, "before the first line"),
        (SECOND + FIRST, "must rise"),
        (FIRST + FIRST, "must rise"),
    ],
)
def test_a_text_that_is_no_schema_is_refused_with_a_sentence(schema: str, sentence: str) -> None:
    with pytest.raises(MigrationError, match=sentence):
        sections(schema)


def test_a_default_of_the_current_time_is_refused() -> None:
    with pytest.raises(ValueError, match="Bind :now"):
        sections(
            SECOND.replace("seen_at TIMESTAMPTZ", "seen_at TIMESTAMPTZ DEFAULT CURRENT_TIMESTAMP")
        )


@pytest.mark.parametrize(
    "statement",
    [
        "DO $$ BEGIN NULL; END $$;",
        "DO $do$ BEGIN NULL; END $do$;",
        r"UPDATE people SET name = E'it\'s; -- fine';",
        "CREATE TRIGGER watch AFTER INSERT ON people EXECUTE FUNCTION watch();",
        "create or replace trigger watch after insert on people execute function watch();",
    ],
)
def test_what_would_be_cut_in_the_wrong_place_is_refused(statement: str) -> None:
    with pytest.raises(MigrationError, match=r"Section 0002 \(places and things\) has \$\$, E''"):
        sections(FIRST + SECOND + statement)


def test_words_about_what_would_be_cut_are_welcome() -> None:
    words = "-- No $$, E'' or CREATE TRIGGER.\nUPDATE people SET name = 'E; $$; TRIGGER';"
    assert len(sections(FIRST + SECOND + words)) == 2


def test_no_section_builds_an_index_while_readers_are_locked_out() -> None:
    """Dropping an index does that, until the transaction ends."""
    for section in sections(SCHEMA.read_text()):
        words = section.sql.upper()
        assert not ("DROP INDEX" in words and "CREATE INDEX" in words), section.number
