"""The way out of marketing mail (RFC 8058), over the wire: what the mail says, and what it does."""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from app.consent import in_flight
from app.consent.judgement import FORBIDS
from app.machine.visible import shows_link
from app.messages.footers import HIDDEN
from app.process import Process
from app.providers.inbox import Inbox
from app.routes.preferences import STATES, masked
from lab.chaos.optout import sending
from tests.cast import HELLO, Cast, settle
from tests.receivers import HESITATE, Received, Receiver

MARKETING = {**HELLO, "category": "marketing"}
MANUAL = {"source": "manual"}
NEWS = {"to": "ada@example.com", "content": MARKETING}
ONE_CLICK = {"List-Unsubscribe": "One-Click"}


def token_in(mail: Received) -> str:
    """Read the token from the one line as it travelled."""
    [line] = re.findall(rb"(?m)^List-Unsubscribe: (.*)\r$", mail.raw)
    [path] = re.findall(r"^<https?://[^<>\s]*(/u/[\w-]+)>$", line.decode())
    return str(path)


async def mails(
    cast: Cast, process: Process, ledger: Path, *wanted: Mapping[str, object]
) -> list[Received]:
    """List what a real server gets of messages to one contact after the other."""
    async with Receiver(ledger) as receiver, sending(process, receiver) as through:
        for one in wanted:
            await cast.ed.made("/messages", {"channel": "email", **one})
            await settle(through)
        return receiver.received


async def test_marketing_mail_has_a_way_out_and_other_mail_has_none(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
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
) -> None:
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
) -> None:
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    news = {"contactId": ada["id"], "to": "bob@example.com", "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", news)
    assert (await client.post(token_in(mail), data=ONE_CLICK)).status_code == 200
    shown = await cast.vic.read(f"/contacts/{ada['id']}")
    assert shown["subscriptions"]["email"] == "subscribed"
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert held["address"] == "bob@example.com"


async def test_everything_is_also_the_address_that_the_contact_no_longer_has(
    cast: Cast, process: Process, tmp_path: Path, client: httpx2.AsyncClient
) -> None:
    contact = await cast.ed.made(
        "/contacts", {"email": "ada@example.com", "phone": "+4915112345678"}
    )
    wanted = {"contactId": contact["id"], "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", wanted)
    path = f"/contacts/{contact['id']}"
    assert (await cast.ed.patch(path, json={"email": None})).status_code == 200
    left = await client.post(token_in(mail), data={"unsubscribe": "all"})
    assert left.status_code == 200
    held = (await cast.vic.read("/suppressions?channel=email"))["data"]
    assert [one["address"] for one in held] == ["ada@example.com"]
    assert (await cast.vic.read(path))["subscriptions"]["sms"] == "unsubscribed"


@pytest.mark.parametrize("form", [ONE_CLICK, {"unsubscribe": "all"}])
async def test_who_opts_out_while_their_contact_has_no_address_stays_out_with_the_next_one(
    cast: Cast,
    process: Process,
    tmp_path: Path,
    client: httpx2.AsyncClient,
    form: Mapping[str, str],
) -> None:
    new = {"email": "ada@example.com", "phone": "+4915112345678"}
    contact = await cast.ed.made("/contacts", new)
    wanted = {"contactId": contact["id"], "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", wanted)
    path = f"/contacts/{contact['id']}"
    assert (await cast.ed.patch(path, json={"email": None})).status_code == 200
    for _ in range(2):
        assert (await client.post(token_in(mail), data=form)).status_code == 200
    activity = (await cast.vic.read(f"{path}/activity"))["data"]
    consents = [one["consent"] for one in activity if one["type"] == "consent"]
    [event] = [one for one in consents if one["channel"] == "email"]
    assert (event["change"], event["reason"], event["source"]) == (
        "opted_out",
        "unsubscribed",
        "link",
    )
    assert (await cast.ed.patch(path, json={"email": "ada@new.example"})).status_code == 200
    assert (await cast.vic.read(path))["subscriptions"]["email"] == "unsubscribed"
    assert await mails(cast, process, tmp_path / "later", wanted) == []


async def test_everything_is_also_the_channels_on_which_the_contact_has_no_address_yet(
    cast: Cast, process: Process, tmp_path: Path, client: httpx2.AsyncClient
) -> None:
    contact = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    wanted = {"contactId": contact["id"], "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", wanted)
    path = f"/contacts/{contact['id']}"
    for _ in range(2):
        left = await client.post(token_in(mail), data={"unsubscribe": "all"})
        assert left.status_code == 200
    activity = (await cast.vic.read(f"{path}/activity"))["data"]
    recorded = [one["consent"]["channel"] for one in activity if one["type"] == "consent"]
    assert sorted(recorded) == ["email", "sms", "whatsapp"]
    assert (await cast.ed.patch(path, json={"phone": "+4915112345678"})).status_code == 200
    held = (await cast.vic.read(path))["subscriptions"]
    assert held == dict.fromkeys(recorded, "unsubscribed")


