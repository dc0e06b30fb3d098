"""Benchmark: the intake beside a route that does nothing, on the same server.

python -m lab.bench.intake [rounds] [seconds] [--kinds K …] [--processes N …]: web processes of
their own on a PostgreSQL that commits to disk and a real Redis, the limit on. The kinds of load
take turns, and ratios are taken within a round, for machines drift, but for S2's. S1 and S2 go by
signed events that find their contact by email; the other kinds differ in one thing each. CPU is
that of the web processes alone; where others want the cores too, its ratio says more than that of
the rates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import asyncpg
import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.config.settings import Settings
from app.runtime import processes
from app.web import server
from lab.bench import figures, load
from lab.bench.counting import counted
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import ROOT, Deployment, Part, answers, made, owner_of, until
from tests.servers import free_port

ROUNDS = 5
SECONDS = 5.0
WARMING_SECONDS = 1.0
SHARE = 0.6  # of the intake's maximum, offered in the open loop
OFFERED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # shares of it that make a curve
FEW = (131, 262, 525)  # events a second, of which the p50 counts
LEAST_IDLE = 0.2  # of the generator's time: else it may be what was measured
SECRET = "a secret of good length for the bench"
TICKS = os.sysconf("SC_CLK_TCK")
WORKSPACES = 50
EACH = 100  # contacts of each of these
KINDS = ("bare", "unsigned", "create", *figures.LOOKUPS)


# --- the route that does nothing ------------------------------------------------------------------


async def bare(request: Request) -> Response:
    await request.body()
    return Response(b'{"runId":"run_0","contactId":"con_0"}', 202, media_type="application/json")


def serve_bare() -> int:
    settings = Settings.from_environ(dict(os.environ))
    app = Starlette(routes=[Route("/", bare, methods=["POST"]), Route("/readyz", ready)])
    return processes.launch(
        lambda listener, stop, peers: server.serve(
            app, settings, stop, listener=listener, peers=peers
        ),
        server.bound(settings.host, settings.port),
        settings.web_concurrency,
    )


async def ready(_request: Request) -> Response:
    return Response(b"{}")


# --- what is measured -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    port: int
    path: str
    part: Part
    options: Sequence[str] = ()

    def hit(
        self, seconds: float, rate: float | None = None, *, warms_up: bool = False
    ) -> Mapping[str, float]:
        """`warms_up`: some may be refused. Where the generator was busy, it is not `valid`."""
        before = cpu_seconds(self.part.process.pid)
        offered = [] if rate is None else ["--rate", str(rate)]
        command = [sys.executable, "-m", "lab.bench.load", str(self.port), self.path]
        line = subprocess.check_output(
            [*command, str(seconds), *self.options, *offered], cwd=ROOT, text=True
        )
        measured: dict[str, Any] = json.loads(line)
        assert warms_up or not measured["refused"], measured
        spent = cpu_seconds(self.part.process.pid) - before
        return {**measured, "cpu_ms": spent * 1000 / max(measured["answered"], 1)}


def valid(one: Mapping[str, float]) -> bool:
    return one["idle"] >= LEAST_IDLE


def cpu_seconds(pid: int) -> float:
    """The CPU seconds of the process and those it has forked."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has ended since its parent named it
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(
        cpu_seconds(int(child)) for child in children
    )


def workflow(
    client: httpx2.Client, *, secret: str | None, steps: Sequence[Any] = (), **trigger: Any
) -> dict[str, Any]:
    """An active workflow. Its webhook finds contacts by email, unless the trigger names another."""
    usual = {
        "source": "inbound_webhook",
        "contactLookup": "email",
        "contactPath": "data.object.customer",
        "signingSecret": secret,
    }
    body = {"name": "Bench", "state": "ACTIVE", "trigger": usual | trigger, "steps": list(steps)}
    return made(client, "/workflows", body)


def hook(client: httpx2.Client, *, secret: str | None, **trigger: Any) -> str:
    """The path of a new webhook."""
    url = str(workflow(client, secret=secret, **trigger)["trigger"]["webhookUrl"])
    return url.removeprefix(str(client.base_url).rstrip("/"))


def people(client: httpx2.Client, number: int) -> None:
    """Contacts, each with an address, a telephone number and a number in a shop."""
    rows = (f"{load.email(n)},{_phone(n)},shop-{n}" for n in range(number))
    file = "\n".join(("email,phone,metadata.shopId", *rows))
    response = client.post("/contacts/import", content=file, headers={"Content-Type": "text/csv"})
    assert response.status_code == 200, response.text


def _phone(number: int) -> str:
    return f"+1415555{number:04}"


