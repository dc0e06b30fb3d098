"""Replies in the sandbox, which come to the same as those that a person would text back."""

from __future__ import annotations

from typing import Any

import pytest

from app.process import Process
from tests.cast import Cast, settle

REPLIES = "/sandbox/replies"
ADA = "+14155550132"


async def test_stop_and_start_do_what_they_do_anywhere(cast: Cast, process: Process) -> None:
    ada = await cast.ed.made("/contacts", {"phone": ADA})

    async def says(text: str, **more: str) -> tuple[str, str | None]:
        wanted = {"channel": "sms", "from": ADA, "text": text, **more}
        received = await cast.ed.made(REPLIES, wanted)
        return received["meaning"], received["answer"]

    async def sent() -> tuple[str, str | None]:
        wanted = {"channel": "sms", "contactId": ada["id"], "content": {"text": "Hello"}}
        made = await cast.ed.made("/messages", wanted)
        await settle(process)
        message = await cast.vic.read(f"/messages/{made['messageId']}")
        return message["status"], message["reason"] and message["reason"]["code"]

    meaning, answer = await says(" Stop. ")
    assert meaning == "stop"
    assert answer is not None
    assert answer.endswith("Reply START to resume.")
    assert await says("STOP") == ("stop", None)  # known
    assert await sent() == ("SUPPRESSED", "suppressed_stopped")
    [held] = (await cast.vic.read("/suppressions"))["data"]
    assert (held["channel"], held["reason"], held["source"]) == ("sms", "stopped", "inbound")
    assert (await says("start", channel="whatsapp")) == ("start", None)  # never stopped there
    assert (await says("start"))[1] is not None
    assert await sent() == ("SENT", None)
    assert await says("Stop texting me") == ("flagged", None)
    assert await says("Thanks!") == ("other", None)
    trail = (await cast.olivia.read("/audit-logs"))["data"]
    noted = [one["changes"] for one in trail if one["action"] == "sandbox_reply.received"]
    assert len(noted) == 6
    assert ADA not in str(noted)


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"from": "ada"}, "/from"),
        ({"channel": "email"}, "/channel"),
        ({"text": "x" * 1_601}, "/text"),
    ],
)
async def test_what_nobody_can_text_is_refused(
    cast: Cast, wrong: dict[str, Any], pointer: str
) -> None:
    refused = await cast.ed.post(REPLIES, {"channel": "sms", "from": ADA, "text": "STOP", **wrong})
    assert refused.status_code == 422
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]
