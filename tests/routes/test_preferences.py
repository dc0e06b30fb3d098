"""The way out of marketing mail (RFC 8058), over the wire: what the mail says, and what it does."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from app.contacts import consent
from app.contacts.consent import FORBIDS
from app.process import Process
from app.routes.preferences import STATES, masked
from tests.cast import HELLO, Cast, settle
from tests.chaos.optout import sending
from tests.receivers import HESITATE, Received, Receiver

MARKETING = {**HELLO, "category": "marketing"}
NEWS = {"to": "ada@example.com", "content": MARKETING}
ONE_CLICK = {"List-Unsubscribe": "One-Click"}


def token_in(mail: Received) -> str:
    """From the one line as it travelled."""
    [line] = re.findall(rb"(?m)^List-Unsubscribe: (.*)\r$", mail.raw)
    [path] = re.findall(r"^<https?://[^<>\s]*(/u/[\w-]+)>$", line.decode())
    return str(path)


async def mails(
    cast: Cast, process: Process, ledger: Path, *wanted: dict[str, object]
) -> list[Received]:
    """What a real server gets of messages to one contact after the other."""
    async with Receiver(ledger) as receiver, sending(process, receiver) as through:
        for one in wanted:
            await cast.ed.made("/messages", {"channel": "email", **one})
            await settle(through)
        return receiver.received


async def test_marketing_mail_has_a_way_out_and_other_mail_has_none(
    cast: Cast, process: Process, tmp_path: Path
):
    template = {"name": "News", "channel": "email", "category": "marketing", "content": HELLO}
    news = await cast.ed.made("/templates", template)
    to = {"to": "ada@example.com"}
    received = await mails(
        cast,
        process,
        tmp_path / "ledger",
        {**to, "content": MARKETING},
        {**to, "templateId": news["id"]},
        {**to, "content": HELLO},
    )
    for mail in received[:2]:
        assert mail.raw.count(b"List-Unsubscribe:") == 1
        assert b"List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n" in mail.raw
        assert "ada" not in token_in(mail)
    assert b"list-unsubscribe" not in received[2].raw.lower()
    page = await cast.vic.read("/messages?status=SENT")
    assert len(page["data"]) == 3


async def test_one_click_ends_it_before_the_answer_and_opening_the_link_does_nothing(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
):
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com", "phone": "+14155550132"})
    news = {"contactId": ada["id"], "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", news)
    link, url = token_in(mail), f"/contacts/{ada['id']}"
    assert len(urlsplit(link).path) < 250
    for method in ("GET", "HEAD"):
        shown = await client.request(method, link)
        assert shown.status_code == 200
        assert "form-action 'self'" in shown.headers["Content-Security-Policy"]
    assert "a•••@example.com" in (await client.get(link)).text
    assert (await cast.vic.read(url))["subscriptions"]["email"] == "subscribed"

    response = await client.post(link, data=ONE_CLICK)
    assert (response.status_code, response.headers.get("Set-Cookie")) == (200, None)
    assert (await cast.vic.read(url))["subscriptions"] == {
        "email": "unsubscribed",
        "sms": "subscribed",
        "whatsapp": "subscribed",
    }
    [event] = (await cast.vic.read(f"{url}/activity?limit=1"))["data"]
    assert event["type"] == "consent"
    assert (event["consent"]["reason"], event["consent"]["source"]) == ("unsubscribed", "link")
    received = await mails(cast, process, tmp_path / "later", news, {**news, "content": HELLO})
    assert [b"List-Unsubscribe" in one.raw for one in received] == [False]  # the receipt alone

    assert (await client.post(link)).status_code == 200  # again, and without a word
    for name in ("sms", "whatsapp"):
        assert (await client.post(link, data={"unsubscribe": name})).status_code == 200
    page = await client.post(link, data={"subscribe": "email"})
    assert "Unsubscribe from email" in page.text
    shown = (await cast.vic.read(url))["subscriptions"]
    assert shown == {"email": "subscribed", "sms": "unsubscribed", "whatsapp": "unsubscribed"}


async def test_a_link_in_mail_to_another_address_speaks_for_that_address_alone(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
):
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    news = {"contactId": ada["id"], "to": "bob@example.com", "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", news)
    assert (await client.post(token_in(mail), data=ONE_CLICK)).status_code == 200
    shown = await cast.vic.read(f"/contacts/{ada['id']}")
    assert shown["subscriptions"]["email"] == "subscribed"
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert held["address"] == "bob@example.com"


async def test_a_link_outlives_the_contact(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
):
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    news = {"contactId": ada["id"], "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", news)
    await cast.ed.delete(f"/contacts/{ada['id']}")
    page = await client.post(token_in(mail), data=ONE_CLICK)
    assert page.status_code == 200
    assert "your data has been erased" in page.text
    assert "example.com" not in page.text


async def test_a_link_outlives_the_message(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
):
    """To an address that is nobody's own: retention leaves nothing that tells which it was."""
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    news = {"contactId": ada["id"], "to": "bob@example.com", "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", news)
    async with process.database.write() as db:
        await db.execute("DELETE FROM delivery_attempts")
        await db.execute("DELETE FROM messages")
    link = token_in(mail)
    assert "Unsubscribe from email" in (await client.get(link)).text
    page = await client.post(link, data=ONE_CLICK)
    assert "Done: you are unsubscribed" in page.text
    assert "bob" not in page.text
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert (held["address"], held["reason"]) == (None, "unsubscribed")
    assert await mails(cast, process, tmp_path / "later", news) == []
    [barred] = (await cast.vic.read("/messages"))["data"]
    assert barred["status"] == "SUPPRESSED"
    back = await client.post(link, data={"subscribe": "email"})
    assert "Done: your choice" in back.text
    assert (await cast.vic.read("/suppressions"))["data"] == []
    assert len(await mails(cast, process, tmp_path / "again", news)) == 1


