"""Workers killed during a broadcast whose consent changes: what is recorded against what arrived.

python -m lab.chaos.broadcasts [contacts] [messages] [seed]: one web and two worker processes, in
production, send a broadcast to an SMTP receiver with a ledger. While its audience is being frozen
both workers are killed with -9 at once and started again, a few times; then one of them is, each
time so many more messages were sent or, on a slow machine, ten seconds have passed. Meanwhile
contacts opt out and are erased, and the broadcast is paused once. Ends with 1 when somebody got it
twice or was missed, when the frozen audience is not the sum of every end, when something left after
an answered opt-out, or two seconds after a pause was asked for; or when it never paused, or no
worker was killed amid the freezing or after it.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import httpx2

from app.broadcasts.audience import CHUNK
from app.store.jobs import MAX_CLAIMS
from lab.chaos import killing
from lab.chaos.killing import Workers
from tests.deployment import Deployment, MailServer, in_chunks, made, owner_of, until
from tests.receivers import Received

CONTACTS = 100_000
KILL_EVERY = 1_000  # messages: by the clock a fast machine has sent all before the second kill,
KILL_SECONDS = 9.5  # and by messages a slow one takes more than the ten seconds that are promised
WORKERS = 2
CHUNKS = 100  # in which an audience is frozen, also a small one
FREEZING_KILLS = 4  # of all workers, at the most
DOMAINS = 53
CHANGE_EVERY = 0.4  # seconds: the API takes 600 requests a minute
ERASED_SHARE = 0.2  # of the changes; the others are opt-outs
QUIET_SECONDS = 2.0  # from the moment that a pause is asked for until nothing arrives any more
AFTERWARDS_SECONDS = 2.0  # in which what arrives too late would
PATIENCE_SECONDS = 3_600.0
REPORT_EVERY = 30.0  # seconds, how far it has come
NEWS = {"subject": "Hello", "html": "<p>Hello {{contact.email}}</p>"}
# How many of it the ledger may have, by the status of the recipient.
TRUE: Mapping[str, Sequence[int]] = {"SENT": (1,), "UNKNOWN": (0, 1), "SUPPRESSED": (0,)}
# A message that was in the hands of five killed workers in a row is set aside, and says so.
SET_ASIDE = ("FAILED", "poisoned")


@dataclass(slots=True)
class Found(killing.Found):
    ends: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    erased: int = 0  # of these
    while_freezing: int = 0  # times that all workers were killed and left an audience half frozen
    while_sending: int = 0  # kills of one worker, once it was frozen
    pause: Pause | None = None

    def __str__(self) -> str:
        return (
            f"all of them {self.while_freezing} times while the audience was being frozen,"
            f" and one {self.while_sending} times after that;"
            f" {self.changes} opted out or erased meanwhile\n"
            f"{self.pause or 'never paused'}\n"
            f"ends: {dict(self.ends)}\nreasons: {dict(self.reasons)}"
        )

    def untried(self) -> list[str]:
        """The faults of the drill itself: what it was to try and has not."""
        faults = []
        if not self.while_freezing:
            faults.append("no worker was killed while the audience was being frozen")
        if not self.while_sending:
            faults.append("no worker was killed after it was frozen")
        if self.pause is None:
            faults.append("it was over before it could be paused")
        return faults


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds since it was asked for: its answer, and what arrived after that."""

    answered: float
    arrived: Sequence[float]

    def __str__(self) -> str:
        last = f", the last after {max(self.arrived):.1f} s" if self.arrived else ""
        return (
            f"paused: answered after {self.answered:.1f} s,"
            f" {len(self.arrived)} messages arrived since{last}"
        )

    def faults(self, quiet_seconds: float) -> list[str]:
        took = max([self.answered, *self.arrived])
        if took <= quiet_seconds:
            return []
        late = sum(after > quiet_seconds for after in self.arrived)
        return [f"a pause took effect after {took:.1f} s, {late} messages arrived too late"]