async def test_a_link_outlives_the_contact(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
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
) -> None:
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
) -> None:
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


def test_an_address_is_shown_to_whoever_knows_it() -> None:
    assert masked("ada@example.com") == "a•••@example.com"
    assert masked("+14155550132") == "•••0132"


async def test_whatever_is_unsubscribed_from_the_link_s_channel_is_and_the_page_says_so(
    cast: Cast, process: Process, tmp_path: Path, client: httpx2.AsyncClient
) -> None:
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


async def test_the_page_names_the_default_topic_at_its_channels(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    about = {"name": "News & more", "description": "Once a week", "channels": ["email"]}
    await cast.ed.made("/topics", {**about, "isDefault": True})
    order = {"to": "ada@example.com", "content": MARKETING}
    [mail] = await mails(cast, process, tmp_path / "ledger", order)
    shown = await cast.ed.client.get(token_in(mail))
    named = "<b>News &amp; more</b> — Once a week<br>a•••@example.com gets messages."
    assert named in shown.text


@pytest.mark.parametrize("body", [b"&" * 20, b"a=1&" * 20, b"\xff\x00=%zz"])
async def test_a_body_that_nobody_can_read_is_the_same_wish(
    cast: Cast, process: Process, tmp_path: Path, client: httpx2.AsyncClient, body: bytes
) -> None:
    [mail] = await mails(cast, process, tmp_path / "ledger", NEWS)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await client.post(token_in(mail), content=body, headers=form)
    assert answer.status_code == 200
    assert "Done: you are unsubscribed" in answer.text
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert (held["address"], held["reason"]) == ("ada@example.com", "unsubscribed")


async def test_what_is_not_theirs_to_undo_the_page_does_not_claim_to_undo(
    cast: Cast, process: Process, tmp_path: Path, client: httpx2.AsyncClient
) -> None:
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


def test_the_page_has_words_for_every_reason() -> None:
    assert STATES.keys() == {None, *FORBIDS}


async def test_what_may_still_arrive_the_page_does_not_deny(
    cast: Cast,
    process: Process,
    tmp_path: Path,
    client: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "QUIET_SECONDS", 0.2)
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


# --- what the message itself shows ----------------------------------------------------------------

PLACED = {
    "subject": "News",
    "html": "<p>{{workspace.postalAddress}} <a href='{{unsubscribeUrl}}'>Out</a></p>",
    "category": "marketing",
}


def parts_of(mail: Received) -> dict[str, str]:
    """The parts of a mail by type, decoded."""
    message = email.message_from_bytes(mail.raw, policy=email.policy.default)
    return {
        part.get_content_type(): part.get_content().replace("\r\n", "\n")
        for part in message.walk()
        if not part.is_multipart()
    }


async def test_marketing_mail_shows_the_link_of_its_header_in_both_parts(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    await cast.adam.patch("/settings/workspace", {"postalAddress": "1 Main Street\nSpringfield"})
    to = {"to": "ada@example.com"}
    plain = {"subject": "News", "text": "Spring", "category": "marketing"}
    linked = {**PLACED, "text": "Out: {{preferencesUrl}}"}
    received = await mails(
        cast,
        process,
        tmp_path / "ledger",
        *({**to, "content": content} for content in (MARKETING, PLACED, linked, plain)),
    )
    for mail in received:
        url, parts = process.settings.base_url + token_in(mail), parts_of(mail)
        assert all(url in part for part in parts.values())
        assert ("text/html" in parts) == (mail is not received[3])
        assert (await client.get(urlsplit(url).path)).status_code == 200
    added = [("Unsubscribe</a></div>" in parts_of(mail).get("text/html", "")) for mail in received]
    assert added == [True, False, False, False]
    assert "Acme<br>1 Main Street<br>Springfield" in parts_of(received[0])["text/html"]
    assert "<p>1 Main Street\nSpringfield <a" in parts_of(received[1])["text/html"]
    assert "Unsubscribe:" not in parts_of(received[2])["text/plain"]
    assert "Acme\n1 Main Street\nSpringfield\nUnsubscribe: " in parts_of(received[3])["text/plain"]


async def test_values_forge_no_footer_and_hide_none(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    name = '</p></body><!-- <a href="https://evil.example/u/x">Unsubscribe</a><style>'
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com", "firstName": name})
    content = {**MARKETING, "html": "<body><p>Hi {{contact.firstName}}</p></body>"}
    [mail] = await mails(
        cast, process, tmp_path / "ledger", {"contactId": ada["id"], "content": content}
    )
    markup, url = parts_of(mail)["text/html"], process.settings.base_url + token_in(mail)
    assert shows_link(markup, url)
    assert not shows_link(markup, "https://evil.example/u/x")


async def test_mail_in_which_the_link_cannot_be_seen_is_not_sent(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    content = {**MARKETING, "html": "<body style='display:none'>{{unsubscribeUrl}}"}
    received = await mails(
        cast, process, tmp_path / "ledger", {"to": "ada@example.com", "content": content}
    )
    assert received == []
    [failed] = (await cast.vic.read("/messages"))["data"]
    assert (failed["status"], failed["reason"]["code"]) == ("FAILED", "template_error")


async def test_other_mail_may_show_the_links_and_gets_no_footer(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada = await cast.ed.made("/contacts", {"email": "ada@example.com"})
    content = {"subject": "Receipt", "text": "Choose: {{preferencesUrl}} {{unsubscribeUrl}}"}
    receipt = {"contactId": ada["id"], "content": content}
    [mail] = await mails(cast, process, tmp_path / "ledger", receipt)
    text = parts_of(mail)["text/plain"]
    [one, other] = re.findall(r"https?://[^/]+(/u/[\w-]+)", text)
    assert one == other
    assert text == f"Choose: {process.settings.base_url}{one} {process.settings.base_url}{one}\n"
    assert (await client.post(one)).status_code == 200
    shown = (await cast.vic.read(f"/contacts/{ada['id']}"))["subscriptions"]
    assert shown["email"] == "unsubscribed"
    assert len(await mails(cast, process, tmp_path / "later", receipt)) == 1  # marketing alone ends


async def test_what_is_tried_shows_a_link_that_changes_nothing(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    template = {"name": "News", "channel": "email", "category": "marketing", "content": HELLO}
    news = await cast.ed.made("/templates", template)
    preview = await cast.vic.made(f"/templates/{news['id']}/preview", {})
    url = f"{process.settings.base_url}/u/example"
    assert "Unsubscribe</a></div>" in preview["html"]["rendered"]
    assert url in preview["html"]["rendered"]
    assert url in preview["text"]["rendered"]
    test = {"to": "olivia@acme.example", "templateId": news["id"]}
    async with Receiver(tmp_path / "ledger") as receiver, sending(process, receiver) as through:
        await cast.ed.made("/messages/test-email", test)
        await settle(through)
        [mail] = receiver.received
    assert all(url in part for part in parts_of(mail).values())
    assert b"list-unsubscribe" not in mail.raw.lower()
    for method in ("GET", "POST"):
        page = await client.request(method, "/u/example", data=ONE_CLICK)
        assert page.status_code == 200
        assert "changes nothing" in page.text
    assert (await cast.vic.read("/suppressions"))["data"] == []


async def test_a_preview_says_why_a_hidden_mail_would_fail(cast: Cast) -> None:
    content = {"subject": "s", "html": "<body hidden>x"}
    template = {"name": "News", "channel": "email", "category": "marketing", "content": content}
    news = await cast.ed.made("/templates", template)
    preview = await cast.vic.made(f"/templates/{news['id']}/preview", {})
    assert preview["html"] == {"error": HIDDEN}


async def test_a_simulation_shows_the_footer_as_well(cast: Cast) -> None:
    steps = [{"type": "send_message", "channel": "email", "content": MARKETING}]
    made = await cast.ed.made("/workflows", {"name": "N", "trigger": MANUAL, "steps": steps})
    asked = {"contact": {"email": "ada@example.com"}}
    answer = await cast.vic.made(f"/workflows/{made['id']}/simulate", asked)
    [sent] = [step["message"] for step in answer["steps"] if step["message"]]
    assert "https://tidings.example/u/example" in sent["content"]["html"]
    assert "footer_added" in {one["code"] for one in answer["findings"]}


async def test_a_resent_mail_shows_the_same_link(
    cast: Cast, process: Process, tmp_path: Path
) -> None:
    async with Receiver(tmp_path / "ledger") as receiver, sending(process, receiver) as through:
        content = {"channel": "email", "to": "ada@example.com", "content": MARKETING}
        made = await cast.ed.made("/messages", content)
        await settle(through)
        async with process.database.write() as db:
            await db.execute("UPDATE messages SET status = 'UNKNOWN'")
            await db.execute("UPDATE delivery_attempts SET status = 'UNKNOWN'")
        assert (await cast.ed.post(f"/messages/{made['messageId']}/resend")).status_code == 202
        await settle(through)
        first, second = receiver.received
    assert parts_of(first) == parts_of(second)
    assert token_in(first) == token_in(second)


# --- text messages --------------------------------------------------------------------------------


async def captured_text(cast: Cast, process: Process, order: Mapping[str, object]) -> str:
    made = await cast.ed.made("/messages", {"channel": "sms", **order})
    await settle(process)
    page = await cast.ed.read(f"/sandbox/messages?messageId={made['messageId']}")
    [captured] = page["data"]
    return str(captured["text"])


SPRING = {"text": "Spring is here", "category": "marketing"}


async def test_a_text_message_says_stop_and_other_text_messages_do_not(
    cast: Cast, process: Process
) -> None:
    for to in ("+14155550132", "+4915112345678"):  # in the sandbox every reply is heard
        text = await captured_text(cast, process, {"to": to, "content": SPRING})
        assert text == "Spring is here\nReply STOP to opt out"
    text = await captured_text(cast, process, {"to": "+14155550132", "content": {"text": "Hi"}})
    assert text == "Hi"


@pytest.mark.parametrize("own", [True, False])
async def test_the_short_link_of_a_text_message_opts_out(
    cast: Cast,
    process: Process,
    client: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    own: bool,
) -> None:
    monkeypatch.setattr(Inbox, "replies", "none")
    bob = await cast.ed.made("/contacts", {"email": "bob@example.com", "phone": "+4915112345678"})
    to = "+4915112345678" if own else "+4915112345679"
    text = await captured_text(cast, process, {"contactId": bob["id"], "to": to, "content": SPRING})
    [path] = re.findall(r"^Spring is here\nOpt out: https?://[^/]+(/u/[\w-]+)$", text)
    assert len(path) == (78 if own else 57)
    assert (await client.get(path)).status_code == 200
    assert (await cast.vic.read("/suppressions"))["data"] == []
    assert (await client.post(path)).status_code == 200
    assert "Subscribe to text messages again" in (await client.get(path)).text
    shown = (await cast.vic.read(f"/contacts/{bob['id']}"))["subscriptions"]
    assert shown["sms"] == ("unsubscribed" if own else "subscribed")
    made = await cast.ed.made(
        "/messages", {"channel": "sms", "contactId": bob["id"], "to": to, "content": SPRING}
    )
    await settle(process)
    message = await cast.vic.read(f"/messages/{made['messageId']}")
    assert message["status"] == "SUPPRESSED"
    other = "y" if path[10] == "x" else "x"
    for cut in (path[:-1], path + "A", path[:10] + other + path[11:]):
        assert (await client.post(cut)).status_code == 404


async def texted(cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The id of Bob, whose texts cannot be answered, and the path of the link in one to him."""
    monkeypatch.setattr(Inbox, "replies", "none")
    bob = await cast.ed.made("/contacts", {"phone": "+4915112345678"})
    text = await captured_text(cast, process, {"contactId": bob["id"], "content": SPRING})
    return bob["id"], urlsplit(text.rpartition(" ")[2]).path


async def test_a_short_link_acts_on_the_number_that_it_was_sent_to(
    cast: Cast, process: Process, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob, path = await texted(cast, process, monkeypatch)
    moved = {"phone": "+4915112345679"}
    assert (await cast.ed.patch(f"/contacts/{bob}", json=moved)).status_code == 200
    ada = await cast.ed.made("/contacts", {"phone": "+4915112345678"})  # has it now
    assert (await client.post(path)).status_code == 200
    held = (await cast.vic.read("/suppressions?channel=sms"))["data"]
    assert {one["address"] for one in held} == {"+4915112345678", "+4915112345679"}
    for id in (ada["id"], bob):
        shown = (await cast.vic.read(f"/contacts/{id}"))["subscriptions"]
        assert shown["sms"] == "unsubscribed"
    assert (await client.post(path, data={"subscribe": "sms"})).status_code == 200
    assert (await cast.vic.read("/suppressions?channel=sms"))["data"] == []


async def test_a_short_link_does_not_show_the_number(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inbox, "replies", "none")
    order = {"to": "+4915112345678", "content": SPRING}
    first, second = [await captured_text(cast, process, order) for _ in range(2)]
    token = first.rpartition("/")[2]
    assert (4915112345678).to_bytes(7, "big") not in base64.urlsafe_b64decode(token + "==")
    assert first == second  # the same for every try


async def test_a_short_link_of_an_erased_contact_leads_to_nobody(
    cast: Cast, process: Process, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob, path = await texted(cast, process, monkeypatch)
    assert (await cast.adam.delete(f"/contacts/{bob}")).status_code == 204
    assert "your data has been erased" in (await client.get(path)).text
    assert (await client.post(path)).status_code == 200
