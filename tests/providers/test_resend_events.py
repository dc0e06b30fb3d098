"""Reports of Resend, by Svix's signature."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from app.machine.document import MalformedJson
from app.providers import resend_events
from app.providers.callbacks import Report, Unsigned
from tests.resend_server import WEBHOOK_SECRET, event, signed

MAIL = {
    "id": "e_1",
    "from": "a@acme.test",
    "to": ["ada@example.com"],
    "subject": "S",
    "tags": [{"name": "workspace", "value": "ws_1"}, {"name": "attempt", "value": "att_1"}],
}


def read(body: bytes, headers: dict[str, str] | None = None) -> Any:
    now = datetime.now(UTC)
    return resend_events.read(WEBHOOK_SECRET, headers or signed(body), body, now)


@pytest.mark.parametrize(
    ("kind", "more", "became"),
    [
        ("email.sent", {}, ("SENT", None)),
        ("email.delivered", {}, ("DELIVERED", None)),
        ("email.delivery_delayed", {}, (None, "provider_unreachable")),
        ("email.bounced", {"bounce": {"type": "Permanent"}}, ("BOUNCED", "bounced_hard")),
        ("email.bounced", {"bounce": {"type": "Transient"}}, ("BOUNCED", "bounced_soft")),
        ("email.bounced", {"bounce": {"type": "Undetermined"}}, ("BOUNCED", "bounced_soft")),
        ("email.bounced", {"bounce": "what"}, ("BOUNCED", "bounced_soft")),
        ("email.complained", {}, ("COMPLAINED", "complained")),
        ("email.failed", {"failed": {"reason": "quota"}}, ("FAILED", "provider_rejected")),
        ("email.suppressed", {}, ("BOUNCED", "bounced_hard")),
    ],
)
def test_every_event_says_what_became_of_the_mail(
    kind: str, more: dict[str, Any], became: tuple[str | None, str | None]
) -> None:
    report = read(event(kind, MAIL, **more))
    assert isinstance(report, Report)
    assert (report.became.status, report.became.code) == became
    assert (report.workspace_id, report.attempt_id, report.provider_message_id) == (
        "ws_1",
        "att_1",
        "e_1",
    )


def test_its_copies_share_an_id() -> None:
    body = event("email.sent", MAIL)
    assert read(body, signed(body, id="msg_1")).id == "msg_1"


@pytest.mark.parametrize("kind", ["email.opened", "email.clicked", "contact.created", "x"])
def test_other_events_are_none_of_our_business(kind: str) -> None:
    assert read(event(kind, MAIL)) is None


@pytest.mark.parametrize("tags", [None, "x", [], {"workspace": 1, "attempt": 2}, [{"name": 1}]])
def test_a_mail_that_was_not_ours_is_none_of_our_business(tags: Any) -> None:
    assert read(event("email.sent", MAIL, tags=tags)) is None


def test_tags_of_former_times_are_read() -> None:
    assert read(event("email.sent", MAIL, tags=MAIL["tags"])).attempt_id == "att_1"


@pytest.mark.parametrize("body", [b"[]", b"1", b'{"type": 1}', b'{"type": "email.sent"}'])
def test_what_is_signed_and_no_event_is_nothing(body: bytes) -> None:
    assert read(body) is None


def test_what_is_signed_and_no_json_is_said_to_be_none() -> None:
    with pytest.raises(MalformedJson):
        read(b"{")


BODY = json.dumps({"type": "email.sent", "data": {}}).encode()
NOW = int(time.time())


@pytest.mark.parametrize(
    "headers",
    [{}, {**signed(BODY), "svix-id": "another"}, signed(BODY, at=NOW - 400)],
    ids=range(3),
)
def test_what_is_not_signed_with_svix_s_headers_is_not_read(headers: dict[str, str]) -> None:
    with pytest.raises(Unsigned):
        resend_events.read(WEBHOOK_SECRET, headers, BODY, datetime.now(UTC))
