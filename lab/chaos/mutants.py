"""Mutants that show whether the campaign can fail: each mistake must be caught.

Applies each to a copy of the sources, runs the campaign there with faults that ought to show it,
and prints what was found: the mistake itself must be, for being late may be the machine's fault.
m0 is the control, sources without a mistake, of which nothing may be found with any of these
faults. Ends with 1 when a mutant survives, or the control does not.
"""

from __future__ import annotations

import argparse
import ast
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
NEEDED = ("app", "workers", "lab", "tests", "schema.sql", "pyproject.toml", "README.md")
RUN_SECONDS = 800  # longer than the bounds of load, probes and settling together
PUT_AWAY_SECONDS = 30  # for an interrupted campaign to stop its servers
DID_NOT_END = "did not end"
CAMPAIGN = (
    *("-m", "lab.chaos.campaign", "--events", "400", "--rate", "20", "--lease", "1"),
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
BROADCAST = (
    *("-m", "pytest", "-q", "-n0", "tests/lab/chaos/test_broadcasts.py"),
    *("-k", "killed_workers"),
)
CHANGES = ("-m", "pytest", "-q", "-n0", "tests/lab/chaos/test_changes.py", "-k", "every_change")
OCCASIONS = (
    *("-m", "pytest", "-q", "-n0", "tests/lab/chaos/test_occasions.py"),
    *("-k", "three_workers"),
)
CONTROL = "m0"


@dataclass(frozen=True, slots=True)
class Mutant:
    """Mutant of a `function`, named as module:function, in which `right` once becomes `wrong`.
    `found`: what must be found then, as a regular expression, by the campaign or by the command
    `by`. `needs`: which of the faults it takes to see it, and why; the others are there to show
    that they do not hide it."""

    mistake: str
    function: str
    right: str
    wrong: str
    found: str
    needs: str
    faults: tuple[str, ...] = COMMON
    also: tuple[tuple[str, str, str], ...] = ()  # further functions, rights and wrongs
    by: tuple[str, ...] = ()


MUTANTS = {
    "m1": Mutant(
        "202 whether or not it was committed",
        "app.intake.acceptance:start_known",
        """    except CommitUnknown as unknown:
        return await _after_unknown_commit(process, events, unknown, began + LOOKING_SECONDS)
    except Unavailable:
        raise
""",
        """    except (CommitUnknown, Unavailable):
        return [Accepted(event.run_id, "con_unknown") for event in events]
""",
        found=r"which is not there",
        needs="a web COMMIT cut before, or PostgreSQL stopped: what was not committed is answered",
    ),
    "m2": Mutant(
        "only Redis knows what is due",
        "workers.loop:beat",
        "    pause = BEAT_SECONDS\n",
        "    return BEAT_SECONDS\n",
        # The next hint of a kind has all that is due claimed: what nobody hints at again stays.
        found=r"is still (WAITING|QUEUED)|happened \d+ times, and 0 were told",
        needs="FLUSHALL: it takes the hints, and nobody looks for what is due",
    ),
    "m3": Mutant(
        "no fencing of messages",
        "app.messages.delivery:_judge_one",
        "        return await _judge(process, job, db) if is_held else None\n",
        "        return await _judge(process, job, db)\n",
        found=r"test_what_was_given_back_is_not_intended",
        needs="none: a worker that gave its message back intends it. No fault shows it since an"
        " intent names its claim",
        by=("-m", "pytest", "-q", "-n0", "tests/messages/test_delivery.py", "-k", "given_back"),
    ),
    "m3b": Mutant(
        "no fencing of runs",
        "app.runs.runner:_walk",
        "    if not is_held:\n        return True\n",
        "",
        found=r"test_a_worker_that_lost_its_lease_changes_nothing",
        needs="none: a worker that has lost its lease moves its run. No fault shows it, for what a"
        " run does, and what it waits for, is read again under a lock",
        by=("-m", "pytest", "-q", "-n0", "tests/runs/test_runner.py", "-k", "lost_its_lease"),
    ),
    "m3c": Mutant(
        "a token that restarts with its row",
        "app.store.jobs:drawn_token",
        "    return secrets.randbits(63) or 1\n",
        "    return 1\n",
        found=r"test_who_slept_through_the_row_s_earlier_life|test_no_token_is_ever_drawn_again",
        needs="none: a row is given a second life while the first one's worker sleeps",
        by=("-m", "pytest", "-q", "-n0", "tests/store/test_jobs.py", "-k", "token or slept"),
    ),
    "m3d": Mutant(
        "a job is deleted without a look at `woken`",
        "app.store.jobs:rest",
        """    WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id AND NOT woken
""",
        """    WHERE workspace_id = :workspace_id AND kind = :kind AND id = :id
""",
        found=r"test_a_wake_during_a_claim_is_not_lost",
        needs="none: a job is woken while it is claimed",
        by=("-m", "pytest", "-q", "-n0", "tests/store/test_jobs.py", "-k", "wake"),
    ),
    "m4": Mutant(
        "an intent without an outcome is taken for no intent",
        "app.messages.delivery:_judge",
        """    if row.status == "SENDING" and row.intended_by != job.lease_token:
        return await _resolve""",
        """    if row.status == "NEVER":
        return await _resolve""",
        found=r"the receiver has \w+ \d times",
        needs="kill -9 a worker: the mail server takes 0.25 s, so some die between intent and end",
        faults=("kill -9 a worker",) * 8,
    ),
    "m5": Mutant(
        "what may have arrived is sent again",
        "app.messages.delivery:_send",
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
        "app.messages.settling:settle",
        "        await runs.wake(db, workspace_id=row.workspace_id, id=row.run_id,"
        " awaited_id=row.id)\n",
        """        async def wake() -> None:
            async with process.database.write() as later:
                await runs.wake(
                    later, workspace_id=row.workspace_id, id=row.run_id, awaited_id=row.id
                )

        db.after_commit(lambda: __import__('asyncio').ensure_future(wake()))
""",
        found=r"is still WAITING",
        needs="a worker's COMMIT cut after: who does not hear of the commit does nothing after it",
        faults=("a worker's COMMIT cut after",) * 24,
    ),
    "m7": Mutant(
        "leases by the worker's own clock",
        "app.store.claims:_Lease.values",
        '"until": now +',
        '"until": datetime.now().astimezone() +',
        found=r"is still (WAITING|QUEUED)",
        needs="a worker killed an hour ahead: what it had claimed is its own for an hour",
        faults=("a worker killed an hour ahead",) * 4,
    ),
    "m8": Mutant(
        "idempotency keys are kept in Redis",
        "app.store.receipts:insert_many",
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
        also=(
            (
                "app.intake.acceptance:is_known",
                "        and isinstance(event.lookup, Lookup)\n",
                "        and isinstance(event.lookup, Lookup) and event.receipt is None\n",
            ),
        ),
        found=r"keyed.*(runs of|one key was answered)",
        needs="FLUSHALL: between two tries under one key",
        faults=("FLUSHALL",) * 12,
    ),
    "m9": Mutant(
        "a secret that is cached for a minute",
        "app.intake.webhooks:load_targets",
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
        "app.store.runs:by_id",
        """        WHERE r.workspace_id = :workspace_id AND r.id = :id
""",
        """        WHERE r.workspace_id >= :workspace_id AND r.id = :id OR r.id = :id
""",
        found=r"was shown to a stranger",
        needs="none: a probe asks for a run of another workspace",
    ),
    "m11": Mutant(
        "opt-outs are not asked for when the message goes",
        "app.messages.composing:_compose",
        "    if barred is not None:\n",
        "    if barred is not None and row.run_id is None:\n",
        found=r"s after opting out",
        needs="none: a probe opts out while the run that would write waits",
    ),
    "m11b": Mutant(
        "an opt-out does not wait for what is being sent",
        "app.consent.in_flight:quiet",
        "            rows = await messages.in_flight(db, **where)\n",
        "            rows: list[Row] = []\n",
        found=r"got a message .* s after opting out",
        needs="none: a probe opts out while the mail server has its message in hand",
    ),
    "m12": Mutant(
        "the body goes through JSON",
        "app.intake.acceptance:_known",
        "        body=request.body,\n",
        "        body=__import__('orjson').dumps(__import__('orjson').loads(request.body)),\n",
        found=r"the body of its run is another",
        needs="none: every run's body is compared with what was sent",
    ),
    "m12b": Mutant(
        "a webhook's target is remembered without its revision",
        "app.store.known_events:ACCEPT",
        "d.state = 'ACTIVE' AND d.revision = given.revision",
        "d.state = 'ACTIVE'",
        found=r"a secret was changed, and 202",
        needs="none: a probe changes a secret, under whatever strikes",
    ),
    "m12f": Mutant(
        "a suspension is not looked at by the statement that accepts",
        "app.store.known_events:ACCEPT",
        "          AND NOT w.suspended AND",
        "          AND",
        found=r"suspended and resumed, and 202 answered",
        needs="none: a workspace is suspended under traffic",
        by=CHANGES,
    ),
    "m12g": Mutant(
        "the remembered country reads telephone numbers, whatever it is by now",
        "app.store.known_events:ACCEPT",
        "          AND w.country IS NOT DISTINCT FROM given.country\n",
        "",
        found=r"country changed, and 202 answered",
        needs="none: a workspace gets another country under traffic",
        by=CHANGES,
    ),
    "m12c": Mutant(
        "a refusal is answered by what is remembered",
        "app.intake.webhooks:_judged_by_memory",
        "    except Problem:\n        return None\n",
        "    except Problem:\n        raise\n",
        found=r"a secret was changed, and 401",
        needs="none: a probe changes a secret, under whatever strikes",
    ),
    "m12d": Mutant(
        "a hint in place of a row",
        "app.store.known_events:ACCEPT",
        """        SELECT workspace_id, 'run', id, {jobs.DUE_NOW} FROM started
""",
        """        SELECT workspace_id, 'run', id, {jobs.DUE_NOW} FROM started WHERE FALSE
""",
        found=r"is still QUEUED|has no job|a row had no job",
        needs="none: what is due is in no table, and its hint finds nothing",
    ),
    "m12e": Mutant(
        "a repeat is answered by what is remembered",
        "app.intake.webhooks:receive",
        """    if event is not None:
""",
        """    if event is not None and event.receipt in ANSWERED:
        return replace(ANSWERED[event.receipt], replayed=True)
    if event is not None:
""",
        also=(
            (
                "app.intake.webhooks:receive",
                """        if accepted is not None:
            return accepted
""",
                """        if accepted is not None:
            ANSWERED[event.receipt or b""] = accepted
            return accepted
""",
            ),
            (
                "app.intake.webhooks:_judged_by_memory",
                "    return event if acceptance.is_known(process, event) else None\n",
                """    return event if acceptance.is_known(process, event) else None


ANSWERED: dict[bytes, Accepted] = {}
""",
            ),
        ),
        found=r"test_a_repeat_is_never_answered_by_what_was_remembered",
        needs="none: a webhook is closed, or a receipt ends, between an event and its repeat. The"
        " campaign's senders repeat what nothing has changed for",
        by=(
            "-m",
            "pytest",
            "-q",
            "-n0",
            "tests/intake/test_acceptance.py",
            "-k",
            "repeat_is_never",
        ),
    ),
    "m13": Mutant(
        "a signature is compared with ==",
        "app.intake.webhooks:Secret.signs",
        "hmac.compare_digest(mac.finalize(), signature)",
        "mac.finalize() == signature",
        found=r"test_what_is_secret_is_compared_in_constant_time",
        needs="none: the code is read",
        by=("-m", "pytest", "-q", "-n0", "tests/test_layers.py"),
    ),
    "m14": Mutant(
        "the leftmost address of X-Forwarded-For is believed",
        "app.web.edge:client_address",
        "        entry = entries[-trusted_hops]\n",
        "        entry = entries[0]\n",
        found=r"from one address were taken",
        needs="none: a probe sends from one address under many names before anything strikes",
    ),
    "m15": Mutant(
        "a chunk of an audience is frozen after the commit of its place, not in it",
        "app.broadcasts.freezing:freeze",
        "await _freeze(process, db,",
        "await _freeze_later(process, db,",
        also=(
            (
                "app.broadcasts.freezing:_freeze",
                "    return added\n",
                """    return added


async def _freeze_later(process: Process, db: Handle, *rest, **more) -> Counter[str]:
    async def later() -> None:
        await __import__('asyncio').sleep(0.1)
        async with process.database.write() as other:
            await _freeze(process, other, *rest, **more)

    db.after_commit(lambda: __import__('asyncio').ensure_future(later()))
    try:
        async with db.savepoint():
            added = await _freeze(process, db, *rest, **more)
            raise LookupError("counted, and undone")
    except LookupError:
        return added
""",
            ),
        ),
        found=r"was missed|frozen \d+",
        needs="a worker killed while the audience is being frozen: its chunk is left out",
        by=BROADCAST,
    ),
    "m16": Mutant(
        "opt-outs are not asked for when a broadcast's message goes",
        "app.messages.composing:_compose",
        "    if barred is not None:\n",
        "    if barred is not None and row.broadcast_id is None:\n",
        found=r"got it \S+ s after the answer",
        needs="none: contacts opt out between the freezing and their message",
        by=BROADCAST,
    ),
    "m17": Mutant(
        "a contact that was in a definition before is not let in again",
        "app.store.new_runs:INSERT",
        "    ON CONFLICT DO NOTHING\n",
        """      AND NOT EXISTS (SELECT FROM runs AS r WHERE r.workspace_id = :workspace_id
                      AND r.definition_id = :definition_id AND r.contact_id = :contact_id)
    ON CONFLICT DO NOTHING
""",
        found=r"entered, left.* the runs started are: entered",
        needs="none: contacts leave a segment and enter it again",
        by=OCCASIONS,
    ),
}


def applied(mutant: Mutant, copy: Path) -> None:
    """Raises ValueError when the sources have changed under it."""
    for function, right, wrong in ((mutant.function, mutant.right, mutant.wrong), *mutant.also):
        path = copy / path_of(function)
        lines = path.read_text().splitlines(keepends=True)
        start, end = place(ast.parse("".join(lines)), function.partition(":")[2].split("."))
        text = "".join(lines[start:end])
        if text.count(right) != 1:
            raise ValueError(f"{mutant.mistake}: what it changes is not in {function} once")
        path.write_text("".join((*lines[:start], text.replace(right, wrong), *lines[end:])))


def path_of(function: str) -> Path:
    return Path(f"{function.partition(':')[0].replace('.', '/')}.py")


def place(parent: ast.AST, names: Sequence[str]) -> tuple[int, int]:
    """The first line of what is so named, from 0, and the one after its last. Raises ValueError."""
    for node in ast.iter_child_nodes(parent):
        own = node.targets[0] if isinstance(node, ast.Assign) else node
        if isinstance(node, ast.stmt) and names[0] in (
            getattr(own, "name", None),
            getattr(own, "id", None),
        ):
            if names[1:]:
                return place(node, names[1:])
            return node.lineno - 1, node.end_lineno or node.lineno
    raise ValueError(f"nothing is named {names[0]} there")


def copied(directory: Path) -> Path:
    for name in NEEDED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, directory / name)
    return directory


