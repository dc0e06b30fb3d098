"""Workers killed while dates and schedules come, and contacts enter and leave segments, some of
them again and again: each occasion starts one run, or is missed once.

python -m lab.chaos.occasions [contacts] [seconds] [seed]: one web and three worker processes, in
production. A date of every contact and a time of a schedule for all of them come at one moment, for
two flows each, and at the same moment all leave a segment, whose job finds it out; the runs give
each a tag, by which it enters another segment; those of the date also give one in ten contacts a
further tag and take it away, time and again. From then on, every so many seconds, a worker is
killed with -9 and started again until all runs have ended. Two flows stay ACTIVE, and are given
another `graceWindow` meanwhile; two are paused while their runs are being started, resumed, and
given another date or rule; those of the segments stay as they are. Ends with 1 when an occasion
started no run or two, or of a flow that was paused neither a run nor a record that it was missed;
when a contact entered or left a segment more often than that started runs, or less often; when a
run neither came to its end nor was set aside because five of its workers were killed; or when a
segment by a tag is not what a fresh look finds.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import httpx2

from app.audience.segment_jobs import CHUNK
from lab.chaos import killing
from lab.chaos.killing import Workers
from tests.deployment import Deployment, MailServer, in_chunks, made, owner_of, until

CONTACTS = 10_000
KILL_EVERY = 2.0
WORKERS = 3
LEASE_SECONDS = "1"  # so that another goes on soon
LEAD = timedelta(seconds=15)  # from the activation to the occasions
CHANGE_EVERY = 0.5  # seconds, of the flows
CHUNKS = 50  # in which contacts are looked at: pauses and kills come between two of them
AFTERWARDS_SECONDS = 3.0  # in which somebody who is late would start a second run
PATIENCE_SECONDS = 1_800.0
TAGGED = {"path": "contact.tags", "op": "contains"}
RENEWED = {"path": "contact.metadata.renewsAt", "op": "within_last"}
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
# A run that was in the hands of five killed workers in a row is set aside, and says so.
SET_ASIDE = ("FAILED", "poisoned")
STEPS = [{"id": "been", "type": "add_tag", "tag": "been"}]
RETURNING = 10  # one in so many contacts enters a segment again and again,
ENTRIES = 3  # by these steps, with a while after each
WHILE = {"type": "wait", "duration": "PT1S"}
COMES, GOES = {"type": "add_tag", "tag": "here"}, {"type": "remove_tag", "tag": "here"}
COMING_AND_GOING = [COMES, *[WHILE, GOES, WHILE, COMES] * (ENTRIES - 1)]
MAY_RETURN = {
    "type": "branch",
    "cases": [{"when": {**TAGGED, "value": "returns"}, "steps": COMING_AND_GOING}],
}
KEPT = ("date", "schedule")  # flows that nobody pauses,
MOVED = ("segment_entered", "segment_left")  # nor changes
AGAIN = " again"  # the end of the names of those that start for these each time,
PAUSED = "paused "  # and the others' names
# How each flow is changed, one after another, once its runs are being started.
AWAY = {"date": {"offset": "P300D"}, "schedule": {"rrule": "FREQ=YEARLY;BYMONTH=6;BYMONTHDAY=1"}}
CHANGES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    **{source: [{"trigger": {"graceWindow": "P2D"}}] for source in KEPT},
    **dict.fromkeys((*MOVED, *(source + AGAIN for source in MOVED)), ()),
    **{
        PAUSED + source: [{"state": "PAUSED"}, {"state": "ACTIVE"}, {"trigger": AWAY[source]}]
        for source in KEPT
    },
}


@dataclass(frozen=True, slots=True)
class StartedRun:
    definition_id: str
    contact_id: str
    at: str  # its occasion
    status: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Missed:
    definition_id: str
    contact_id: str
    reason: str


STARTED = """
    SELECT definition_id, contact_id, convert_from(body, 'UTF8')::jsonb ->> 'at' AS at, status,
           reason_code AS reason
    FROM runs
    """
MISSED = "SELECT definition_id, contact_id, reason FROM missed_occasions"
# Members of the segment of those who have a tag, and who has it; never the same in both.
ASTRAY = """
    SELECT COALESCE(m.contact_id, t.contact_id) AS id
    FROM (SELECT contact_id FROM segment_members WHERE segment_id = $1 AND member) m
    FULL JOIN (SELECT contact_id FROM contact_tags WHERE tag = $2) t USING (contact_id)
    WHERE m.contact_id IS NULL OR t.contact_id IS NULL
    """
MEMBERS = "SELECT contact_id FROM segment_members WHERE segment_id = $1 AND member"
# How the steps of runs have moved each contact: each found the tag as the one before it left it,
# for nothing else touches that.
MOVES = """
    SELECT r.contact_id,
           array_agg(CASE s.kind WHEN 'add_tag' THEN 'entered' ELSE 'left' END
                     ORDER BY s.started_at, s.position)
    FROM runs r JOIN run_steps s ON s.workspace_id = r.workspace_id AND s.run_id = r.id
    WHERE s.kind IN ('add_tag', 'remove_tag') AND s.node_id <> 'been'
    GROUP BY r.contact_id
    """


# Segments and watches that have ended five workers in a row: nothing is done for these any more.
GIVEN_UP = """
    SELECT COALESCE(d.name, s.name) AS name FROM segments s
    LEFT JOIN definitions d ON d.workspace_id = s.workspace_id AND d.id = s.definition_id
    WHERE s.reason_code IS NOT NULL
    """


@dataclass(frozen=True, slots=True)
class Evidence:
    runs: Sequence[StartedRun]
    missed: Sequence[Missed]

    @property
    def has_ended(self) -> bool:
        return all(run.status in ENDED for run in self.runs)


async def seen(url: str) -> Evidence:
    connection = await asyncpg.connect(url)
    async with connection.transaction(isolation="repeatable_read"):
        runs, missed = await connection.fetch(STARTED), await connection.fetch(MISSED)
    await connection.close()
    return Evidence(
        [StartedRun(**dict(row)) for row in runs], [Missed(**dict(row)) for row in missed]
    )


ENTERED, LEFT = "entered", "left"  # a segment
# By contact, in the order of time.
Moves: TypeAlias = Mapping[str, Sequence[str]]


async def moves_of(url: str) -> Moves:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(MOVES)
    await connection.close()
    return dict(map(tuple, rows))


async def column(url: str, sql: str, *values: str) -> list[str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(sql, *values)
    await connection.close()
    return [row[0] for row in rows]


def judge(evidence: Evidence, contacts: Collection[str], flows: Mapping[str, str]) -> list[str]:
    """The faults. `flows` are the names of the definitions, by their ids."""
    runs = Counter((run.definition_id, run.contact_id) for run in evidence.runs)
    missed = Counter((one.definition_id, one.contact_id) for one in evidence.missed)
    faults = [
        f"{name} started {runs[id, contact]} runs for {contact}"
        + (f", and it missed {missed[id, contact]}" if missed[id, contact] else "")
        for id, name in flows.items()
        if not name.endswith(AGAIN)
        for contact in contacts
        if runs[id, contact] + missed[id, contact] != 1
        or (missed[id, contact] and not name.startswith(PAUSED))
    ]
    timed = [run for run in evidence.runs if flows[run.definition_id].removeprefix(PAUSED) in KEPT]
    faults += [f"{at} was the occasion of {n}" for at, n in _others(timed).items()]
    faults += [
        f"{flows[run.definition_id]} is {run.status} for {run.contact_id}"
        for run in evidence.runs
        if run.status != "COMPLETED" and (run.status, run.reason) != SET_ASIDE
    ]
    return faults


def judge_moves(
    runs: Sequence[StartedRun],
    moves: Moves,
    members: Collection[str],
    flows: Mapping[str, str],
) -> list[str]:
    """The faults of what started runs each time. `members` are who is in the segment by now."""
    started = started_by_moves(runs, flows)
    faults = []
    for id in sorted(started.keys() | moves.keys() | set(members)):
        did, ran = list(moves.get(id, ())), started.get(id, [])
        is_in = id in members
        if ran != did or (ran[-1:] == [ENTERED]) != is_in:
            faults.append(
                f"{id} {', '.join(did) or 'never moved'}, is {'in' if is_in else 'out'}, and the"
                f" runs started are: {', '.join(ran) or 'none'}"
            )
    if not any(did.count(ENTERED) > 1 for did in moves.values()):
        faults.append("nobody has entered a segment again")
    return faults


def started_by_moves(runs: Sequence[StartedRun], flows: Mapping[str, str]) -> dict[str, list[str]]:
    """The moves of each contact that have started a run each time, in the order of time."""
    found: dict[str, list[str]] = {}
    each_time = [run for run in runs if flows[run.definition_id].endswith(AGAIN)]
    for run in sorted(each_time, key=lambda run: run.at):
        move = ENTERED if flows[run.definition_id].startswith(MOVED[0]) else LEFT
        found.setdefault(run.contact_id, []).append(move)
    return found


def _others(runs: Sequence[StartedRun]) -> dict[str, int]:
    """The occasions but for that of most runs: there is one of all dates and schedules."""
    occasions = Counter(run.at for run in runs)
    return dict(occasions.most_common()[1:])


# --- the drill ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found(killing.Found):
    runs: int = 0
    missed: int = 0
    under_way: int = 0  # kills while some occasions had started their run, and others not
    returning: int = 0  # kills while some had entered a segment again, and others had still to
    entries: int = 0  # of those who come and go
    exits: int = 0
    set_aside: int = 0

    def __str__(self) -> str:
        return (
            f"{self.under_way} while runs were being started, {self.returning} while some contacts"
            f" had entered a segment again, and others not yet; {self.runs:,} runs,"
            f" {self.entries:,} and {self.exits:,} of them by entries and exits of these,"
            f" {self.missed:,} occasions missed by pauses; {self.set_aside} runs set aside"
        )


@dataclass(slots=True)
class Drill:
    """The occasions under way, the workers that look for them, and what is done to the flows."""

    workers: Workers
    client: httpx2.Client
    url: str
    flows: Mapping[str, str]
    expected: int  # runs that start once, or are missed
    returning: int  # contacts that enter a segment again, if no run is set aside
    found: Found = field(default_factory=Found)
    done: Counter[str] = field(default_factory=Counter)  # changes, by flow

    def run(self, kill_every: float) -> None:
        """Kill until all have ended, each time once something was done since."""
        began = kill_at = change_at = time.monotonic()
        before = None
        while True:
            evidence = asyncio.run(seen(self.url))
            moves = started_by_moves(evidence.runs, self.flows).values()
            so_far = len(evidence.runs) - sum(map(len, moves)) + len(evidence.missed)
            has_come = so_far >= self.expected and evidence.has_ended
            if has_come and self.done.total() == sum(map(len, CHANGES.values())):
                break
            now = time.monotonic()
            if now - began > PATIENCE_SECONDS:
                self.found.faults.append(f"not after {PATIENCE_SECONDS:.0f} s: {so_far}")
                break
            if now >= change_at and self.change(evidence):
                change_at = now + CHANGE_EVERY
            ended = sum(run.status in ENDED for run in evidence.runs)
            again = sum(did.count(ENTERED) > 1 for did in moves)
            is_returning = 0 < again < self.returning
            is_first = is_returning and not self.found.returning  # on a fast machine it is short
            if (now >= kill_at or is_first) and (so_far, ended) != before:
                self.workers.kill_one()
                self.found.kills += 1
                self.found.under_way += 0 < so_far < self.expected
                self.found.returning += is_returning
                kill_at, before = now + kill_every, (so_far, ended)
            time.sleep(0.05)
        self.found.seconds = time.monotonic() - began

    def change(self, evidence: Evidence) -> bool:
        """Make the next change of each flow whose runs are being started, or have been; whether
        there was one."""
        before = self.done.total()
        begun = {run.definition_id for run in evidence.runs}
        for id, name in self.flows.items():
            if id in begun and self.done[id] < len(CHANGES[name]):
                change = CHANGES[name][self.done[id]]
                answer = self.client.patch(f"/workflows/{id}", json=change, timeout=60)
                # 503: a killed worker's transaction held it for too long; nothing was changed.
                assert answer.status_code in (200, 503), answer.text
                self.done[id] += answer.status_code == 200
        return self.done.total() > before


def drill(
    directory: Path,
    urls: Mapping[str, str],
    contacts: int,
    kill_every: float,
    seed: int,
    **more: str,
) -> Found:
    with (
        MailServer(directory) as mail,
        Deployment(
            directory, **urls, smtp_url=mail.url, **{"LEASE_SECONDS": LEASE_SECONDS, **more}
        ) as deployment,
    ):
        deployment.program = partial(in_chunks, min(CHUNK, max(1, contacts // CHUNKS)))
        deployment.web()
        workers = Workers(deployment, random.Random(seed), WORKERS)
        workers.start()
        with owner_of(deployment, "Acme") as client:
            since = datetime.now(UTC).replace(microsecond=0)
            people = _people(client, contacts, since)
            segment_id = _filled(client, {**TAGGED, "value": "vip"}, contacts)
            by_tag = {tag: _filled(client, {**TAGGED, "value": tag}, 0) for tag in ("been", "here")}
            when = (datetime.now(UTC) + LEAD).replace(microsecond=0)
            ahead = f"PT{int((when - since).total_seconds())}S"
            recent = _filled(client, {**RENEWED, "value": ahead}, contacts)
            segments = {
                "schedule": segment_id,
                "segment_entered": by_tag["been"],
                "segment_left": recent,
                **{source + AGAIN: by_tag["here"] for source in MOVED},
            }
            flows = _activated(client, segments, ahead, when)
            left = (when - datetime.now(UTC)).total_seconds()
            assert left > 0, f"all was ready {-left:.1f} s too late"
            time.sleep(left)
            url, expected = urls["database_url"], (len(flows) - len(MOVED)) * contacts
            returning = -(-contacts // RETURNING)
            under_way = Drill(workers, client, url, flows, expected, returning)
            under_way.run(kill_every)
            time.sleep(AFTERWARDS_SECONDS)
            return _judged(under_way.found, url, people, flows, by_tag)


def _judged(
    found: Found,
    url: str,
    people: Collection[str],
    flows: Mapping[str, str],
    by_tag: Mapping[str, str],
) -> Found:
    """`by_tag` are the segments of those who have a tag."""
    evidence = asyncio.run(seen(url))
    found.runs, found.missed = len(evidence.runs), len(evidence.missed)
    found.set_aside = sum((run.status, run.reason) == SET_ASIDE for run in evidence.runs)
    found.faults += [f"{name} was given up" for name in asyncio.run(column(url, GIVEN_UP))]
    found.faults += judge(evidence, people, flows)
    found.faults += [
        f"{id} is wrongly in or out of the segment"
        for tag, segment_id in by_tag.items()
        for id in asyncio.run(column(url, ASTRAY, segment_id, tag))
    ]
    moves, members = asyncio.run(moves_of(url)), asyncio.run(column(url, MEMBERS, by_tag["here"]))
    found.entries, found.exits = (
        sum(did.count(move) for did in moves.values()) for move in (ENTERED, LEFT)
    )
    found.faults += judge_moves(evidence.runs, moves, members, flows)
    return found


def _people(client: httpx2.Client, contacts: int, since: datetime) -> list[str]:
    """The ids of contacts with a date of that time."""
    tags = ("vip;returns", *["vip"] * (RETURNING - 1))
    lines = "".join(
        f"p{n}@x.test,{tags[n % RETURNING]},{since.isoformat()}\n" for n in range(contacts)
    )
    imported = client.post(
        "/contacts/import",
        content=f"email,tags,metadata.renewsAt\n{lines}",
        headers={"Content-Type": "text/csv"},
        timeout=None,
    )
    assert imported.status_code == 200, imported.text
    rows = client.get("/contacts/export?format=ndjson", timeout=None).text.splitlines()
    return [json.loads(row)["id"] for row in rows]


def _filled(client: httpx2.Client, filter: Mapping[str, Any], contacts: int) -> str:
    """The segment, in which there are so many."""
    id = str(made(client, "/segments", {"name": "S", "filter": filter})["id"])
    until(
        lambda: client.get(f"/segments/{id}").json()["count"] == contacts,
        "the segment is filled",
        seconds=120,
        every=0.2,
    )
    return id


def _activated(
    client: httpx2.Client, segments: Mapping[str, str], ahead: str, when: datetime
) -> dict[str, str]:
    """Flows by the date, by a schedule whose time is the same, and by segments; id → name."""
    given: Mapping[str, Mapping[str, Any]] = {
        "date": {"field": "metadata.renewsAt", "offset": ahead},
        "schedule": {"rrule": f"FREQ=HOURLY;BYMINUTE={when.minute};BYSECOND={when.second}"},
    }
    flows = {}
    for name in CHANGES:
        source = name.removeprefix(PAUSED).removesuffix(AGAIN)
        segment_id = segments.get(name, segments.get(source))
        named = {"segmentId": segment_id} if segment_id else {}
        trigger = {"source": source, **given.get(source, {}), **named}
        steps = [*STEPS, MAY_RETURN] if name == "date" else STEPS
        body = {"name": name, "state": "ACTIVE", "trigger": trigger, "steps": steps}
        flows[str(made(client, "/workflows", body)["id"])] = name
    return flows


if __name__ == "__main__":
    sys.exit(killing.main(drill, CONTACTS, KILL_EVERY))
