"""Nodes of a cluster lost under load (promise 18): the others go on, the struck ones afterwards.

python -m lab.citus.campaign [events] [seconds]: so many events in all, and every so many seconds
one of the two nodes is killed with -9 and started again or, every second time, stopped so that it
says nothing, as if its network were gone, and let go on. While it is lost, the workspaces of the
other node must get nothing but 202, each within three seconds, at least half as much mail as events
were accepted of each, and their bearers be valid; those of the struck one may get 503 and nothing
else. Afterwards each accepted event must be one run that has ended and one message, and no
transaction may be left prepared.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import asyncpg
import httpx2

from app.net.tls import system_trust
from lab.chaos.failover import drained, judged
from lab.citus import report
from lab.citus.stage import Answer, Stage, Workspace, staged

EVENTS = 10_000
KILL_EVERY = 60.0
DOWN_SECONDS = 10.0
# What was under way when the node was lost: of one that is silent, until deadlines have passed.
SETTLING_SECONDS = {"killed": 0.5, "silent": 2.5}
AGAIN_SECONDS = 15.0  # after the node is back, until a struck workspace has its first 202
SENDERS_EACH = 2  # of a workspace
LONGEST_SECONDS = 3.0  # that a workspace of the other node waits for an answer meanwhile
PAUSE_SECONDS = 0.15  # of each, after each event: one worker is to keep up
READ_EVERY = 0.5


@dataclass(slots=True)
class Outage:
    port: int
    how: str  # killed | silent
    down_at: float
    up_at: float = 0.0
    mails: Counter[str] = field(default_factory=Counter)  # meanwhile, by the recipients' domain
    again: float = 0.0  # until the first 202 of each struck workspace, at most


@dataclass(slots=True)
class Campaign:
    stage: Stage
    events: int
    outages: list[Outage] = field(default_factory=list)
    ending: bool = False

    async def run(self, kill_every: float) -> list[str]:
        """The faults."""
        before, _ = await self.stage.prepared()
        async with httpx2.AsyncClient(timeout=10, trust_env=False, verify=system_trust()) as client:
            tasks = [
                asyncio.create_task(act(one, client))
                for one in self.stage.workspaces
                for act in (*[self._send] * SENDERS_EACH, self._read)
            ]
            while sum(one.sent for one in self.stage.workspaces) < self.events:
                await asyncio.sleep(kill_every - DOWN_SECONDS)
                await self._strike()
            self.ending = True
            await asyncio.gather(*tasks)
        return [*self._seen_outside(), *await self._found_inside(before)]

    async def _send(self, one: Workspace, client: httpx2.AsyncClient) -> None:
        while not self.ending:
            await one.send_one(client)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read(self, one: Workspace, client: httpx2.AsyncClient) -> None:
        while not self.ending:
            await one.read(client, self.stage.deployment.url)
            await asyncio.sleep(READ_EVERY)

    async def _strike(self) -> None:
        nodes, number = self.stage.cluster.nodes, len(self.outages)
        node, how = nodes[number // 2 % len(nodes)], ("killed", "silent")[number % 2]
        settling = SETTLING_SECONDS[how]
        await asyncio.to_thread(node.kill if how == "killed" else node.freeze)
        outage = Outage(node.port, how, time.monotonic() + settling)
        self.outages.append(outage)
        await asyncio.sleep(settling)
        mails = self._mails()
        await asyncio.sleep(DOWN_SECONDS - settling)
        outage.mails = self._mails() - mails
        outage.up_at = time.monotonic()
        await asyncio.to_thread(node.start if how == "killed" else node.thaw)
        started_at = time.monotonic()
        struck = [one for one in self.stage.workspaces if one.port == node.port]
        async with asyncio.timeout(AGAIN_SECONDS * 4):
            while not all(one.has_gone_on(started_at) for one in struck):
                await asyncio.sleep(0.05)
        outage.again = time.monotonic() - started_at

    def _mails(self) -> Counter[str]:
        received = self.stage.mail.received
        return Counter(one.recipients[0].rpartition("@")[2] for one in received)

    def _seen_outside(self) -> list[str]:
        faults = [
            f"an answer {answer.status} to workspace {one.number}"
            for one in self.stage.workspaces
            for answer in (*one.answers, *one.reads)
            if answer.status >= 500 and answer.status != 503
        ]
        for outage in self.outages:
            for one in self.stage.workspaces:
                faults += self._seen_of(one, outage)
            if outage.again > AGAIN_SECONDS:
                faults.append(f"{outage.again:.1f} s until the struck ones went on")
        return faults

    def _seen_of(self, one: Workspace, outage: Outage) -> list[str]:
        """The faults in what a workspace was answered, and got of mail, during an outage."""
        asked, read = (self._during(outage, some) for some in (one.answers, one.reads))
        answers, reads = (Counter(answer.status for answer in some) for some in (asked, read))
        whose, is_struck = f"workspace {one.number}", one.port == outage.port
        where = f"{whose}, {self._of(one, outage)} ({outage.how})"
        refused = {503} if is_struck else set()
        faults = []
        if answers.keys() - refused - {202} or reads.keys() - refused - {200}:
            faults.append(f"{where}: {answers}, {reads}")
        if is_struck:
            return faults if answers[503] else [*faults, f"{where}: no 503"]
        if not answers[202] * reads[200]:
            faults.append(f"{where}: it stood still")
        if (mails := outage.mails[one.domain]) < answers[202] / 2:
            faults.append(f"{where}: {mails} mails, of {answers[202]} events accepted")
        longest = max((answer.took for answer in (*asked, *read)), default=0)
        if longest > LONGEST_SECONDS:
            faults.append(f"{where}: {longest:.1f} s until an answer")
        return faults

    def _during(self, outage: Outage, answers: Sequence[Answer]) -> list[Answer]:
        return [one for one in answers if outage.down_at <= one.asked_at <= outage.up_at]

    def _of(self, one: Workspace, outage: Outage) -> str:
        return "whose node was down" if one.port == outage.port else "while another node was down"

    async def _found_inside(self, before: int) -> list[str]:
        connection = await asyncpg.connect(self.stage.database_url, command_timeout=60)
        left = await drained(connection)
        faults = [f"{left} runs do not end"] if left else []
        if not left:
            faults = await judged(connection, self.stage.accepted(), self.stage.mail)
        faults += [line for part in self.stage.deployment.parts for line in _errors(part.text)]
        await connection.close()
        lines, prepared = await self.stage.prepared()
        if prepared:
            faults.append(f"{prepared} transactions are left prepared")
        if lines > before:
            faults.append(f"{lines - before} transactions were prepared on several nodes")
        return faults


def _errors(log: str) -> list[str]:
    """Its lines of errors, which nothing here should cause."""
    return [line for line in log.splitlines() if '"level":"error"' in line]


def main(events: int = EVENTS, kill_every: float = KILL_EVERY) -> int:
    with staged() as stage:
        campaign = Campaign(stage, events)
        faults = asyncio.run(campaign.run(kill_every))
        answers = Counter(a.status for one in stage.workspaces for a in one.answers)
        reads = Counter(a.status for one in stage.workspaces for a in one.reads)
    again = " ".join(f"{outage.again:.1f} ({outage.how})" for outage in campaign.outages)
    mails = " ".join(
        f"{sum(outage.mails[one.domain] for one in stage.workspaces if one.port != outage.port)}"
        f" ({outage.how})"
        for outage in campaign.outages
    )
    seen = (
        f"{len(stage.accepted()):,} events accepted, {len(campaign.outages)} nodes lost;"
        f" answers {dict(answers)}, reads {dict(reads)};"
        f" seconds from a node's return until all that it has went on: {again};"
        f" mails of the others meanwhile: {mails}"
    )
    print("\n".join(faults[:50]))
    what = f"a node lost every {kill_every:.0f} s for {DOWN_SECONDS:.0f}, killed or silent in turn"
    ended = report.outcome(faults, "0 lost, 0 doubled, no transaction on two nodes")
    report.show(what, f"{seen}; {ended}", stage.on)
    return 1 if faults else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(int(words[0]) if words else EVENTS, float(words[1]) if words[1:] else KILL_EVERY))
