"""The record of what came to a webhook, retries by a member, and the path picker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.errors import Unavailable
from app.intake import lookup
from app.machine.secrets import MASK
from app.process import Process
from app.store import idempotency
from tests.cast import WEBHOOK, Cast, Person, any_address
from tests.routes.test_webhooks import EVENT, SECRET, send, sending, signed
from tests.web.test_idempotency import confirmations

PAYLOADS = Path(__file__).parents[1] / "payloads"


@pytest.fixture
async def sender(process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with sending(process, any_address()) as client:
        yield client


class Hook:
    """A workflow of Ed's, and what is told of its requests."""

    def __init__(self, made: dict[str, Any], process: Process) -> None:
        self.url = f"/workflows/{made['id']}"
        self.token = made["trigger"]["webhookUrl"].rpartition("/")[2]
        self._process = process

    async def requests(self, person: Person, query: str = "") -> list[dict[str, Any]]:
        await self._process.batches.close()  # refused ones are written after their answer
        found: list[dict[str, Any]] = (await person.read(f"{self.url}/webhook-requests{query}"))[
            "data"
        ]
        return found


async def hook(cast: Cast, process: Process, **trigger: Any) -> Hook:
    body = {"name": "W", "state": "ACTIVE", "trigger": {**WEBHOOK, **trigger}}
    return Hook(await cast.ed.made("/workflows", body), process)


async def refused(cast: Cast, process: Process, sender: httpx2.AsyncClient) -> tuple[Hook, str]:
    """A request for a contact that does not exist yet, and its id."""
    unknown = await hook(cast, process, createContact=False)
    assert (await send(sender, unknown.token)).status_code == 404
    [request] = await unknown.requests(cast.vic)
    return unknown, request["id"]


# --- what is shown --------------------------------------------------------------------------------


