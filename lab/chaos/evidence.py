"""All that is known once nothing is due any more: what senders and receivers wrote down, what
struck, who died of it, and the rows.

The mail server writes to disk before it answers. What the senders know, and the receivers of HTTP,
is kept in the memory of this process: no fault strikes it, and if it were lost the oracle, which is
in it too, would be lost as well.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from app.store.jobs import KINDS
from lab.chaos.probes import Probed
from lab.chaos.senders import Sent
from lab.chaos.stage import Death, Interrupted, Stage
from lab.chaos.subscriber import ReceivedEvent
from tests.listener import Asked
from tests.receivers import Received

Row: TypeAlias = Mapping[str, Any]

RUN_HEADER = "x-run"  # of a call, by which it is known whatever became of its body
RUN_LINE = re.compile(rb"^%b: (\S+)\r$" % RUN_HEADER.encode(), re.IGNORECASE | re.MULTILINE)


@dataclass(slots=True)
class Struck:
    """One fault. `hits`: how many connections it cut; of all other kinds, one."""

    name: str
    began: float
    ended: float
    broke: str | None = None  # what it could not do, or did not find as it should be
    hits: int = 1


@dataclass(frozen=True, slots=True)
class Called:
    """A request of an `http_request` step, as its receiver has it."""

    run_id: str | None
    key: str | None

    @classmethod
    def of(cls, asked: Asked) -> Called:
        return cls(asked.header(RUN_HEADER), asked.header("idempotency-key"))


def cut_calls(requests: Sequence[bytes]) -> Iterator[str]:
    """The run of each call whose connection a fault has cut, before or after it arrived."""
    for request in requests:
        if line := RUN_LINE.search(request):
            yield line[1].decode()


@dataclass(slots=True)
class Evidence:
    """`planned`: how many faults were to strike."""

    ledger: Sequence[Sent]
    paths: Mapping[str, Sequence[str]]  # of node ids, by flow
    definitions: Mapping[str, str]  # flow by id
    planned: int
    faults: Sequence[Struck]
    deaths: Sequence[Death]
    interrupted: Sequence[Interrupted]
    booting: Mapping[int, Sequence[tuple[float, float]]]  # from a start until it is ready, by port
    ports: Mapping[str, int]  # of the web processes
    probed: Probed
    runs: list[Row]
    steps: list[Row]
    attempts: list[Row]
    contacts: list[Row]
    usage: Mapping[tuple[str, str], int]  # what is counted, by workspace and meter
    mails: Sequence[Received]
    calls: Sequence[Called]
    cut_calls: Sequence[str]  # runs
    received: list[ReceivedEvent]
    subscribed_at: datetime
    event_attempts: list[Row]
    changes: Mapping[str, str]  # what was changed by a request that was answered 2xx, by its id
    audited: set[str]  # request ids in the audit trail
    trails: list[str]  # of audit entries, that are not whole
    astray: list[str]  # rows without the job that they should have, and jobs without such a row
    tracebacks: list[str]
    promise: int | None = None  # that the campaign is about
    figures: dict[str, object] = field(default_factory=dict)

    def runs_by_event(self) -> dict[bytes, list[Row]]:
        """The runs of the flows; the probes have some of their own."""
        found: dict[bytes, list[Row]] = {}
        for row in self.runs:
            if row["definition_id"] in self.definitions:
                found.setdefault(bytes(row["body"]), []).append(row)
        return found


async def gathered(
    stage: Stage,
    ledger: Sequence[Sent],
    flows: Mapping[str, tuple[str, Sequence[str]]],
    faults: Sequence[Struck],
    planned: int,
    probed: Probed,
) -> Evidence:
    """`flows`: the definition's id and the ids of its nodes, by name."""
    async with stage.database() as db:

        async def rows(sql: str) -> list[Row]:
            return [dict(row) for row in await db.fetch(sql)]

        return Evidence(
            ledger=ledger,
            paths={name: nodes for name, (_, nodes) in flows.items()},
            definitions={made: name for name, (made, _) in flows.items()},
            planned=planned,
            faults=faults,
            deaths=stage.deaths,
            interrupted=await asyncio.gather(*stage.bereft),
            booting={
                port: [(one.at, one.ready_at) for one in stage.starts if one.name == name]
                for name, port in stage.ports.items()
            },
            ports=stage.ports,
            probed=probed,
            runs=await rows("SELECT * FROM runs ORDER BY id"),
            steps=await rows("SELECT * FROM run_steps ORDER BY run_id, position"),
            attempts=await rows(
                "SELECT a.*, m.run_id, m.node_id, m.account_mail, m.status AS of_message"
                " FROM delivery_attempts a"
                " JOIN messages m ON m.workspace_id = a.workspace_id AND m.id = a.message_id"
            ),
            contacts=await rows(
                "SELECT c.workspace_id, c.id, c.email, c.last_name, c.created_at,"
                " ARRAY(SELECT t.tag FROM contact_tags t"
                "       WHERE t.workspace_id = c.workspace_id AND t.contact_id = c.id) AS tags"
                " FROM contacts c"
            ),
            usage={
                (row["workspace_id"], row["meter"]): row["amount"]
                for row in await rows(
                    "SELECT workspace_id, meter, sum(amount) AS amount FROM ("
                    "  SELECT workspace_id, meter, amount FROM usage_totals UNION ALL"
                    "  SELECT workspace_id, meter, amount FROM usage_changes) AS used"
                    " GROUP BY workspace_id, meter"
                )
            },
            mails=stage.mail.received,
            calls=[Called.of(asked) for asked in stage.listener.asked],
            cut_calls=list(cut_calls(stage.proxies["HTTP"].cut)),
            received=stage.subscriber.received,
            subscribed_at=await db.fetchval("SELECT created_at FROM event_endpoints"),
            event_attempts=await rows("SELECT * FROM event_attempts"),
            changes=stage.changes,
            audited={row["request_id"] for row in await rows("SELECT request_id FROM audit_logs")},
            trails=await stage.broken_trails(),
            astray=[row["told"] for row in await rows(ASTRAY)] + logged(stage, SWEPT),
            tracebacks=logged(stage, ("Traceback",)),
        )


