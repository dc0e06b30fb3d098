"""Endpoints by the API: made, changed, rotated, replayed; their secrets shown once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import httpx2
import pytest
from standardwebhooks.webhooks import Webhook

from app.net.egress import Egress
from app.process import Process
from app.routes import event_endpoints
from app.web.throttle import Rule
from tests import cast as cast_module
from tests.cast import Cast, settle
from tests.listener import Listener, says
from tests.tables import each_row

URL = "https://hooks.example/tidings"


@pytest.fixture
async def open_process(process: Process) -> AsyncIterator[Process]:
    """Loopback is opened, where the listeners are."""
    egress = Egress([ip_network("127.0.0.0/8")])
    yield replace(process, egress=egress)
    await egress.close()


@pytest.fixture
async def client(open_process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with cast_module.client(open_process) as client:
        yield client


async def attempts(cast: Cast, id: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await cast.vic.read(f"/event-endpoints/{id}/attempts{query}"))[
        "data"
    ]
    return found


async def test_an_endpoint_s_secret_is_shown_once_and_verifies_what_comes(
    cast: Cast, open_process: Process
) -> None:
    async with Listener() as listener:
        made = await cast.adam.post("/event-endpoints", {"url": listener.url, "description": "CRM"})
        assert made.status_code == 201
        endpoint = made.json()
        assert endpoint["secret"].startswith("whsec_")
        assert (endpoint["enabled"], endpoint["types"]) == (True, [])
        read = await cast.vic.read(made.headers["location"])
        assert "secret" not in read
        assert {**read, "secret": endpoint["secret"]} == endpoint
        await cast.ed.made("/contacts", {"email": "ada@x.test"})
        await settle(open_process)
        rotated = (await cast.adam.post(f"/event-endpoints/{endpoint['id']}/rotate")).json()
        assert rotated["secret"] != endpoint["secret"]
        await cast.ed.made("/contacts", {"email": "bob@x.test"})
        await settle(open_process)
    first, second = listener.asked
    assert Webhook(endpoint["secret"]).verify(first.body, dict(first.headers))
    for secret in (endpoint["secret"], rotated["secret"]):
        assert Webhook(secret).verify(second.body, dict(second.headers))
    newest, oldest = await attempts(cast, endpoint["id"])
    assert (newest["type"], newest["status"]) == ("contact.created", "SUCCEEDED")
    assert newest["response"] == {"status": 200, "body": '{"ok":true}'}
    assert oldest["eventId"] == first.header("webhook-id")


async def test_a_change_is_judged_and_a_disabled_endpoint_says_why(cast: Cast) -> None:
    made = await cast.adam.made("/event-endpoints", {"url": URL})
    path = f"/event-endpoints/{made['id']}"
    changed = (await cast.adam.patch(path, {"enabled": False, "types": ["run.failed"] * 2})).json()
    assert changed["disabledReason"] == "manual"
    assert changed["disabledAt"] is not None
    assert changed["types"] == ["run.failed"]
    back = (await cast.adam.patch(path, {"enabled": True})).json()
    assert (back["disabledReason"], back["disabledAt"]) == (None, None)
    for patch in ({"types": ["run.flown"]}, {"url": "ftp://x.test"}, {"secret": "whsec_x"}):
        assert (await cast.adam.patch(path, patch)).status_code == 422
    assert (await cast.adam.delete(path)).status_code == 204
    assert (await cast.adam.get(path)).status_code == 404


@each_row(
    "url",
    ["", "hooks.example", "file:///etc/passwd", "gopher://x.test", "https://ada:pw@hooks.example",
     "http://10.0.0.1/", "http://169.254.169.254/latest", "http://[fd00:ec2::254]/",
     "http://[::ffff:10.0.0.1]/", "https://1.1.1.1:22/", "http://x.test\\@10.0.0.1/",
     "http://127.0.0.1:8000/v1/webhooks/in/abc", "http://x.test/\r\nX: 1", "http://[::1%25lo]/"],
)  # fmt: skip
async def test_a_url_that_cannot_be_right_is_refused_at_once(cast: Cast, url: str) -> None:
    response = await cast.adam.post("/event-endpoints", {"url": url})
    assert response.status_code == 422, response.text
    assert [error["pointer"] for error in response.json()["errors"]] == ["/url"]


async def test_there_is_an_end_to_how_many_there_are(cast: Cast) -> None:
    for number in range(event_endpoints.MOST):
        await cast.adam.made("/event-endpoints", {"url": f"{URL}/{number}"})
    assert (await cast.adam.post("/event-endpoints", {"url": URL})).status_code == 409


async def test_who_polls_an_endpoint_sees_it_fail_and_recover(
    cast: Cast, open_process: Process
) -> None:
    async with Listener(says(status="500 Oops")) as listener:
        made = await cast.adam.post("/event-endpoints", {"url": listener.url})
        path, well = f"/event-endpoints/{made.json()['id']}", made.headers["etag"]

        async def happens(email: str) -> None:
            await cast.ed.made("/contacts", {"email": email})
            await settle(open_process)

        async def polled(tag: str) -> httpx2.Response:
            return await cast.adam.get(path, headers={"If-None-Match": tag})

        assert (await polled(well)).status_code == 304
        await happens("ada@x.test")
        failing = await polled(well)
        assert (failing.status_code, failing.json()["failingSince"] is None) == (200, False)
        tag = failing.headers["etag"]
        assert (await polled(tag)).status_code == 304
        # It is nothing that a change could overwrite: the tag of before still matches.
        patch = {"description": "The till"}
        changed = await cast.adam.patch(path, patch, headers={"If-Match": well})
        assert changed.status_code == 200, changed.text
        assert (await polled(changed.headers["etag"])).status_code == 304
        rotated = await cast.adam.post(f"{path}/rotate")
        tag = rotated.headers["etag"]
        assert (await polled(tag)).status_code == 304
        listener.respond = says()
        await happens("bob@x.test")
        recovered = await polled(tag)
        assert (recovered.status_code, recovered.json()["failingSince"]) == (200, None)


async def test_an_attempt_is_replayed_while_its_retry_is_pending(
    cast: Cast, open_process: Process
) -> None:
    async with Listener(says(status="503 Away")) as listener:
        made = await cast.adam.made("/event-endpoints", {"url": listener.url})
        await cast.ed.made("/contacts", {"email": "ada@x.test"})
        await settle(open_process)
        [waiting] = await attempts(cast, made["id"])
        assert (waiting["status"], len(waiting["tries"])) == ("QUEUED", 1)
        listener.respond = says()
        path = f"/event-endpoints/{made['id']}/attempts/{waiting['id']}/replay"
        assert (await cast.adam.post(path)).status_code == 202
        await settle(open_process)
        later = await attempts(cast, made["id"])
    assert [one["status"] for one in later] == ["SUCCEEDED", "QUEUED"]


async def test_one_attempt_is_replayed_under_its_own_id(cast: Cast, open_process: Process) -> None:
    async with Listener() as listener:
        made = await cast.adam.made("/event-endpoints", {"url": listener.url})
        await cast.ed.made("/contacts", {"email": "ada@x.test"})
        [waiting] = await attempts(cast, made["id"])
        path = f"/event-endpoints/{made['id']}/attempts/{waiting['id']}/replay"
        early = await cast.adam.post(path)  # while it has not been tried yet
        assert (early.status_code, early.json()["status"]) == (202, "QUEUED")
        await settle(open_process)
        again = await cast.adam.post(path)
        assert (again.status_code, again.json()["status"]) == (202, "QUEUED")
        await settle(open_process)
    assert {one.header("webhook-id") for one in listener.asked} == {waiting["eventId"]}
    assert len({one.body for one in listener.asked}) == 1
    assert [one["status"] for one in await attempts(cast, made["id"])] == ["SUCCEEDED"] * 3
    entry = (await cast.olivia.read("/audit-logs?limit=1"))["data"][0]
    assert (entry["action"], entry["resource"]["id"]) == ("event_endpoint.replayed", made["id"])
    other = await cast.adam.made("/event-endpoints", {"url": URL})
    elsewhere = f"/event-endpoints/{other['id']}/attempts/{waiting['id']}/replay"
    assert (await cast.adam.post(elsewhere)).status_code == 404


async def test_what_an_endpoint_missed_is_replayed_since_a_time(
    cast: Cast, open_process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_endpoints, "REPLAYED_AT_ONCE", 2)
    async with Listener(says(status="410 Gone")) as listener:
        made = await cast.adam.made("/event-endpoints", {"url": listener.url})
        path = f"/event-endpoints/{made['id']}"
        for name in "abcd":  # the first finds it gone, the others find it disabled
            await cast.ed.made("/contacts", {"email": f"{name}@x.test"})
            await settle(open_process)
        since = {"since": made["createdAt"]}
        assert (await cast.adam.post(f"{path}/replay", since)).status_code == 409
        listener.respond = says()
        await cast.adam.patch(path, {"enabled": True})
        replayed = [(await cast.adam.post(f"{path}/replay", since)).json() for _ in range(3)]
        assert [one["replayed"] for one in replayed] == [2, 2, 0]
        assert [one["more"] for one in replayed] == [True, False, False]
        await settle(open_process)
    assert len(listener.asked) == 5
    assert len({asked.header("webhook-id") for asked in listener.asked}) == 4
    assert len(await attempts(cast, made["id"], "?status=SUCCEEDED")) == 4
    assert len(await attempts(cast, made["id"], "?status=FAILED")) == 1
    async with open_process.database.read() as db:
        later = {"since": (await db.now() + timedelta(seconds=1)).isoformat()}
    assert (await cast.adam.post(f"{path}/replay", later)).json()["replayed"] == 0


async def test_a_workspace_replays_so_often_in_a_minute_and_no_more(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would have us call a stranger's server as often as it likes."""
    monkeypatch.setattr(event_endpoints, "REPLAYS", Rule("few-replays", 2, 60))
    paths = []
    for person, url in ((cast.adam, URL), (cast.adam, f"{URL}/2"), (cast.mallory, URL)):
        made = await person.made("/event-endpoints", {"url": url})
        paths.append(f"/event-endpoints/{made['id']}/replay")
    since = {"since": "2026-01-01T00:00:00Z"}
    for path in paths[:2]:  # whichever endpoint it is for
        assert (await cast.adam.post(path, since)).status_code == 202
    refused = await cast.adam.post(paths[0], since)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert "At most 2 requests" in refused.json()["detail"]
    assert 0 < int(refused.headers["Retry-After"]) <= 60
    assert (await cast.mallory.post(paths[2], since)).status_code == 202
