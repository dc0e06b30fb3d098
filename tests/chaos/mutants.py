"""Can the campaign fail? Each mutant is a mistake that somebody might make; each must be caught.

Applies each to a copy of the sources, runs the campaign there with faults that ought to show it,
and prints what was found: the mistake itself must be, for being late may be the machine's fault.
m0 is the control, sources without a mistake, of which nothing may be found with any of these
faults. Ends with 1 when a mutant survives, or the control does not.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = ("app", "workers", "tests", "schema.sql", "pyproject.toml", "README.md")
RUN_SECONDS = 800  # longer than the bounds of load, probes and settling together
PUT_AWAY_SECONDS = 30  # for an interrupted campaign to stop its servers
DID_NOT_END = "did not end"
CAMPAIGN = (
    *("-m", "tests.chaos.campaign", "--events", "400", "--rate", "20", "--lease", "1"),
    *("--gap", "0.3", "--seed", "5", "--settle", "120"),
)
COMMON = (
    "kill -9 a web process",
    "kill -9 a worker",
    "every backend terminated",
    "FLUSHALL",
    "a web COMMIT cut before",
    "a worker's COMMIT cut after",
    "the final dot cut after",
    "PostgreSQL stopped at once",
) * 2
CONTROL = "m0"


@dataclass(frozen=True, slots=True)
class Mutant:
    """In `path`, `right` once becomes `wrong`. `found`: what must be found then, as a regular
    expression, by the campaign or by the command `by`. `needs`: which of the faults it takes to
    see it, and why; the others are there to show that they do not hide it."""

    told: str
    path: str
    right: str
    wrong: str
    found: str
    needs: str
    faults: tuple[str, ...] = COMMON
    by: tuple[str, ...] = ()


MUTANTS = {
    "m1": Mutant(
        "202 whether or not it was committed",
        "app/webhooks/acceptance.py",
        """    except CommitUnknown as unknown:
        return await _settled(process, events, unknown, began + SETTLED_SECONDS)
""",
        """    except (CommitUnknown, Unavailable):
        return [Accepted(event.run_id, "con_unknown") for event in events]
""",
        found=r"which is not there",
        needs="a web COMMIT cut before, or PostgreSQL stopped: what was not committed is answered",
    ),
    "m2": Mutant(
        "only Redis knows what is due",
        "workers/loop.py",
        "    pause = BEAT_SECONDS\n    async with",
        "    return BEAT_SECONDS\n    async with",
        found=r"is still (WAITING|QUEUED)",
        needs="FLUSHALL: it takes the hints, and nobody looks for what is due",
    ),
    "m3": Mutant(
        "no fencing of messages",
        "app/store/messages.py",
        """m.id = :id AND m.lease_token = :lease_token
          AND m.wake_at IS NOT NULL
        ORDER BY""",
        """m.id = :id AND m.lease_token >= :lease_token
        ORDER BY""",
        found=r"the receiver has \w+ \d times|, and its message",
        needs="a worker frozen with a claim in hand: it acts on a message that the other sends",
        faults=("a worker frozen with a claim in hand",) * 12,
    ),
    "m3b": Mutant(
        "no fencing of runs",
        "app/store/runs.py",
        "r.id = :id AND r.lease_token = :lease_token\n",
        "r.id = :id AND r.lease_token >= :lease_token\n",
        found=r"waited for [01]\.\d+ s instead",
        needs="a worker frozen with a run in hand: it moves a run that the other has moved to a"
        " wait, which so ends early. What is done to a run is safe without it otherwise, for its"
        " state is read again under a lock",
        faults=("a worker frozen with a run in hand",) * 12,
    ),
    "m4": Mutant(
        "an intent without an outcome is taken for no intent",
        "app/delivery.py",
        """    if claimed["status"] == "SENDING":
        return await _resolve""",
        """    if claimed["status"] == "NEVER":
        return await _resolve""",
        found=r"the receiver has \w+ \d times",
        needs="kill -9 a worker: the mail server takes 0.25 s, so some die between intent and end",
        faults=("kill -9 a worker",) * 8,
    ),
    "m5": Mutant(
        "what may have arrived is sent again",
        "app/delivery.py",
        """    except SendError as error:
        return error
""",
        """    except SendError as error:
        return SendError("not_accepted", error.code, str(error))
""",
        found=r"the receiver has \w+ \d times",
        needs="the final dot cut after: the message arrived, and its sender cannot know",
    ),
    "m6": Mutant(
        "the run is woken after the commit, not in it",
        "app/messages/settling.py",
        """        await runs.wake(
            db, workspace_id=row["workspace_id"], id=row["run_id"], awaited_id=row["id"]
        )
