"""Names of credentials, whose values are hidden wherever they are shown beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO
from typing import TypeAlias

import pytest

from app.audit import trail
from app.config.settings import Settings
from app.definitions import credentials
from app.intake import webhook_requests
from app.machine import document
from app.machine.check import compile
from app.machine.program import Go, Json
from app.machine.secrets import HINTS, is_credential_name, is_secret_name
from app.machine.step import start, step
from app.runtime import logs

CANARY = "can-ary"  # as no pattern of values would know it
NAMES = [
    *("authorization", "x-authorization", "x-auth", "authToken", "oauth_verifier"),
    *("token", "x-my-token", "refreshToken", "secret", "clientSecret", "client_secret"),
    *("password", "passwd", "smtpPassword", "passphrase", "pwd", "db_pwd", "credential"),
    *("cookie", "set-cookie", "x-session-id", "signature", "x-sig", "x-sign", "signingSecret"),
    *("key", "x-api-key", "x-access-key", "accessKeyId", "APIKey", "apikey", "webhookUrl"),
    *("Ocp-Apim-Subscription-Key", "X-Functions-Key", "api_keys", "webhook_url"),
]
HARMLESS = [
    *(
        "author",
        "coauthors",
        "keyword",
        "keyboard",
        "design",
        "signal",
        "assigned",
        "url",
        "x-page",
    ),
    *("email", "firstName", "request_id", "workspace_id", "monk", "content-type", "expressway"),
]

Shown: TypeAlias = Callable[[str], str]


def of_a_log(name: str) -> str:
    output = StringIO()
    logs.configure(Settings.from_environ({"SECRET_KEY": "k" * 32}), stream=output)
    logging.getLogger("app").warning("seen", extra={"row": {name: CANARY}})
    return output.getvalue()


def of_the_audit_trail(name: str) -> str:
    return str(trail.differences({}, {name: CANARY}))


def of_a_request_that_came(name: str) -> str:
    return str(webhook_requests.masked([(name.lower().encode(), CANARY.encode())]))


def of_a_definition(name: str) -> str:
    return str(credentials.masked([{"type": "http_request", "headers": {name: CANARY}}]))


def of_a_step(name: str) -> str:
    node = {"id": "ask", "type": "http_request", "method": "GET", "headers": {name: CANARY}}
    compiled = compile("steps", [{**node, "url": f"https://api.example/?{name}={CANARY}"}])
    assert compiled.program is not None, compiled.findings
    facts: dict[str, Json] = {
        root: {} for root in ("trigger", "contact", "workspace", "run", "steps")
    }
    at = datetime(2026, 1, 31, tzinfo=UTC)
    went = step(compiled.program, start(compiled.program), Go(), {**facts, "now": at})
    return document.dumps(went.state.outputs).decode()


@pytest.mark.parametrize(
    "shown",
    [of_a_log, of_the_audit_trail, of_a_request_that_came, of_a_definition, of_a_step],
)
def test_what_is_called_like_a_credential_is_shown_nowhere(shown: Shown) -> None:
    assert [name for name in NAMES if CANARY in shown(name)] == []
    assert [name for name in HARMLESS if CANARY not in shown(name)] == []


def test_a_name_is_judged_by_its_words() -> None:
    assert [name for name in NAMES if not is_secret_name(name)] == []
    assert [name for name in HARMLESS if is_secret_name(name)] == []


def test_whatever_is_warned_of_is_hidden_too() -> None:
    warned = [name for name in NAMES if is_credential_name(name)]
    assert {"authorization", "token", "secret", "password", "x-api-key"} <= set(warned)
    assert [name for name in HARMLESS if is_credential_name(name)] == []


def test_no_secret_is_named_without_a_hint() -> None:
    """The log looks for these first."""
    assert [name for name in NAMES if not any(hint in name.lower() for hint in HINTS)] == []
