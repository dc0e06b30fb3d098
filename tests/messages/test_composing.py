"""Replies to a text message, and whose arrive."""

from __future__ import annotations

import pytest

from app.messages import composing
from app.process import Process
from app.providers.base import Replies

NUMBERS = {"US": "+14155550132", "CA": "+14165550132", "JM": "+18765550132", "DE": "+4915112345678"}


@pytest.mark.parametrize(
    ("replies", "to"),
    [("all", {*NUMBERS}), ("american", {"US", "CA"}), ("none", set())],
)
def test_a_reply_arrives_by_sender_and_region(
    process: Process, monkeypatch: pytest.MonkeyPatch, replies: Replies, to: set[str]
) -> None:
    channel = process.channels["sms"]
    monkeypatch.setattr(type(channel), "replies", replies)
    assert {at for at, one in NUMBERS.items() if composing._takes_replies(channel, one)} == to
