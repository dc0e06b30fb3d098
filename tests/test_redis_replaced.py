"""Redis holds hints, not work: it may be lost, and an empty one put at another address."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from app.net.tls import system_trust
from app.process import SCHEMA
from lab.chaos.failover import webhook_of
from tests import servers
from tests.deployment import Deployment, MailServer, owner_of, until

pytestmark = pytest.mark.drill

EVENTS = 5  # before, and after


def accepted(hook: str, first: int) -> None:
    with httpx2.Client(timeout=10, verify=system_trust()) as client:
        for number in range(first, first + EVENTS):
            answer = client.post(hook, json={"email": f"p{number}@acme.test"})
            assert answer.status_code == 202, answer.text


@pytest.mark.timeout(120)
def test_what_was_accepted_before_is_done_with_an_empty_redis_elsewhere(
    tmp_path: Path, postgres_server: servers.PostgresServer
) -> None:
    url = asyncio.run(servers.new_database(postgres_server.url, SCHEMA))
    lost, other = servers.redis_server(), servers.redis_server()
    if isinstance(lost, servers.GivenServer):
        pytest.skip("REDIS_TEST_URL names a server that must not be lost")
    lost.start()
    with (
        MailServer(tmp_path) as mail,
        Deployment(tmp_path, database_url=url, redis_url=lost.url, smtp_url=mail.url) as tidings,
    ):
        web = tidings.web()
        with owner_of(tidings, "Acme") as client:
            hook = webhook_of(client)
        accepted(hook, 0)
        web.stop()
        lost.remove()
        other.start()
        tidings.environ["REDIS_URL"] = other.url
        tidings.web()
        worker = tidings.start("worker")
        accepted(hook, EVENTS)

        def arrived() -> Counter[str]:
            to = Counter(address for one in mail.received for address in one.recipients)
            return Counter({name: n for name, n in to.items() if name.startswith("p")})

        until(lambda: len(arrived()) == 2 * EVENTS, "every message has arrived", worker, 60)
        assert set(arrived().values()) == {1}
    other.remove()
