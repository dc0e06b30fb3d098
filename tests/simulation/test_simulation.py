"""Simulated runs and real ones do the same: over the pairs of programs, every kind among them."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.machine import check, document
from app.process import Process
from app.simulation import cases, scenes, traces
from app.simulation.cases import Case
from tests.driving import drive, opened_on
from tests.listener import Listener, says

PROGRAMS = sorted((Path(__file__).parents[1] / "machine" / "programs").glob("*.steps.json"))
TEMPLATE = {
    "subject": "Hi {{contact.firstName}}",
    "html": "<p>{{trigger.plan}} {{trigger.nobody}}</p>",
}
INPUT = {
    "startAt": "2026-03-02T10:00:00Z",
    "contact": {
        "email": "ada@example.org",
        "firstName": "Ada",
        "timezone": "America/New_York",
        "metadata": {"plan": "free", "seats": 2},
        "tags": ["lead"],
    },
    "trigger": {
        "plan": "pro",
        "total": 83.40,
        "order": {"id": "o-1", "total": 120, "items": [{"sku": "A"}]},
        "data": {"object": {"total": 1.10}},
        "starts_at": "2026-03-09T09:30:00Z",
        "at": "2026-03-05T13:30:00Z",
    },
}
ANSWER = {"id": "x-7", "score": 0.50}


@pytest.fixture(scope="module")
async def real(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Process]:
    """One for all: each run has a workspace of its own."""
    file = shutil.copy(sqlite_template, tmp_path_factory.mktemp("real") / "tidings.db")
    async with opened_on(Path(file)) as process:
        yield process


def events_of(steps: Any) -> list[dict[str, Any]]:
    """One of each name that the program waits for, an hour apart."""
    names = re.findall(r'"event":"([^"]+)"', document.dumps(steps).decode())
    return [
        {"at": f"PT{hours}H", "name": name, "properties": {"total": 100}}
        for hours, name in enumerate(dict.fromkeys(names), 1)
    ]


def case_of(steps: Any) -> Case:
    compiled = check.compile("steps", steps)
    ids = {reference.id: reference.channel for reference in compiled.templates}
    started = sorted({start.id for start in compiled.starts})
    found: dict[str, Any] = {
        "name": "A program",
        "definition": {"steps": steps},
        "templates": {
            id: {
                "channel": channel,
                "content": TEMPLATE if channel == "email" else {"text": "Hi {{contact.email}}"},
            }
            for id, channel in ids.items()
        },
        "workspace": {"timezone": "Europe/Lisbon", "channels": ["email"], "startable": started},
        "input": {**INPUT, "events": events_of(steps)},
    }
    return cases.read(document.dumps(found))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name.partition(".")[0])
async def test_a_simulated_run_does_what_a_real_one_does(real: Process, path: Path) -> None:
    async with Listener(says(ANSWER)) as listener:
        steps = read(path, listener.url)
        case = case_of(steps)
        driven = await drive(real, case)
    answer = {"status": 200, "body": ANSWER}
    asked = [p.node_id for p in driven.trace.passages if p.kind == "http_request"]
    split = {p.node_id: p.port for p in driven.trace.passages if p.kind == "split"}
    given = document.parse(
        document.dumps(
            {
                **INPUT,
                "events": events_of(steps),
                "httpAnswers": dict.fromkeys(asked, answer),
                "variants": split,
            }
        )
    )
    again = case.model_copy(update={"input": scenes.Given.model_validate(given)})
    came = cases.play(again)
    came.pop("findings")
    assert_same(traces.normal(driven.trace), came)


async def test_what_a_message_printed_in_vain_is_noted_in_a_simulated_run_as_in_a_real_one(
    real: Process,
) -> None:
    case = case_of([{"type": "send_message", "channel": "email", "templateId": "tpl_" + "0" * 26}])
    driven = await drive(real, case)
    simulated = cases.play(case)
    for trace in (traces.normal(driven.trace), simulated):
        assert trace["steps"][0]["output"]["missing"] == ["trigger.nobody"], trace


async def test_a_number_is_read_as_the_workspace_s_country_writes_it(real: Process) -> None:
    sms = {"type": "send_message", "channel": "sms", "content": {"text": "Hi"}}
    numbers = ("{{trigger.at}}", "0151 12345678", "+44 20 7946 0958")
    steps = [{**sms, "to": number} for number in numbers]
    found = case_of(steps).model_dump(by_alias=True, exclude_none=True)
    workspace = {**found["workspace"], "country": "DE", "channels": ["sms"]}
    case = cases.read(document.dumps({**found, "workspace": workspace}))
    driven, simulated = await drive(real, case), cases.play(case)
    simulated.pop("findings")
    assert_same(traces.normal(driven.trace), simulated)
    reasons = [step.get("reason") for step in simulated["steps"]]
    assert reasons == ["invalid_address", None, None]
    assert [step["message"]["to"] for step in simulated["steps"][1:]] == [
        "+4915112345678",
        "+442079460958",
    ]


def assert_same(expected: Any, came: Any) -> None:
    difference = cases.difference(expected, came)
    assert not difference, f"\n{difference}"


def read(path: Path, url: str) -> Any:
    """The program, asking at this URL."""
    return document.parse(re.sub(r"https?://[a-z.]+", url, path.read_text()).encode())


def test_a_case_may_have_its_trigger_on_the_node() -> None:
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
    nodes = [{"id": "t", "type": "trigger", "data": trigger}]
    given = {"startAt": "2026-03-01T09:00:00Z", "trigger": {"email": "ada@example.com"}}
    case = {"name": "x", "definition": {"graph": {"nodes": nodes}}, "input": given}
    read = cases.read(document.dumps(case))
    assert read.definition.trigger == trigger
    assert cases.play(read)["contact"]["email"] == "ada@example.com"