""",
        """        async def wake() -> None:
            async with process.database.write() as later:
                await runs.wake(
                    later, workspace_id=row["workspace_id"], id=row["run_id"], awaited_id=row["id"]
                )

        db.after_commit(lambda: __import__('asyncio').ensure_future(wake()))
""",
        found=r"is still WAITING",
        needs="a worker's COMMIT cut after: who does not hear of the commit does nothing after it",
        faults=("a worker's COMMIT cut after",) * 24,
    ),
    "m7": Mutant(
        "leases by the worker's own clock",
        "app/store/jobs.py",
        "    until = await db.now() + timedelta(seconds=lease_seconds)\n    claimed",
        "    until = datetime.now().astimezone() + timedelta(seconds=lease_seconds)\n    claimed",
        found=r"is still (WAITING|QUEUED)",
        needs="a worker killed an hour ahead: what it had claimed is its own for an hour",
        faults=("a worker killed an hour ahead",) * 4,
    ),
    "m8": Mutant(
        "idempotency keys are kept in Redis",
        "app/store/receipts.py",
        "    return len(rows)\n",
        """    return len(rows)


@__import__("functools").cache
def client():
    return __import__("redis.asyncio").asyncio.from_url(__import__("os").environ["REDIS_URL"])


def named(workspace_id: str, id: bytes) -> str:
    return f"receipt:{workspace_id}:{id.hex()}"


async def by_ids(db: Handle, pairs: Sequence[tuple[str, bytes]]) -> list[Receipt]:
    kept = await client().mget([named(*pair) for pair in pairs])
    return [Receipt(*pair, *text.decode().split()) for pair, text in zip(pairs, kept) if text]


async def insert_many(db: Handle, receipts: Sequence[Receipt], *, expires_at: datetime) -> int:
    new = 0
    for one in receipts:
        text = f"{one.run_id} {one.contact_id}"
        key = named(one.workspace_id, one.id)
        new += bool(await client().set(key, text, nx=True, px=86_400_000))
    return new
""",
        found=r"keyed.*(runs of|one key was answered)",
        needs="FLUSHALL: between two tries under one key",
        faults=("FLUSHALL",) * 12,
    ),
    "m9": Mutant(
        "a secret that is cached for a minute",
        "app/intake.py",
        "    return [targets.get(token) for token in tokens]\n",
        """    now = __import__("time").monotonic()
    for token in tokens:
        if token not in CACHED or CACHED[token][0] < now - 60:
            CACHED[token] = now, targets.get(token)
    return [CACHED[token][1] for token in tokens]


CACHED: dict[str, tuple[float, WebhookTarget | None]] = {}
""",
        found=r"a secret was changed, and|PAUSED, and 202|ACTIVE, and 404",
        needs="none: a probe changes a secret, and pauses a workflow, under whatever strikes",
    ),
    "m10": Mutant(
        "one query without its workspace",
        "app/store/runs.py",
        """        WHERE r.workspace_id = :workspace_id AND r.id = :id
        \"\"\",
        workspace_id=workspace_id,
        id=id,
    )


async def locked""",
        """        WHERE r.workspace_id >= :workspace_id AND r.id = :id OR r.id = :id
        \"\"\",
        workspace_id=workspace_id,
        id=id,
    )


async def locked""",
        found=r"was shown to a stranger",
        needs="none: a probe asks for a run of another workspace",
    ),
    "m11": Mutant(
        "opt-outs are not asked for when the message goes",
        "app/messages/composing.py",
        "        if barred is not None:\n",
        "        if barred is not None and row['run_id'] is None:\n",
        found=r"s after opting out",
        needs="none: a probe opts out while the run that would write waits",
    ),
    "m11b": Mutant(
        "an opt-out does not wait for what is being sent",
        "app/contacts/consent.py",
        "            rows = await messages.in_flight(db, **where)\n",
        "            rows: list[Row] = []\n",
        found=r"got a message .* s after opting out",
        needs="none: a probe opts out while the mail server has its message in hand",
    ),
    "m12": Mutant(
        "the body goes through JSON",
        "app/webhooks/acceptance.py",
        """                    self._contact(event),
                    event.request.body,
""",
        """                    self._contact(event),
                    document.dumps(document.parse(event.request.body)),
