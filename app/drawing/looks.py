"""How each kind looks: what it is called, its outline, its colours, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Outline: TypeAlias = Literal["pill", "card", "folded", "hexagon", "octagon", "slanted", "barred"]
Tone: TypeAlias = Literal["start", "message", "time", "choice", "contact", "call", "end", "broken"]


@dataclass(frozen=True, slots=True)
class Look:
    """`tells` are paths into the configuration; the first that leads to text is shown."""

    title: str
    outline: Outline
    tone: Tone
    tells: tuple[str, ...] = ()


LOOKS: Mapping[str, Look] = {
    "trigger": Look("Trigger", "pill", "start"),
    "send_message": Look(
        "Send message",
        "folded",
        "message",
        ("templateId", "content.subject", "content.text", "channel"),
    ),
    "wait": Look("Wait", "octagon", "time", ("duration", "until", "time")),
    "wait_for": Look("Wait for", "octagon", "time", ("conditions[0].event", "timeout")),
    "branch": Look("Branch", "hexagon", "choice", ("cases[0].when.path",)),
    "split": Look("Split", "hexagon", "choice"),
    "throttle": Look("Throttle", "hexagon", "choice", ("window",)),
    "update_contact": Look("Update contact", "card", "contact", ("set",)),
    "add_tag": Look("Add tag", "card", "contact", ("tag",)),
    "remove_tag": Look("Remove tag", "card", "contact", ("tag",)),
    "http_request": Look("HTTP request", "slanted", "call", ("url",)),
    "start_workflow": Look("Start another", "barred", "call", ("workflowId", "automationId")),
    "exit": Look("Exit", "pill", "end", ("reason",)),
}

MISSING = Look("Missing", "card", "broken")


def of(kind: str) -> Look:
    """Its own look, or a plain one under its own name."""
    return LOOKS.get(kind) or Look(kind.replace("_", " ").capitalize(), "card", "contact")


@dataclass(frozen=True, slots=True)
class Colours:
    fill: str
    line: str


LIGHT: Mapping[Tone, Colours] = {
    "start": Colours("#e3f6e8", "#23863a"),
    "message": Colours("#e2efff", "#2166c4"),
    "time": Colours("#fff3d1", "#a06a00"),
    "choice": Colours("#f0e8ff", "#7541c7"),
    "contact": Colours("#dff5f4", "#0b7a75"),
    "call": Colours("#ffe7ef", "#b52a63"),
    "end": Colours("#eceef1", "#5b6470"),
    "broken": Colours("#ffe9e6", "#c62b1c"),
}
DARK: Mapping[Tone, Colours] = {
    "start": Colours("#12331c", "#56c271"),
    "message": Colours("#10294a", "#6aa8ff"),
    "time": Colours("#3a2c08", "#e0aa3a"),
    "choice": Colours("#2a1c47", "#b18cf5"),
    "contact": Colours("#0d3331", "#4cc3bd"),
    "call": Colours("#421527", "#f27ea8"),
    "end": Colours("#272b31", "#9aa4b1"),
    "broken": Colours("#471510", "#ff8a7c"),
}
