"""The command line, as an operator meets it: what it says, and what it does in bad times."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import socket
import sqlite3
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from app import main as app_main
from app.__main__ import COMMANDS, _parser, main
from app.commands import demo
from app.commands.operating import verify_audit
from app.config.settings import Settings
from app.database.db import Database
from app.database.migrations import sections
from app.errors import Unavailable
from app.main import NotReady, database_of, open_process
from app.net.tls import system_trust
from app.process import SCHEMA
from app.runtime.sharing import KEPT_SECONDS
from app.store import sign_in_domains, user_identities, users, workspaces
from tests import cast, servers
from tests.deployment import (
    PATIENCE_SECONDS,
    Command,
    Deployment,
    Part,
    answers,
    impatient,
    until,
)
from tests.present import present
from tests.proxy import Proxy, proxy_before
from tests.servers import PostgresServer

SECRET_KEY = "a secret key that only the tests have"


@pytest.fixture(params=["postgresql", "sqlite"])
def nowhere(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """An environment whose database is there and holds nothing."""
    if request.param == "sqlite":
        return {"DATABASE_URL": f"sqlite:///{tmp_path}/tidings.db", "SECRET_KEY": SECRET_KEY}
    server = request.getfixturevalue("postgres_server")
    url = asyncio.run(servers.new_database(server.url, ""))
    return {"DATABASE_URL": url, "SECRET_KEY": SECRET_KEY}


# --- what it says ---------------------------------------------------------------------------------


def test_help_names_every_command_and_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["app", "--help"])
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit, match="0"):
        main()
    output = capsys.readouterr().out
    words = " ".join(output.split())
    for name, known in COMMANDS.items():
        [first, *_] = (inspect.getdoc(known.act) or "").split("\n\n")
        assert f"{name} {first}" in words
    assert max(map(len, output.splitlines())) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_tells_all_and_its_example_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["app", name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        main()
    output = capsys.readouterr().out
    assert present(inspect.getdoc(COMMANDS[name].act)) in output
    for example in re.findall(r"^  .*python -m app (.*)$", output, re.MULTILINE):
        assert _parser().parse_args(re.split(r" [|&]+ ", example)[0].split()).command == name
        assert COMMANDS[name].example.endswith(example)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("run", "data/tidings.db"),
        ("doctor", "Exits with 0"),
        ("simulate", "Exits with 0"),
        ("after-restore", "Stop every process first"),
        ("verify-audit", "Exits with 0"),
    ],
)
def test_the_help_says_what_one_must_know_before_one_types_it(name: str, expected: str) -> None:
    assert expected in (COMMANDS[name].act.__doc__ or "")
    assert name in COMMANDS[name].example


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "eighty"),
        ("DATABASE_URL", "mysql://localhost/tidings"),
        ("SECRET_KEY", "short"),
        ("ENVIRONMENT", "staging"),
        ("TRUSTED_HOPS", "-1"),
    ],
)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_variable_stops_every_command_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    variable: str,
    value: str,
) -> None:
    typed = [
        f"{word}=x" if word.startswith("-") and "action" not in how else word
        for word, how in COMMANDS[name].arguments.items()
    ]
    monkeypatch.setattr(sys, "argv", ["app", name, *typed])
    monkeypatch.setenv(variable, value)
    assert main() == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"tidings: {variable} must be ")
    assert "Traceback" not in printed
    assert variable not in ("SECRET_KEY", "DATABASE_URL") or value not in printed


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://127.0.0.1/x?sslmode=verify_full", "sslmode must be one of"),
        ("postgresql://127.0.0.1/x?target_session_attrs=write", "target_session_attrs"),
    ],
)
@pytest.mark.parametrize("name", ["migrate", "doctor"])
def test_a_database_url_that_the_engine_does_not_take_is_a_sentence(
    name: str, url: str, words: str
) -> None:
    environ = {"DATABASE_URL": url, "SECRET_KEY": SECRET_KEY}
    code, output, errors = Command(name, environ=environ).ended()
    assert (code, "Traceback" in errors) == (1, False)
    [line] = [line for line in (output + errors).splitlines() if "DATABASE_URL" in line]
    assert words in line


async def test_a_sqlite_that_is_too_old_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    environ = {"DATABASE_URL": f"sqlite:///{tmp_path}/x.db", "SECRET_KEY": SECRET_KEY}
    with pytest.raises(NotReady, match=r"^DATABASE_URL cannot be used. .*SQLite 3\.34\.1;"):
        async with database_of(Settings.from_environ(environ)):
            pass


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (socket.EAI_NONAME, app_main.WAITING_FOR_NAME),
        (socket.EAI_AGAIN, app_main.WAITING),
    ],
)
async def test_a_name_of_which_nothing_is_known_yet_is_waited_for(
    code: int, sentence: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A container's name is there once it runs; a name server may be away for a moment."""
    monkeypatch.setattr(app_main, "RETRY_SECONDS", 0.01)
    url = "postgresql://ada:secret@db.test:5433/x"
    settings = Settings.from_environ({"DATABASE_URL": url, "SECRET_KEY": SECRET_KEY})
    errors = [socket.gaierror(code, "no address")] * 2

    async def answer() -> str:
        if errors:
            raise Unavailable("away") from errors.pop()
        return "there"

    assert await app_main._retry(answer, settings, app_main.FOR_EVER) == "there"
    first, second = caplog.records
    assert first.message == second.message == sentence
    assert vars(first)["host"] == "db.test:5433"
    assert vars(first)["error"] == f"[Errno {code}] no address"
    errors.append(socket.gaierror(code, "no address"))
    with pytest.raises(NotReady, match=r"leads to no database: \[Errno -\d\] no address\.$"):
        await app_main._retry(answer, settings, -1.0)