""",
        found=r"the body of its run is another",
        needs="none: every run's body is compared with what was sent",
    ),
    "m13": Mutant(
        "a signature is compared with ==",
        "app/intake.py",
        "hmac.compare_digest(mac.finalize(), signature)",
        "mac.finalize() == signature",
        found=r"test_what_is_secret_is_compared_in_constant_time",
        needs="none: the code is read",
        by=("-m", "pytest", "-q", "-n0", "tests/test_layers.py"),
    ),
    "m14": Mutant(
        "the leftmost address of X-Forwarded-For is believed",
        "app/web/edge.py",
        "        entry = entries[-trusted_hops]\n",
        "        entry = entries[0]\n",
        found=r"from one address were taken",
        needs="none: a probe sends from one address under many names before anything strikes",
    ),
}


def applied(mutant: Mutant, copy: Path) -> None:
    """Raises ValueError when the sources have changed under it."""
    path = copy / mutant.path
    text = path.read_text()
    if text.count(mutant.right) != 1:
        raise ValueError(f"{mutant.told}: what it changes is not in {mutant.path} once")
    path.write_text(text.replace(mutant.right, mutant.wrong))


def copied(directory: Path) -> Path:
    for name in NEEDED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, directory / name)
    return directory


def findings(copy: Path, command: Sequence[str]) -> list[str] | None:
    """What the command found in these sources; None when it is content."""
    with tempfile.TemporaryFile("w+") as output:
        running = subprocess.Popen(
            [sys.executable, *command], cwd=copy, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            code = running.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            stop(running)
            return [DID_NOT_END]
        output.seek(0)
        told = output.read().splitlines()
    if code == 0:
        return None
    start = next((n for n, line in enumerate(told) if line.startswith("should not be")), None)
    marks = ("E  ", "FAILED") if start is None else ("  ",)  # of pytest, or of the campaign
    lines = [line.strip() for line in told[start or 0 :] if line.startswith(marks)]
    return lines or told[-1:] or ["no output"]


def stop(running: subprocess.Popen[bytes]) -> None:
    """Interrupt it, so that it stops its servers; if it does not, kill it with every process that
    it has started. These have sessions of their own, so that no process group holds them all."""
    started = descendants(running.pid)
    running.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        running.wait(PUT_AWAY_SECONDS)
    started |= descendants(running.pid)
    running.kill()
    running.wait()
    for pid, _ in started & processes().keys():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def processes() -> dict[tuple[int, str], int]:
    """The parent of each process. A process is named by its id and when it began, for the system
    gives ids again."""
    command = ("ps", "-A", "-o", "pid=,ppid=,lstart=")
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = (line.split(maxsplit=2) for line in listed.splitlines())
    return {(int(pid), began): int(parent) for pid, parent, began in lines}


def descendants(pid: int) -> set[tuple[int, str]]:
    """Its children, theirs, and so on."""
    parents = processes()
    found: set[tuple[int, str]] = set()
    parent_ids = {pid}
    while parent_ids:
        children = {child for child, parent in parents.items() if parent in parent_ids} - found
        found |= children
        parent_ids = {child_id for child_id, _ in children}
    return found


def campaign(faults: Sequence[str]) -> Sequence[str]:
    asked = (word for name in faults for word in ("--fault", name))
    return (*CAMPAIGN, "--faults", str(len(faults)), *asked)


def caught(mutant: Mutant) -> tuple[bool, str]:
    """Whether it was, and by what."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = copied(Path(directory))
        applied(mutant, copy)
        found = findings(copy, mutant.by or campaign(mutant.faults))
    if found is None:
        return False, "SURVIVED"
    if found == [DID_NOT_END]:
        return False, f"SURVIVED: {DID_NOT_END}"
    for finding in found:
        if re.search(mutant.found, finding):
            return True, finding
    return False, f"SURVIVED, for this is something else: {found[0]}"


def content() -> tuple[bool, str]:
    """Whether nothing is found where there is no mistake, by any faults that are to show one."""
    sets = dict.fromkeys(mutant.faults for mutant in MUTANTS.values() if not mutant.by)
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = copied(Path(directory))
        for faults in sets:
            if (found := findings(copy, campaign(faults))) is not None:
                return False, f"NOT CONTENT, after {faults[0]} and others: {found[0]}"
    return True, f"content with {len(sets)} sets of faults"


def main(names: list[str]) -> int:
    right = 0
    for name in names:
        told = "no mistake" if name == CONTROL else MUTANTS[name].told
        as_wanted, found = content() if name == CONTROL else caught(MUTANTS[name])
        right += as_wanted
        print(f"{name:4} {told:70} {found[:160]}", flush=True)
    print(f"{right} of {len(names)} as they should be")
    return right < len(names)


def asked(words: Sequence[str]) -> list[str]:
    """The mutants named on the command line; all, and the control, without a name."""
    everyone = [CONTROL, *MUTANTS]
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mutants", description=__doc__)
    # No choices here: argparse looks for an empty list among them.
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(everyone)}")
    names: list[str] = parser.parse_args(words).names
    if unknown := set(names).difference(everyone):
        parser.error(f"There is no {', '.join(sorted(unknown))}; there are {', '.join(everyone)}.")
    return names or everyone


if __name__ == "__main__":
    sys.exit(main(asked(sys.argv[1:])))
