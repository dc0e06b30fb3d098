"""Keywords that people write back, and what comes of them."""

from __future__ import annotations

import pytest

from app.audience import subscriptions
from app.consent import keywords
from app.process import Process
from tests.cast import suppress
from tests.consent.test_consent import contact, read

WORDS: list[tuple[str, keywords.Meaning]] = [
    *((word, "stop") for word in ("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT")),
    ("revoke", "stop"),
    ("OptOut", "stop"),
    ("Stop promotions", "stop"),
    (" stop ", "stop"),
    ("Stop.", "stop"),
    ("sToP\n", "stop"),
    *((text, "stop") for text in ("OPT OUT", "opt-out", "Opt\u2011out", "stop all", "STOP ALL!")),
    *(
        (text, "stop")
        for text in ("\u201cStop\u201d", "\u00abSTOP\u00bb", "STOP .", "STOP,", "(stop)")
    ),
    ("STOP \U0001f6d1\ufe0f", "stop"),
    ("\u200bSTOP\u00a0", "stop"),
    ("START", "start"),
    ("Un-stop", "start"),
    ("unstop", "start"),
    ("Yes", "start"),
    ("HELP", "help"),
    ("info", "help"),
    ("Stop texting me", "flagged"),
    ("please unsubscribe me", "flagged"),
    ("I want to opt-out", "flagged"),
    ("Please stop", "flagged"),
    ("Don't stop", "flagged"),
    ("Stop. Now.", "flagged"),
    ("Stop 2", "flagged"),
    ("The bus stopped here", "other"),
    ("Yes 2", "other"),
    ("...", "other"),
    ("Yes please", "other"),
    ("", "other"),
]


@pytest.mark.parametrize(("text", "meant"), WORDS)
def test_what_people_mean(text: str, meant: str) -> None:
    assert keywords.meaning(text) == meant


@pytest.mark.parametrize(
    ("text", "pressed", "meant"),
    [
        ("Désinscription", "STOP", "stop"),
        ("Abmelden", "opt-out", "stop"),
        ("Termin absagen", "cancel", "other"),
        ("Ja, gern", "yes", "other"),
        ("Ja, gern", "start", "other"),
        ("Was ist das?", "info", "other"),
        ("Stop promotions", "button 2", "stop"),
        ("Stop", None, "stop"),
        ("No", "", "other"),
    ],
)
def test_a_button_whose_id_says_stop_means_that_whatever_is_written_on_it(
    text: str, pressed: str | None, meant: str
) -> None:
    assert keywords.meaning(keywords.words_of(text, pressed)) == meant


async def test_stop_start_and_help_by_sms(process: Process, acme: str) -> None:
    id = await contact(process, acme, phone="+14155550100")

    async def say(text: str) -> tuple[str | None, str]:
        async with process.database.write() as db:
            received = await keywords.apply(
                process,
                db,
                workspace_id=acme,
                senders=["+14155550100"],
                text=text,
                workspace_name="Acme",
            )
        return received.reply, subscriptions.shown(await read(process, acme, id))["sms"]

    stopped, status = await say("Stop")
    assert stopped is not None
    assert stopped.startswith("Acme: ")
    assert status == "unsubscribed"
    assert await say("STOP") == (None, "unsubscribed")  # confirmed once
    assert (await say("help"))[0] is not None
    assert await say("Stop texting me!!") == (None, "unsubscribed")
    again, status = await say("start")
    assert again is not None
    assert status == "subscribed"
    assert await say("yes") == (None, "subscribed")
    async with process.database.read() as db:
        rows = await db.fetch_all("SELECT kind, reason FROM consent_events ORDER BY id")
    assert [row["kind"] for row in rows] == ["opted_out", "flagged", "opted_in"]
    await suppress(process, acme, "manual", "+14155550100", channel="sms")
    assert await say("START") == (None, "unsubscribed")  # a member's word is not theirs to lift
