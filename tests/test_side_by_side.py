"""A deploy: the release before runs on, the schema changes below it, the new code starts beside it,
and nobody who calls meanwhile is told of an error, or gets a message twice or not at all."""

from __future__ import annotations

import asyncio
import subprocess
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import cycle
from pathlib import Path

import httpx2
import pytest

from app.database.migrations import sections
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
CHANGES = 20  # of the schema that are looked back over


# --- the release before ---------------------------------------------------------------------------


def git(*words: str) -> bytes:
    try:
        output = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"there is no history to look back over: {error}")
    return output.stdout


def before_the_newest_section() -> str:
    """The last commit whose schema is ours but for sections at the end."""
    ours = checksums(SCHEMA.read_text())
    changes = git("log", f"-{CHANGES}", "--format=%H^", "--", SCHEMA.name).decode().split()
    for commit in ["HEAD", *changes]:
        theirs = checksums(git("show", f"{commit}:{SCHEMA.name}").decode())
        if len(theirs) < len(ours) and theirs == ours[: len(theirs)]:
            return commit
    pytest.skip(f"none of the last {CHANGES} changes of the schema only added to it")


def checksums(schema: str) -> list[str]:
    return [section.checksum for section in sections(schema)]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its code."""
    directory = tmp_path_factory.mktemp("old")
    archive = git("archive", before_the_newest_section(), "app", "workers", SCHEMA.name)
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(directory, filter="data")
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
        """What members do, on tables old and new."""
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
    assert load.errors == []


# --- the deploy -----------------------------------------------------------------------------------


@pytest.fixture
def deployment(
    postgres_server: servers.PostgresServer, redis_url: str, old: Path, tmp_path: Path
) -> Iterator[tuple[Deployment, MailServer]]:
    schema = (old / SCHEMA.name).read_text()
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


@pytest.mark.timeout(150)  # the old code cannot be forked: it takes its time to start
def test_old_and_new_code_serve_side_by_side_while_the_schema_changes(
    deployment: tuple[Deployment, MailServer], old: Path
) -> None:
    here, mail = deployment

    def begin_old(command: str) -> Part:
        part = Part(command, {**here.environ, "PYTHONPATH": str(old)}, here.directory)
        here.parts.append(part)
        return part

    before = [begin_old("web"), begin_old("worker")]
    here.start("reasons")  # so that forks of the new code are made without delay later
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
        applying = here.start("migrate")
        assert applying.process.wait(60) == 0, applying.text
        assert "Applied section" in applying.text
        more_accepted(load)  # old code on the new schema
        port = servers.free_port()
        after = [here.start("web", PORT=str(port)), here.start("worker")]
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/readyz"), "the new web process is ready", after[0])
        load.urls.append(url)
        more_accepted(load)  # both at once
        load.urls.remove(here.url)
        more_accepted(load)
        for part in before:
            assert part.stop() == 0, part.text
        more_accepted(load)  # the new alone
    assert load.errors == []
    until(lambda: all_arrived(load, mail), "every message has arrived", after[1])
    arrived = Counter(to for one in mail.received for to in one.recipients if to != OLIVIA)
    assert arrived == Counter(load.accepted.values())


OLIVIA = "olivia@acme.test"


def all_arrived(load: Load, mail: MailServer) -> bool:
    arrived = {to for one in mail.received for to in one.recipients}
    return arrived >= set(load.accepted.values())
