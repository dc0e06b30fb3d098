"""Every record is one line of JSON, whoever wrote it and whatever is in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import structlog

from app.config.settings import Settings
from app.runtime import logs

SETTINGS = Settings.from_environ(
    {
        "SECRET_KEY": "a canary that is long enough for a key,another canary that is about as long",
        "DATABASE_URL": "postgresql://u:db%20canary@db/tidings",
        "WEB_CONCURRENCY": "2",
    }
)


class Output(io.StringIO):
    def lines(self) -> list[str]:
        return self.getvalue().split("\n")[:-1]

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture
def output() -> Output:
    output = Output()
    logs.configure(SETTINGS, stream=output)
    output.truncate(0)
    output.seek(0)
    return output


def ours(event: str, **values: object) -> None:
    structlog.get_logger("app.web.edge").warning(event, **values)


def theirs(event: str, **values: object) -> None:
    logging.getLogger("hypercorn.error").warning(event, extra=values)


Write: TypeAlias = Callable[..., None]
WRITERS = pytest.mark.parametrize("write", [ours, theirs])


def test_what_settings_changed_is_told_at_once() -> None:
    stream = Output()
    logs.configure(SETTINGS, stream=stream)
    assert [record["event"] for record in stream.records()] == list(SETTINGS.notes) != []


@WRITERS
def test_a_record_says_when_who_and_what(write: Write, output: Output) -> None:
    write("it rains", drops=3, city="Zürich")
    (record,) = output.records()
    assert record.pop("time").endswith("Z")
    assert record.pop("logger") in ("app.web.edge", "hypercorn.error")
    assert record == {"level": "warning", "event": "it rains", "drops": 3, "city": "Zürich"}
    assert output.lines()[0].startswith('{"time":')


@WRITERS
async def test_a_record_carries_the_ids_of_its_own_task(write: Write, output: Output) -> None:
    async def request(number: int) -> None:
        structlog.contextvars.bind_contextvars(request_id=f"request-{number}")
        await asyncio.sleep(0)
        write("done", number=number)

    await asyncio.gather(*(asyncio.create_task(request(number)) for number in range(3)))
    listed = {(record["request_id"], record["number"]) for record in output.records()}
    assert listed == {(f"request-{number}", number) for number in range(3)}


@WRITERS
@pytest.mark.parametrize(
    "nasty",
    ["a\r\nb", "\x1b[31mred", "\u2028\u2029\x85", "\x00\x7f\x9b", "\u202eevil", "\ud800", '"}\n{"'],
)
def test_nothing_in_a_record_reaches_a_terminal(write: Write, nasty: str, output: Output) -> None:
    write(nasty, value=nasty, inside=[{nasty: nasty}])
    (line,) = output.lines()
    assert all(" " <= character <= "~" for character in line)
    assert json.loads(line)["value"] == nasty
    assert json.loads(line)["inside"] == [{nasty: nasty}]


@WRITERS
@pytest.mark.parametrize(
    "values",
    [
        {"value": "x" * 1_000_000},
        {"value": "😀" * 10_000},
        {"value": list(range(100_000))},
        {"value": {"deep": ["x" * 100_000]}},
        {f"name{number}": "x" * 500 for number in range(1_000)},
        {"n" * 100_000: 1},
        {"a": "x" * 7_000, "b": "y" * 7_000},
    ],
)
def test_a_record_is_at_most_8_kilobytes(
    write: Write, values: dict[str, Any], output: Output
) -> None:
    write("long", **values)
    (line,) = output.lines()
    assert len(line) <= logs.RECORD_BYTES
    assert json.loads(line)["event"] == "long"
    assert json.loads(line)["level"] == "warning"


def test_a_long_traceback_keeps_its_end(output: Output) -> None:
    try:
        raise RuntimeError("x" * 20_000 + " the point")
    except RuntimeError:
        logging.getLogger("arq.worker").exception("failed")
    (record,) = output.records()
    assert record["exception"].startswith("Traceback")
    assert record["exception"].endswith("the point")


def fail(canary: str) -> None:
    raise RuntimeError(f"failed after {len(canary)} characters")


def test_a_traceback_shows_no_locals(output: Output) -> None:
    try:
        fail("tweet" * 3)
    except RuntimeError:
        structlog.get_logger("app.runs.runner").exception("failed")
    (record,) = output.records()
    assert "RuntimeError: failed after 15 characters" in record["exception"]
    assert "tweettweettweet" not in record["exception"]


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


LOOP: list[object] = []
LOOP.append(LOOP)


@WRITERS
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (2**70, 2**70),
        ([10**5_000], ["<int>"]),
        (b"bytes", "b'bytes'"),
        ({1: {2}}, {"1": [2]}),
        (Unprintable(), "<Unprintable>"),
    ],
)
def test_any_value_can_be_logged(
    write: Write, value: object, shown: object, output: Output
) -> None:
    write("odd", value=value)
    (record,) = output.records()
    assert record["value"] == shown


@WRITERS
def test_a_value_that_holds_itself_can_be_logged(write: Write, output: Output) -> None:
    write("odd", value=LOOP)
    (record,) = output.records()
    assert "[...]" in str(record["value"])


@WRITERS
@pytest.mark.parametrize("secret", SETTINGS.secrets())
def test_a_known_secret_is_masked_wherever_it_stands(
    write: Write, secret: str, output: Output
) -> None:
    assert "canary" in secret
    write(f"failed with {secret}!", value=[f"x{secret}x"], inside={secret: secret})
    assert "canary" not in output.getvalue()
    assert output.records()[0]["event"] == "failed with ***!"


@WRITERS
@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://user:canary@host/db", "postgresql://***@host/db"),
        ("redis://:canary@host", "redis://***@host"),
        ("td_live_canary123 and td_test_canary", "td_live_*** and td_test_***"),
        ("Authorization: Bearer canary.x_y", "Authorization: Bearer ***"),
        ("eyJhbGciOi.eyJzdWIi.canary-x_y", "eyJ***"),
        ("POST /v1/webhooks/in/canary 404", "POST /v1/webhooks/in/*** 404"),
        ("https://host/path and b@c", "https://host/path and b@c"),
    ],
)
def test_what_looks_like_a_secret_is_masked(
    write: Write, text: str, masked: str, output: Output
) -> None:
    write(text, value={"inside": text})
    (record,) = output.records()
    assert record["event"] == masked
    assert record["value"] == {"inside": masked}
    assert "canary" not in output.getvalue()


@WRITERS
@pytest.mark.parametrize(
    "name", ["password", "smtpPassword", "signing_secret", "accessToken", "apiKey", "Authorization"]
)
def test_what_is_named_like_a_secret_is_masked(write: Write, name: str, output: Output) -> None:
    write("saved", **{name: "canary", "row": {name: ["canary"]}})
    (record,) = output.records()
    assert record[name] == logs.MASK
    assert record["row"] == {name: logs.MASK}


def test_libraries_that_print_values_are_quiet(output: Output) -> None:
    for name in logs.QUIET:
        logging.getLogger(name).info("SELECT canary")
        logging.getLogger(name).warning("trouble")
    assert [record["event"] for record in output.records()] == ["trouble"] * len(logs.QUIET)


def test_the_level_counts_for_both_kinds(output: Output) -> None:
    ours("shown")
    theirs("shown")
    structlog.get_logger("app.web.edge").debug("hidden")
    logging.getLogger("hypercorn.error").debug("hidden")
    assert [record["event"] for record in output.records()] == ["shown", "shown"]


def test_warnings_are_records_too(output: Output) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("soon gone", DeprecationWarning, stacklevel=1)
    (record,) = output.records()
    assert record["logger"] == "py.warnings"
    assert "soon gone" in record["event"]


@WRITERS
def test_a_reader_that_went_away_fails_nobody(write: Write, output: Output) -> None:
    output.close()
    write("into the void")
    assert output.closed