@dataclass(slots=True)
class Drill:
    """The broadcast under way, and what was done to it."""

    workers: Workers
    mail: MailServer
    client: httpx2.Client
    chance: random.Random
    url: str  # of the database
    path: str
    contacts: dict[str, str]  # id → address
    quiet_seconds: float
    opted_out: dict[str, float] = field(default_factory=dict)  # id → when it was answered
    erased: set[str] = field(default_factory=set)  # of these
    found: Found = field(default_factory=Found)

    def read(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.client.get(self.path, timeout=60).json()
        return shown

    def received(self) -> list[Received]:
        return [one for one in self.mail.received if one.subject == NEWS["subject"]]

    def change_one(self) -> None:
        """Somebody opts out, or is erased; nothing is to leave for them after the answer."""
        id = self.chance.choice(sorted(self.contacts.keys() - self.opted_out.keys()))
        if self.chance.random() < ERASED_SHARE:
            self.erased.add(id)
            answer = self.client.delete(f"/contacts/{id}", timeout=60)
        else:
            out = {"subscriptions": {"email": "unsubscribed"}}
            answer = self.client.patch(f"/contacts/{id}", json=out, timeout=60)
        assert answer.status_code in (200, 204), answer.text
        self.opted_out[id] = time.time()
        self.found.changes += 1

    def pause_once(self) -> None:
        asked_at = time.time()
        made(self.client, f"{self.path}/pause", None)
        answered = time.time() - asked_at
        time.sleep(self.quiet_seconds + AFTERWARDS_SECONDS)
        arrived = [one.at - asked_at for one in self.received()]
        made(self.client, f"{self.path}/resume", None)
        self.found.pause = Pause(answered, [after for after in arrived if after > answered])
        self.found.faults += self.found.pause.faults(self.quiet_seconds)

    def may_kill(self) -> bool:
        """Return whether the broadcast outlives a kill. It pauses by itself once MAX_CLAIMS workers
        in a row have died with it in hand. Somebody may claim it just now."""
        return asyncio.run(_claims(self.url)) < MAX_CLAIMS - 1

    def kill_while_freezing(self) -> None:
        """Kill all workers, for one of them has the audience in hand."""
        self.workers.kill_all()
        self.found.kills += WORKERS
        self.found.while_freezing += not self.read()["audience"]["isComplete"]
        self.workers.start()

    def run(self, kill_every: float) -> None:
        began = change_at = report_at = time.monotonic()
        kill_at, kill_by, freezing_kill_at = kill_every, began + KILL_SECONDS, 1.0
        while (shown := self.read())["state"] == "SENDING" or shown["state"] == "SCHEDULED":
            now = time.monotonic()
            assert now - began < PATIENCE_SECONDS, shown
            if now >= report_at:
                ends = {status: n for status, n in shown["progress"].items() if n}
                print(f"{now - began:5.0f} s  {shown['state']}  {ends}", flush=True)
                report_at = now + REPORT_EVERY
            audience, sent = shown["audience"], shown["progress"]["sent"]
            frozen = audience["frozen"]["total"] if audience["frozen"] else 0
            if not audience["isComplete"] and frozen >= freezing_kill_at and self.may_kill():
                self.kill_while_freezing()
                freezing_kill_at = frozen + len(self.contacts) / FREEZING_KILLS
                kill_by = now + KILL_SECONDS
            elif (sent >= kill_at or now >= kill_by) and self.may_kill():
                self.workers.kill_one()
                self.found.kills += 1
                self.found.while_sending += audience["isComplete"]
                kill_at, kill_by = sent + kill_every, now + KILL_SECONDS
            if now >= change_at:
                self.change_one()
                change_at = now + CHANGE_EVERY
            if self.found.pause is None and sent > len(self.contacts) / 4:
                self.pause_once()
            time.sleep(CHANGE_EVERY / 2)
        self.found.seconds = time.monotonic() - began
        if shown["state"] != "SENT":
            self.found.faults.append(f"it ended {shown['state']}: {shown['reason']}")
        self.found.faults += self.found.untried()


# --- the oracle -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recipient:
    contact_id: str
    status: str
    reason: str | None
    message_id: str | None
    message_key: str | None


RECIPIENTS = """
    SELECT r.contact_id, r.status, r.reason, r.message_id, a.message_key
    FROM broadcast_recipients r
    LEFT JOIN delivery_attempts a ON a.workspace_id = r.workspace_id AND a.message_id = r.message_id
    """


async def recipients(url: str) -> list[Recipient]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(RECIPIENTS)
    await connection.close()
    return [Recipient(**dict(row)) for row in rows]


async def in_flight(url: str) -> set[str]:
    """The messages that the answer to an opt-out named: these may arrive after it."""
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT jsonb_array_elements_text(in_flight) AS id FROM suppressions"
    )
    await connection.close()
    return {row["id"] for row in rows}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The broadcast as the API shows it at the end, its recipients, and what arrived. `named` are
    the messages of which the answer to an opt-out said that they may arrive after it."""

    shown: Mapping[str, Any]
    recipients: Sequence[Recipient]
    received: Sequence[Received]
    named: set[str]


def judge(
    evidence: Evidence,
    contacts: Mapping[str, str],
    opted_out: Mapping[str, float],
    erased: Collection[str] = (),
) -> list[str]:
    """The faults. `contacts` are those who were there at the beginning, by id their addresses;
    `opted_out` when it was answered that nothing more goes to them; some of these were `erased`."""
    rows, received = evidence.recipients, evidence.received
    to = Counter(one.recipients[0] for one in received)
    keys = Counter(one.message_key for one in received)
    faults = [f"{address} got it {n} times" for address, n in to.items() if n > 1]
    faults += [f"{key} arrived {n} times" for key, n in keys.items() if n > 1]
    faults += [
        f"{row.contact_id} is {row.status}, and got {to[contacts[row.contact_id]]}"
        for row in rows
        if to[contacts[row.contact_id]]
        not in ((0,) if (row.status, row.reason) == SET_ASIDE else TRUE.get(row.status, ()))
    ]
    frozen = evidence.shown["audience"]["frozen"]["total"]
    ends = {name: n for name, n in evidence.shown["progress"].items() if name != "total"}
    if not frozen == len(rows) == sum(ends.values()):
        faults.append(f"frozen {frozen}, {len(rows)} rows, ends {ends}")
    there = {row.contact_id for row in rows}
    faults += [f"{id} was missed" for id in contacts.keys() - there - set(erased)]
    faults += [
        f"{row.contact_id} is SUPPRESSED ({row.reason}), and had not opted out"
        for row in rows
        if row.status == "SUPPRESSED" and row.contact_id not in opted_out
    ]
    late = {contacts[id]: at for id, at in opted_out.items()}
    ids = {row.message_key: row.message_id for row in rows}
    faults += [
        f"{one.recipients[0]} got it {one.at - late[one.recipients[0]]:.2f} s after the answer"
        for one in received
        if one.at > late.get(one.recipients[0], one.at)
        and ids.get(one.message_key) not in evidence.named
    ]
    return faults


# --- the drill ------------------------------------------------------------------------------------


def drill(
    directory: Path,
    urls: Mapping[str, str],
    contacts: int,
    kill_every: float,
    seed: int,
    quiet_seconds: float = QUIET_SECONDS,
    **more: str,
) -> Found:
    with (
        MailServer(directory) as mail,
        Deployment(directory, **urls, smtp_url=mail.url, **more) as deployment,
    ):
        deployment.program = partial(in_chunks, min(CHUNK, max(1, contacts // CHUNKS)))
        deployment.web()
        chance = random.Random(seed)
        workers = Workers(deployment, chance, WORKERS)
        workers.start()
        with owner_of(deployment, "Acme") as client:
            lines = "".join(f"p{n}@d{n % DOMAINS}.test,vip\n" for n in range(contacts))
            imported = client.post(
                "/contacts/import",
                content=f"email,tags\n{lines}",
                headers={"Content-Type": "text/csv"},
                timeout=None,
            )
            assert imported.status_code == 200, imported.text
            template = {"name": "T", "channel": "email", "category": "marketing", "content": NEWS}
            id = made(client, "/templates", template)["id"]
            path = _scheduled(client, id)
            url = urls["database_url"]
            known = asyncio.run(_contacts(url))
            under_way = Drill(workers, mail, client, chance, url, path, known, quiet_seconds)
            under_way.run(kill_every)
            until(
                lambda: not asyncio.run(_unsettled(url)),
                "every message has ended",
                seconds=120,
                every=1,
            )
            rows, named = asyncio.run(recipients(url)), asyncio.run(in_flight(url))
            evidence = Evidence(under_way.read(), rows, under_way.received(), named)
            found = under_way.found
            found.ends = Counter(row.status for row in rows)
            found.reasons = Counter(row.reason for row in rows if row.reason)
            found.erased = len(under_way.erased)
            found.faults += judge(evidence, known, under_way.opted_out, under_way.erased)
        return found


def _scheduled(client: httpx2.Client, template_id: str) -> str:
    new = {"name": "B", "tag": "vip", "templateId": template_id}
    path = f"/broadcasts/{made(client, '/broadcasts', new)['id']}"
    answer = client.post(f"{path}/schedule", timeout=60)
    assert answer.status_code == 200, answer.text
    return path


async def _contacts(url: str) -> dict[str, str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("SELECT id, email FROM contacts")
    await connection.close()
    return {row["id"]: row["email"] for row in rows}


async def _claims(url: str) -> int:
    """Count the claims of the broadcast since a worker last gave it back."""
    connection = await asyncpg.connect(url)
    count: int = await connection.fetchval(
        "SELECT COALESCE(max(claims), 0) FROM jobs WHERE kind = 'broadcast'"
    )
    await connection.close()
    return count


async def _unsettled(url: str) -> int:
    connection = await asyncpg.connect(url)
    count: int = await connection.fetchval(
        "SELECT count(*) FROM broadcast_recipients WHERE status IN ('PENDING', 'QUEUED')"
    )
    await connection.close()
    return count


if __name__ == "__main__":
    sys.exit(killing.main(drill, CONTACTS, KILL_EVERY))
