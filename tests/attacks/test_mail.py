"""Every way that we know of to harm by mail, tried through the API and judged at the mail server.

A line is named by the number it has in the catalogue of attacks: J is mail and text messages. What
providers tell of them is K7, tried with the rest of K in test_payments.py.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app.machine.visible import shows_link
from app.process import Process
from lab.chaos.optout import sending
from tests.cast import Cast, settle
from tests.consent import test_keywords
from tests.messages import test_delivery_providers
from tests.providers.test_mime import ALWAYS, BREAKS, TRICKS
from tests.receivers import Received, Receiver, text_of
from tests.routes import test_callbacks, test_new_messages, test_settings, test_suppressions
from tests.routes import test_channels as channels
from tests.routes import test_preferences as links

CATALOGUE = {f"J{n + 1}" for n in range(13)}
PARTS = ("subject", "fromName", "replyTo", "preheader")
SPOKEN = [trick for trick in (*BREAKS, *TRICKS) if "\ud83d" not in trick]  # as JSON
MARKETING = {"subject": "News", "html": "<p>Hi</p>", "category": "marketing"}


@dataclass(frozen=True, slots=True)
class Wire:
    """Ed orders messages; what the mail server gets of them."""

    cast: Cast
    process: Process
    receiver: Receiver

    async def order(self, **wanted: Any) -> None:
        """Order a message, unless the API refuses it at once."""
        answer = await self.cast.ed.post("/messages", {"channel": "email", **wanted})
        assert answer.status_code in (202, 422), answer.text

    async def sent(self) -> list[Received]:
        await settle(self.process)
        return self.receiver.received

    async def ends(self) -> list[tuple[str, str | None]]:
        async with self.process.database.read() as db:
            rows = await db.fetch_all("SELECT status, reason_code FROM messages")
        return [(row["status"], row["reason_code"]) for row in rows]


@asynccontextmanager
async def wired(cast: Cast, process: Process, ledger: Path) -> AsyncIterator[Wire]:
    async with Receiver(ledger) as receiver, sending(process, receiver) as through:
        yield Wire(cast, through, receiver)


def headers_of(mail: Received) -> list[str]:
    """Names as they travelled, read by nothing but the rule that a header begins a line."""
    head, _, _ = mail.raw.partition(b"\r\n\r\n")
    assert not re.search(rb"\r(?!\n)|(?<!\r)\n", mail.raw)
    return [name.decode() for name in re.findall(rb"(?m)^([^\s:]+):", head)]


async def no_header_is_forged(wire: Wire) -> None:
    """J1, by whatever a sender of ours or a contact can put into a template's values."""
    # What is stored of a value depends on the engine, and not on the part that it is for.
    parts = PARTS if wire.process.database.engine == "sqlite" else PARTS[:3:2]
    for trick in SPOKEN:
        for part in parts:
            content = {"subject": "Hello", "html": "<p>Hi</p>", part: "{{trigger.word}}"}
            await wire.order(to="ada@acme.test", content=content, data={"word": trick})
    mails = await wire.sent()
    for mail in mails:
        assert headers_of(mail) in (ALWAYS, [*ALWAYS[:5], "Reply-To", *ALWAYS[5:]])
        assert mail.recipients == ("ada@acme.test",)
    assert set(await wire.ends()) == {("SENT", None), ("FAILED", "template_error")}
    assert len(mails) == [status for status, _ in await wire.ends()].count("SENT")


async def no_name_forges_a_header(wire: Wire) -> None:
    """J1, by a contact's own name; the API refuses most of them."""
    for number, trick in enumerate(SPOKEN):
        made = await wire.cast.ed.post(
            "/contacts", {"email": f"c{number}@acme.test", "firstName": trick}
        )
        if made.status_code == 201:
            content = {"subject": "Hello {{contact.firstName}}", "html": "<p>Hi</p>"}
            await wire.order(contactId=made.json()["id"], content=content)
    for mail in await wire.sent():
        assert headers_of(mail) == ALWAYS


async def one_recipient_or_none(wire: Wire) -> None:
    """J2."""
    for to in (
        "a@acme.test>\r\nRCPT TO:<b@evil.test",
        "a@acme.test,b@evil.test",
        "a@acme.test; b@evil.test",
        '"a@acme.test b"@evil.test',
        "all: a@acme.test, b@evil.test;",
        "<a@acme.test> SIZE=1",
        "a@acme.test\x00b@evil.test",
    ):
        await wire.order(to=to, content={"subject": "Hello", "html": "<p>Hi</p>"})
    assert await wire.sent() == []
    await wire.order(to="a@acme.test", content={"subject": "Hello", "html": "<p>Hi</p>"})
    [mail] = await wire.sent()
    assert mail.recipients == ("a@acme.test",)


async def no_mail_within_a_mail(wire: Wire) -> None:
    """J3."""
    ends = ("\r\n.\r\n", "\n.\n", "\r.\r", "\n.\r\n", "\r\n.\r")
    word = "".join(f"{end}MAIL FROM:<a@x.test>\r\nRCPT TO:<b@y.test>\r\nDATA" for end in ends)
    content = {"subject": "Hello", "html": "<p>{{trigger.word}}</p>", "text": "{{trigger.word}}"}
    await wire.order(to="a@acme.test", content=content, data={"word": word + "x" * 5_000})
    [mail] = await wire.sent()
    assert headers_of(mail) == ALWAYS
    assert max(map(len, mail.raw.split(b"\r\n"))) <= 998
    assert text_of(mail.mail, "plain").count("RCPT TO") == len(ends)


