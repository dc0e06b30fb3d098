"""Changes against traffic: an event sent after a change was answered is judged by the change.

python -m lab.chaos.changes [times] [--rate R]: the secret and the token are rotated, the workflow
is paused, resumed and archived, another path is looked at, and the workspace gets another country
and is suspended and resumed, each so many times, on two web processes that take R events a second
meanwhile. Ends with 1 when an event was judged by what was so before.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import orjson

from tests import servers
from tests.cast import any_address
from tests.conftest import SCHEMA
from tests.deployment import A_CALL_EVERY, Command, Deployment, made, owner_of

TIMES = 100
RATE = 200.0
PROBES = 6  # of each kind after each change, at once, on connections of their own
WEBHOOK = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
EITHER = {202, 401, 404, 422}  # what an event may be answered that overlaps a change
NATIONAL = "0212345678"  # is a number in France and in Italy


@dataclass(frozen=True, slots=True)
class Event:
    """A request to a webhook, and what it must be answered."""

    path: str
    body: Mapping[str, Any]
    status: int
    contact_id: str | None = None
    secret: str = ""

    async def sent(self, client: httpx2.AsyncClient) -> httpx2.Response:
        content = orjson.dumps(self.body)
        headers = {"Content-Type": "application/json", "X-Forwarded-For": any_address()}
        if self.secret:
            signature = hmac.digest(self.secret.encode(), content, "sha256").hex()
            headers["X-Service-Signature"] = f"sha256={signature}"
        return await client.post(self.path, content=content, headers=headers)


@dataclass(slots=True)
class Seen:
    changes: Counter[str] = field(default_factory=Counter)
    probes: int = 0
    beside: Counter[int] = field(default_factory=Counter)  # the answers to the traffic
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Owner:
    """Makes the changes, as their API has them; `operator` suspends."""

    client: httpx2.Client
    operator: Mapping[str, str]
    workspace_id: str

    def workflow(self, **trigger: Any) -> dict[str, Any]:
        body = {"name": "Changing", "state": "ACTIVE", "steps": []}
        return self._path(made(self.client, "/workflows", {**body, "trigger": WEBHOOK | trigger}))

    def patch(self, workflow: Mapping[str, Any], **changes: Any) -> None:
        self._asked("PATCH", f"/workflows/{workflow['id']}", changes)

    def rotated(self, workflow: Mapping[str, Any]) -> dict[str, Any]:
        rotated = self._asked("POST", f"/workflows/{workflow['id']}/webhook/rotate")
        return self._path({**workflow, "trigger": rotated})

    def country(self, country: str) -> None:
        self._asked("PATCH", "/settings/workspace", {"country": country})

    def suspended(self, is_suspended: bool) -> None:
        act = "suspend" if is_suspended else "resume"
        url = f"/admin/workspaces/{self.workspace_id}/{act}"
        self._asked("POST", url, headers=self.operator)

    def contact(self, **values: str) -> str:
        return str(made(self.client, "/contacts", values)["id"])

    def _asked(
        self, method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        time.sleep(A_CALL_EVERY)
        answer = self.client.request(method, url, json=body, headers=headers)
        assert answer.is_success, f"{method} {url}: {answer.text}"
        found: dict[str, Any] = answer.json()
        return found

    def _path(self, workflow: dict[str, Any]) -> dict[str, Any]:
        url = str(workflow["trigger"]["webhookUrl"])
        return {**workflow, "path": url[url.index("/v1/") :]}


Changes: TypeAlias = Iterator[list[Event]]  # each is made, and then these events are to be sent
ADA = {"email": "ada@customer.example"}


def secrets_rotated(owner: Owner) -> Changes:
    workflow = owner.workflow(signingSecret="secret number 0 of this campaign")
    number = 0
    while True:
        old, number = f"secret number {number} of this campaign", number + 1
        new = f"secret number {number} of this campaign"
        owner.patch(workflow, trigger={"signingSecret": new})
        path = workflow["path"]
        yield [Event(path, ADA, 202, secret=new), Event(path, ADA, 401, secret=old)]


def tokens_rotated(owner: Owner) -> Changes:
    workflow = owner.workflow()
    while True:
        old, workflow = workflow, owner.rotated(workflow)
        yield [Event(workflow["path"], ADA, 202), Event(old["path"], ADA, 404)]


def paused_and_resumed(owner: Owner) -> Changes:
    workflow = owner.workflow()
    while True:
        for state, status in (("PAUSED", 404), ("ACTIVE", 202)):
            owner.patch(workflow, state=state)
            yield [Event(workflow["path"], ADA, status)]


def made_and_archived(owner: Owner) -> Changes:
    while True:
        workflow = owner.workflow()
        yield [Event(workflow["path"], ADA, 202)]  # what is archived next is under traffic
        owner.patch(workflow, state="ARCHIVED")
        yield [Event(workflow["path"], ADA, 404)]


def paths_changed(owner: Owner) -> Changes:
    people = {name: owner.contact(email=f"{name}@customer.example") for name in ("bob", "eve")}
    body = {name: f"{name}@customer.example" for name in people}
    workflow = owner.workflow(contactPath="bob")
    while True:
        for name in ("eve", "bob"):
            owner.patch(workflow, trigger={"contactPath": name})
            yield [Event(workflow["path"], body, 202, people[name])]


def countries_changed(owner: Owner) -> Changes:
    numbers = {"FR": "+33212345678", "IT": "+390212345678"}
    people = {country: owner.contact(phone=number) for country, number in numbers.items()}
    workflow = owner.workflow(contactLookup="phone", createContact=False)
    while True:
        for country in numbers:
            owner.country(country)
            yield [Event(workflow["path"], {"phone": NATIONAL}, 202, people[country])]


def suspended_and_resumed(owner: Owner) -> Changes:
    workflow = owner.workflow()
    while True:
        for is_suspended, status in ((True, 404), (False, 202)):
            owner.suspended(is_suspended)
            yield [Event(workflow["path"], ADA, status)]


# The last one ends what the others need: it is made when they are done.
KINDS: Mapping[str, Callable[[Owner], Changes]] = {
    "secret rotated": secrets_rotated,
    "token rotated": tokens_rotated,
    "paused and resumed": paused_and_resumed,
    "made and archived": made_and_archived,
    "path changed": paths_changed,
    "country changed": countries_changed,
    "suspended and resumed": suspended_and_resumed,
}


async def campaign(owner: Owner, times: int, rate: float) -> Seen:
    seen = Seen()
    base = str(owner.client.base_url)
    for name, kind in KINDS.items():
        changes = await asyncio.to_thread(kind, owner)
        number = 2 * times if " and " in name else times
        current: list[list[Event]] = [await asyncio.to_thread(next, changes)]
        async with httpx2.AsyncClient(base_url=base, timeout=10) as beside:
            traffic = asyncio.create_task(load(beside, current, rate, seen))
            for _ in range(number):
                current[0] = events = await asyncio.to_thread(next, changes)
                seen.changes[name] += 1
                await probe(base, name, events, seen)
            traffic.cancel()
            await asyncio.wait([traffic])
    return seen


async def load(
    client: httpx2.AsyncClient, current: list[list[Event]], rate: float, seen: Seen
) -> None:
    """Events of the present kind at this rate, whatever they are answered."""

    async def one(event: Event) -> None:
        answer = await event.sent(client)
        seen.beside[answer.status_code] += 1
        if answer.status_code not in EITHER:
            seen.wrong.append(f"beside the changes: {answer.status_code} {answer.text}")

    async with asyncio.TaskGroup() as group:
        due = time.monotonic()
        while True:
            # Refused ones are read anew, which would refresh what the others rest on.
            accepted = [event for event in current[0] if event.status == 202]
            for event in accepted or current[0]:
                group.create_task(one(event))
                due += 1 / rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))


async def probe(base: str, name: str, events: list[Event], seen: Seen) -> None:
    async def one(event: Event) -> None:
        async with httpx2.AsyncClient(base_url=base, timeout=10) as client:
            answer = await event.sent(client)
        seen.probes += 1
        contact_id = answer.json().get("contactId")
        if answer.status_code != event.status or event.contact_id not in (None, contact_id):
            seen.wrong.append(f"{name}, and {answer.status_code} answered: {answer.text}")

    await asyncio.gather(*(one(event) for event in events for _ in range(PROBES)))


def tried(urls: Mapping[str, str], times: int, rate: float) -> Seen:
    with (
        tempfile.TemporaryDirectory() as directory,
        Deployment(
            Path(directory),
            **urls,
            smtp_url="smtp://127.0.0.1:1",
            WEB_CONCURRENCY="2",
            TRUSTED_HOPS="1",
        ) as deployment,
    ):
        deployment.web()
        with owner_of(deployment, "Acme") as client:
            email = "olivia@acme.test"
            Command("grant-super-admin", email, "--unverified", environ=deployment.environ).ended()
            account = {"email": email, "password": "correct horse battery"}
            session = made(client, "/auth/token", account)
            operator = {"Authorization": f"Bearer {session['accessToken']}"}
            workspace_id = client.get("/settings/workspace").json()["id"]
            return asyncio.run(campaign(Owner(client, operator, workspace_id), times, rate))


def main(times: int, rate: float) -> int:
    postgres, redis = servers.postgres_server(durable=True), servers.redis_server()
    postgres.start()
    redis.start()
    url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
    seen = tried({"database_url": url, "redis_url": redis.url}, times, rate)
    redis.remove()
    postgres.remove()
    for name, number in seen.changes.items():
        print(f"{name:24}{number:6} times")
    print(f"{seen.probes:,} events after a change, {len(seen.wrong)} judged by what was before")
    print(
        f"{sum(seen.beside.values()):,} beside them, answered {dict(sorted(seen.beside.items()))}"
    )
    for line in seen.wrong[:20]:
        print(f"  {line}")
    return bool(seen.wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lab.chaos.changes")
    parser.add_argument("times", nargs="?", type=int, default=TIMES)
    parser.add_argument("--rate", type=float, default=RATE)
    given = parser.parse_args()
    sys.exit(main(given.times, given.rate))
