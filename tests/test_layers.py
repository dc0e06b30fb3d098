"""The rules of the house: who may import whom, where SQL lives, what the machine may not do."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from app.process import SCHEMA

ROOT = Path(__file__).parents[1]
SQL_HOMES = ("app/store", "app/database")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
IMPORT = (ast.Import, ast.ImportFrom)
ASYNC = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)

# Upper case, as house style has it: no English sentence of ours looks like this.
SQL = re.compile(
    r"\b(?:SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|ORDER\s+BY|GROUP\s+BY"
    r"|CREATE\s+(?:TABLE|INDEX)|ALTER\s+TABLE|TRUNCATE|BEGIN\s+IMMEDIATE|ON\s+CONFLICT|RETURNING"
    r"|LEFT\s+JOIN|JOIN\s+\w+\s+ON|WHERE\s+\w+)\b",
    re.DOTALL,
)


def modules(*places: str, holding: str = "") -> list[Path]:
    """List the modules whose text holds this pattern. To parse all of them takes seconds, and a
    module that does not have the word cannot break its rule."""
    found = [path for place in places for path in paths_in(place)]
    assert found, f"there is nothing in {places}"
    return [path for path in found if re.search(holding, source(path))]


@cache
def paths_in(place: str) -> list[Path]:
    return sorted((ROOT / place).rglob("*.py"))


@cache
def source(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(source(path))


def offences(
    paths: list[Path], wrong: Callable[[ast.Module], Iterator[ast.expr | ast.stmt | ast.arg]]
) -> list[str]:
    """`app/x.py:12` for everything that `wrong` finds."""
    return [
        f"{path.relative_to(ROOT)}:{found.lineno}" for path in paths for found in wrong(tree(path))
    ]


def test_the_import_contract_is_kept() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout


def test_no_function_hides_an_import() -> None:
    def hidden(module: ast.Module) -> Iterator[ast.stmt]:
        for function in ast.walk(module):
            if isinstance(function, FUNCTION):
                yield from (node for node in ast.walk(function) if isinstance(node, IMPORT))

    indented = r"(?m)^(?!import\b|from\b).*\bimport\b"
    assert offences(modules("app", "workers", holding=indented), hidden) == []


@pytest.mark.parametrize("place", ["app/machine", *SQL_HOMES, "app/providers"])
def test_http_stays_at_the_edge(place: str) -> None:
    found = modules(place, holding=r"\bstarlette\b")
    assert offences(found, lambda module: imports(module, "starlette")) == []


@pytest.mark.parametrize(
    ("library", "home"),
    [
        # A case is a file that is read as a body would be.
        (
            "starlette",
            ("app/web", "app/routes", "app/commands/startup.py", "app/simulation/cases.py"),
        ),
        ("hypercorn", ("app/web",)),
        ("databases", ("app/database",)),
        ("asyncpg", ("app/database",)),
        ("aiosqlite", ("app/database",)),
        ("liquid", ("app/machine",)),
        ("python_multipart", ("app/web/multipart.py",)),
        ("aiosmtplib", ("app/providers",)),
        ("arq", ("app/jobs/hints.py", "workers")),
        (
            "joserfc",
            ("app/identity/access_tokens.py", "app/providers/oidc.py", "app/vault/vault.py"),
        ),
        ("authlib", ("app/providers/oidc.py",)),
        ("argon2", ("app/identity/passwords.py",)),
        ("phonenumbers", ("app/audience/addresses.py",)),
        ("email_validator", ("app/audience/addresses.py",)),
    ],
)
def test_a_library_has_one_home(library: str, home: tuple[str, ...]) -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in modules("app", "workers", holding=rf"\b{library}\b")
        if any(imports(tree(path), library))
    }
    assert users, f"nobody imports {library} any more: take its row out"
    assert {user for user in users if not user.startswith(home)} == set()


@cache
def import_statements(module: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(module) if isinstance(node, IMPORT)]


def imports(module: ast.Module, library: str) -> Iterator[ast.stmt]:
    for node in import_statements(module):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if any(name.split(".")[0] == library for name in names):
            yield node


def test_the_machine_awaits_nothing() -> None:
    def waiting(module: ast.Module) -> Iterator[ast.expr | ast.stmt]:
        return (node for node in ast.walk(module) if isinstance(node, ASYNC))

    assert offences(modules("app/machine", holding=r"\b(?:async|await)\b"), waiting) == []


def test_the_machine_reads_no_clock_and_rolls_no_dice() -> None:
    impure = ("time.time", "random.", "secrets.", "uuid.", "os.", "datetime.now", "datetime.today")

    def read(module: ast.Module) -> Iterator[ast.expr]:
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(impure):
                yield node

    words = r"\b(?:time|random|secrets|uuid|os|datetime)\b"
    assert offences(modules("app/machine", holding=words), read) == []


# One of which is in each; a line's end may be written before it.
WORDS_OF_SQL = (
    r"(?<![A-Z])(?:SELECT|INSERT|UPDATE|DELETE|BY|CREATE|ALTER|TRUNCATE|BEGIN|CONFLICT|RETURNING"
    r"|JOIN|WHERE)(?![A-Z])"
)


def test_sql_lives_in_the_store() -> None:
    homes = modules(*SQL_HOMES)
    outside = sorted({*modules("app", "workers", holding=WORDS_OF_SQL)} - {*homes})
    assert offences(outside, statements) == []
    assert len(offences(homes, statements)) > 50  # or it would find none anywhere


def statements(module: ast.Module) -> Iterator[ast.expr]:
    """Strings that read like SQL; docstrings speak of what they like. What a clause stands in is
    read as a whole."""
    prose = {
        body[0].value
        for node in ast.walk(module)
        if isinstance(body := getattr(node, "body", None), list)
        and body
        and isinstance(body[0], ast.Expr)
    }
    parts = {
        part for node in ast.walk(module) if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in ast.walk(module):
        if (isinstance(node, ast.JoinedStr) and SQL.search(ast.unparse(node))) or (
            isinstance(node, ast.Constant)
            and node not in prose | parts
            and SQL.search(str(node.value))
        ):
            yield node


# What an f-string of SQL may hold: constants of its module or of jobs, and names that fixed clauses
# go by.
FIXED = re.compile(
    r"(?:\w+\.)?[A-Z_]+|(?:columns|values)\(\w+(?:, '\w+')?\)|narrowed|among|cut|rows"
    r"|table|whose|condition|counts|members"
    r"|(?:FOUND|KEYS|ADDRESSES|REASON|UNFINISHED_OF)\[[\w.]+\]|waiting|kind|key|named|claim|alive|work\.(?:table|open|owed)"
    r"|fitting\.sql|next_flip\.sql|weight\.bytes|columns|once|rows\.(?:table|id|key|have)"
)
# These rewrite statements, names of values included; three of them write those of filters, in
# which tests/store/test_segment_sql.py and test_segment_moments.py look for words of theirs.
REWRITING = {
    ROOT / "app" / module
    for module in (
        *("database/sqlite.py", "database/sql.py", "database/sets.py"),
        *("database/texts.py", "store/segment_sql.py", "store/segment_moments.py"),
        *("database/citus.py", "database/vacuuming.py"),  # tables and constraints by their names
    )
}


def test_every_value_is_bound_and_only_fixed_clauses_are_joined() -> None:
    def joined(module: ast.Module) -> Iterator[ast.expr]:
        texts = (node for node in ast.walk(module) if isinstance(node, ast.JoinedStr))
        for text in texts:
            if SQL.search(ast.unparse(text)):
                holes = (part for part in text.values if isinstance(part, ast.FormattedValue))
                yield from (hole for hole in holes if not FIXED.fullmatch(ast.unparse(hole.value)))

    assert offences(sorted({*modules(*SQL_HOMES)} - REWRITING), joined) == []


def test_no_column_is_written_by_a_name_that_no_type_holds() -> None:
    """`**changes: Any` lets a typo pass until its statement is sent."""

    def untyped(module: ast.Module) -> Iterator[ast.arg]:
        for node in ast.walk(module):
            named = node.args.kwarg if isinstance(node, FUNCTION[:2]) else None
            if named is not None and ast.unparse(named).endswith(": Any"):
                yield named

    assert offences(modules("app/store"), untyped) == []


# What is asked of all workspaces at once, or of what alone says whose it is.
EVERYWHERE = {
    "admin.users": "a super-admin sees all",
    "admin.audit_page": "a super-admin sees all",
    "admin.counts": "a super-admin sees all",
    "admin.overdue": "a super-admin sees all",
    "admin.unchained": "a super-admin sees all",
    "health.due": "a figure over all",
    "health.unknown_deliveries": "a figure over all",
    "health.given_up": "a figure over all",
    "callbacks.writers": "whoever writes to a number that several share",
    "circuit_breakers.count_open": "a figure over all",
    "claims.next_due": "a worker looks for work",
    "restored.park_runs": "a restored database is looked through",
    "shards._is_any_due": "a worker looks for work",
    "shards._unsealed": "likewise",
    "usage.any_changes": "a worker looks for work",
    "usage.changed": "a worker looks for work",
    "memberships.workspaces_of": "those of one person",
    "memberships.count_owned": "those of one person",
    "memberships.workspace_ids": "those of one person",
    "users.home": "that of one person",
    "allowances.of": "those of its owners",
    "sign_in_domains._by_domain": "a domain is one workspace's, whichever that is",
    "sign_in_domains.release": "the operator's, of whichever workspace has the domain",
}
TENANTS = {
    match[1]
    for match in re.finditer(r"CREATE TABLE (\w+) \((.*?)\n\);", SCHEMA, re.DOTALL)
    if re.search(r"\bworkspace_id\b", match[2])
}


def test_every_statement_names_the_workspace_or_says_why_not() -> None:
    everywhere: set[str] = set()
    for path in modules(*SQL_HOMES):
        for function in ast.walk(tree(path)):
            if isinstance(function, FUNCTION[:2]):
                for text in statements(ast.Module([function], [])):
                    found = ast.unparse(text)
                    read = set(re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(\w+)", found))
                    if read & TENANTS and not re.search(r"workspace_id\b *(=|IN\b|,)", found):
                        everywhere.add(f"{path.stem}.{function.name}")
    assert everywhere == EVERYWHERE.keys()
    assert len(TENANTS) > 30


def test_what_is_secret_is_compared_in_constant_time() -> None:
    """By hmac.compare_digest: `==` ends at the first octet that differs."""
    secret = re.compile(r"(?:^|[._])(?:signature|digest|mac|secret|expected|password|hash)(?:$|\()")

    def compared(module: ast.Module) -> Iterator[ast.expr]:
        for node in ast.walk(module):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                sides = (node.left, *node.comparators)
                if any(secret.search(ast.unparse(side)) for side in sides):
                    yield node

    machine = modules("app/machine")  # which knows no secrets
    rest = [path for path in modules("app", "workers") if path not in machine]
    assert offences(rest, compared) == []


def test_no_returning_asks_whether_something_is_null() -> None:
    """SQLite 3.40 answers there for another column: a NULL counts as NOT NULL."""

    def asking(module: ast.Module) -> Iterator[ast.expr]:
        fixed = {
            f"{{{target.id}}}": ast.unparse(node.value)
            for node in module.body
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name)
        }
        for statement in statements(module):
            text = ast.unparse(statement)
            for name, clause in fixed.items():
                text = text.replace(name, clause)
            if re.search(r"\bRETURNING\b.*\bIS (?:NOT )?NULL\b", text, re.DOTALL):
                yield statement

    assert offences(modules(*SQL_HOMES), asking) == []