def test_a_database_without_tables_is_told_what_to_run(
    nowhere: dict[str, str], redis_url: str
) -> None:
    sqlite = nowhere["DATABASE_URL"].startswith("sqlite")
    name = "demo" if sqlite else "web"
    environ = {**nowhere, "PORT": str(servers.free_port()), "REDIS_URL": redis_url}
    code, _, errors = Command(name, environ=environ).ended()
    assert code == 1
    assert "run python -m app migrate first" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("name", ["web", "worker"])
def test_one_half_alone_on_sqlite_is_refused_in_words(tmp_path: Path, name: str) -> None:
    environ = {"DATABASE_URL": f"sqlite:///{tmp_path}/tidings.db", "SECRET_KEY": SECRET_KEY}
    code, _, errors = Command(name, environ=environ).ended()
    assert code == 1
    assert "python -m app run" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "tidings.db").exists()


def test_the_demo_is_not_for_production(tmp_path: Path) -> None:
    production = {
        "ENVIRONMENT": "production",
        "ALLOW_SQLITE_IN_PRODUCTION": "1",
        "DATABASE_URL": f"sqlite:///{tmp_path}/tidings.db",
        "SECRET_KEY": SECRET_KEY,
        "SMTP_URL": "smtp://127.0.0.1:1",
        "MAIL_FROM": "hello@acme.test",
        "BASE_URL": "http://127.0.0.1:1",
    }
    code, _, errors = Command("demo", environ=production).ended()
    assert code == 1
    assert "ENVIRONMENT" in errors


# --- migrate, demo, grant-super-admin -------------------------------------------------------------


def test_migrating_at_once_and_again_applies_every_section_once(nowhere: dict[str, str]) -> None:
    together = [Command("migrate", environ=nowhere) for _ in range(2)]
    ends = [command.ended() for command in together]
    assert [code for code, _, _ in ends] == [0, 0], ends
    applied = [number for _, output, _ in ends for number in applied_by(output)]
    assert sorted(applied) == [section.number for section in sections(SCHEMA)]
    code, output, _ = Command("migrate", environ=nowhere).ended()
    assert (code, output) == (0, "The schema is up to date.\n")


async def test_a_migration_that_meets_a_lock_says_so_and_what_to_do(
    nowhere: dict[str, str],
) -> None:
    async with begun(nowhere, "CREATE TABLE workspaces (id TEXT)"):
        hindered = Command("migrate", environ=nowhere, program=impatient)
        code, _, errors = await asyncio.to_thread(hindered.ended)
    assert (code, "Traceback" in errors) == (1, False)
    sentence = r"^tidings: The schema was not brought up to date: .*lock.*\. Run migrate again: "
    assert re.search(sentence, errors, re.M), errors
    code, output, _ = await asyncio.to_thread(Command("migrate", environ=nowhere).ended)
    assert (code, output.split()[0]) == (0, "Applied")


async def test_a_command_that_meets_a_lock_says_so_and_what_to_do(environ: dict[str, str]) -> None:
    async with begun(environ, "LOCK TABLE broadcasts"):
        code, _, errors = await asyncio.to_thread(Command("after-restore", environ=environ).ended)
    assert code == 1
    sentence = "It was not done to the end: canceling statement due to lock timeout. Run this again"
    assert f"tidings: {sentence}" in errors


