"""send_message: make a message, and wait until it is known what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from app.machine import content
from app.machine.fields import Field, Place, Reader, choice, line, liquid
from app.machine.kind import Config, NodeKind, NodeOutcome, Visit, missing, onward
from app.machine.program import Delivered, Event, Json, Send, SendAgain
from app.machine.reasons import Reason
from app.machine.schema import MISSING, one_of, ref
from app.machine.template import Rendered, RenderError

MOST_ATTEMPTS = 3


def send_message(visit: Visit) -> NodeOutcome:
    config, to = visit.config, None
    noted: dict[str, Json] = {}
    if "to" in config:
        try:
            rendered: Rendered = config["to"].render(visit.facts)
        except RenderError as error:
            return _unsent(visit, Reason.TEMPLATE_ERROR, error.message, noted)
        noted |= missing(rendered.missing)
        to = rendered.text.strip()
        if not to:  # and not the contact's own: the author meant somebody else
            return _unsent(visit, Reason.NO_ADDRESS, "The step's “to” came out empty.", noted)
    send = Send(
        visit.node.id,
        visit.number,
        config["channel"],
        config.get("templateId"),
        config.get("content"),
        to,
    )
    return NodeOutcome("WAITING", effects=(send,), output=noted or None, noted=noted)


def delivered(visit: Visit, event: Event) -> NodeOutcome | None:
    if not isinstance(event, Delivered):
        return None
    noted = {
        **missing(list(dict.fromkeys([*visit.noted.get("missing", ()), *event.missing]))),
        "messageId": event.message_id,
        "status": event.status,
        "number": event.number,
    }
    if event.code:
        noted["code"] = event.code
    match event.status:
        case "FAILED":
            return _unsent(visit, event.code, event.detail, noted)
        case "UNKNOWN":
            # Perhaps sent: again only if `onUnknown` says so, and a bounded number of times.
            code = event.code or Reason.OUTCOME_UNKNOWN
            note = partial(NodeOutcome, code=code, detail=event.detail, output=noted, noted=noted)
            policy = visit.config.get("onUnknown")
            if policy == "resend" and event.number < MOST_ATTEMPTS:
                return note("WAITING", effects=(SendAgain(event.message_id),))
            return note("FAILED") if policy == "stop" else note("COMPLETED", "next")
        case _:
            return onward(code=event.code, detail=event.detail, output=noted, noted=noted)


def _unsent(
    visit: Visit, code: str | None, detail: str | None, noted: Mapping[str, Json]
) -> NodeOutcome:
    """Surely not sent: by the `failed` exit when it is wired, else as `onFailure` says."""
    note = partial(NodeOutcome, code=code, detail=detail, output=noted, noted=noted)
    if "failed" in visit.node.exits:
        return note("COMPLETED", "failed")
    if visit.config.get("onFailure") == "stop":
        return note("FAILED")
    return note("COMPLETED", "next")


# --- its configuration --------------------------------------------------------------------------


def _settle(config: Config, place: Place) -> Config:
    """Require a template or the content, and read the content as its channel has it."""
    own = place.at("content")
    if "content" in config:
        channel, raw = config.get("channel"), config["content"]
        config["content"] = content.read(channel, raw, own, content.CATEGORY)
    if "templateId" not in config and "content" not in config:
        message = "Say what to send: a templateId, or the content itself."
        place.at("templateId").hold("missing", message)
    elif "templateId" in config and "content" in config:
        own.hold("both", "Give a templateId or the content, not both.")
    return config


_content = Reader(lambda raw, _: raw, ref("InlineContent"))  # judged with its channel

SEND_MESSAGE = NodeKind(
    send_message,
    "Sends a message and waits until its outcome is known.",
    {"channel": "email", "templateId": "tpl_01kk8f3m9xe2vb4z7c1q5t6w8y"},
    delivered,
    fields={
        "channel": Field(
            choice(*content.CHANNELS), "Say on which channel to send.", "The channel."
        ),
        "templateId": Field(line, about="The template to send, or else `content`."),
        "content": Field(
            _content, about="What to send, or else `templateId`: as a template's, with `category`."
        ),
        "to": Field(
            liquid,
            about="Another address or number than the contact's; may contain Liquid.",
        ),
        "onFailure": Field(
            choice("continue", "stop"),
            about="What follows a message that failed, without the exit `failed`.",
            default="continue",
        ),
        "onUnknown": Field(
            choice("continue", "stop", "resend"),
            about=f"What follows if the outcome stays unknown. `resend`: at most {MOST_ATTEMPTS}"
            " attempts in all, until one is known to have arrived; somebody may get it twice.",
            default="continue",
        ),
    },
    settle=_settle,
    arms=("failed",),
    exits={"failed": "the message was surely not sent"},
    rules=(one_of("templateId", "content"),),
    content=True,
    output={
        "messageId": {"type": "string", "description": "The message."},
        "status": {"type": "string", "description": "Its status when the run went on."},
        "number": {"type": "integer", "description": "The number of the attempt."},
        "code": {"type": "string", "description": "The reason of that status."},
        **MISSING,
    },
)