def targets(deployment: Deployment, kinds: Collection[str]) -> dict[str, Target]:
    """A webhook, or fifty, for each kind but the bare route."""
    part = deployment.web()
    by_phone, by_field = (
        _written(deployment, name, map(each, range(load.KNOWN)))
        for name, each in (("phones", _phone), ("fields", "shop-{}".format))
    )
    with owner_of(deployment, "Acme") as client:
        people(client, load.KNOWN)
        by_id = _written(deployment, "ids", asyncio.run(_contact_ids(deployment)))
        signed = ["--secret", SECRET]
        webhooks: dict[str, tuple[dict[str, Any], Sequence[str]]] = {
            "email": ({}, signed),
            "unsigned": ({}, ()),
            "create": ({"createContact": True}, [*signed, "--new"]),
            "phone": ({"contactLookup": "phone"}, [*signed, "--values", by_phone]),
            "field": (
                {"contactLookup": "contact_id", "metadataField": "shopId"},
                [*signed, "--values", by_field],
            ),
            "contact id": ({"contactLookup": "contact_id"}, [*signed, "--values", by_id]),
            "webhook-id": ({}, [*signed, "--header", "webhook-id"]),
            "Idempotency-Key": ({}, [*signed, "--header", "Idempotency-Key"]),
            "dedupePath": ({"dedupePath": "data.object.key"}, [*signed, "--keyed"]),
        }
        found = {
            kind: Target(
                deployment.port,
                hook(client, secret=SECRET if signed[0] in options else None, **trigger),
                part,
                options,
            )
            for kind, (trigger, options) in webhooks.items()
            if kind in kinds
        }
    if "50 workspaces" in kinds:
        values = _written(deployment, "few", map(load.email, range(EACH)))
        first, *others = many(deployment)
        options = [*signed, "--values", values, "--also", *others]
        found["50 workspaces"] = Target(deployment.port, first, part, options)
    return found


@contextmanager
def one_of_many(deployment: Deployment, number: int) -> Iterator[httpx2.Client]:
    """The owner of one of fifty workspaces, each of which has as many contacts."""
    name, email = f"Workspace {number}", f"olivia@workspace{number}.test"
    with owner_of(deployment, name, email, address=f"198.51.100.{number}") as client:
        people(client, EACH)
        yield client


def many(deployment: Deployment) -> list[str]:
    """A webhook of each of fifty workspaces."""
    paths = []
    for number in range(WORKSPACES):
        with one_of_many(deployment, number) as client:
            paths.append(hook(client, secret=SECRET))
    return paths


async def _contact_ids(deployment: Deployment) -> list[str]:
    connection = await asyncpg.connect(deployment.environ["DATABASE_URL"])
    try:
        return [row["id"] for row in await connection.fetch("SELECT id FROM contacts")]
    finally:
        await connection.close()


def _written(deployment: Deployment, name: str, values: Iterable[str]) -> str:
    file = deployment.directory / name
    file.write_text("\n".join(values))
    return str(file)


# --- the report -----------------------------------------------------------------------------------


Measured: TypeAlias = Sequence[Mapping[str, float]]


def show(what: str, measured: Measured, **ratios: Sequence[float | None]) -> None:
    of = {name: median(one[name] for one in measured) for name in measured[0]}
    line = (
        f"{what:<22}{of['a_second']:>8,.0f} a second   p50 {of['p50_ms']:>6.1f} ms"
        f"   p99 {of['p99_ms']:>6.1f} ms   {of['cpu_ms']:.3f} CPU-ms"
        f"   generator idle {of['idle']:.0%}"
    )
    for name, rounds in ratios.items():
        if ratio := [value for value in rounds if value is not None]:
            line += f"   ratio of {name} {median(ratio):.2f} ({min(ratio):.2f}–{max(ratio):.2f})"
    if busy := sum(not valid(one) for one in measured):
        line += f"   {busy} of {len(measured)} rounds not valid: the generator was busy"
    print(line, flush=True)


def column(name: str, measured: Measured) -> list[float | None]:
    """Take it of each round that is valid."""
    return [one[name] if valid(one) else None for one in measured]


def ratio(name: str, measured: Measured, base: Measured) -> list[float | None]:
    """The ratio of each round of which both are valid."""
    return [
        one[name] / other[name] if valid(one) and valid(other) else None
        for one, other in zip(measured, base, strict=True)
    ]


def measure(
    web_processes: int,
    rounds: int,
    seconds: float,
    kinds: Collection[str],
    urls: Mapping[str, str],
    postgres: servers.PostgresServer,
) -> None:
    """The figures of one web process have no word of it; those of two have."""
    suffix = {1: "", 2: ", two processes"}[web_processes]
    print(f"\nweb, {web_processes} of it, closed loop", flush=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        Deployment(
            Path(directory),
            **urls,
            smtp_url="smtp://127.0.0.1:1",
            WEB_CONCURRENCY=str(web_processes),
            TRUSTED_HOPS="1",
        ) as deployment,
    ):
        bare_port = free_port()
        bare = Target(bare_port, "/", bare_server(deployment, bare_port))
        found = {"bare": bare, **targets(deployment, kinds)}
        rate = SHARE * closed_loop(found, rounds, seconds, suffix)
        open_loop(found, rounds, seconds, rate, suffix)
        if web_processes == 1:
            few(found["email"], rounds, seconds)
            load_curve(found["email"], rate / SHARE, seconds)
            counts = counted(
                postgres,
                urls["database_url"],
                lambda: int(found["email"].hit(seconds)["answered"]),
            )
            print(f"{counts.statements:.2f} statements, {counts.rows:.2f} row versions an event")
            figures.measured("event, statements", [counts.statements])
            figures.measured("event, rows", [counts.rows])


