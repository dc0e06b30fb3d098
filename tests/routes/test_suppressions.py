"""The list of addresses that nobody writes to, over HTTP; and what contacts show of it."""

from __future__ import annotations

from typing import Any

import pytest

from app.process import Process
from app.store.suppressions import Reason
from tests.cast import HELLO, Cast, settle, suppress
from tests.routes.test_messages import errors, refused

SUPPRESSIONS = "/suppressions"
ADA = {"email": "Ada@example.com", "phone": "+14155550132"}
ALL = dict.fromkeys(("email", "sms", "whatsapp"), "subscribed")


async def test_a_member_puts_an_address_on_the_list_and_takes_it_off(cast: Cast) -> None:
    ada = await cast.ed.made("/contacts", ADA)
    response = await cast.adam.post(
        SUPPRESSIONS, {"channel": "email", "address": "ADA@example.com"}
    )
    assert response.status_code == 201
    made = response.json()
    assert made == {
        "id": made["id"],
        "channel": "email",
        "address": "ADA@example.com",
        "reason": "manual",
        "source": "member",
        "inFlight": [],
        "createdAt": made["createdAt"],
    }
    assert await cast.vic.read(response.headers["Location"]) == made
    shown = await cast.vic.read(f"/contacts/{ada['id']}")
    assert shown["subscriptions"] == {**ALL, "email": "unsubscribed"}
    again = await cast.adam.post(SUPPRESSIONS, {"channel": "email", "address": "ada@example.com"})
    assert refused(again) == (409, "conflict")
    assert again.json()["existingId"] == made["id"]
    assert (await cast.adam.delete(f"{SUPPRESSIONS}/{made['id']}")).status_code == 204
    assert (await cast.vic.read(f"/contacts/{ada['id']}"))["subscriptions"] == ALL
    assert (await cast.vic.get(f"{SUPPRESSIONS}/{made['id']}")).status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"channel": "email", "address": "ada"}, "/address"),
        ({"channel": "sms", "address": "ada@example.com"}, "/address"),
        ({"channel": "fax", "address": "ada@example.com"}, "/channel"),
        ({"channel": "email", "address": "a@b.test", "reason": "bounced"}, "/reason"),
    ],
)
async def test_what_cannot_be_on_the_list(cast: Cast, body: dict[str, Any], pointer: str) -> None:
    assert list(errors(await cast.adam.post(SUPPRESSIONS, body))) == [pointer]


async def test_the_list_is_filtered_also_by_an_address_that_was_erased(cast: Cast) -> None:
    ada = await cast.ed.made("/contacts", ADA)
    await cast.adam.made(SUPPRESSIONS, {"channel": "sms", "address": "+1 415 555 0199"})
    assert (await cast.ed.delete(f"/contacts/{ada['id']}")).status_code == 204

    async def found(query: str) -> list[tuple[str, str | None, str]]:
        page = await cast.vic.read(f"{SUPPRESSIONS}?{query}")
        return sorted((one["channel"], one["address"], one["reason"]) for one in page["data"])

    erased = [("email", None, "erased"), ("sms", None, "erased"), ("whatsapp", None, "erased")]
    assert await found("reason=erased") == erased
    assert await found("address=ada@EXAMPLE.com") == erased[:1]
    assert await found("address=%2B14155550132") == erased[1:]
    assert await found("address=%2B14155550199&channel=sms") == [("sms", "+14155550199", "manual")]
    assert await found("channel=email&createdAfter=2001-01-01T00:00:00Z") == erased[:1]
    assert errors(await cast.vic.get(f"{SUPPRESSIONS}?address=nobody")).keys() == {"?address"}
    assert (await cast.mallory.read(SUPPRESSIONS))["data"] == []


async def test_a_contact_made_again_after_its_erasure_gets_nothing(
    cast: Cast, process: Process
) -> None:
    first = await cast.ed.made("/contacts", ADA)
    await cast.ed.delete(f"/contacts/{first['id']}")
    again = await cast.ed.made("/contacts", ADA)
    assert set(again["subscriptions"].values()) == {"unsubscribed"}
    wanted = {"channel": "email", "contactId": again["id"], "content": HELLO}
    sent = await cast.ed.made("/messages", wanted)
    await settle(process)
    message = await cast.vic.read(f"/messages/{sent['messageId']}")
    assert (message["status"], message["reason"]["code"]) == ("SUPPRESSED", "suppressed_erased")
    assert (await cast.vic.read("/sandbox/messages"))["data"] == []


# --- on contacts ----------------------------------------------------------------------------------


