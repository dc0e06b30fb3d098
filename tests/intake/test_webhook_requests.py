"""Kept webhook requests: no secret, and which mistake a signature was."""

from __future__ import annotations

import hmac
import json
from datetime import timedelta

import orjson
import pytest

from app.database.db import Row, new_id
from app.database.ids import first_id
from app.errors import Problem
from app.intake import webhooks
from app.intake.webhook_requests import is_reserialised, masked
from app.process import Process
from app.store import webhook_requests as store
from tests.cast import hook
from tests.store.test_webhook_requests import request
from workers import maintenance

SECRET = "a shared secret of good length"
BODY = b'{"email": "ada@example.com", "name": "Ad\\u00e9", "n": 1}'
CANARY = "sk4Jd8Qm2Xz7Pw1Lr9Vt5Bn3"


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("authorization", "Basic eA==", "••••"),
        ("cookie", "a=b", "••••"),
        ("x-service-signature", "sha256=00", "••••"),
        ("x-api-key", "k", "••••"),
        ("x-my-token", "t", "••••"),
        ("proxy-authorization", "x", "••••"),
        ("x-custom", f"a {CANARY} b", "a •••• b"),
        ("referer", f"https://x.example/?k={CANARY}", "https://x.example/?••••"),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (X11; Linux x86_64)"),
        ("idempotency-key", "0192f0c1-7a3b-7c4d-8e5f-123456789abc", None),
        ("webhook-id", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", None),
        ("content-type", "application/json;charset=utf-8", None),
        ("x-latin", "caf\xe9", None),
    ],
)
def test_headers_are_kept_without_their_secrets(name: str, value: str, kept: str | None) -> None:
    headers = masked([(name.encode(), value.encode("latin-1"))])
    assert headers == {name: value if kept is None else kept}


def test_a_header_that_came_twice_is_kept_twice() -> None:
    assert masked([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]) == {"a": "1, 3", "b": "2"}


async def recorded(process: Process) -> Row:
    await process.batches.close()
    async with process.database.read() as db:
        row = await db.fetch_one("SELECT * FROM webhook_requests ORDER BY id DESC LIMIT 1")
    assert row is not None
    return row


def signed(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


REWRITTEN = json.loads(BODY)


@pytest.mark.parametrize(
    ("signatures", "cause"),
    [
        ([], "missing"),
        ([""], "malformed"),
        ([signed(BODY), signed(BODY)], "malformed"),
        ([signed(BODY).removeprefix("sha256=")], "malformed"),
        ([signed(BODY, "another secret")], "wrong"),
        ([signed(BODY + b"x")], "wrong"),
        ([signed(orjson.dumps(REWRITTEN))], "reserialised"),
        ([signed(json.dumps(REWRITTEN, indent=2).encode())], "reserialised"),
        ([signed(json.dumps(REWRITTEN, separators=(",", ":")).encode())], "reserialised"),
        ([signed(json.dumps(REWRITTEN, sort_keys=True).encode())], "reserialised"),
        ([signed(BODY + b"\n")], "reserialised"),
    ],
)
async def test_the_owner_learns_which_mistake_it_was_and_the_sender_does_not(
    process: Process, acme: str, signatures: list[str], cause: str
) -> None:
    token = await hook(process, acme, secret=SECRET)
    with pytest.raises(Problem) as refused:
        await webhooks.receive(process, token=token, body=BODY, signatures=signatures)
    row = await recorded(process)
    assert (row["code"], row["cause"]) == ("invalid_signature", cause)
    assert row["detail"] == refused.value.detail
    assert "Send exactly one" in refused.value.detail


def test_a_body_that_is_nested_deep_is_not_written_in_other_ways() -> None:
    """Indented, each line of the innermost would have a thousand blanks: megabytes of kilobytes."""
    deep = b"[" * 900 + b"1,1,1" + b"]" * 900
    tried: list[bytes] = []

    def is_right(other: bytes) -> bool:
        tried.append(other)
        return False

    assert not is_reserialised(deep, is_right)
    assert tried == []
    assert not is_reserialised(deep[880:-880], is_right)
    assert len(tried) > 2


async def test_the_newest_thousand_of_a_definition_are_kept_and_nothing_beyond_a_week(
    process: Process, acme: str
) -> None:
    tokens = [await hook(process, acme) for _ in range(3)]
    async with process.database.write() as db:
        rows = await db.fetch_all("SELECT id, token FROM definitions")
        busy, quiet, old = (
            next(row["id"] for row in rows if row["token"] == token) for token in tokens
        )
        await store.insert_many(db, [request(acme, busy) for _ in range(store.KEPT + 5)])
        await store.insert_many(db, [request(acme, quiet) for _ in range(3)])
        await store.insert_many(db, [request(acme, old) for _ in range(3)])
        newest = await db.fetch_all(
            "SELECT id FROM webhook_requests WHERE definition_id = :id ORDER BY id DESC LIMIT 1000",
            id=busy,
        )
        aged = first_id("req", await db.now() - store.KEPT_FOR, timedelta(seconds=60))
        await db.execute(
            """
            UPDATE webhook_requests SET id = :aged
            WHERE id = (SELECT min(id) FROM webhook_requests WHERE definition_id = :old)
            """,
            aged=aged,
            old=old,
        )
    await maintenance.sweep(process)
    async with process.database.read() as db:
        left = await db.fetch_all("SELECT id, definition_id FROM webhook_requests ORDER BY id DESC")
    count = {id: sum(row["definition_id"] == id for row in left) for id in (busy, quiet, old)}
    assert count == {busy: store.KEPT, quiet: 3, old: 2}
    assert [row["id"] for row in left if row["definition_id"] == busy] == [
        row["id"] for row in newest
    ]
    assert aged not in {row["id"] for row in left}
    assert new_id("req") > left[0]["id"]
