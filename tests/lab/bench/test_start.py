"""Requests of bench-start, which are what `make run` prints to be pasted."""

from __future__ import annotations

import hmac

from app.commands.demo import EVENT, Demo
from lab.bench.start import Event, printed


def test_the_event_is_the_one_that_the_process_prints() -> None:
    demo = Demo("http://127.0.0.1:8000/v1/webhooks/in/token", "a signing secret", "key")
    text = f"Tidings runs.\n\n{demo.curl()}\n"
    assert printed(text) is None  # it has not been printed to its end
    digest = hmac.digest(b"a signing secret", EVENT, "sha256").hex()
    assert printed(f"{text}\n2. See the message") == Event(
        demo.webhook_url,
        {"Content-Type": "application/json", "X-Service-Signature": f"sha256={digest}"},
        EVENT.decode(),
    )
