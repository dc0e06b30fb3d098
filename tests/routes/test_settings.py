"""The workspace's own settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from app.database.db import Database
from app.messages import parking
from app.process import Process
from app.store import workspaces
from tests.cast import Cast, Person, lock_waiters, settle
from tests.messages.test_delivery import intend_outside
from tests.tables import each_row

WORKSPACE = "/settings/workspace"
TEST_EMAIL = {"subject": "Hello", "html": "<p>Hi</p>"}


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: httpx2.Response) -> list[str]:
    assert refused(response) == (422, "invalid"), response.text
    return [error["pointer"] for error in response.json()["errors"]]


# --- the workspace ------------------------------------------------------------------------------


async def test_every_member_reads_the_workspace_s_settings(cast: Cast) -> None:
    for name in ("olivia", "adam", "ed", "vic"):
        response = await cast.people[name].get(WORKSPACE)
        assert response.headers["ETag"] == '"1"'
        workspace = response.json()
        assert workspace["id"] == cast.olivia.workspace_id
        assert workspace.keys() == {
            "id", "name", "timezone", "country", "retentionDays", "sender", "postalAddress",
            "sendingPaused", "frequencyCap", "quietHours", "createdAt", "updatedAt",
        }  # fmt: skip
        assert workspace["sender"] == {"fromName": None, "fromEmail": None, "replyTo": None}
        assert (workspace["retentionDays"], workspace["sendingPaused"]) == (None, False)
        assert (workspace["name"], workspace["timezone"]) == ("Acme", "UTC")
        assert workspace["country"] is None


async def test_a_postal_address_is_lines_of_text(cast: Cast) -> None:
    given = " Acme GmbH \r\n\n 1 Main Street\u2028Springfield\n"
    response = await cast.adam.patch(WORKSPACE, {"postalAddress": given})
    assert response.json()["postalAddress"] == "Acme GmbH\n1 Main Street\nSpringfield"
    for wrong in ("", " \n ", "a\x00b", "a\tb", "x" * 501, "\n".join("abcdefghi"), 5):
        response = await cast.adam.patch(WORKSPACE, {"postalAddress": wrong})
        assert pointers(response) == ["/postalAddress"]
    assert (await cast.vic.patch(WORKSPACE, {"postalAddress": "x"})).status_code == 403
    emptied = await cast.adam.patch(WORKSPACE, {"postalAddress": None})
    assert emptied.json()["postalAddress"] is None


async def test_a_change_is_answered_whole_with_the_next_revision(cast: Cast) -> None:
    before = await cast.adam.read(WORKSPACE)
    response = await cast.adam.patch(WORKSPACE, {"timezone": "Europe/Berlin", "country": "DE"})
    assert response.status_code == 200
    assert response.headers["ETag"] == '"2"'
    after = response.json()
    assert after == {
        **before,
        "timezone": "Europe/Berlin",
        "country": "DE",
        "updatedAt": after["updatedAt"],
    }
    assert await cast.vic.read(WORKSPACE) == after
    assert (await cast.mallory.read(WORKSPACE))["country"] is None


async def test_null_clears_the_country(cast: Cast) -> None:
    await cast.adam.patch(WORKSPACE, {"country": "DE"})
    assert (await cast.adam.patch(WORKSPACE, {"country": None})).json()["country"] is None


async def test_a_name_is_kept_without_the_spaces_around_it(cast: Cast) -> None:
    renamed = await cast.adam.patch(WORKSPACE, {"name": "  Acme & Söhne  "})
    assert renamed.json()["name"] == "Acme & Söhne"


@each_row(
    ("patch", "wrong"),
    [
        ({"name": None}, ["/name"]),
        ({"name": ""}, ["/name"]),
        ({"name": 5}, ["/name"]),
        ({"name": "Acme\nLtd"}, ["/name"]),
        ({"name": "Acme\0"}, ["/name"]),
        ({"name": "x" * 201}, ["/name"]),
        ({"timezone": None}, ["/timezone"]),
        ({"timezone": "Europe/Atlantis"}, ["/timezone"]),
        ({"timezone": "../../etc/passwd"}, ["/timezone"]),
        ({"timezone": "localtime"}, ["/timezone"]),
        ({"timezone": "europe/berlin"}, ["/timezone"]),
        ({"country": "de"}, ["/country"]),
        ({"country": "DEU"}, ["/country"]),
        ({"country": "XX"}, ["/country"]),
        ({"country": ""}, ["/country"]),
        ({"country": ["DE"]}, ["/country"]),
        ({"id": "ws_1"}, ["/id"]),
        ({"retentionDays": 0}, ["/retentionDays"]),
        ({"retentionDays": 3_651}, ["/retentionDays"]),
        ({"retentionDays": "30"}, ["/retentionDays"]),
        (
            {"retentionDays": 30, "frequencyCap": {"limit": 2, "window": "P31D"}},
            ["/frequencyCap/window"],
        ),
        ({"frequencyCap": {"limit": 2, "window": "P366D"}}, ["/frequencyCap/window"]),
        ({"sendingPaused": None}, ["/sendingPaused"]),
        ({"sendingPaused": "true"}, ["/sendingPaused"]),
        ({"sender": "Acme"}, ["/sender"]),
        ({"sender": {"fromName": "Acme\r\nBcc: eve@example.com"}}, ["/sender/fromName"]),
        ({"sender": {"replyTo": "nobody"}}, ["/sender/replyTo"]),
        ({"sender": {"fromEmail": "hello@acme.example"}}, ["/sender/fromEmail"]),
        ({"sender": {"fromEmail": "hello@mail.tidings.example"}}, ["/sender/fromEmail"]),
        ({"sender": {"from": "hello@tidings.example"}}, ["/sender/from"]),
        ({"sender": {"from": None}}, ["/sender/from"]),
        ({"suspended": False}, ["/suspended"]),
        ({"country": "DE", "timezone": "Mars", "name": " "}, ["/name", "/timezone"]),
    ],
)
async def test_a_wrong_change_is_named_and_nothing_of_it_applied(
    cast: Cast, patch: dict[str, Any], wrong: list[str]
) -> None:
    before = await cast.adam.read(WORKSPACE)
    assert pointers(await cast.adam.patch(WORKSPACE, patch)) == wrong
    assert await cast.adam.read(WORKSPACE) == before


async def test_history_is_not_kept_for_less_than_a_cap_or_a_segment_looks_back(cast: Cast) -> None:
    cap = {"limit": 2, "window": "P20D"}
    bought = {"event": "bought", "within": "P20D"}
    assert (await cast.olivia.patch(WORKSPACE, {"frequencyCap": cap})).status_code == 200
    segment = {"name": "Buyers", "filter": bought}
    made = await cast.olivia.post("/segments", segment)
    assert made.status_code == 201, made.text
    long_since = {"name": "Then", "kind": "frozen", "filter": {**bought, "within": "P90D"}}
    assert (await cast.olivia.post("/segments", long_since)).status_code == 201
    refused = await cast.olivia.patch(WORKSPACE, {"retentionDays": 10})
    assert pointers(refused) == ["/frequencyCap/window", "/retentionDays"]
    assert "Buyers." in refused.text  # and not who was in a frozen one once
    assert (await cast.olivia.patch(WORKSPACE, {"retentionDays": 20})).status_code == 200


async def test_history_is_not_kept_for_less_than_a_broadcast_looks_back(
    cast: Cast, database: Database
) -> None:
    """A draft or a scheduled one, or one whose audience is being frozen; not one that was."""
    made = await cast.ed.made(
        "/templates", {"name": "T", "channel": "email", "content": TEST_EMAIL}
    )
    new = {"templateId": made["id"], "filter": {"event": "bought", "within": "P20D"}}
    for name in ("Summer", "Autumn"):
        await cast.ed.made("/broadcasts", {**new, "name": name})
    refused = await cast.olivia.patch(WORKSPACE, {"retentionDays": 10})
    assert pointers(refused) == ["/retentionDays"]
    [error] = refused.json()["errors"]
    assert error["message"] == "Broadcasts ask for events of longer ago: Summer, Autumn."
    async with database.write() as db:
        await db.execute("UPDATE broadcasts SET state = 'SCHEDULED' WHERE name = 'Summer'")
        await db.execute("UPDATE broadcasts SET state = 'CANCELLED' WHERE name = 'Autumn'")
    refused = await cast.olivia.patch(WORKSPACE, {"retentionDays": 10})
    assert pointers(refused) == ["/retentionDays"]
    assert "ago: Summer." in refused.text
    assert (await cast.olivia.patch(WORKSPACE, {"retentionDays": 20})).status_code == 200
    async with database.write() as db:
        await db.execute("UPDATE broadcasts SET state = 'SENDING', is_frozen = TRUE")
    assert (await cast.olivia.patch(WORKSPACE, {"retentionDays": 10})).status_code == 200


async def test_what_is_kept_for_less_since_holds_up_no_other_change(
    cast: Cast, database: Database
) -> None:
    cap = {"limit": 2, "window": "P20D"}
    capped = await cast.olivia.patch(WORKSPACE, {"frequencyCap": cap})
    assert capped.status_code == 200
    async with database.write() as db:  # as a smaller RETENTION_DAYS would have it
        await db.execute(
            "UPDATE workspaces SET retention_days = 10 WHERE id = :id", id=capped.json()["id"]
        )
    assert (await cast.olivia.patch(WORKSPACE, {"name": "Acme Ltd"})).status_code == 200
    wider = await cast.olivia.patch(WORKSPACE, {"frequencyCap": {**cap, "limit": 3}})
    assert pointers(wider) == ["/frequencyCap/window"]


async def test_a_stale_change_is_refused(cast: Cast) -> None:
    fresh = {"If-Match": '"1"'}
    first = await cast.adam.patch(WORKSPACE, {"country": "DE"}, headers=fresh)
    assert first.status_code == 200
    second = await cast.adam.patch(WORKSPACE, {"country": "FR"}, headers=fresh)
    assert refused(second) == (412, "stale")
    assert (await cast.adam.read(WORKSPACE))["country"] == "DE"
    whatever = await cast.adam.patch(WORKSPACE, {"country": "FR"}, headers={"If-Match": "*"})
    assert whatever.json()["country"] == "FR"


@pytest.mark.parametrize("patch", [{"sender": None}, {"name": " Acme "}], ids=str)
async def test_to_say_in_other_words_what_it_is_changes_nothing(
    cast: Cast, patch: dict[str, Any]
) -> None:
    before = await cast.adam.read(WORKSPACE)
    response = await cast.adam.patch(WORKSPACE, patch)
    assert (response.status_code, response.headers["ETag"]) == (200, '"1"')
    assert response.json() == before == await cast.adam.read(WORKSPACE)
    assert (await cast.olivia.read("/audit-logs?action=workspace.updated"))["data"] == []


@pytest.mark.parametrize("name", ["ed", "vic"])
async def test_an_editor_does_not_change_the_workspace(cast: Cast, name: str) -> None:
    response = await cast.people[name].patch(WORKSPACE, {"name": "Mine"})
    assert refused(response) == (403, "forbidden")


SENDER = {"fromName": "Acme", "replyTo": "ask@acme.example"}


def given(person: Person) -> str:
    """The workspace's address on the operator's domain."""
    return f"acme-{person.workspace_id[-8:]}@tidings.example"


async def test_mail_is_from_the_workspace_s_sender_where_its_content_does_not_say(
    cast: Cast, process: Process
) -> None:
    sender = {**SENDER, "fromEmail": given(cast.adam)}
    domain = {"fromEmail": given(cast.adam).replace("tidings", "TIDINGS")}
    patched = (await cast.adam.patch(WORKSPACE, {"sender": {**sender, **domain}})).json()
    assert patched["sender"] == sender
    await cast.ed.made("/messages/test-email", {**TEST_EMAIL, "to": "one@example.com"})
    mail = {"subject": "S", "html": "H", "fromName": "Ed of Acme", "replyTo": "ed@acme.example"}
    template = {"name": "T", "channel": "email", "content": mail}
    template_id = (await cast.ed.made("/templates", template))["id"]
    own = {"to": "two@example.com", "templateId": template_id}
    await cast.ed.made("/messages/test-email", own)
    await cast.adam.made("/memberships/invitations", {"email": "eve@example.com", "role": "viewer"})
    await settle(process)
    captured = (await cast.adam.read("/sandbox/messages"))["data"]
    headers = {mail["to"]: mail["headers"] for mail in captured}
    assert headers["one@example.com"]["From"] == f"Acme <{given(cast.adam)}>"
    assert headers["one@example.com"]["Reply-To"] == "ask@acme.example"
    assert headers["two@example.com"]["From"] == f"Ed of Acme <{given(cast.adam)}>"
    assert headers["two@example.com"]["Reply-To"] == "ed@acme.example"
    assert headers["eve@example.com"]["From"] == "Tidings <hello@tidings.example>"
    assert "Reply-To" not in headers["eve@example.com"]

    part = (await cast.adam.patch(WORKSPACE, {"sender": {"fromEmail": None}})).json()
    assert part["sender"] == {**SENDER, "fromEmail": None}
    await cast.adam.patch(WORKSPACE, {"sender": {"fromEmail": given(cast.adam)}})
    renamed = (await cast.adam.patch(WORKSPACE, {"name": "Acme & Co"})).json()
    assert renamed["sender"] == sender  # what it was given it keeps
    none = (await cast.adam.patch(WORKSPACE, {"sender": None})).json()
    assert set(none["sender"].values()) == {None}


async def mail_of(cast: Cast, process: Process, to: str) -> str:
    """Whom it is from."""
    await cast.ed.made("/messages/test-email", {**TEST_EMAIL, "to": to})
    await settle(process)
    captured = (await cast.adam.read("/sandbox/messages"))["data"]
    [found] = [mail["headers"]["From"] for mail in captured if mail["to"] == to]
    return str(found)


async def test_without_a_sender_mail_is_from_the_address_that_the_workspace_is_given(
    cast: Cast, process: Process
) -> None:
    assert await mail_of(cast, process, "one@example.com") == f"Acme <{given(cast.adam)}>"
    security = {"sender": {"fromName": "Acme Security"}}
    assert (await cast.adam.patch(WORKSPACE, security)).status_code == 200
    expected = f"Acme Security <{given(cast.adam)}>"
    assert await mail_of(cast, process, "two@example.com") == expected


async def test_an_address_stored_under_other_rules_is_replaced_by_the_given_one(
    cast: Cast, process: Process
) -> None:
    async with process.database.write() as db:
        await db.execute(
            "UPDATE workspaces SET from_email = 'security@tidings.example' WHERE id = :id",
            id=cast.adam.workspace_id,
        )
    assert await mail_of(cast, process, "one@example.com") == f"Acme <{given(cast.adam)}>"


async def test_where_the_operator_says_so_all_workspaces_share_one_sender(
    cast: Cast, process: Process
) -> None:
    process = replace(process, settings=replace(process.settings, shared_sender=True))
    assert await mail_of(cast, process, "one@example.com") == "Tidings <hello@tidings.example>"


@each_row(
    "local", ["security", "admin", "postmaster", "abuse", "hello", "acme", "ACME-{id}", "acme-0"]
)
async def test_nobody_chooses_an_address_on_the_operator_s_domain(cast: Cast, local: str) -> None:
    wanted = f"{local.format(id=cast.adam.workspace_id[-8:])}@tidings.example"
    response = await cast.adam.patch(WORKSPACE, {"sender": {"fromEmail": wanted}})
    assert pointers(response) == ["/sender/fromEmail"]
    assert f"Must be {given(cast.adam)}" in response.json()["detail"]
    assert "PUT /settings/channels/email" in response.json()["detail"]


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Acme Security", "workspace"),
        ("no-reply", "workspace"),
        ("ABUSE", "workspace"),
        ("\u0430\u0441\u043c\u0435", "workspace"),
        ("\uff33\uff35\uff30\uff30\uff2f\uff32\uff34", "workspace"),
        ("Caf\u00e9 Nova & Söhne", "cafe-nova-sohne"),
        ("a" * 200, "a" * 30),
    ],
)
async def test_the_address_that_a_workspace_is_given_passes_for_nobody_else_s(
    cast: Cast, name: str, slug: str
) -> None:
    assert (await cast.adam.patch(WORKSPACE, {"name": name})).status_code == 200
    address = f"{slug}-{cast.adam.workspace_id[-8:]}@tidings.example"
    response = await cast.adam.patch(WORKSPACE, {"sender": {"fromEmail": address}})
    assert response.json()["sender"]["fromEmail"] == address


async def test_a_pause_stops_all_sending_at_once_and_what_waited_goes_out_after_it(
    cast: Cast, process: Process
) -> None:
    paused = await cast.adam.patch(WORKSPACE, {"sendingPaused": True})
    assert paused.json()["sendingPaused"] is True
    made = await cast.ed.made("/messages/test-email", {**TEST_EMAIL, "to": "ada@example.com"})
    theirs = await cast.mallory.made("/messages/test-email", {**TEST_EMAIL, "to": "m@example.com"})
    await cast.adam.made("/memberships/invitations", {"email": "eve@example.com", "role": "viewer"})
    await settle(process)
    captured = (await cast.adam.read("/sandbox/messages"))["data"]
    assert [mail["to"] for mail in captured] == ["eve@example.com"]  # that is not its own
    [other] = (await cast.mallory.read("/sandbox/messages"))["data"]
    assert other["messageId"] == theirs["messageId"]
    message = await cast.vic.read(f"/messages/{made['messageId']}")
    assert (message["status"], message["reason"]["code"]) == ("QUEUED", "sending_paused")
    assert "paused" in message["reason"]["detail"]
    path = f"/messages/delivery-attempts/{message['attempts'][0]}"
    assert (await cast.vic.read(path))["reason"] == message["reason"]
    await cast.adam.patch(WORKSPACE, {"name": "Acme Ltd"})  # is no reason to send again
    await settle(process)
    assert (await cast.vic.read(f"/messages/{made['messageId']}"))["status"] == "QUEUED"

    await cast.adam.patch(WORKSPACE, {"sendingPaused": False})
    for shown in (path, f"/messages/{made['messageId']}"):
        assert (await cast.vic.read(shown))["reason"] is None
    await settle(process)
    [attempt_id] = (await cast.vic.read(f"/messages/{made['messageId']}"))["attempts"]
    attempt = await cast.vic.read(f"/messages/delivery-attempts/{attempt_id}")
    assert (attempt["status"], attempt["number"]) == ("SENT", 1)
    assert [event["status"] for event in attempt["events"]] == ["SENDING", "SENT"]


async def test_a_pause_is_answered_once_nobody_sends_by_what_was_so_before(
    cast: Cast, process: Process
) -> None:
    await waits_for_an_intent(
        cast, process, lambda: cast.adam.patch(WORKSPACE, {"sendingPaused": True})
    )


async def waits_for_an_intent(
    cast: Cast, process: Process, stop: Callable[[], Coroutine[Any, Any, httpx2.Response]]
) -> None:
    """A worker has read that the workspace sends, and has not committed its intent yet."""
    if process.database.engine == "sqlite":
        pytest.skip("SQLite's one writer makes every transaction wait for every other")
    made = await cast.ed.made("/messages/test-email", {**TEST_EMAIL, "to": "ada@example.com"})
    [claimed] = await process.claim("message", [], 10)
    async with process.database.write() as db:
        await db.fetch_one(
            "SELECT id FROM messages WHERE id = :id FOR UPDATE", id=made["messageId"]
        )
        intending = asyncio.create_task(intend_outside(process, claimed))
        await lock_waiters(process, 1)
        stopping = asyncio.create_task(stop())
        await lock_waiters(process, 2)
        assert not stopping.done()
    assert (await stopping).status_code == 200
    async with process.database.read() as db:
        status = await db.fetch_value("SELECT status FROM messages")
    assert status == "SENDING"  # its intent stood before the answer
    assert await intending is not None


async def test_a_pause_that_a_worker_holds_up_for_long_says_so_and_stands(
    cast: Cast, process: Process
) -> None:
    if process.database.engine == "sqlite":
        pytest.skip("SQLite's one writer makes every transaction wait for every other")
    async with process.database.write() as db:
        await workspaces.share_sending(db, ids=[cast.adam.workspace_id])
        response = await cast.adam.patch(WORKSPACE, {"sendingPaused": True})
    assert (response.status_code, response.json()["detail"]) == (503, parking.NOT_YET)
    assert (await cast.vic.read(WORKSPACE))["sendingPaused"] is True
    again = await cast.adam.patch(WORKSPACE, {"sendingPaused": True})
    assert again.status_code == 200
