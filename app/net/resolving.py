"""Names to addresses, by the system's resolver, in which nobody takes the place of others.

The system's resolver cannot be interrupted: a name whose server is silent keeps a thread for as
long as it likes, whoever has stopped waiting. So a name is asked for by one thread at a time, and
everybody who wants it waits for that one. One workspace has OF_ONE threads at most, and the last
RESERVED that are free go to those that have none, or some workspaces together would have them all.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

THREADS = 32
OF_ONE = 2
RESERVED = THREADS // 4


def ask_system(host: str) -> list[str]:
    """Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Resolver:
    """One per process. `ask` blocks its thread."""

    def __init__(self, ask: Callable[[str], Sequence[str]] = ask_system) -> None:
        self._ask = ask
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="resolver")
        self._asked: dict[str, asyncio.Task[Sequence[str]]] = {}  # by name
        self._taken: Counter[str] = Counter()  # threads, by owner
        self._freed = asyncio.Event()

    async def resolve(self, host: str, owner: str) -> Sequence[str]:
        """The addresses of a name, on the account of `owner`. Sets no deadline, its caller does.
        Raises OSError."""
        while host not in self._asked:
            mine, free = self._taken.get(owner, 0), THREADS - len(self._asked)
            if not mine or (mine < OF_ONE and free > RESERVED):
                break
            self._freed.clear()
            await self._freed.wait()
        task = self._asked.get(host)
        if task is None:
            self._taken[owner] += 1
            task = self._asked[host] = asyncio.create_task(self._in_thread(host, owner))
            task.add_done_callback(_retrieve_exception)
        return await asyncio.shield(task)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, host: str, owner: str) -> Sequence[str]:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, host)
        finally:
            del self._asked[host]
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]
            self._freed.set()


def _retrieve_exception(task: asyncio.Task[Sequence[str]]) -> None:
    """Retrieve the exception of an answer that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
