"""Signatures that the subscriber writes down; what is made of them is in test_oracle.py."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
import pytest

from app.net.tls import system_trust
from app.vault import standard_webhooks
from lab.chaos.subscriber import Subscriber
from tests.listener import Listener

BODY = b'{"type":"run.failed"}'
RIGHT, WRONG = standard_webhooks.new_secret(), standard_webhooks.new_secret()


@pytest.mark.parametrize(
    ("secret", "wrong"),
    [(RIGHT, None), (WRONG, "No matching signature found")],
    ids=["right", "wrong"],  # the secrets are others in each worker of the tests
)
async def test_a_signature_is_verified_when_it_comes(secret: str, wrong: str | None) -> None:
    subscriber = Subscriber(RIGHT)
    headers = standard_webhooks.sign([secret], "evt_1", datetime.now(UTC), BODY)
    async with (
        Listener(subscriber.respond) as listener,
        httpx2.AsyncClient(trust_env=False, verify=system_trust()) as client,
    ):
        answer = await client.post(listener.url, content=BODY, headers=headers)
    assert answer.status_code == 200
    [received] = subscriber.received
    assert (received.id, received.body) == ("evt_1", BODY)
    assert received.wrong == wrong