async def test_a_member_unsubscribes_a_contact_and_subscribes_it_again(cast: Cast) -> None:
    ada = await cast.ed.made("/contacts", {**ADA, "subscriptions": {"sms": "unsubscribed"}})
    url = f"/contacts/{ada['id']}"
    assert ada["subscriptions"] == {**ALL, "sms": "unsubscribed"}
    changed = await cast.ed.patch(url, {"subscriptions": {"email": "unsubscribed"}})
    assert changed.json()["subscriptions"] == {
        **ALL,
        "sms": "unsubscribed",
        "email": "unsubscribed",
    }
    held = (await cast.vic.read(f"{SUPPRESSIONS}?reason=unsubscribed"))["data"]
    assert {(one["channel"], one["address"]) for one in held} == {
        ("email", "ada@example.com"),
        ("sms", "+14155550132"),
    }
    back = await cast.ed.patch(url, {"subscriptions": ALL})
    assert back.json()["subscriptions"] == ALL
    assert (await cast.vic.read(SUPPRESSIONS))["data"] == []
    happened = (await cast.vic.read(f"{url}/activity"))["data"]
    listed = [(one["consent"]["channel"], one["consent"]["change"]) for one in happened]
    assert sorted(listed) == [
        ("email", "opted_in"),
        ("email", "opted_out"),
        ("sms", "opted_in"),
        ("sms", "opted_out"),
    ]


async def test_what_nobody_may_write_about_a_subscription(cast: Cast) -> None:
    ada = await cast.ed.made("/contacts", ADA)
    url = f"/contacts/{ada['id']}"
    for body, pointer in (
        ({"email": "bounced"}, "/subscriptions/email"),
        ({"email": "maybe"}, "/subscriptions/email"),
        ({"fax": "subscribed"}, "/subscriptions/fax"),
        ({"email": None}, "/subscriptions/email"),
    ):
        assert list(errors(await cast.ed.patch(url, {"subscriptions": body}))) == [pointer]
    new = {"email": "b@example.com", "subscriptions": {"email": "complained"}}
    assert list(errors(await cast.ed.post("/contacts", new))) == ["/subscriptions/email"]
    await cast.adam.made(SUPPRESSIONS, {"channel": "email", "address": ADA["email"]})
    over = {"subscriptions": {"email": "subscribed"}}  # the admin's word
    assert list(errors(await cast.ed.patch(url, over))) == ["/subscriptions/email"]
    assert (await cast.ed.patch(url, {"firstName": "Ada"})).status_code == 200


async def test_a_file_takes_consent_away_and_never_gives_it(cast: Cast) -> None:
    ada = await cast.ed.made("/contacts", {**ADA, "subscriptions": {"email": "unsubscribed"}})
    sheet = b"email,subscriptions.email,subscriptions.sms\n"
    sheet += b"ada@example.com,subscribed,unsubscribed\nbob@example.com,unsubscribed,bounced\n"
    headers = {"Content-Type": "text/csv"}
    response = await cast.ed.call("POST", "/contacts/import", content=sheet, headers=headers)
    assert response.json()["created"] == 1
    shown = (await cast.vic.read(f"/contacts/{ada['id']}"))["subscriptions"]
    assert shown == {**ALL, "email": "unsubscribed", "sms": "unsubscribed"}
    [bob] = (await cast.vic.read("/contacts?email=bob@example.com"))["data"]
    assert bob["subscriptions"] == {**ALL, "email": "unsubscribed"}
    held = (await cast.vic.read(f"{SUPPRESSIONS}?reason=unsubscribed"))["data"]
    assert sorted(one["source"] for one in held) == ["import", "import", "member"]
    wrong = b"email,subscriptions.fax\n"
    response = await cast.ed.call("POST", "/contacts/import", content=wrong, headers=headers)
    assert list(errors(response)) == ["/subscriptions.fax"]


@pytest.mark.parametrize("reason", ["bounced", "complained"])
async def test_what_a_file_takes_away_outlives_what_providers_said(
    cast: Cast, process: Process, reason: Reason
) -> None:
    await cast.ed.made("/contacts", ADA)
    acme = cast.ed.workspace_id
    assert acme is not None
    await suppress(process, acme, reason, ADA["email"])
    sheet = b"email,subscriptions.email\nada@example.com,unsubscribed\n"
    headers = {"Content-Type": "text/csv"}
    response = await cast.ed.call("POST", "/contacts/import", content=sheet, headers=headers)
    assert response.json()["updated"] == 1
    [ada] = (await cast.vic.read("/contacts?email=ada@example.com"))["data"]
    assert ada["subscriptions"]["email"] == reason
    held = (await cast.vic.read(SUPPRESSIONS))["data"]
    assert {one["reason"] for one in held} == {reason, "unsubscribed"}
    [first] = (await cast.vic.read(f"{SUPPRESSIONS}?reason={reason}"))["data"]
    await cast.adam.delete(f"{SUPPRESSIONS}/{first['id']}")
    [ada] = (await cast.vic.read("/contacts?email=ada@example.com"))["data"]
    assert ada["subscriptions"]["email"] == "unsubscribed"


async def test_what_only_providers_say_is_refused_with_what_may_be_written(cast: Cast) -> None:
    contact = await cast.ed.made("/contacts", {"email": "ada@x.test"})
    url = f"/contacts/{contact['id']}"
    refused = await cast.ed.patch(url, {"subscriptions": {"sms": "bounced"}})
    [error] = refused.json()["errors"]
    assert error["pointer"] == "/subscriptions/sms"
    assert error["message"] == (
        "Write subscribed or unsubscribed: only a provider can report bounced."
    )