# What the sweep mended, so that nothing is astray any more: its job was never committed.
SWEPT = ("a row had no job", "a job had no row")


def logged(stage: Stage, signs: Sequence[str]) -> list[str]:
    """The log lines of all processes with one of these."""
    return [
        f"{start.log.name}: {line}"
        for start in stage.starts
        for line in start.log.read_text().splitlines()
        if any(sign in line for sign in signs)
    ]


ASTRAY = " UNION ALL ".join(
    f"""
    SELECT '{work.table} ' || t.id || ' should be worked on, and has no job' AS told
    FROM {work.table} t
    LEFT JOIN jobs j ON j.workspace_id = t.workspace_id AND j.kind = '{kind}' AND j.id = t.id
    WHERE {work.open} AND {work.owed} AND j.id IS NULL
    UNION ALL
    SELECT 'the job of ' || j.kind || ' ' || j.id || ' has nothing to be worked on'
    FROM jobs j
    LEFT JOIN {work.table} t ON t.workspace_id = j.workspace_id AND t.id = j.id AND {work.open}
    WHERE j.kind = '{kind}' AND t.id IS NULL
    """
    for kind, work in KINDS.items()
)
KEPT = (
    "ledger",
    "faults",
    "deaths",
    "interrupted",
    "calls",
    "runs",
    "steps",
    "attempts",
    "contacts",
    "received",
    "event_attempts",
)


def keep(evidence: Evidence, directory: Path) -> None:
    """Keep it as JSON lines, for whoever looks into a finding: the database is gone by then."""
    directory.mkdir()
    for name in KEPT:
        with (directory / f"{name}.jsonl").open("wb") as file:
            for item in getattr(evidence, name):
                file.write(orjson.dumps(item, default=_text, option=orjson.OPT_APPEND_NEWLINE))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