async def a_way_out_of_all_marketing_and_no_other(wire: Wire) -> None:
    """J4; unfolded, for a fold has broken signatures."""
    for number in range(5):
        to = f"{number}{'long' * 12}@acme.test"
        await wire.order(to=to, content=MARKETING)
        await wire.order(to=to, content={**MARKETING, "category": "transactional"})
    mails = await wire.sent()
    marketing = [mail for mail in mails if b"List-Unsubscribe:" in mail.raw]
    assert (len(mails), len(marketing)) == (10, 5)
    for mail in marketing:
        assert re.search(rb"(?m)^List-Unsubscribe: <https?://[^<>\s]+>\r$", mail.raw)
        assert b"\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n" in mail.raw
        assert headers_of(mail).count("List-Unsubscribe") == 1


# What a stranger says who wants the link hidden, or another one in its place.
HIDING = (
    "<!--", "--><!--", "<div style='display:none'>", "</body></html>", "<style>a{display:none}",
    "<title>", "<a href='https://evil.test/u/x'>Unsubscribe</a>", "{{unsubscribeUrl}}",
    "\u202e\u200b", "<" * 5_000, "Reply STOP to opt out", "\nUnsubscribe: https://evil.test/u/x",
)  # fmt: skip


async def no_value_hides_the_way_out(wire: Wire) -> None:
    """J4, in what people read: by whatever a sender of ours or a contact can say."""
    for word in HIDING:
        for html in ("<body><p>{{trigger.word}}</p></body>", "<p title='{{trigger.word}}'>x</p>"):
            content = {**MARKETING, "html": html, "text": "{{trigger.word}}"}
            await wire.order(to="ada@acme.test", content=content, data={"word": word})
    mails = await wire.sent()
    assert len(mails) == 2 * len(HIDING)
    for mail in mails:
        [url] = re.findall(r"(?m)^List-Unsubscribe: <(\S+)>\r$", mail.raw.decode())
        markup = text_of(mail.mail, "html")
        assert shows_link(markup, url)
        assert not shows_link(markup, "https://evil.test/u/x")
        assert f"\nUnsubscribe: {url}" in text_of(mail.mail, "plain")


async def one_message_id_for_each_message(wire: Wire) -> None:
    """J13: the same on each try, which the server shows by refusing the first ones."""
    wire.receiver.script.extend(["throttle", "hang_up", "throttle_data"])
    for number in range(3):
        content = {"subject": "Hello", "html": "<p>Hi</p>"}
        await wire.order(to=f"p{number}@acme.test", content=content)
    for _ in range(4):
        await wire.sent()
        async with wire.process.database.write() as db:
            await db.execute("UPDATE jobs SET wake_at = :now WHERE kind = 'message'")
    mails = await wire.sent()
    async with wire.process.database.read() as db:
        rows = await db.fetch_all("SELECT message_key FROM delivery_attempts WHERE tries > 0")
    assert sorted(mail.message_key for mail in mails) == sorted(row["message_key"] for row in rows)
    assert len({mail.message_key for mail in mails}) == 3


Line: TypeAlias = Callable[[Wire], Awaitable[None]]
LINES: dict[str, Line] = {
    "J1": no_header_is_forged,
    "J1 by a contact": no_name_forges_a_header,
    "J2": one_recipient_or_none,
    "J3": no_mail_within_a_mail,
    "J4": a_way_out_of_all_marketing_and_no_other,
    "J4 in what is read": no_value_hides_the_way_out,
    "J13": one_message_id_for_each_message,
}
COMPOSED = ("J4 in what is read",)  # alike whatever the engine, which only keeps the markup
# What is no mail is tried where it comes in, over the wire as well.
ELSEWHERE = {
    "J5": links.test_one_click_ends_it_before_the_answer_and_opening_the_link_does_nothing,
    "J6": links.test_one_click_ends_it_before_the_answer_and_opening_the_link_does_nothing,
    "J7": links.test_a_link_that_was_tampered_with_is_nobody_s,
    "J7 others": links.test_a_link_in_mail_to_another_address_speaks_for_that_address_alone,
    "J7 of somebody gone": links.test_a_link_outlives_the_contact,
    "J8": test_callbacks.test_stop_start_and_help_by_text_message,
    "J8 every word": test_keywords.test_what_people_mean,
    "J9": test_delivery_providers.test_who_opted_out_at_twilio_has_opted_out_here,
    "J10": test_suppressions.test_a_contact_made_again_after_its_erasure_gets_nothing,
    "J11": test_new_messages.test_in_production_a_test_email_goes_to_members_only,
    "J11 its limit": test_new_messages.test_a_workspace_has_thirty_test_emails_an_hour,
    "J12": test_settings.test_a_wrong_change_is_named_and_nothing_of_it_applied,
    "J12 the operator's": test_settings.test_nobody_chooses_an_address_on_the_operator_s_domain,
    "J12 its own": channels.test_a_sender_of_another_domain_needs_its_own_provider_and_keeps_it,
}


@pytest.mark.parametrize(
    ("line", "database_url"),
    [(line, "sqlite") for line in LINES]
    + [(line, "postgresql") for line in LINES if line not in COMPOSED],
    indirect=["database_url"],
)
async def test_no_mail_does_harm(line: str, cast: Cast, process: Process, tmp_path: Path) -> None:
    async with wired(cast, process, tmp_path / "ledger") as wire:
        await LINES[line](wire)


def test_no_line_of_the_catalogue_is_left_out() -> None:
    tried = {name.partition(" ")[0] for name in (*LINES, *ELSEWHERE)}
    assert tried == CATALOGUE
