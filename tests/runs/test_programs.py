"""Programs that were saved before there was a limit: they run on; only what is new keeps to it."""

from __future__ import annotations

from typing import Any

import pytest

from app.machine import condition, template
from app.process import Process
from tests.cast import WEBHOOK, Cast, settle

EVENT = {"email": "ada@example.com", "x": 1}
NO, YES = ({"path": "trigger.x", "op": "eq", "value": value} for value in (0, 1))
DECIDED = {"any": [NO] * 149 + [YES]}
BRANCH = {"type": "branch", "cases": [{"when": DECIDED, "steps": []}]}
WAITED = {"type": "wait_for", "conditions": [{"when": DECIDED}], "timeout": "P1D"}
TAGGED = {"type": "add_tag", "tag": "{{trigger.x}}" * 150}
TOO_MANY = {
    "branch": (BRANCH, "/steps/0/cases", "too_many"),
    "wait_for": (WAITED, "/steps/0/conditions", "too_many"),
    "tags": (TAGGED, "/steps/0/tag", "bad_template"),
}


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Limits as they were once; undone, they are as they are now."""
    monkeypatch.setattr(condition, "MOST_COMPARISONS", 200)
    return monkeypatch


def stricter(limits: pytest.MonkeyPatch) -> None:
    limits.undo()
    limits.setattr(template, "TAGS", 100)


def pointers(response: Any) -> tuple[int, list[str]]:
    return response.status_code, [error["pointer"] for error in response.json()["errors"]]


@pytest.mark.parametrize("step", TOO_MANY)
async def test_what_was_pinned_before_a_limit_runs_and_only_what_is_new_is_refused(
    step: str, cast: Cast, process: Process, limits: pytest.MonkeyPatch
) -> None:
    much, pointer, code = TOO_MANY[step]
    new = {"name": "Old", "state": "ACTIVE", "trigger": WEBHOOK, "steps": [much]}
    old = await cast.ed.made("/workflows", new)
    assert old["findings"] == []
    stricter(limits)

    posted = await cast.client.post(old["trigger"]["webhookUrl"], json=EVENT)
    assert posted.status_code == 202
    await settle(process)
    run = await cast.vic.read(f"/runs/{posted.json()['runId']}")
    assert (run["status"], run["steps"][0]["status"]) == ("COMPLETED", "COMPLETED")

    at = f"/workflows/{old['id']}"
    [answer] = (await cast.vic.read(at))["findings"]
    assert (answer["severity"], answer["code"], answer["pointer"]) == ("warning", code, pointer)
    paused = await cast.ed.patch(at, {"name": "Older", "state": "PAUSED"})
    assert (paused.status_code, paused.json()["version"]) == (200, 1)
    more = {"steps": [much, {"type": "exit"}]}
    assert pointers(await cast.ed.patch(at, more)) == (422, [pointer])
    for state in ("DRAFT", "ACTIVE"):
        refused = await cast.ed.post("/workflows", {**new, "state": state})
        assert pointers(refused) == (422, [pointer])


async def test_a_template_that_was_saved_before_a_limit_is_rendered_and_kept(
    cast: Cast, limits: pytest.MonkeyPatch
) -> None:
    new = {"name": "Old", "channel": "sms", "content": {"text": "{{trigger.x}}" * 150}}
    old = await cast.ed.made("/templates", new)
    stricter(limits)

    shown = await cast.vic.post(f"/templates/{old['id']}/preview", {"trigger": EVENT})
    assert shown.json()["text"]["rendered"] == "1" * 150
    at = f"/templates/{old['id']}"
    renamed = await cast.ed.patch(at, {"name": "Older"})
    assert (renamed.status_code, renamed.json()["version"]) == (200, 1)
    longer = await cast.ed.patch(at, {"content": {"text": "{{trigger.x}}" * 151}})
    assert pointers(longer) == (422, ["/content/text"])
    assert pointers(await cast.ed.post("/templates", new)) == (422, ["/content/text"])
