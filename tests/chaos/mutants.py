"""Can the campaign fail? Each mutant is a mistake that somebody might make; each must be caught.

Applies each to a copy of the sources, runs the campaign there with faults that ought to show it,
and prints what was found. Ends with 1 when one survives.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = ("app", "workers", "tests", "schema.sql", "pyproject.toml", "README.md")
RUN_SECONDS = 400
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
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """In `path`, `right` once becomes `wrong`. `by`: the command that must fail then."""

    told: str
    path: str
    right: str
    wrong: str
    faults: tuple[str, ...] = COMMON
    by: tuple[str, ...] = ()


MUTANTS = {
    "m1": Mutant(
        "202 whether or not it was committed",
        "app/webhooks/acceptance.py",
        """    except CommitUnknown as unknown:
        return await _settled(process, events, unknown)
""",
        """    except (CommitUnknown, Unavailable):
        return [Accepted(event.run_id, "con_unknown") for event in events]
""",
    ),
    "m2": Mutant(
        "only Redis knows what is due",
        "workers/loop.py",
        "    pause = BEAT_SECONDS\n    async with",
        "    return BEAT_SECONDS\n    async with",
    ),
    "m3": Mutant(
        "no fencing of messages",
        "app/store/messages.py",
        """m.id = :id AND m.lease_token = :lease_token
          AND m.wake_at IS NOT NULL
        ORDER BY""",
        """m.id = :id AND m.lease_token >= :lease_token
        ORDER BY""",
        by=("-m", "pytest", "-q", "-n0", "tests/test_delivery.py", "-k", "slept"),
    ),
    "m4": Mutant(
        "an intent without an outcome is taken for no intent",
        "app/delivery.py",
        """    if claimed["status"] == "SENDING":
        return await _resolve""",
        """    if claimed["status"] == "NEVER":
        return await _resolve""",
        faults=("kill -9 a worker", "PostgreSQL silent to the web") * 4,
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
        faults=("a worker's COMMIT cut after",) * 8,
    ),
    "m7": Mutant(
        "leases by the worker's own clock, which is wrong in every other process",
        "app/store/jobs.py",
        "    until = await db.now() + timedelta(seconds=lease_seconds)\n    taking",
        "    until = await db.now() + timedelta(seconds=lease_seconds)\n"
        "    until -= timedelta(minutes=__import__('os').getpid() % 2)\n    taking",
    ),
    "m8": Mutant(
        "idempotency keys are not kept in the run's transaction",
        "app/webhooks/acceptance.py",
        """        if not new:
            return
        new.sort(""",
        """        if new or not new:
            return
        new.sort(""",
    ),
    "m9": Mutant(
        "a secret that is cached for a minute",
        "app/intake.py",
        "    return [doors.get(token) for token in tokens]\n",
        """    for token in tokens:
        CACHED.setdefault(token, doors.get(token))
    return [CACHED[token] for token in tokens]


CACHED: dict[str, Door | None] = {}
""",
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
    ),
    "m11": Mutant(
        "opt-outs are not asked for when the message goes",
        "app/messages/composing.py",
        "        if barred is not None:\n",
        "        if barred is not None and row['run_id'] is None:\n",
    ),
    "m12": Mutant(
        "the body goes through JSON",
        "app/webhooks/acceptance.py",
        """                    self._contact(event),
                    event.visit.body,
""",
        """                    self._contact(event),
                    document.dumps(document.parse(event.visit.body)),
""",
    ),
    "m13": Mutant(
        "a signature is compared with ==",
        "app/intake.py",
        "hmac.compare_digest(mac.finalize(), signature)",
        "mac.finalize() == signature",
        by=("-m", "pytest", "-q", "-n0", "tests/test_layers.py"),
    ),
    "m14": Mutant(
        "the leftmost address of X-Forwarded-For is believed",
        "app/web/edge.py",
        "        entry = entries[-trusted_hops]\n",
        "        entry = entries[0]\n",
    ),
}


def applied(mutant: Mutant, copy: Path) -> None:
    """Raises ValueError when the sources have changed under it."""
    path = copy / mutant.path
    text = path.read_text()
    if text.count(mutant.right) != 1:
        raise ValueError(f"{mutant.told}: what it changes is not in {mutant.path} once")
    path.write_text(text.replace(mutant.right, mutant.wrong))


def caught(mutant: Mutant) -> str | None:
    """What was found; None when the mutant survives."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = Path(directory)
        for name in NEEDED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        applied(mutant, copy)
        faults = [word for name in mutant.faults for word in ("--fault", name)]
        command = mutant.by or (*CAMPAIGN, *faults)
        with tempfile.TemporaryFile("w+") as output:
            ran = subprocess.run(
                [sys.executable, *command],
                cwd=copy,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=RUN_SECONDS,
                check=False,
            )
            output.seek(0)
            told = output.read().splitlines()
    if ran.returncode == 0:
        return None
    return telling(told)


def telling(told: list[str]) -> str:
    """The finding that says most: what is only late may be the machine's fault."""
    start = next((n for n, line in enumerate(told) if line.startswith("should not be")), 0)
    found = [line.strip() for line in told[start:] if line.startswith(("  ", "E  ", "FAILED"))]
    found.sort(key=lambda finding: "is still" in finding)
    return found[0][:160] if found else "no output" if not told else told[-1]


def main(names: list[str]) -> int:
    survivors = 0
    for name in names:
        mutant = MUTANTS[name]
        found = caught(mutant)
        survivors += found is None
        print(f"{name:4} {mutant.told:70} {found or 'SURVIVED'}", flush=True)
    print(f"{len(names) - survivors} of {len(names)} caught")
    return survivors > 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", default=list(MUTANTS), choices=MUTANTS)
    sys.exit(main(parser.parse_args().names))