class Undone(Exception):
    pass


@asynccontextmanager
async def begun(environ: dict[str, str], sql: str) -> AsyncIterator[None]:
    """A transaction that has done this, stays open, and is undone."""
    database = Database(environ["DATABASE_URL"])
    await database.connect()
    with suppress(Undone):
        async with database.write() as db:
            await db.execute(sql)
            yield
            raise Undone
    await database.disconnect()


def applied_by(output: str) -> list[str]:
    return re.findall(r"\b\d{4}\b", output)


@pytest.fixture
def environ(postgres_url: str) -> Iterator[dict[str, str]]:
    yield {"DATABASE_URL": postgres_url, "SECRET_KEY": SECRET_KEY}
    asyncio.run(servers.empty(postgres_url))


def test_the_demo_is_seeded_once_and_shown_again(environ: dict[str, str]) -> None:
    first, second = (Command("demo", environ=environ).ended() for _ in range(2))
    assert first[0] == 0, first
    assert second == first
    assert "td_test_" in first[1]
    assert "curl -sS http://127.0.0.1:8000/v1/webhooks/in/" in first[1]


def test_a_user_is_made_super_admin_by_address(environ: dict[str, str], tmp_path: Path) -> None:
    settings = Settings.from_environ(environ, secret_key_file=tmp_path / "key")
    olivia = asyncio.run(registered(settings))
    granting = [
        Command("grant-super-admin", *words, environ=environ)
        for words in (("nobody@acme.test", "--unverified"), (olivia,))
    ]
    unknown, unverified = (command.ended() for command in granting)
    for address, (code, _, errors) in (("nobody@acme.test", unknown), (olivia, unverified)):
        assert code == 1
        assert f"No user has the address {address} and has verified it" in errors
        assert "Traceback" not in errors
    assert not asyncio.run(is_super_admin(settings, olivia))
    known = Command("grant-super-admin", olivia.upper(), "--unverified", environ=environ).ended()
    assert known[0] == 0, known
    assert asyncio.run(is_super_admin(settings, olivia))


def test_a_workspace_is_limited_from_the_command_line(environ: dict[str, str]) -> None:
    settings = Settings.from_environ(environ)
    id = asyncio.run(founded(settings))
    unknown = Command("set-limit", "ws_" + "0" * 26, "5", environ=environ).ended()
    wrong = Command("set-limit", id, "many", environ=environ).ended()
    assert (unknown[0], wrong[0]) == (1, 1)
    assert "There is no workspace ws_0" in unknown[2]
    assert "a whole number below 1,000,000,000, or none" in wrong[2]
    for limit, kept in (("5000", 5_000), ("none", None)):
        code, output, errors = Command("set-limit", id, limit, environ=environ).ended()
        assert code == 0, errors
        assert id in output
        assert asyncio.run(daily_limit(settings, id)) == kept


def test_a_domain_is_released_from_the_command_line(environ: dict[str, str]) -> None:
    settings = Settings.from_environ(environ)
    id = asyncio.run(founded(settings))
    asyncio.run(claim(settings, id))
    code, output, errors = Command("release-domain", "Acme.test", environ=environ).ended()
    assert code == 0, errors
    assert f"acme.test is no longer claimed by {id}." in output
    for domain, sentence in (("acme.test", "No workspace"), ("x y", "Must be a domain")):
        code, _, errors = Command("release-domain", domain, environ=environ).ended()
        assert (code, sentence in errors, "Traceback" in errors) == (1, True, False)


def test_an_account_is_released_from_the_command_line(environ: dict[str, str]) -> None:
    settings = Settings.from_environ(environ)
    asyncio.run(linked(settings))
    wanted = [("Ada@acme.test", 0, "belongs to nobody"), ("ada@acme.test", 1, "Nobody has signed")]
    for address, code, sentence in [*wanted, ("x y", 1, "x y: ")]:
        ended, output, errors = Command("release-sign-in", address, environ=environ).ended()
        assert (ended, "Traceback" in errors) == (code, False)
        assert sentence in output + errors


async def linked(settings: Settings) -> None:
    await founded(settings)
    async with open_process(settings) as process, process.database.write() as db:
        user = await users.insert(
            db,
            id="usr_1",
            email="ada@acme.test",
            email_key="ada@acme.test",
            name="Ada",
            password_hash="x",
        )
        await user_identities.insert(db, issuer="https://idp.test", subject="1", user_id=user.id)


