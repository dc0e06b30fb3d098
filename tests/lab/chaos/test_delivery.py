"""A small campaign of cut connections, and one that a sender which lies does not survive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from app.process import Process
from app.providers.base import Capabilities, Message, Receipt, Replies, SendError
from app.providers.email import EmailChannel
from lab.chaos import delivery

pytestmark = pytest.mark.drill


async def test_whatever_is_cut_off_every_record_is_true(
    process: Process, acme: str, tmp_path: Path
) -> None:
    count = 100 if process.database.engine == "postgresql" else 200  # together what CI is to do
    found = await delivery.campaign(process, acme, tmp_path / "ledger", count, seed=6)
    assert found.untrue == []
    assert found.ended.total() == count
    assert {"SENT", "UNKNOWN"} <= set(found.ended) <= {"SENT", "FAILED", "UNKNOWN"}, found
    assert len(found.cuts) > len(delivery.DIALOGUE) / 2, found
    assert found.unknown_arrived, found


@dataclass(frozen=True, slots=True)
class Hopeful:
    """Takes no answer for a no, which is what makes duplicates."""

    channel: EmailChannel
    name: str = "email"
    provider: str = "smtp"
    capabilities: Capabilities = EmailChannel.capabilities
    account: str | None = None
    replies: Replies = "none"

    async def send(self, message: Message) -> Receipt:
        try:
            return await self.channel.send(message)
        except SendError as error:
            raise SendError("not_accepted", error.code, error.detail) from error

    async def close(self) -> None:
        await self.channel.close()


async def test_a_sender_that_repeats_what_may_have_arrived_is_caught(
    process: Process, acme: str, tmp_path: Path
) -> None:
    if process.database.engine == "postgresql":
        pytest.skip("it is the sender that lies, on either engine")
    found = await delivery.campaign(process, acme, tmp_path / "ledger", 80, seed=6, through=Hopeful)
    assert [line for line in found.untrue if line.endswith("SENT, and 2 received")], found