async def test_every_request_is_shown_and_why_it_was_refused(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    mine = await hook(cast, process, contactPath="customer.email", signingSecret=SECRET)
    nested = b'{"customer": {"mail": "ada@example.com"}, "email": "ada@example.com"}'
    good = b'{"customer": {"email": "ada@example.com"}}'
    for body, key, status in ((nested, "one", 422), (good, "two", 202), (good, "two", 202)):
        response = await send(
            sender, mine.token, body, X_Service_Signature=signed(body), Idempotency_Key=key
        )
        assert response.status_code == status
    repeated, accepted, unresolved = await mine.requests(cast.vic)
    assert [one["outcome"] for one in (repeated, accepted, unresolved)] == [
        "REPEATED",
        "ACCEPTED",
        "REFUSED",
    ]
    assert accepted["runId"] == repeated["runId"] == response.json()["runId"]
    assert (unresolved["status"], unresolved["code"]) == (422, "lookup_unresolved")
    assert "Did you mean" in unresolved["detail"]
    assert unresolved["headers"]["idempotency-key"] == "one"
    assert "sha256" not in unresolved["headers"]["x-service-signature"]
    assert unresolved["ip"]
    for one, body in ((unresolved, nested), (accepted, good)):
        shown = await cast.vic.read(f"/webhook-requests/{one['id']}")
        assert shown == {**one, "definitionId": mine.url.rpartition("/")[2], "body": body.decode()}
    for query, found in (
        ("?outcome=REFUSED", [unresolved]),
        ("?code=lookup_unresolved", [unresolved]),
        ("?outcome=ACCEPTED&limit=1", [accepted]),
        ("?code=invalid", []),
    ):
        assert await mine.requests(cast.vic, query) == found, query
    assert (await cast.vic.get(f"{mine.url}/webhook-requests?outcome=LOST")).status_code == 422
    assert (await cast.mallory.get(f"{mine.url}/webhook-requests")).status_code == 404
    automation = mine.url.replace("workflows", "automations")
    assert (await cast.vic.get(f"{automation}/webhook-requests")).status_code == 404


async def test_the_owner_is_told_which_kind_of_401_it_was(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    mine = await hook(cast, process, signingSecret=SECRET)
    other = json.dumps(json.loads(EVENT), separators=(",", ":")).encode()
    answers = set()
    for signature, word in (
        (None, "had no"),
        ("sha1=00", "was not one header"),
        (signed(EVENT, "another secret"), "another secret"),
        (signed(other), "the very bytes"),
    ):
        headers = {} if signature is None else {"X_Service_Signature": signature}
        answer = await send(
            sender, mine.token, b'{"email": "ada@example.com", "price": 1.10}', **headers
        )
        answers.add((answer.status_code, answer.json()["detail"]))
        assert word in (await mine.requests(cast.vic))[0]["detail"]
    assert len(answers) == 1  # the sender is not


# --- again ----------------------------------------------------------------------------------------


async def test_a_member_retries_what_was_refused_and_it_becomes_one_run(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    _, id = await refused(cast, process, sender)
    again = await cast.ed.post(f"/webhook-requests/{id}/retry")
    assert (again.status_code, again.json()["code"]) == (404, "contact_not_found")
    contact = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    assert (await cast.vic.post(f"/webhook-requests/{id}/retry")).status_code == 403
    retries = [cast.ed.post(f"/webhook-requests/{id}/retry") for _ in range(5)]
    answers = [answer for answer in await asyncio.gather(*retries) if answer.status_code == 202]
    assert answers
    receipt = answers[0].json()
    assert all(answer.json() == receipt for answer in answers)
    assert receipt["contactId"] == contact["id"]
    [run] = (await cast.vic.read(f"/runs?contactId={contact['id']}"))["data"]
    assert run["id"] == receipt["runId"]
    shown = await cast.vic.read(f"/webhook-requests/{id}")
    assert (shown["outcome"], shown["status"], shown["code"]) == ("ACCEPTED", 202, None)
    assert (shown["runId"], shown["contactId"]) == (run["id"], contact["id"])
    assert shown["body"] == EVENT.decode()
    assert "retried by ed" in shown["detail"]
    last = await cast.ed.post(f"/webhook-requests/{id}/retry")
    assert (last.status_code, last.json()["code"]) == (409, "conflict")


async def test_a_copy_of_a_retry_gets_its_first_answer_again(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    _, id = await refused(cast, process, sender)
    url = f"/webhook-requests/{id}/retry"
    for key in ("k" * 256, ""):
        malformed = await cast.ed.post(url, headers={"Idempotency-Key": key})
        assert (malformed.status_code, malformed.json()["code"]) == (400, "malformed_request")
    keyed = {"Idempotency-Key": "k"}
    early = await cast.ed.post(url, headers=keyed)
    assert (early.status_code, early.json()["code"]) == (404, "contact_not_found")
    await cast.ed.made("/contacts", {"email": "ada@example.com"})
    first = await cast.ed.post(url, headers=keyed)  # what was refused has left the key free
    assert (first.status_code, "idempotency-replayed" in first.headers) == (202, False)
    copies = await asyncio.gather(*(cast.ed.post(url, headers=keyed) for _ in range(5)))
    for copy in copies:
        assert (copy.status_code, copy.content) == (202, first.content)
        assert copy.headers["idempotency-replayed"] == "true"
    for other in ({"Idempotency-Key": "other"}, {}):
        again = await cast.ed.post(url, headers=other)
        assert (again.status_code, again.json()["code"]) == (409, "conflict")
    [run] = (await cast.vic.read("/runs"))["data"]
    assert first.json() == {"runId": run["id"], "contactId": run["contactId"]}
    trail = (await cast.olivia.read("/audit-logs?action=webhook_request.retried"))["data"]
    assert [entry["resource"]["id"] for entry in trail] == [id]


async def test_retries_with_one_key_at_once_are_one_run(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    _, id = await refused(cast, process, sender)
    await cast.ed.made("/contacts", {"email": "ada@example.com"})
    url, keyed = f"/webhook-requests/{id}/retry", {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(cast.ed.post(url, headers=keyed) for _ in range(10)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    accepted = [answer for answer in answers if answer.status_code == 202]
    fresh = [one for one in accepted if "idempotency-replayed" not in one.headers]
    assert (len(fresh), len({one.content for one in accepted})) == (1, 1)
    assert len((await cast.vic.read("/runs"))["data"]) == 1


async def test_a_copy_of_a_retry_is_answered_once_what_it_repeats_is_safe(
    cast: Cast, process: Process, sender: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, id = await refused(cast, process, sender)
    await cast.ed.made("/contacts", {"email": "ada@example.com"})
    url, keyed = f"/webhook-requests/{id}/retry", {"Idempotency-Key": "k"}
    first = await cast.ed.post(url, headers=keyed)
    confirmed = confirmations(monkeypatch)
    copy = await cast.ed.post(url, headers=keyed)
    assert (copy.status_code, copy.content, len(confirmed)) == (202, first.content, 1)


async def test_a_retry_that_could_not_be_recorded_is_the_same_run_when_it_is_sent_again(
    cast: Cast, process: Process, sender: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is committed before the transaction of the key."""
    _, id = await refused(cast, process, sender)
    await cast.ed.made("/contacts", {"email": "ada@example.com"})
    url, keyed = f"/webhook-requests/{id}/retry", {"Idempotency-Key": "k"}
    insert = idempotency.insert

    async def failing(*given: Any, **options: Any) -> None:
        await insert(*given, **options)
        raise Unavailable("on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(idempotency, "insert", failing)
        assert (await cast.ed.post(url, headers=keyed)).status_code == 503
    [run] = (await cast.vic.read("/runs"))["data"]
    assert (await cast.vic.read(f"/webhook-requests/{id}"))["outcome"] == "REFUSED"
    for is_copy in (False, True):
        again = await cast.ed.post(url, headers=keyed)
        assert (again.status_code, again.json()["runId"]) == (202, run["id"])
        assert ("idempotency-replayed" in again.headers) is is_copy
    assert (await cast.vic.read("/runs"))["data"] == [run]
    assert (await cast.vic.read(f"/webhook-requests/{id}"))["runId"] == run["id"]


async def test_who_cannot_read_the_answer_to_a_retry_starts_no_run(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    _, id = await refused(cast, process, sender)
    await cast.ed.made("/contacts", {"email": "ada@example.com"})
    answer = await cast.ed.post(f"/webhook-requests/{id}/retry", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")
    assert (await cast.vic.read("/runs"))["data"] == []


async def test_a_retry_and_the_sender_s_own_are_one_run(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    mine = await hook(cast, process, createContact=False)
    assert (await send(sender, mine.token, Idempotency_Key="k")).status_code == 404
    [request] = await mine.requests(cast.vic)
    await cast.ed.made("/contacts", {"email": "ada@example.com"})
    first = await send(sender, mine.token, Idempotency_Key="k")
    retried = await cast.ed.post(f"/webhook-requests/{request['id']}/retry")
    assert (retried.status_code, retried.json()) == (202, first.json())
    assert len((await cast.vic.read("/runs"))["data"]) == 1


async def test_a_member_vouches_for_the_signature_and_for_nothing_else(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    mine = await hook(cast, process, signingSecret=SECRET)
    for body, status in ((EVENT, 202), (b"{", 400), (b"[]", 422), (b"{}", 422)):
        assert (await send(sender, mine.token, body)).status_code == 401
        request = (await mine.requests(cast.vic))[0]
        retried = await cast.ed.post(f"/webhook-requests/{request['id']}/retry")
        assert retried.status_code == status, body
    assert len((await cast.vic.read("/runs"))["data"]) == 1


async def test_a_request_with_masked_headers_is_retried(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    mine = await hook(cast, process, signingSecret=SECRET)
    headers = {
        "X_Service_Signature": signed(EVENT, "another secret"),
        "Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }
    for body, status in ((EVENT, 202), (b"{}", 422)):
        assert (await send(sender, mine.token, body, **headers)).status_code == 401
        request = (await mine.requests(cast.vic))[0]
        assert request["headers"]["traceparent"] == MASK
        retried = await cast.ed.post(f"/webhook-requests/{request['id']}/retry")
        assert retried.status_code == status, body
        latest = (await mine.requests(cast.vic))[0]
        assert latest["headers"]["x-service-signature"] == MASK


async def test_today_s_configuration_decides(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    mine, id = await refused(cast, process, sender)
    await cast.ed.patch(mine.url, {"state": "PAUSED"})
    paused = await cast.ed.post(f"/webhook-requests/{id}/retry")
    assert (paused.status_code, paused.json()["code"]) == (409, "conflict")
    assert "paused" in paused.json()["detail"]
    await cast.ed.patch(mine.url, {"state": "ACTIVE", "trigger": {"createContact": True}})
    assert (await cast.ed.post(f"/webhook-requests/{id}/retry")).status_code == 202


async def test_a_body_that_takes_long_is_computed_once_beside_the_loop_when_it_is_retried(
    cast: Cast, process: Process, sender: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = await hook(cast, process, signingSecret=SECRET, dedupePath="id")
    long = b'{"email": "ada@example.com", "id": "e1", "a": [%b0]}' % (b"0," * 31_000)
    assert (await send(sender, mine.token, long)).status_code == 401
    [request] = await mine.requests(cast.vic)
    parse = lookup.parse
    computed, beside = list[Any](), list[Any]()

    def short(body: bytes, *more: Any) -> Any:
        assert beside or len(body) <= lookup.SHORT, "a long body is parsed on the event loop"
        return parse(body, *more)

    async def counted(job: Any, **_options: Any) -> Any:
        computed.append(job)
        beside.append(job)
        try:
            return job.work(*job.given)
        finally:
            beside.clear()

    monkeypatch.setattr(lookup, "parse", short)
    monkeypatch.setattr(process.compute, "apart", counted)
    retried = await cast.ed.post(f"/webhook-requests/{request['id']}/retry")
    assert (retried.status_code, len(computed)) == (202, 1)
    again = await send(sender, mine.token, long, X_Service_Signature=signed(long))
    assert (again.status_code, again.json()) == (202, retried.json())


async def test_what_was_not_kept_whole_is_not_retried(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    mine = await hook(cast, process, createContact=False)
    large = b'{"email": "ada@example.com", "pad": "' + b"x" * 65_536 + b'"}'
    assert (await send(sender, mine.token, large)).status_code == 404
    [request] = await mine.requests(cast.vic)
    retried = await cast.ed.post(f"/webhook-requests/{request['id']}/retry")
    assert (retried.status_code, retried.json()["code"]) == (409, "conflict")


# --- the path picker ------------------------------------------------------------------------------


async def test_the_path_picker_tells_what_came_and_what_would_find_a_contact(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    await cast.adam.patch("/settings/workspace", {"country": "US"})
    for number in range(10):
        await cast.ed.made("/contacts", {"metadata": {"crmId": f"crm-{number}"}})
    [known] = (await cast.vic.read("/contacts?limit=1"))["data"]
    mine = await hook(cast, process, contactPath="nothing.here")
    for number in range(10):
        body = {
            "id": f"evt_{number}",
            "number": f"415555013{number}",
            "customer": {"email": f"a{number}@example.com", "crm": f"crm-{number}"},
            "phones": ["(415) 555-0132"] if number else [],
            "owner": known["id"],
        }
        assert (await send(sender, mine.token, json.dumps(body).encode())).status_code == 422
    assert (await send(sender, mine.token, b"{")).status_code == 400
    await mine.requests(cast.vic)
    schema = await cast.vic.read(f"{mine.url}/webhook-schema")
    paths = {one["path"]: one for one in schema["paths"]}
    assert list(paths) == [
        "id",
        "number",
        "owner",
        "customer.email",
        "customer.crm",
        "phones[0]",
        "phones",
    ]
    assert paths["customer.email"] == {
        "path": "customer.email",
        "types": ["string"],
        "presence": 1,
        "example": "a9@example.com",
    }
    assert paths["phones[0]"]["presence"] == 0.9
    lookups = [
        (one["contactLookup"], one["contactPath"], one["metadataField"], one["share"])
        for one in schema["lookups"]
    ]
    assert lookups == [
        ("email", "customer.email", None, 1),
        ("contact_id", "owner", None, 1),
        ("contact_id", "customer.crm", "crmId", 1),
        ("phone", "phones[0]", None, 0.9),
    ]
    for one in schema["lookups"]:  # each is a trigger that can be saved
        trigger = {name: one[name] for name in ("contactLookup", "contactPath", "metadataField")}
        saved = await cast.ed.patch(mine.url, {"trigger": {**trigger, "createContact": False}})
        assert saved.status_code == 200, saved.text
        accepted = await send(sender, mine.token, json.dumps(body).encode())
        assert accepted.status_code in (202, 404), accepted.text
    assert (await cast.mallory.get(f"{mine.url}/webhook-schema")).status_code == 404


async def test_strangers_without_the_secret_do_not_paint_the_picture(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    mine = await hook(cast, process, signingSecret=SECRET)
    assert (await send(sender, mine.token, b'{"evil": 1}')).status_code == 401
    body = (PAYLOADS / "form-builder.json").read_bytes()
    await send(sender, mine.token, body, X_Service_Signature=signed(body))
    await send(sender, mine.token, EVENT, X_Service_Signature=signed(EVENT))
    await mine.requests(cast.vic)
    paths = [one["path"] for one in (await cast.vic.read(f"{mine.url}/webhook-schema"))["paths"]]
    assert paths[:2] == ["email", "price"]
    assert any(path.startswith("data.fields[0]") for path in paths)
    assert "evil" not in paths


async def test_of_a_new_webhook_the_picker_knows_nothing_yet(cast: Cast, process: Process) -> None:
    mine = await hook(cast, process)
    schema = await cast.vic.read(f"{mine.url}/webhook-schema")
    assert schema == {"paths": [], "lookups": []}


# --- another URL ----------------------------------------------------------------------------------


async def test_a_rotated_webhook_url_is_another_and_the_old_one_is_dead_at_once(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    mine = await hook(cast, process)
    assert (await send(sender, mine.token)).status_code == 202
    async with sending(process, any_address()) as elsewhere:
        rotated = await cast.ed.post(f"{mine.url}/webhook/rotate")
        assert rotated.status_code == 200
        trigger = rotated.json()
        shown = await cast.ed.get(mine.url)
        assert shown.json()["trigger"] == trigger
        fresh = trigger["webhookUrl"].rpartition("/")[2]
        assert fresh != mine.token
        for client in (sender, elsewhere):
            assert (await send(client, mine.token)).status_code == 404
            assert (await send(client, fresh)).status_code == 202
    assert (await cast.vic.post(f"{mine.url}/webhook/rotate")).status_code == 403


async def test_a_pause_keeps_the_url_and_a_draft_may_have_one_before_it_is_active(
    cast: Cast, process: Process, sender: httpx2.AsyncClient
) -> None:
    draft = await cast.ed.made("/automations", {"name": "A", "trigger": WEBHOOK})
    url = f"/automations/{draft['id']}"
    assert draft["trigger"]["webhookUrl"] is None
    made = (await cast.ed.post(f"{url}/webhook/rotate")).json()["webhookUrl"]
    token = made.rpartition("/")[2]
    for state, status in (("DRAFT", 404), ("ACTIVE", 202), ("PAUSED", 404), ("ACTIVE", 202)):
        if state != "DRAFT":
            changed = (await cast.ed.patch(url, {"state": state})).json()
            assert changed["trigger"]["webhookUrl"] == made
        assert (await send(sender, token)).status_code == status, state


async def test_what_takes_no_webhooks_has_no_url(cast: Cast) -> None:
    by_hand = await cast.ed.made("/workflows", {"name": "W"})
    over = await cast.ed.made("/workflows", {"name": "W", "trigger": WEBHOOK})
    await cast.ed.patch(f"/workflows/{over['id']}", {"state": "ARCHIVED"})
    for made in (by_hand, over):
        refused = await cast.ed.post(f"/workflows/{made['id']}/webhook/rotate")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
