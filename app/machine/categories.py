"""Categories of messages, by which consent, the gate and the footer of one are judged."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Category: TypeAlias = Literal["transactional", "marketing"]  # that a member may choose

TRANSACTIONAL: Final = "transactional"
MARKETING: Final = "marketing"
CONFIRMATION: Final = "confirmation"  # of a message that asks whether somebody wants a topic
TEST: Final = "test"  # of a test email, which ignores consent
