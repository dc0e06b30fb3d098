"""Benchmark: memory of the embedded shape, all in one process on SQLite, with very many contacts.

python -m lab.bench.embedded [contacts] [seconds]: they are imported from a file, put into a segment
that time moves, and frozen as the audience of a broadcast, which then sends for so many seconds.
The memory is that of the process and of all that it has started; 300 MB are wanted with 100,000.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lab.bench import imports
from lab.bench.broadcasts import NEWS, PATIENCE_SECONDS
from lab.bench.neighbours import embedded, memory
from tests.deployment import made, owner_of, until

CONTACTS = 100_000
SENDING_SECONDS = 30.0
MOST_MB = 300.0
LOOKS_EVERY = 0.5
LEAD = {"path": "contact.tags", "op": "contains", "value": "lead"}
YOUNG = {"path": "contact.createdAt", "op": "within_last", "value": "P30D"}


class Peak:
    """The most memory that was seen, by a thread that looks."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.mb = 0.0
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._ended.wait(LOOKS_EVERY):
            self.mb = max(self.mb, memory(self._pids))

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()


def measure(contacts: int, seconds: float) -> float:
    with embedded() as (deployment, pids), owner_of(deployment, "Acme") as client:
        peak = Peak(pids)
        print(f"idle: {memory(pids):.0f} MB", flush=True)
        with peak.watched():
            took, _ = imports.timed_import(client, contacts)
            print(f"{contacts:,} contacts imported in {took:.0f} s: {peak.mb:.0f} MB", flush=True)
            new = {"name": "Leads", "filter": {"all": [LEAD, YOUNG]}}
            path = f"/segments/{made(client, '/segments', new)['id']}"

            def is_filled() -> bool:
                return client.get(path, timeout=60).json()["countedAt"] is not None

            took = until(is_filled, "the segment is filled", seconds=PATIENCE_SECONDS, every=0.2)
            count = client.get(path).json()["count"]
            print(f"a segment of {count:,} filled in {took:.0f} s: {peak.mb:.0f} MB", flush=True)
            template = {"name": "T", "channel": "email", "category": "marketing", "content": NEWS}
            template_id = made(client, "/templates", template)["id"]
            new = {
                "name": "B",
                "segmentId": path.rsplit("/", maxsplit=1)[-1],
                "templateId": template_id,
            }
            path = f"/broadcasts/{made(client, '/broadcasts', new)['id']}"
            assert client.post(f"{path}/schedule", timeout=60).status_code == 200

            def is_frozen() -> bool:
                return bool(client.get(path, timeout=60).json()["audience"]["isComplete"])

            took = until(is_frozen, "it is frozen", seconds=PATIENCE_SECONDS, every=0.2)
            time.sleep(seconds)
            sent = client.get(path, timeout=60).json()["progress"]["sent"]
            print(f"frozen in {took:.0f} s, {sent:,} sent: {peak.mb:.0f} MB", flush=True)
    return peak.mb


def main(contacts: int = CONTACTS, seconds: float = SENDING_SECONDS) -> int:
    mb = measure(contacts, seconds)
    print(f"{mb:.0f} MB at the most (at most {MOST_MB:.0f})")
    return mb > MOST_MB


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(*map(int, words[:1]), *map(float, words[1:])))
