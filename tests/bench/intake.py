"""How near the intake comes to a route that does nothing, on the same server.

python -m tests.bench.intake [rounds] [seconds]: web processes of their own on a PostgreSQL that
commits to disk and a real Redis, the limit on. The kinds of load take turns, and ratios are taken
within a round, for machines drift. CPU is that of the web processes alone.
"""

from __future__ import annotations

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
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.config import Settings
from app.web import server
from tests import servers
from tests.bench import load
from tests.conftest import SCHEMA
from tests.deployment import ROOT, Deployment, Part, answers, made, owner_of, until
from tests.servers import free_port

ROUNDS = 5
SECONDS = 5.0
SHARE = 0.6  # of the intake's maximum, offered in the open loop
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
    return server.launch(
        settings,
        lambda listener, stop: server.serve(app, settings, stop, listener=listener),
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
        command = [sys.executable, "-m", "tests.bench.load", str(self.port), self.path]
        line = subprocess.check_output(
            [*command, str(seconds), *self.options, *offered], cwd=ROOT, text=True
        )
        measured: dict[str, Any] = json.loads(line)
        assert not measured["refused"], measured
        spent = cpu_seconds(self.part.process.pid) - before
        return {**measured, "cpu_ms": spent * 1000 / max(measured["answered"], 1)}


def cpu_seconds(pid: int) -> float:
    """Of the process and those it has forked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
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


def show(what: str, measured: Sequence[Mapping[str, float]], ratio: Sequence[float] = ()) -> None:
    of = {name: median(one[name] for one in measured) for name in measured[0]}
    line = (
        f"{what:<22}{of['a_second']:>8,.0f} a second   p50 {of['p50_ms']:>6.1f} ms"
        f"   p99 {of['p99_ms']:>6.1f} ms   {of['cpu_ms']:.3f} CPU-ms"
        f"   generator idle {of['idle']:.0%}"
    )
    if ratio:
        line += f"   ratio {median(ratio):.2f} ({min(ratio):.2f}–{max(ratio):.2f})"
    print(line, flush=True)


def measure(web_processes: int, rounds: int, seconds: float, urls: Mapping[str, str]) -> None:
    print(f"\n{web_processes} web process{'es' * (web_processes > 1)}, closed loop", flush=True)
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
        measured: dict[str, list[Mapping[str, float]]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind in KINDS:
                measured[kind].append(found[kind].hit(seconds))
        for kind in KINDS:
            pairs = zip(measured[kind], measured["bare"], strict=True)
            show(
                kind,
                measured[kind],
                [one["a_second"] / base["a_second"] for one, base in pairs],
            )
        rate = SHARE * median(one["a_second"] for one in measured["signed"])
        print(f"open loop, {rate:,.0f} a second offered", flush=True)
        hits = [
            (found["bare"].hit(seconds, rate), found["signed"].hit(seconds, rate))
            for _ in range(rounds)
        ]
        show("bare", [base for base, _ in hits])
        show(
            "signed",
            [one for _, one in hits],
            [one["p99_ms"] / base["p99_ms"] for base, one in hits],
        )


def bare_server(deployment: Deployment, port: int) -> Part:
    environ = {**deployment.environ, "PORT": str(port)}
    part = Part("bare", environ, deployment.directory, module="tests.bench.intake")
    deployment.parts.append(part)
    until(partial(answers, f"http://127.0.0.1:{port}/readyz"), "the bare route is ready", part)
    return part


def main(rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    for web_processes in (1, 2):
        database_url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        measure(
            web_processes, rounds, seconds, {"database_url": database_url, "redis_url": redis.url}
        )
    redis.remove()
    postgres.remove()


if __name__ == "__main__":
    if sys.argv[1:] == ["bare"]:
        sys.exit(serve_bare())
    given = sys.argv[1:]
    main(*(int(text) for text in given[:1]), *(float(text) for text in given[1:2]))
