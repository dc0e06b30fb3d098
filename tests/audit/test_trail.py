"""The trail tells who changed what, without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from app.audit import trail
from app.process import Process
from app.store import audit_logs
from tests.audit.test_chain import noted


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"id": "con_1", "email": "a@x.test", "phone": None}, {"email": [None, "a@x.test"]}),
        ({"name": "A", "tags": [1]}, {"name": "B", "tags": [1]}, {"name": ["A", "B"]}),
        ({"name": "A"}, {}, {"name": ["A", None]}),
        ({"updatedAt": 1}, {"updatedAt": 2}, {}),
        (
            {"trigger": {"signingSecret": None, "signingSecretSet": False, "webhookUrl": None}},
            {
                "trigger": {
                    "signingSecret": "s",
                    "signingSecretSet": True,
                    "webhookUrl": "https://x/t",
                }
            },
            {
                "trigger": [
                    {"signingSecret": None, "signingSecretSet": False, "webhookUrl": None},
                    {"signingSecret": "••••", "signingSecretSet": True, "webhookUrl": "••••"},
                ]
            },
        ),
        (
            {},
            {
                "steps": [
                    {"headers": {"X-Api-Key": "k", "X-Page": "2"}, "url": "http://a:b@c/d?e=f"}
                ]
            },
            {
                "steps": [
                    None,
                    [
                        {
                            "headers": {"X-Api-Key": "••••", "X-Page": "2"},
                            "url": "http://••••@c/d?••••",
                        }
                    ],
                ]
            },
        ),
        ({"key": "td_live_1"}, {"key": "td_live_2"}, {"key": ["••••", "••••"]}),
        ({}, {"list": [{"authToken": "t"}]}, {"list": [None, [{"authToken": "••••"}]]}),
    ],
)
def test_what_differs_is_told_without_secrets(
    before: dict[str, Any], after: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert trail.differences(before, after) == expected


def test_of_a_long_value_only_its_size_and_hash_are_told() -> None:
    [[before, after]] = trail.differences({"graph": "a"}, {"graph": "a" * 10_000}).values()
    assert (before, after["bytes"], len(after["sha256"])) == ("a", 10_002, 64)


async def failing(process: Process, workspace_id: str) -> None:
    async with process.database.write() as db:
        await noted(process, db, workspace_id, "contact.created")
        raise LookupError


async def test_an_act_that_fails_leaves_no_entry(process: Process, acme: str) -> None:
    with pytest.raises(LookupError):
        await failing(process, acme)
    async with process.database.read() as db:
        assert await audit_logs.unchained(db, workspace_id=acme, limit=10) == []
