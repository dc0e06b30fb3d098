"""send_message: make a message, and wait until it is known what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.machine.fields import Place
from app.machine.kind import NodeOutcome, Visit
from app.machine.nodes.send_message import MOST_ATTEMPTS, SEND_MESSAGE
from app.machine.program import Delivered, Effect, Finding, MessageEnd, Node, Send, SendAgain, Woken
from app.machine.reasons import Reason
from tests.present import present

DATA = {"channel": "email", "templateId": "tpl_1"}
WIRED = {"next": "z", "failed": "f"}


def visit(
    noted: Mapping[str, Any] | None = None, exits: Mapping[str, str] = WIRED, **data: Any
) -> Visit:
    findings: list[Finding] = []
    config = SEND_MESSAGE.read({**DATA, **data}, Place("", findings))
    assert findings == []
    facts = {
        "trigger": {"email": "a@example.org", "word": "no number"},
        "contact": {},
        "steps": {"n": noted} if noted else {},
    }
    return Visit(Node("n", "send_message", config, exits), 2, facts)


def enter(**data: Any) -> NodeOutcome:
    return SEND_MESSAGE.enter(visit(**data))


def resume(status: MessageEnd, **data: Any) -> NodeOutcome:
    number, code, missing = data.pop("number", 1), data.pop("code", None), data.pop("missing", ())
    event = Delivered(status, "msg_1", number, code, "told", missing)
    return present(present(SEND_MESSAGE.resume)(visit(**data), event))


def test_a_message_is_asked_for_and_awaited() -> None:
    outcome = enter()
    assert outcome.status == "WAITING"
    assert outcome.effects == (Send("n", 2, "email", "tpl_1", None, None),)


def test_the_address_is_rendered() -> None:
    (send,) = enter(to=" {{trigger.email}} ").effects
    assert isinstance(send, Send)
    assert send.to == "a@example.org"


def test_content_goes_along_as_it_was_written() -> None:
    content = {"subject": "{{trigger.word}}", "html": "<p>{{trigger.word}}</p>", "text": ""}
    (send,) = enter(templateId=None, content=content).effects
    assert isinstance(send, Send)
    assert send.content == {"subject": "{{trigger.word}}", "html": "<p>{{trigger.word}}</p>"}
    assert send.template_id is None


UNSENT = [
    ({}, "COMPLETED", "failed"),
    ({"exits": {"next": "z"}}, "COMPLETED", "next"),
    ({"exits": {"next": "z"}, "onFailure": "continue"}, "COMPLETED", "next"),
    ({"exits": {"next": "z"}, "onFailure": "stop"}, "FAILED", None),
    ({"onFailure": "stop"}, "COMPLETED", "failed"),
]


@pytest.mark.parametrize(("policy", "status", "port"), UNSENT)
def test_a_failed_message_follows_the_policy(
    policy: dict[str, Any], status: str, port: str | None
) -> None:
    outcome = resume("FAILED", code="provider_rejected", **policy)
    assert (outcome.status, outcome.port, outcome.effects) == (status, port, ())
    assert (outcome.code, outcome.detail) == ("provider_rejected", "told")


@pytest.mark.parametrize(("policy", "status", "port"), UNSENT)
@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("{{trigger.nobody}}", Reason.NO_ADDRESS),
        ("{{trigger.word | divided_by: 0}}", Reason.TEMPLATE_ERROR),
    ],
)
def test_an_address_that_cannot_be_had_follows_the_same_policy(
    policy: dict[str, Any], status: str, port: str | None, to: str, code: str
) -> None:
    outcome = enter(to=to, **policy)
    assert (outcome.status, outcome.port, outcome.effects) == (status, port, ())
    assert outcome.code == code


@pytest.mark.parametrize("policy", [{}, {"onFailure": "stop"}, {"onUnknown": "stop"}])
@pytest.mark.parametrize("status", ["SENT", "SUPPRESSED"])
def test_a_sent_or_suppressed_message_goes_on(policy: dict[str, Any], status: MessageEnd) -> None:
    outcome = resume(status, code="suppressed_unsubscribed", **policy)
    assert (outcome.status, outcome.port) == ("COMPLETED", "next")
    assert outcome.code == "suppressed_unsubscribed"


@pytest.mark.parametrize(
    ("policy", "number", "status", "port", "effects"),
    [
        ({}, 1, "COMPLETED", "next", ()),
        ({"onUnknown": "continue"}, 1, "COMPLETED", "next", ()),
        ({"onUnknown": "stop"}, 1, "FAILED", None, ()),
        ({"onFailure": "stop"}, 1, "COMPLETED", "next", ()),
        ({"onUnknown": "resend"}, 1, "WAITING", None, (SendAgain("msg_1"),)),
        ({"onUnknown": "resend"}, 2, "WAITING", None, (SendAgain("msg_1"),)),
        ({"onUnknown": "resend"}, MOST_ATTEMPTS, "COMPLETED", "next", ()),
    ],
)
def test_an_unknown_outcome_follows_its_own_policy(
    policy: dict[str, Any], number: int, status: str, port: str | None, effects: tuple[Effect, ...]
) -> None:
    outcome = resume("UNKNOWN", number=number, **policy)
    assert (outcome.status, outcome.port, outcome.effects) == (status, port, effects)
    assert outcome.code == Reason.OUTCOME_UNKNOWN


def test_the_record_says_what_became_of_the_message() -> None:
    outcome = resume("FAILED", code="provider_rejected", noted={"missing": ["trigger.x"]})
    assert outcome.output == {
        "missing": ["trigger.x"],
        "messageId": "msg_1",
        "status": "FAILED",
        "number": 1,
        "code": "provider_rejected",
    }
    assert outcome.noted == outcome.output


def test_a_resend_that_succeeds_leaves_nothing_of_the_doubt() -> None:
    doubt = present(resume("UNKNOWN", code="worker_lost", onUnknown="resend").noted)
    assert doubt["code"] == "worker_lost"
    sent = resume("SENT", number=2, noted=doubt)
    assert sent.noted == {"messageId": "msg_1", "status": "SENT", "number": 2}


def test_missing_paths_of_the_address_are_noted() -> None:
    outcome = enter(to="{{trigger.nick}}{{trigger.email}}")
    assert outcome.output == {"missing": ["trigger.nick"]}
    assert outcome.noted == outcome.output


def test_missing_paths_of_the_content_are_noted_beside_those_of_the_address() -> None:
    outcome = resume(
        "SENT",
        noted={"missing": ["trigger.nick"]},
        missing=("trigger.nick", "trigger.name"),
    )
    assert present(outcome.output)["missing"] == ["trigger.nick", "trigger.name"]


def test_no_other_event_moves_it() -> None:
    assert present(SEND_MESSAGE.resume)(visit(), Woken()) is None


CONTENT = {"subject": "s", "html": "h"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"templateId": "tpl_1"}, ("missing", "/channel", False)),
        ({"channel": "email"}, ("missing", "/templateId", False)),
        ({"channel": "pigeon", "templateId": "t"}, ("wrong_type", "/channel", True)),
        ({**DATA, "templateId": 5}, ("wrong_type", "/templateId", True)),
        ({**DATA, "to": "{% if %}"}, ("bad_template", "/to", True)),
        ({**DATA, "onFailure": "retry"}, ("wrong_type", "/onFailure", True)),
        ({**DATA, "onUnknown": True}, ("wrong_type", "/onUnknown", True)),
        ({**DATA, "content": CONTENT}, ("both", "/content", False)),
        ({"channel": "email", "content": "x"}, ("wrong_type", "/content", True)),
        (
            {"channel": "email", "content": {"subject": "s"}},
            ("missing", "/content/html", False),
        ),
        (
            {"channel": "email", "content": CONTENT | {"html": "{{ x"}},
            ("bad_template", "/content/html", True),
        ),
        (
            {"channel": "email", "content": CONTENT | {"body": "x"}},
            ("unknown_field", "/content/body", True),
        ),
    ],
)
def test_what_a_message_may_say(data: dict[str, Any], expected: tuple[str, str, bool]) -> None:
    findings: list[Finding] = []
    SEND_MESSAGE.read(data, Place("", findings))
    found = [(finding.code, finding.pointer, finding.draft) for finding in findings]
    assert [each for each in found if each[2] == expected[2]] == [expected]


def test_a_draft_may_write_content_before_it_chooses_a_channel() -> None:
    findings: list[Finding] = []
    SEND_MESSAGE.read({"content": {"subject": "s"}}, Place("", findings))
    assert [(finding.code, finding.draft) for finding in findings] == [("missing", False)]