def findings(copy: Path, command: Sequence[str]) -> list[str] | None:
    """The findings of the command in these sources; None when it is content."""
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
        output_lines = output.read().splitlines()
    if code == 0:
        return None
    start = next(
        (n for n, line in enumerate(output_lines) if line.startswith("should not be")), None
    )
    marks = ("E  ", "FAILED") if start is None else ("  ",)  # of pytest, or of the campaign
    lines = [line.strip() for line in output_lines[start or 0 :] if line.startswith(marks)]
    return lines or output_lines[-1:] or ["no output"]


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
    """Run a mutant; returns whether it was caught, and by what."""
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
    """Run the control. Returns whether nothing is found in it by any faults that are to show a
    mistake."""
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
        mistake = "no mistake" if name == CONTROL else MUTANTS[name].mistake
        as_wanted, found = content() if name == CONTROL else caught(MUTANTS[name])
        right += as_wanted
        print(f"{name:4} {mistake:70} {found[:160]}", flush=True)
    print(f"{right} of {len(names)} as they should be")
    return right < len(names)


def asked(words: Sequence[str]) -> list[str]:
    """The mutants named on the command line; all, and the control, without a name."""
    everyone = [CONTROL, *MUTANTS]
    parser = argparse.ArgumentParser(prog="python -m lab.chaos.mutants", description=__doc__)
    # No choices here: argparse looks for an empty list among them.
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(everyone)}")
    names: list[str] = parser.parse_args(words).names
    if unknown := set(names).difference(everyone):
        parser.error(f"There is no {', '.join(sorted(unknown))}; there are {', '.join(everyone)}.")
    return names or everyone


if __name__ == "__main__":
    sys.exit(main(asked(sys.argv[1:])))