def closed_loop(found: Mapping[str, Target], rounds: int, seconds: float, suffix: str) -> float:
    """Send as many as are answered. Returns how many signed events a second those were."""
    measured: dict[str, list[Mapping[str, float]]] = {kind: [] for kind in found}
    for kind in found:
        found[kind].hit(WARMING_SECONDS)
    for _ in range(rounds):
        for kind in found:
            measured[kind].append(found[kind].hit(seconds))
    base, signed = measured["bare"], measured["email"]
    looked_up = [kind for kind in figures.LOOKUPS if kind in found]
    best = max(looked_up, key=lambda kind: median(one["a_second"] for one in measured[kind]))
    for kind in found:
        rates = ratio("a_second", measured[kind], base)
        show(kind, measured[kind], rates=rates, CPU=ratio("cpu_ms", base, measured[kind]))
        if kind in looked_up and not suffix:
            figures.measured(f"S1, {kind}", ratio("a_second", measured[kind], measured[best]))
    figures.measured(f"S1{suffix}", ratio("a_second", signed, base))
    if not suffix:
        figures.measured("CPU, full", column("cpu_ms", signed))
        figures.measured("CPU, bare", column("cpu_ms", base))
    return median(one["a_second"] for one in signed)


def open_loop(
    found: Mapping[str, Target], rounds: int, seconds: float, rate: float, suffix: str
) -> None:
    print(f"open loop, {rate:,.0f} a second offered", flush=True)
    hits = [
        (found["bare"].hit(seconds, rate), found["email"].hit(seconds, rate)) for _ in range(rounds)
    ]
    bare_hits, signed_hits = [base for base, _ in hits], [one for _, one in hits]
    show("bare", bare_hits)
    ratios = tails(signed_hits, bare_hits)
    show("email", signed_hits, p99=ratios)
    figures.measured(f"S2{suffix}", ratios)


def tails(signed: Measured, bare: Measured) -> list[float | None]:
    """Each round's p99 ÷ the median of the bare route's. By the round's own, one in which the bare
    route stalled would be a very good one."""
    usual = [one["p99_ms"] for one in bare if valid(one)]
    return [one["p99_ms"] / median(usual) if usual and valid(one) else None for one in signed]


def few(signed: Target, rounds: int, seconds: float) -> None:
    """Measure events that hardly share a batch: their cost, and the time of an answer."""
    measured = {rate: [signed.hit(seconds, rate) for _ in range(rounds)] for rate in FEW}
    for rate, hits in measured.items():
        show(f"{rate} offered", hits)
        figures.measured(f"S2, {rate} a second", column("p50_ms", hits))
    figures.measured("CPU, alone", column("cpu_ms", measured[FEW[0]]))


def load_curve(signed: Target, most: float, seconds: float) -> None:
    """Measure how long an answer takes as more is offered."""
    offered = [most * share for share in OFFERED]
    measured = [signed.hit(seconds, rate) for rate in offered]
    for rate, one in zip(offered, measured, strict=True):
        show(f"{rate:,.0f} offered", [one])
    shown = [(rate, one) for rate, one in zip(offered, measured, strict=True) if valid(one)]
    for of in ("p50", "p99"):
        x, y = [rate for rate, _ in shown], [one[f"{of}_ms"] for _, one in shown]
        figures.curve(of, "intake", x, y)


def bare_server(deployment: Deployment, port: int) -> Part:
    environ = {**deployment.environ, "PORT": str(port)}
    part = Part("bare", environ, deployment.directory, module="lab.bench.intake")
    deployment.parts.append(part)
    until(partial(answers, f"http://127.0.0.1:{port}/readyz"), "the bare route is ready", part)
    return part


def main(rounds: int, seconds: float, kinds: Collection[str], processes: Sequence[int]) -> None:
    postgres = servers.postgres_server(durable=True)
    assert isinstance(postgres, servers.PostgresServer), "its statements are counted"
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    for web_processes in processes:
        database_url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        urls = {"database_url": database_url, "redis_url": redis.url}
        more = kinds if web_processes == 1 else ()
        measure(web_processes, rounds, seconds, {"email", *more}, urls, postgres)
    redis.remove()
    postgres.remove()


if __name__ == "__main__":
    if sys.argv[1:] == ["bare"]:
        sys.exit(serve_bare())
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int, nargs="?", default=ROUNDS)
    parser.add_argument("seconds", type=float, nargs="?", default=SECONDS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    main(given.rounds, given.seconds, given.kinds, given.processes)