async def claim(settings: Settings, workspace_id: str) -> None:
    async with open_process(settings) as process, process.database.write() as db:
        await sign_in_domains.put(
            db, workspace_id=workspace_id, domain="acme.test", role="viewer", claimed_by="usr_1"
        )


async def founded(settings: Settings) -> str:
    async with open_process(settings) as process:
        return await cast.workspace(process, "Acme")


async def daily_limit(settings: Settings, id: str) -> int | None:
    async with open_process(settings) as process, process.database.read() as db:
        row = await workspaces.by_id(db, id=id)
    assert row is not None
    limit: int | None = row.daily_limit
    return limit


def test_the_trails_of_all_workspaces_are_walked_by_one_command(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.from_environ(environ)
    asyncio.run(seeded(settings))
    assert verify_audit(settings, Namespace()) == 0
    printed = capsys.readouterr().out
    assert re.fullmatch(r"ws_\w{26}  whole: 1 entries, 1 not chained yet, head 0 0{64}\n", printed)
    asyncio.run(tampered(settings))
    assert verify_audit(settings, Namespace()) == 1
    printed = capsys.readouterr().out
    assert re.fullmatch(
        r"ws_\w{26}  NOT WHOLE at entry aud_\w{26}: The entry was changed.\n", printed
    )


async def seeded(settings: Settings) -> None:
    async with open_process(settings) as process:
        await demo.seed(process)


async def tampered(settings: Settings) -> None:
    async with open_process(settings) as process, process.database.write() as db:
        await db.execute("UPDATE audit_logs SET actor_name = 'Mallory'")


async def registered(settings: Settings) -> str:
    async with open_process(settings) as process, cast.client(process) as client:
        acme = await cast.workspace(process, "Acme")
        email = (await cast.person(process, client, acme, "olivia", "owner")).email
        async with process.database.write() as db:
            await db.execute("UPDATE users SET email_verified_at = NULL")
        return email


async def is_super_admin(settings: Settings, email: str) -> bool:
    async with open_process(settings) as process, process.database.read() as db:
        row = await users.by_email(db, email_key=email)
    assert row is not None
    return bool(row.super_admin)


# --- a database that comes late, or goes away -----------------------------------------------------


@pytest.mark.drill
async def test_a_database_that_comes_late_is_waited_for(
    postgres_server: PostgresServer, postgres_url: str, redis_url: str, tmp_path: Path
) -> None:
    proxy = Proxy("127.0.0.1", postgres_server.port)
    proxy.port = servers.free_port()
    port = servers.free_port()
    environ = {
        "DATABASE_URL": through(proxy, postgres_url),
        "REDIS_URL": redis_url,
        "SECRET_KEY": SECRET_KEY,
        "PORT": str(port),
    }
    web, url = Part("web", environ, tmp_path), f"http://127.0.0.1:{port}"
    try:
        await asyncio.to_thread(until, lambda: answers(f"{url}/healthz"), "it says so", web)
        assert "waiting for the database" in web.text
        async with httpx2.AsyncClient(base_url=url, verify=system_trust()) as client:
            await refused(client)
            await proxy.start()
            await served(client)
    finally:
        web.kill()
        await proxy.stop()
        await servers.empty(postgres_url)


@pytest.mark.drill
@pytest.mark.parametrize("redis", ["answers", "says nothing"])
async def test_a_new_web_process_takes_no_connection_before_it_can_answer(
    environ: dict[str, str], redis_url: str, tmp_path: Path, redis: str
) -> None:
    port = servers.free_port()
    async with before_redis(redis_url) as (proxy, way):
        if redis == "says nothing":
            proxy.swallow()
        web = Part("web", {**environ, "REDIS_URL": way, "PORT": str(port)}, tmp_path)
        try:
            statuses = [await first_answer(port) for _ in range(20)]
        finally:
            web.kill()
    assert statuses == [404] * 20, web.text


@pytest.mark.drill
async def test_a_web_process_that_is_replaced_says_nothing_until_it_can_answer(
    environ: dict[str, str], redis_url: str, tmp_path: Path
) -> None:
    """Its sibling answers meanwhile; Redis says nothing, which makes it slow to open."""
    port = servers.free_port()
    async with before_redis(redis_url) as (proxy, way):
        more = {"REDIS_URL": way, "PORT": str(port), "WEB_CONCURRENCY": "2"}
        web = Part("web", {**environ, **more}, tmp_path)

        def ready() -> int:
            return web.text.count("web process is ready")

        try:
            await asyncio.to_thread(until, lambda: ready() == 2, "both are ready", web)
            proxy.swallow()
            os.kill(children(web)[0], signal.SIGKILL)
            statuses = []
            while ready() < 3:
                statuses.append(await first_answer(port))
                # The sibling refuses an address that asks for unknown webhooks without end.
                await asyncio.sleep(0.02)
            statuses += [await first_answer(port) for _ in range(20)]
        finally:
            web.kill()
    assert set(statuses) == {404}, web.text


@asynccontextmanager
async def before_redis(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy, and the URL that leads by way of it."""
    server = urlsplit(url)
    async with proxy_before(server.hostname or "", server.port or 0) as proxy:
        yield proxy, server._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()


def children(part: Part) -> list[int]:
    """Its processes."""
    pid = part.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def first_answer(port: int) -> int:
    """Ask for the first answer as a router does: at once again when nobody takes the connection."""
    url = f"http://127.0.0.1:{port}"
    async with (
        httpx2.AsyncClient(base_url=url, verify=system_trust()) as client,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        while True:
            with suppress(httpx2.ConnectError):
                return (await ask(client))[0]
            await asyncio.sleep(0.002)


async def test_a_database_that_goes_away_again_while_a_process_starts_is_waited_for(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    async with proxy_before("127.0.0.1", postgres_server.port) as proxy:
        environ = {"DATABASE_URL": through(proxy, postgres_url), "SECRET_KEY": SECRET_KEY}
        proxy.cut_before(b"BEGIN")  # of the first transaction; by then it has answered
        settings = Settings.from_environ(environ, secret_key_file=tmp_path / "key")
        opening = open_process(settings)
        starting = asyncio.create_task(opening.__aenter__())
        while not proxy.hits and not starting.done():
            await asyncio.sleep(0.01)
        proxy.heal()
        process = await starting
        async with process.database.read() as db:
            assert await db.now()
        await opening.__aexit__(None, None, None)
    await servers.empty(postgres_url)


@pytest.mark.drill
@pytest.mark.parametrize("away", ["refuses", "says nothing"])
async def test_while_the_database_is_away_requests_are_refused_quickly_and_then_served_again(
    postgres_server: PostgresServer, postgres_url: str, redis_url: str, tmp_path: Path, away: str
) -> None:
    async with proxy_before("127.0.0.1", postgres_server.port) as proxy:
        with Deployment(
            tmp_path,
            database_url=through(proxy, postgres_url),
            redis_url=redis_url,
            smtp_url="smtp://127.0.0.1:1",
        ) as deployment:
            await asyncio.to_thread(deployment.web)
            async with httpx2.AsyncClient(
                base_url=deployment.url, timeout=30, verify=system_trust()
            ) as client:
                assert (await ask(client))[0] == 404
                if away == "refuses":
                    await proxy.stop()
                    await refused(client)
                    await proxy.start()
                else:
                    proxy.swallow()
                    await refused(client, within=4)  # two on a machine that is not busy
                    proxy.heal()
                await served(client)
    await servers.empty(postgres_url)


async def ask(client: httpx2.AsyncClient) -> tuple[int, httpx2.Response, float]:
    """A webhook that nobody has: what only the database can tell."""
    began = time.monotonic()
    response = await client.post(f"/v1/webhooks/in/{'A' * 30}", json={})
    return response.status_code, response, time.monotonic() - began


async def refused(client: httpx2.AsyncClient, within: float = 2) -> None:
    asked = await asyncio.gather(*(ask(client) for _ in range(5)))
    slowest = max(seconds for _, _, seconds in asked)
    print(f"\nwhile it is away: answered within {slowest:.2f} s")
    for status, response, _ in asked:
        assert status == 503
        assert int(response.headers["Retry-After"]) > 0
        assert response.json()["code"] == "unavailable"
    assert slowest < within
    assert (await client.get("/healthz")).status_code == 200
    async with asyncio.timeout(KEPT_SECONDS + within):
        while (await client.get("/readyz")).status_code != 503:
            await asyncio.sleep(0.1)


async def served(client: httpx2.AsyncClient) -> None:
    began = time.monotonic()
    async with asyncio.timeout(10):
        while (await ask(client))[0] != 404:
            await asyncio.sleep(0.05)
    print(f"\nwhen it is back: served after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began < 5


def through(proxy: Proxy, url: str) -> str:
    """The same database, by way of the proxy."""
    return f"postgresql://postgres@127.0.0.1:{proxy.port}{urlsplit(url).path}"
