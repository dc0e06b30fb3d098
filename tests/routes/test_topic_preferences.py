"""The page of preferences with topics: one click each, one for all, and the mail program's own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from app.audience import subscriptions
from app.consent import in_flight
from app.consent.preferences import LINK
from app.process import Process
from app.providers.inbox import Inbox
from lab.chaos.optout import sending
from tests.cast import Cast, settle
from tests.driving import set_clock
from tests.receivers import HESITATE, Receiver
from tests.routes.test_confirmations import link
from tests.routes.test_preferences import ONE_CLICK, SPRING, captured_text, token_in
from tests.routes.test_topics import NO_CONSENT, SENT, about, answer, outcome, topic

ADA = {"email": "ada@example.com", "phone": "+14155550132"}


async def mailed(
    cast: Cast, process: Process, ledger: Path, contact_id: str, topic_id: str | None
) -> str:
    """The path of the link in a mail of the topic that a real server got."""
    content = about(topic_id or "")
    if topic_id is None:
        del content["topicId"]
    wanted = {"channel": "email", "contactId": contact_id, "content": content}
    async with Receiver(ledger) as receiver, sending(process, receiver) as through:
        await cast.ed.made("/messages", wanted)
        await settle(through)
        [mail] = receiver.received
    return token_in(mail)


async def answers(cast: Cast, contact_id: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    shown = await cast.vic.read(f"/contacts/{contact_id}")
    return shown["subscriptions"], shown["topics"]


ALL_IN = dict.fromkeys(("email", "sms", "whatsapp"), "subscribed")


async def test_one_click_leaves_the_topic_of_the_mail_and_nothing_else(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada, offers = (await cast.ed.made("/contacts", ADA))["id"], await topic(cast.ed)
    other = await topic(cast.ed, name="News")
    for one in (offers, other):
        await answer(cast.ed, ada, one)
    path = await mailed(cast, process, tmp_path / "ledger", ada, offers)
    for method in ("GET", "HEAD"):
        assert (await client.request(method, path)).status_code == 200
    assert await answers(cast, ada) == (
        ALL_IN,
        {offers: {"email": "subscribed"}, other: {"email": "subscribed"}},
    )
    page = await client.post(path, data=ONE_CLICK)
    assert "unsubscribed" in page.text
    assert await answers(cast, ada) == (
        ALL_IN,
        {offers: {"email": "unsubscribed"}, other: {"email": "subscribed"}},
    )
    assert await outcome(cast, process, ada, about(offers)) == NO_CONSENT
    assert await outcome(cast, process, ada, about(other)) == SENT
    [newest] = (await cast.vic.read(f"/contacts/{ada}/activity?limit=3"))["data"][2:]
    assert newest["type"] in ("message", "consent")
    assert (await client.post(path)).status_code == 200  # again, and without a word


async def test_one_click_leaves_the_topic_also_when_the_message_is_gone(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada, offers = (await cast.ed.made("/contacts", ADA))["id"], await topic(cast.ed)
    await answer(cast.ed, ada, offers)
    path = await mailed(cast, process, tmp_path / "ledger", ada, offers)
    async with process.database.write() as db:  # as retention does
        await db.execute("DELETE FROM delivery_attempts")
        await db.execute("DELETE FROM messages")
    await client.post(path, data=ONE_CLICK)
    assert await answers(cast, ada) == (ALL_IN, {offers: {"email": "unsubscribed"}})


async def test_a_link_without_a_mark_leaves_the_topic_of_its_message(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    """As long as that is there: it was sent by a version that put no mark into links."""
    ada, offers = (await cast.ed.made("/contacts", ADA))["id"], await topic(cast.ed)
    await answer(cast.ed, ada, offers)
    await mailed(cast, process, tmp_path / "ledger", ada, offers)
    [message] = (await cast.vic.read("/messages"))["data"]
    named = "|".join((cast.ed.workspace_id, message["id"], ada, "email"))
    key = subscriptions.key("email", ADA["email"])
    hash = subscriptions.hashed(process.vault, cast.ed.workspace_id, "email", key)
    path = f"/u/{process.vault.sign(LINK, bytes.fromhex(hash) + named.encode())}"
    assert (await client.post(path, data=ONE_CLICK)).status_code == 200
    assert await answers(cast, ada) == (ALL_IN, {offers: {"email": "unsubscribed"}})
    async with process.database.write() as db:  # as retention does
        await db.execute("DELETE FROM delivery_attempts")
        await db.execute("DELETE FROM messages")
    assert (await client.post(path, data=ONE_CLICK)).status_code == 200
    assert (await answers(cast, ada))[0]["email"] == "unsubscribed"


async def test_one_click_in_a_mail_of_the_default_topic_leaves_the_channel(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada, default = (
        (await cast.ed.made("/contacts", ADA))["id"],
        await topic(cast.ed, isDefault=True),
    )
    for place, named in (("named", default), ("unnamed", None)):
        path = await mailed(cast, process, tmp_path / place, ada, named)
        await client.post(path, data=ONE_CLICK)
        assert (await answers(cast, ada))[0] == {**ALL_IN, "email": "unsubscribed"}
        await client.post(path, data={"subscribe": "email"})
        assert (await answers(cast, ada))[0] == ALL_IN


async def test_the_page_offers_every_topic_one_click_each_and_one_for_all(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada = (await cast.ed.made("/contacts", ADA))["id"]
    offers = await topic(cast.ed, description="Once a week")
    path = await mailed(cast, process, tmp_path / "ledger", ada, None)
    page = (await client.get(path)).text
    assert "Once a week" in page
    for by in ("email", "sms"):
        assert f'name="join" value="{offers}.{by}"' in page
    page = (await client.post(path, data={"join": f"{offers}.sms"})).text
    assert (await answers(cast, ada))[1] == {offers: {"sms": "subscribed"}}
    assert f'name="leave" value="{offers}.sms"' in page
    await client.post(path, data={"leave": f"{offers}.sms"})
    assert (await answers(cast, ada))[1] == {offers: {"sms": "unsubscribed"}}
    await client.post(path, data={"join": f"{offers}.email"})
    page = (await client.post(path, data={"unsubscribe": "all"})).text
    assert (await answers(cast, ada))[0] == dict.fromkeys(ALL_IN, "unsubscribed")
    assert "Offers" not in page  # nothing of it comes on a channel that was left
    await client.post(path, data={"subscribe": "email"})
    assert (await answers(cast, ada))[0]["email"] == "subscribed"
    assert await outcome(cast, process, ada, about(offers)) == SENT


async def asking_twice(cast: Cast, process: Process, ledger: Path) -> tuple[str, str, str]:
    """Ada, a topic with double opt-in, and the path of her page."""
    ada = (await cast.ed.made("/contacts", ADA))["id"]
    offers = await topic(cast.ed, doubleOptIn=True)
    return ada, offers, await mailed(cast, process, ledger, ada, None)


async def test_a_topic_with_double_opt_in_is_asked_for_by_a_letter(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada, offers, path = await asking_twice(cast, process, tmp_path / "ledger")
    page = (await client.post(path, data={"join": f"{offers}.email"})).text
    assert "Almost done" in page
    assert (await answers(cast, ada))[1] == {offers: {"email": "pending"}}
    await settle(process)
    [letter] = (await cast.vic.read("/sandbox/messages"))["data"]
    assert "/confirm/" in letter["text"]
    await client.post(path, data={"leave": f"{offers}.email"})
    assert (await answers(cast, ada))[1] == {offers: {"email": "unsubscribed"}}


async def test_who_leaves_everything_while_a_question_is_open_gets_no_reminder(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada, offers, path = await asking_twice(cast, process, tmp_path / "ledger")
    await client.post(path, data={"join": f"{offers}.email"})
    await settle(process)
    letter = await link(cast)
    assert "no further message" in (await client.post(path, data={"unsubscribe": "all"})).text
    assert (await answers(cast, ada))[1] == {offers: {"email": "unsubscribed"}}
    set_clock(process, datetime.now(UTC) + timedelta(days=4))
    await settle(process)
    assert len((await cast.vic.read("/sandbox/messages"))["data"]) == 1
    [reminder, *_] = (await cast.vic.read(f"/messages?contactId={ada}"))["data"]
    assert reminder["reason"]["code"] == "suppressed_answered"
    assert "not asked any more" in (await client.post(letter)).text


async def test_a_question_that_is_asked_after_the_channel_was_left_goes_out(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada, offers, path = await asking_twice(cast, process, tmp_path / "ledger")
    await client.post(path, data={"unsubscribe": "all"})
    await answer(cast.ed, ada, offers)
    await settle(process)
    assert "/confirm/" in await link(cast)
    await client.post(path, data={"unsubscribe": "all"})  # once more: of this, too
    assert (await answers(cast, ada))[1] == {offers: {"email": "unsubscribed"}}


async def test_what_the_page_does_not_offer_changes_nothing_or_leaves(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada = (await cast.ed.made("/contacts", ADA))["id"]
    offers = await topic(cast.ed, channels=["sms"])
    theirs = await topic(cast.mallory)
    path = await mailed(cast, process, tmp_path / "ledger", ada, None)
    for named in (f"{offers}.email", f"{theirs}.email", "top_none.email", "<script>"):
        page = await client.post(path, data={"join": named})
        assert "cannot be changed" in page.text
        assert "<script>" not in page.text
    assert await answers(cast, ada) == (ALL_IN, {})
    await client.post(path, data={"leave": "top_none.email"})  # no less a wish to hear no more
    assert (await answers(cast, ada))[0]["email"] == "unsubscribed"


async def test_mail_to_another_address_offers_no_topics(
    cast: Cast, process: Process, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    ada, offers = (await cast.ed.made("/contacts", ADA))["id"], await topic(cast.ed)
    await answer(cast.ed, ada, offers)
    wanted = {"channel": "email", "contactId": ada, "to": "bob@example.com"}
    content = about(offers)
    del content["topicId"]
    async with Receiver(tmp_path / "ledger") as receiver, sending(process, receiver) as through:
        await cast.ed.made("/messages", {**wanted, "content": content})
        await settle(through)
        [mail] = receiver.received
    path = token_in(mail)
    assert "Offers" not in (await client.get(path)).text
    await client.post(path, data={"leave": f"{offers}.email"})
    assert (await answers(cast, ada))[1] == {offers: {"email": "subscribed"}}


async def test_what_is_on_its_way_is_waited_for_or_named(
    cast: Cast,
    process: Process,
    client: httpx2.AsyncClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "QUIET_SECONDS", 0.2)
    ada, offers = (await cast.ed.made("/contacts", ADA))["id"], await topic(cast.ed)
    await answer(cast.ed, ada, offers)
    path = await mailed(cast, process, tmp_path / "ledger", ada, offers)
    wanted = {"channel": "email", "contactId": ada, "content": about(offers)}
    async with (
        Receiver(tmp_path / "later", script=[HESITATE]) as receiver,
        sending(process, receiver) as through,
    ):
        made = await cast.ed.made("/messages", wanted)
        under_way = asyncio.create_task(settle(through))
        await receiver.stalled.wait()
        assert "may still arrive" in (await client.post(path, data=ONE_CLICK)).text
        receiver.released.set()
        await under_way
    activity = (await cast.vic.read(f"/contacts/{ada}/activity"))["data"]
    left = next(one["consent"] for one in activity if one["type"] == "consent")
    assert (left["change"], left["inFlight"]) == ("opted_out", [made["messageId"]])
    assert "no further message is" in (await client.post(path, data=ONE_CLICK)).text


async def texted(cast: Cast, process: Process, contact_id: str, topic_id: str | None) -> str:
    """The path of the short link in a text message of the topic."""
    named = {} if topic_id is None else {"topicId": topic_id}
    order = {"contactId": contact_id, "content": {**SPRING, **named}}
    text = await captured_text(cast, process, order)
    return urlsplit(text.rpartition(" ")[2]).path


async def test_the_link_of_a_text_message_leaves_its_topic_and_nothing_else(
    cast: Cast, process: Process, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inbox, "replies", "none")
    ada = (await cast.ed.made("/contacts", ADA))["id"]
    offers, other = [await topic(cast.ed, channels=["email", "sms"]) for _ in range(2)]
    for one in (offers, other):
        await answer(cast.ed, ada, one, channel="sms")
    path = await texted(cast, process, ada, offers)
    assert len(path) == 83
    assert (await client.post(path)).status_code == 200
    left = {offers: {"sms": "unsubscribed"}, other: {"sms": "subscribed"}}
    assert await answers(cast, ada) == (ALL_IN, left)
    path = await texted(cast, process, ada, other)
    assert (await cast.ed.delete(f"/topics/{other}")).status_code == 204
    assert (await client.post(path)).status_code == 200  # no less a wish to hear no more
    assert (await answers(cast, ada))[0]["sms"] == "unsubscribed"


async def test_the_link_of_a_text_message_of_the_default_topic_leaves_the_channel(
    cast: Cast, process: Process, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inbox, "replies", "none")
    ada = (await cast.ed.made("/contacts", ADA))["id"]
    default = await topic(cast.ed, channels=["email", "sms"], isDefault=True)
    path = await texted(cast, process, ada, default)
    assert (await client.post(path)).status_code == 200
    assert (await answers(cast, ada))[0]["sms"] == "unsubscribed"
