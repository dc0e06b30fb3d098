"""The compute process, from outside: started, asked, replaced when it has grown, killed."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from app.runtime import compute_child

LATE = 4.0  # times the CPU time and two seconds more, by the wall's clock, until it is killed
START_SECONDS = 10.0
MOST_RESIDENT = 112 * 1024 * 1024  # of bytes, 81 MB of them code: beyond it is replaced

# Not as __main__, for pickles name the module; with what most computations need.
START = (
    "import app.machine.content, app.machine.defaults, app.machine.step;"
    f" from {compute_child.__name__} import main; main()"
)
ROOT = Path(__file__).parents[2]
BUILD = compute_child.build()  # of the code that this process has loaded
# What an interpreter needs to start, and none of the settings: no secret is in that process.
INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONHASHSEED")


@dataclass(slots=True, eq=False)
class ComputeProcess:
    """One that runs; `process` is what the system has of it."""

    process: Process
    _timer: asyncio.TimerHandle | None = None
    _is_killed: bool = False  # and may not have ended yet

    @classmethod
    async def start(cls) -> ComputeProcess:
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
        paths = [str(ROOT), *(path for path in sys.path if path)]
        async with asyncio.timeout(START_SECONDS):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", START),
                stdin=PIPE,
                stdout=PIPE,
                env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
                limit=compute_child.MOST_ANSWER,
            )
            child = cls(process)
            try:
                # Its first answer comes when it has started: no computation's time runs before.
                answer = await child._exchange(pickle.dumps((compute_child.build, (), 1.0)))
                if pickle.loads(answer) != ("returned", BUILD):  # noqa: S301 - of our own child
                    raise RuntimeError("The code on disk has changed: restart this process.")
            except BaseException:
                child._kill()
                raise
        return child

    @property
    def is_fit(self) -> bool:
        self._keep()
        if self.process.returncode is not None or self._is_killed:
            return False
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):  # not on Linux
            return True
        return pages * os.sysconf("SC_PAGE_SIZE") < MOST_RESIDENT

    def used(self) -> float:
        """Seconds of CPU time; of a system that does not say, those of the clock."""
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return monotonic()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    async def ask(self, request: bytes, seconds: float) -> bytes:
        async with asyncio.timeout(LATE * seconds + 2.0):
            return await self._exchange(request)

    async def _exchange(self, request: bytes) -> bytes:
        source, sink = self.process.stdout, self.process.stdin
        assert source is not None and sink is not None  # noqa: S101, PT018 - both are pipes
        sink.write(compute_child.LENGTH.pack(len(request)) + request)
        await sink.drain()
        [length] = compute_child.LENGTH.unpack(await source.readexactly(compute_child.LENGTH.size))
        return await source.readexactly(length)

    def end_after(self, seconds: float) -> None:
        self._keep()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._kill)

    def _keep(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _kill(self) -> None:
        self._is_killed = True
        with suppress(ProcessLookupError):
            self.process.kill()

    async def end(self) -> None:
        self._keep()
        self._kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await self.process.wait()
