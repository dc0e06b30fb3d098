"""Benchmark: the intake beside a route that does nothing, on the same server.

python -m lab.bench.intake [rounds] [seconds] [--kinds K …] [--processes N …]: web processes of
their own on a PostgreSQL that commits to disk and a real Redis, the limit on. The kinds of load
take turns, and ratios are taken within a round, for machines drift. CPU is that of the web
processes alone; where others want the cores too, its ratio says more than that of the rates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.config.settings import Settings
from app.runtime import processes
from app.web import server
from lab.bench import figures, load
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import ROOT, Deployment, Part, answers, made, owner_of, until
from tests.servers import free_port

ROUNDS = 5
SECONDS = 5.0
WARMING_SECONDS = 1.0
SHARE = 0.6  # of the intake's maximum, offered in the open loop
OFFERED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # shares of it that make a curve
SECRET = "a secret of good length for the bench"
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = ("bare", "unsigned", "signed", "create")


# --- the route that does nothing ------------------------------------------------------------------


async def bare(request: Request) -> Response:
    await request.body()
    return Response(b'{"runId":"run_0","contactId":"con_0"}', 202, media_type="application/json")


def serve_bare() -> int:
    settings = Settings.from_environ(dict(os.environ))
    app = Starlette(routes=[Route("/", bare, methods=["POST"]), Route("/readyz", ready)])
    return processes.launch(
        lambda listener, stop: server.serve(app, settings, stop, listener=listener),
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

    def hit(self, seconds: float, rate: float | None = None) -> Mapping[str, float]:
        before = cpu_seconds(self.part.process.pid)
        offered = [] if rate is None else ["--rate", str(rate)]
        command = [sys.executable, "-m", "lab.bench.load", str(self.port), self.path]
        line = subprocess.check_output(
            [*command, str(seconds), *self.options, *offered], cwd=ROOT, text=True
        )
        measured: dict[str, Any] = json.loads(line)
        assert not measured["refused"], measured
        spent = cpu_seconds(self.part.process.pid) - before
        return {**measured, "cpu_ms": spent * 1000 / max(measured["answered"], 1)}


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


def hook(client: httpx2.Client, *, create: bool, secret: str | None) -> str:
    trigger = {
        "source": "inbound_webhook",
        "contactLookup": "email",
        "contactPath": "data.object.customer_email",
        "createContact": create,
        "signingSecret": secret,
    }
    workflow = made(
        client, "/workflows", {"name": "Bench", "state": "ACTIVE", "trigger": trigger, "steps": []}
    )
    return str(workflow["trigger"]["webhookUrl"]).removeprefix(str(client.base_url).rstrip("/"))


def targets(deployment: Deployment, bare_port: int, bare_part: Part) -> dict[str, Target]:
    part = deployment.web()
    with owner_of(deployment, "Acme") as client:
        contacts = "email\n" + "\n".join(load.email(n) for n in range(load.KNOWN))
        response = client.post(
            "/contacts/import", content=contacts, headers={"Content-Type": "text/csv"}
        )
        assert response.status_code == 200, response.text
        unsigned = hook(client, create=False, secret=None)
        signed = hook(client, create=False, secret=SECRET)
        create = hook(client, create=True, secret=None)
    port = deployment.port
    return {
        "bare": Target(bare_port, "/", bare_part),
        "unsigned": Target(port, unsigned, part),
        "signed": Target(port, signed, part, ["--secret", SECRET]),
        "create": Target(port, create, part, ["--new"]),
    }


# --- the report -----------------------------------------------------------------------------------


Measured: TypeAlias = Sequence[Mapping[str, float]]


def show(what: str, measured: Measured, **ratios: Sequence[float]) -> None:
    of = {name: median(one[name] for one in measured) for name in measured[0]}
    line = (
        f"{what:<22}{of['a_second']:>8,.0f} a second   p50 {of['p50_ms']:>6.1f} ms"
        f"   p99 {of['p99_ms']:>6.1f} ms   {of['cpu_ms']:.3f} CPU-ms"
        f"   generator idle {of['idle']:.0%}"
    )
    for name, ratio in ratios.items():
        line += f"   ratio of {name} {median(ratio):.2f} ({min(ratio):.2f}–{max(ratio):.2f})"
    print(line, flush=True)


def ratio(name: str, measured: Measured, base: Measured) -> list[float]:
    """The ratio of each round."""
    return [one[name] / other[name] for one, other in zip(measured, base, strict=True)]


def measure(
    web_processes: int,
    rounds: int,
    seconds: float,
    kinds: Sequence[str],
    urls: Mapping[str, str],
) -> None:
    processes = {1: "one process", 2: "two processes"}[web_processes]
    print(f"\nweb, {processes}, closed loop", flush=True)
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
        bare_part = bare_server(deployment, bare_port)
        found = targets(deployment, bare_port, bare_part)
        measured: dict[str, list[Mapping[str, float]]] = {kind: [] for kind in kinds}
        for kind in kinds:
            found[kind].hit(WARMING_SECONDS)
        for _ in range(rounds):
            for kind in kinds:
                measured[kind].append(found[kind].hit(seconds))
        base = measured["bare"]
        for kind in kinds:
            rates = ratio("a_second", measured[kind], base)
            show(kind, measured[kind], rates=rates, CPU=ratio("cpu_ms", base, measured[kind]))
            if kind == "signed":
                figures.measured(f"S1, {processes}", median(rates))
        rate = SHARE * median(one["a_second"] for one in measured["signed"])
        print(f"open loop, {rate:,.0f} a second offered", flush=True)
        hits = [
            (found["bare"].hit(seconds, rate), found["signed"].hit(seconds, rate))
            for _ in range(rounds)
        ]
        bare_hits, signed_hits = [base for base, _ in hits], [one for _, one in hits]
        show("bare", bare_hits)
        tails = ratio("p99_ms", signed_hits, bare_hits)
        show("signed", signed_hits, p99=tails)
        figures.measured(f"S2, {processes}", median(tails))
        if web_processes == 1:
            load_curve(found["signed"], rate / SHARE, seconds)


def load_curve(signed: Target, most: float, seconds: float) -> None:
    """How long an answer takes as more is offered."""
    offered = [most * share for share in OFFERED]
    measured = [signed.hit(seconds, rate) for rate in offered]
    for rate, one in zip(offered, measured, strict=True):
        show(f"{rate:,.0f} offered", [one])
    for of in ("p50", "p99"):
        figures.curve(of, "intake", offered, [one[f"{of}_ms"] for one in measured])


def bare_server(deployment: Deployment, port: int) -> Part:
    environ = {**deployment.environ, "PORT": str(port)}
    part = Part("bare", environ, deployment.directory, module="lab.bench.intake")
    deployment.parts.append(part)
    until(partial(answers, f"http://127.0.0.1:{port}/readyz"), "the bare route is ready", part)
    return part


def main(rounds: int, seconds: float, kinds: Sequence[str], processes: Sequence[int]) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    for web_processes in processes:
        database_url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        urls = {"database_url": database_url, "redis_url": redis.url}
        measure(web_processes, rounds, seconds, kinds, urls)
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
    kinds = [kind for kind in KINDS if kind in {"bare", "signed", *given.kinds}]
    main(given.rounds, given.seconds, kinds, given.processes)
