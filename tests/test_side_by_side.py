"""A deploy: the release before runs on, the schema changes below it, the new code starts beside it,
and nobody who calls meanwhile is told of an error, or gets a message twice or not at all."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx2
import pytest

from app.net.tls import system_trust
from tests import servers
from tests.cast import WEBHOOK, any_address
from tests.conftest import SCHEMA
from tests.deployment import (
    A_CALL_EVERY,
    ROOT,
    Deployment,
    MailServer,
    Part,
    answers,
    made,
    owner_of,
    until,
)
from tests.test_story import say

pytestmark = pytest.mark.drill

ENOUGH = 12  # events accepted in each of the phases


# --- the next release -----------------------------------------------------------------------------

# A column more in a table that is written all the time, an index, a table.
NEXT_SECTION = """
-- section 9999: nicknames
ALTER TABLE runs ADD COLUMN nickname TEXT;
CREATE INDEX runs_by_nickname ON runs (workspace_id, nickname);
CREATE TABLE nicknames (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
"""


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of a release whose schema has one section more. Until 1.0.0 sections are edited in
    place, so no earlier commit can be the old release: that is our own code."""
    directory = tmp_path_factory.mktemp("new")
    for name in ("app", "workers"):
        shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / SCHEMA.name).write_text(SCHEMA.read_text() + NEXT_SECTION)
    return directory


# --- who calls meanwhile --------------------------------------------------------------------------

CALLS = (
    ("/contacts", None),
    ("/runs", None),
    ("/memberships", None),
    ("/settings/workspace", {"country": "DE"}),
    ("/messages/delivery-attempts", None),
)


@dataclass(slots=True)
class Load:
    """Senders and a member, at every web process that is said to be there."""

    hook: str  # the path of the webhook
    key: str
    urls: list[str]
    accepted: dict[str, str] = field(default_factory=dict)  # run → whom it is for
    errors: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def send_for_ever(self) -> None:
        """Twenty a second at most: what counts is the moment, and each is a mail in the end."""
        number = 0
        with httpx2.Client(timeout=10, verify=system_trust()) as client:
            while not self.ended.wait(0.05):
                number += 1
                for url in list(self.urls):
                    self._send(client, url, f"n{number}-{url.rpartition(':')[2]}@x.test")

    def _send(self, client: httpx2.Client, url: str, address: str) -> None:
        headers = {"X-Forwarded-For": any_address(), "Idempotency-Key": address}
        response = self._asked(client, "POST", url + self.hook, {"email": address}, headers)
        if response is not None and response.status_code == 202:
            self.accepted[response.json()["runId"]] = address

    def work_for_ever(self) -> None:
        """Do what members do, on tables old and new."""
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx2.Client(timeout=10, verify=system_trust(), headers=headers) as client:
            for path, body in cycle(CALLS):
                for url in list(self.urls):
                    self._asked(client, "PATCH" if body else "GET", url + path, body)
                    if self.ended.wait(A_CALL_EVERY):
                        return

    def _asked(
        self,
        client: httpx2.Client,
        method: str,
        url: str,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> httpx2.Response | None:
        try:
            response = client.request(method, url, json=body, headers=headers)
        except httpx2.HTTPError as error:
            self.errors.append(f"{method} {url}: {error!r}")
            return None
        if response.status_code >= 300:
            self.errors.append(f"{method} {url}: {response.status_code} {response.text}")
        return response


@contextmanager
def under(load: Load) -> Iterator[None]:
    threads = [threading.Thread(target=one) for one in (load.send_for_ever, load.work_for_ever)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        load.ended.set()
        for thread in threads:
            thread.join()


def more_accepted(load: Load) -> None:
    wanted = len(load.accepted) + ENOUGH
    until(lambda: len(load.accepted) >= wanted or load.errors, "events are accepted")
    assert load.errors == [], load.errors[0]


# --- the deploy -----------------------------------------------------------------------------------


@pytest.fixture
def deployment(
    postgres_server: servers.PostgresServer, redis_url: str, tmp_path: Path
) -> Iterator[tuple[Deployment, MailServer]]:
    schema = SCHEMA.read_text()
    database_url = asyncio.run(servers.new_database(postgres_server.tcp_url, schema))
    with (
        MailServer(tmp_path) as mail,
        Deployment(
            tmp_path,
            database_url=database_url,
            redis_url=redis_url,
            smtp_url=mail.url,
            TRUSTED_HOPS="1",
        ) as deployment,
    ):
        yield deployment, mail


@pytest.mark.timeout(150)  # the new code cannot be forked: it takes its time to start
def test_old_and_new_code_serve_side_by_side_while_the_schema_changes(
    deployment: tuple[Deployment, MailServer], new: Path
) -> None:
    here, mail = deployment

    def begin_new(command: str, **more: str) -> Part:
        part = Part(command, {**here.environ, "PYTHONPATH": str(new), **more}, here.directory)
        here.parts.append(part)
        return part

    before = [here.start("web"), here.start("worker")]
    until(lambda: answers(f"{here.url}/readyz"), "the old web process is ready", before[0])
    with owner_of(here, "Acme") as api:
        definition = {
            "name": "W",
            "state": "ACTIVE",
            "trigger": WEBHOOK,
            "steps": [say("hello", id="say")],
        }
        hook = httpx2.URL(made(api, "/workflows", definition)["trigger"]["webhookUrl"]).path
        key = api.headers["Authorization"].removeprefix("Bearer ")
    load = Load(hook, key, [here.url])
    with under(load):
        more_accepted(load)
        applying = begin_new("migrate")
        assert applying.process.wait(60) == 0, applying.text
        assert "Applied section 9999" in applying.text
        more_accepted(load)  # old code on the new schema
        port = servers.free_port()
        after = [begin_new("web", PORT=str(port)), begin_new("worker")]
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/readyz"), "the new web process is ready", after[0])
        load.urls.append(url)
        more_accepted(load)  # both at once
        load.urls.remove(here.url)
        more_accepted(load)
        for part in before:
            assert part.stop() == 0, part.text
        more_accepted(load)  # the new alone
    assert load.errors == [], load.errors[0]
    until(lambda: all_arrived(load, mail), "every message has arrived", after[1])
    arrived = Counter(to for one in mail.received for to in one.recipients if to != OLIVIA)
    assert arrived == Counter(load.accepted.values())


OLIVIA = "olivia@acme.test"


def all_arrived(load: Load, mail: MailServer) -> bool:
    arrived = {to for one in mail.received for to in one.recipients}
    return arrived >= set(load.accepted.values())
