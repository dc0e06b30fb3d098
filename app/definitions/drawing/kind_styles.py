"""The style of each node kind: title, outline, colours, and which of its settings is the label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Outline: TypeAlias = Literal["pill", "card", "folded", "hexagon", "octagon", "slanted", "barred"]
Tone: TypeAlias = Literal["start", "message", "time", "choice", "contact", "call", "end", "broken"]


@dataclass(frozen=True, slots=True)
class KindStyle:
    """`label_paths` lead into the configuration; the first one with text is shown."""

    title: str
    outline: Outline
    tone: Tone
    label_paths: tuple[str, ...] = ()


KIND_STYLES: Mapping[str, KindStyle] = {
    "trigger": KindStyle("Trigger", "pill", "start"),
    "send_message": KindStyle(
        "Send message",
        "folded",
        "message",
        ("templateId", "content.subject", "content.text", "channel"),
    ),
    "wait": KindStyle("Wait", "octagon", "time", ("duration", "until", "time")),
    "wait_for": KindStyle("Wait for", "octagon", "time", ("conditions[0].event", "timeout")),
    "branch": KindStyle("Branch", "hexagon", "choice", ("cases[0].when.path",)),
    "split": KindStyle("Split", "hexagon", "choice"),
    "throttle": KindStyle("Throttle", "hexagon", "choice", ("window",)),
    "update_contact": KindStyle("Update contact", "card", "contact", ("set",)),
    "add_tag": KindStyle("Add tag", "card", "contact", ("tag",)),
    "remove_tag": KindStyle("Remove tag", "card", "contact", ("tag",)),
    "http_request": KindStyle("HTTP request", "slanted", "call", ("url",)),
    "start_workflow": KindStyle("Start workflow", "barred", "call", ("workflowId", "automationId")),
    "exit": KindStyle("Exit", "pill", "end", ("reason",)),
}

MISSING = KindStyle("Missing", "card", "broken")


def of(kind: str) -> KindStyle:
    """Its own style, or a plain one under its own name."""
    return KIND_STYLES.get(kind) or KindStyle(
        kind.replace("_", " ").capitalize(), "card", "contact"
    )


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