async def test_a_link_that_was_tampered_with_is_nobody_s(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
):
    news = {"to": "ada@example.com", "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", news)
    link = token_in(mail)
    bad = [
        link[:-1] + ("A" if link[-1] != "A" else "B"),
        link[:-4],
        link + "A",
        "/u/" + process.vault.sign("cursor", b"ws|msg||email"),
        "/u/" + "A" * 100,
    ]
    answers = []
    for method in ("GET", "POST"):
        for one in bad:
            response = await client.request(method, one)
            assert response.status_code == 404
            answers.append(response.text)
    assert "link is not valid" in answers[0]  # a page, for whoever has followed it out of a mail
    assert set(answers) == {answers[0]}
    assert (await cast.vic.read("/suppressions"))["data"] == []
    for method in ("GET", "POST"):  # which is no token, and no path of ours
        assert (await client.request(method, "/u/%07")).json()["code"] == "not_found"


def test_an_address_is_shown_to_whoever_knows_it():
    assert masked("ada@example.com") == "a•••@example.com"
    assert masked("+14155550132") == "•••0132"


async def test_whatever_is_unsubscribed_from_the_link_s_channel_is_and_the_page_says_so(
    cast: Cast, process: Process, tmp_path: Path, client: httpx2.AsyncClient
):
    contact = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    wanted = {"contactId": contact["id"], "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", wanted)
    url = token_in(mail)
    assert "Done" not in (await client.get(url)).text
    left = await client.post(url, data={"unsubscribe": "bogus"})
    assert left.status_code == 200
    assert "Done: you are unsubscribed" in left.text
    assert (await cast.vic.read(f"/contacts/{contact['id']}"))["subscriptions"]["email"] == (
        "unsubscribed"
    )
    back = await client.post(url, data={"subscribe": "email"})
    assert "Done: your choice" in back.text


@pytest.mark.parametrize("body", [b"&" * 20, b"a=1&" * 20, b"\xff\x00=%zz"])
async def test_a_body_that_nobody_can_read_is_the_same_wish(
    cast: Cast, process: Process, tmp_path: Path, client: httpx2.AsyncClient, body: bytes
):
    [mail] = await mails(cast, process, tmp_path / "ledger", NEWS)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await client.post(token_in(mail), content=body, headers=form)
    assert answer.status_code == 200
    assert "Done: you are unsubscribed" in answer.text
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert (held["address"], held["reason"]) == ("ada@example.com", "unsubscribed")


async def test_what_is_not_theirs_to_undo_the_page_does_not_claim_to_undo(
    cast: Cast, process: Process, tmp_path: Path, client: httpx2.AsyncClient
):
    [mail] = await mails(cast, process, tmp_path / "ledger", NEWS)
    email = {"channel": "email", "address": "ada@example.com"}
    await cast.adam.made("/suppressions", email)
    shown = (await client.get(token_in(mail))).text
    assert "has suppressed this address" in shown
    assert "<button" not in shown
    page = await client.post(token_in(mail), data={"subscribe": "email"})
    assert "cannot be changed here" in page.text
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert held["reason"] == "manual"


def test_the_page_has_words_for_every_reason():
    assert STATES.keys() == {None, *FORBIDS}


async def test_what_may_still_arrive_the_page_does_not_deny(
    cast: Cast,
    process: Process,
    tmp_path: Path,
    client: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(consent, "QUIET_SECONDS", 0.2)
    [mail] = await mails(cast, process, tmp_path / "ledger", NEWS)
    async with (
        Receiver(tmp_path / "later", script=[HESITATE]) as receiver,
        sending(process, receiver) as through,
    ):
        await cast.ed.made("/messages", {"channel": "email", **NEWS})
        under_way = asyncio.create_task(settle(through))
        await receiver.stalled.wait()
        assert "may still arrive" in (await client.post(token_in(mail), data=ONE_CLICK)).text
        receiver.released.set()
        await under_way
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert len(held["inFlight"]) == 1
    assert "no further message is" in (await client.post(token_in(mail), data=ONE_CLICK)).text
