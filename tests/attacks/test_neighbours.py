"""Events of a neighbour, and probes, which are answered while one workspace's templates run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import httpx2
import pytest

from app.machine import defaults
from app.machine.template import TOKENS
from app.process import Process
from tests.cast import Cast, any_address, client, hook

pytestmark = pytest.mark.drill

# Of 1.9 KB; each of them alone would take minutes.
HEAVY = (
    '{% assign s = "' + ",".join("a" * 900) + '" %}{% for i in (1..10000) %}'
    '{% assign x = s | split: "," | sort | sort | sort | size %}{% endfor %}'
)
WEBHOOK = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
# What is computed knows no engine. SQLite's one writer and four readers are the first that somebody
# would hold up who computed within a transaction.
STRICTEST = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
SOON = 5.0  # seconds; unmended it takes minutes, and on an idle machine some milliseconds


def trigger(number: int) -> dict[str, Any]:
    metadata = {f"m{n}": HEAVY for n in range(number)}
    return {**WEBHOOK, "contactDefaults": {"firstName": "{{trigger.name}}", "metadata": metadata}}


async def worst_of_neighbour(
    cast: Cast, process: Process, attack: Sequence[Awaitable[Any]]
) -> tuple[float, list[Any]]:
    """The slowest of a neighbour's events, and of a probe's answers, and what the attack got."""
    token = await hook(process, cast.mallory.workspace_id)
    attacking = asyncio.gather(*attack)
    worst, number = 0.0, 0
    async with client(process, any_address()) as neighbour:
        while not attacking.done():
            began = time.perf_counter()
            body = {"email": f"n{number}@example.com"}
            answer = await neighbour.post(f"/v1/webhooks/in/{token}", json=body)
            assert answer.status_code == 202, answer.text
            assert (await neighbour.get("/healthz")).status_code == 200
            worst, number = max(worst, time.perf_counter() - began), number + 1
            await asyncio.sleep(0.15 if number < 60 else 1.1)  # an address has 120 a minute
    return worst, attacking.result()


async def patiently(send: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
    """Sent again while there is no time for it at the moment, as the answer asks."""
    while (answer := await send()).status_code == 503:
        await asyncio.sleep(int(answer.headers["Retry-After"]))
    return answer


@STRICTEST
async def test_defaults_that_take_long_are_left_out_and_hold_up_nobody(
    cast: Cast, process: Process
) -> None:
    """A2."""
    made = await cast.ed.made(
        "/workflows", {"name": "N", "state": "ACTIVE", "trigger": trigger(40), "steps": []}
    )
    url = made["trigger"]["webhookUrl"]
    bodies = [{"email": f"c{n}@example.com", "name": "Ada"} for n in range(4)]
    worst, answers = await worst_of_neighbour(
        cast,
        process,
        [patiently(partial(cast.client.post, url, json=body)) for body in bodies],
    )
    assert worst < SOON
    assert [answer.status_code for answer in answers] == [202] * 4
    requests = (await cast.ed.read(f"/workflows/{made['id']}/webhook-requests"))["data"]
    for request in (one for one in requests if one["outcome"] == "ACCEPTED"):
        assert request["detail"].startswith("Left out of the new contact: ")
        assert "metadata.m39" in request["detail"]
    contacts = (await cast.ed.read("/contacts?email=c0@example.com"))["data"]
    assert len(contacts) == 1


async def test_a_copy_of_an_event_whose_defaults_take_long_is_a_copy(
    cast: Cast, process: Process
) -> None:
    made = await cast.ed.made(
        "/workflows", {"name": "N", "state": "ACTIVE", "trigger": trigger(3), "steps": []}
    )
    url, key = made["trigger"]["webhookUrl"], {"Idempotency-Key": "one"}
    body = {"email": "ada@example.com", "name": "Ada"}
    send = partial(cast.client.post, url, json=body, headers=key)
    answers = await asyncio.gather(*(patiently(send) for _ in range(3)))
    assert [answer.status_code for answer in answers] == [202] * 3
    assert len({answer.json()["runId"] for answer in answers}) == 1


@pytest.mark.parametrize("number", [2, defaults.MOST, 2_000])
async def test_defaults_are_few_when_they_are_saved(cast: Cast, number: int) -> None:
    values = {f"m{n}": "{{trigger.a}}" for n in range(number)}
    given = {**WEBHOOK, "contactDefaults": {"metadata": values}}
    answer = await cast.ed.post("/workflows", {"name": "N", "trigger": given, "steps": []})
    if number <= defaults.MOST:
        assert answer.status_code == 201, answer.text
        return
    assert answer.status_code == 422, answer.text
    [error] = answer.json()["errors"]
    assert error["pointer"] == "/trigger/contactDefaults"
    assert f"at most {defaults.MOST} values" in error["message"]


async def test_defaults_have_so_much_liquid_in_all(cast: Cast) -> None:
    values = {f"m{n}": "{{trigger.a}}" * 30 for n in range(40)}
    given = {**WEBHOOK, "contactDefaults": {"metadata": values}}
    answer = await cast.ed.post("/workflows", {"name": "N", "trigger": given, "steps": []})
    assert answer.status_code == 422, answer.text
    [error] = answer.json()["errors"]
    assert (error["pointer"], "1,500" in error["message"]) == ("/trigger/contactDefaults", True)


@STRICTEST
async def test_simulations_that_take_long_hold_up_nobody(cast: Cast, process: Process) -> None:
    """A2, A7."""
    made = await cast.ed.made("/workflows", {"name": "N", "trigger": trigger(20), "steps": []})
    path, body = f"/workflows/{made['id']}/simulate", {"trigger": {"email": "ada@example.com"}}
    worst, answers = await worst_of_neighbour(
        cast, process, [patiently(partial(cast.ed.post, path, body)) for _ in range(2)]
    )
    assert worst < SOON
    assert [answer.status_code for answer in answers] == [200] * 2
    assert answers[0].json()["contact"]["metadata"] == {}
    # The check of a large one is done ahead, and what follows is not looked for there.
    steps = [{"type": "add_tag", "tag": "{{trigger.email}}"}] * 400
    await cast.ed.patch(f"/workflows/{made['id']}", {"steps": steps})
    for _ in range(2):
        simulated = await patiently(partial(cast.ed.post, path, body))
        assert simulated.json()["end"]["status"] == "COMPLETED"


WITHOUT_SAVING = (
    "/workflows/check",
    "/workflows/simulate",
    "/templates/check",
    "/templates/preview",
)


@STRICTEST
@pytest.mark.parametrize("path", WITHOUT_SAVING)
async def test_what_is_not_saved_and_takes_long_holds_up_nobody(
    cast: Cast, process: Process, path: str
) -> None:
    """A7: as what is saved does, beyond its share the workspace is refused, and nobody else."""
    steps = [{"type": "add_tag", "tag": "{% case 1 %}{% when 1" + ",1" * 2_000 + "%}{% endcase %}"}]
    definition = {"name": "N", "trigger": trigger(20), "steps": steps * 40}
    given = {"definition": definition, "trigger": {"email": "ada@example.com"}}
    content = {"subject": "s", "html": HEAVY, "text": HEAVY, "preheader": HEAVY}
    template = {"name": "T", "channel": "email", "content": content}
    written = {name: template[name] for name in ("channel", "content")}
    bodies = dict(
        zip(WITHOUT_SAVING, (definition, given, written, {"template": template}), strict=True)
    )
    body = bodies[path]
    light = {"name": "N", "steps": [{"type": "add_tag", "tag": "x"}]}

    async def lightly() -> float:
        await asyncio.sleep(0.2)
        began = time.perf_counter()
        checked = await cast.mallory.post("/workflows/check", light)
        assert checked.json()["findings"] == []
        return time.perf_counter() - began

    heavy = [cast.ed.post(path, body) for _ in range(12)]
    worst, [*answers, took] = await worst_of_neighbour(cast, process, [*heavy, lightly()])
    assert worst < SOON
    assert took < SOON
    assert {answer.status_code for answer in answers} <= {200, 422, 429, 503}


def cases_of_many_steps(number: int) -> dict[str, Any]:
    steps = [{"id": f"t{n}", "type": "add_tag", "tag": "{{trigger.email}}"} for n in range(400)]
    given = {"contact": {"email": "ada@example.com"}, "startAt": "2026-03-01T09:00:00Z"}
    case = {"given": given, "expect": {"end": {"status": "COMPLETED"}}}
    cases = [{"name": f"case {n}", **case} for n in range(20)]
    return {"file": {"name": f"N{number}", "definition": {"steps": steps}, "cases": cases}}


def templates_of_many_tokens(number: int) -> dict[str, Any]:
    tokens = "{% case 1 %}{% when 1" + ",1" * 2_000 + "%}{% endcase %}"
    templates = {
        f"of-{number}-{n}": {"channel": "sms", "content": {"text": f"{tokens}{number} {n}"}}
        for n in range(60)
    }
    return {"file": {"name": f"N{number}", "definition": {"steps": []}, "templates": templates}}


def starts_of_many_others(number: int) -> dict[str, Any]:
    keys = [f"part-{n}" for n in range(480)]
    steps = [{"id": key, "type": "start_workflow", "workflowId": key, "data": {}} for key in keys]
    file = {"name": f"N{number}", "definition": {"steps": steps}}
    return {"file": file, "mode": "dry_run", "alongside": dict.fromkeys(keys, "workflow")}


@STRICTEST
@pytest.mark.parametrize(
    "heavy", [cases_of_many_steps, templates_of_many_tokens, starts_of_many_others]
)
async def test_imports_that_take_long_hold_up_nobody(
    cast: Cast, process: Process, heavy: Callable[[int], dict[str, Any]]
) -> None:
    """A7: an import writes, and another workspace's light one is done long before they are."""
    done: list[str] = []

    async def heavily(number: int) -> httpx2.Response:
        answer = await cast.ed.post("/definitions/import", heavy(number))
        done.append("heavy")
        return answer

    async def lightly() -> float:
        await asyncio.sleep(0.2)
        began = time.perf_counter()
        file = {"name": "N", "definition": {"steps": [{"type": "add_tag", "tag": "x"}]}}
        made = await cast.mallory.post("/definitions/import", {"file": file})
        assert made.json()["action"] == "created", made.text
        done.append("light")
        return time.perf_counter() - began

    attack = [*map(heavily, range(12)), lightly()]
    worst, [*answers, took] = await worst_of_neighbour(cast, process, attack)
    assert worst < SOON
    assert took < SOON
    assert {answer.status_code for answer in answers} <= {200, 429, 503}
    assert 200 in {answer.status_code for answer in answers}
    assert done.index("light") < len(answers)


@STRICTEST
async def test_cases_that_take_long_hold_up_nobody(cast: Cast, process: Process) -> None:
    """A7: all cases of a definition are one job, which ends by itself."""
    steps = [{"type": "add_tag", "tag": "{{trigger.email}}"}] * 400
    made = await cast.ed.made("/workflows", {"name": "N", "steps": steps})
    path = f"/workflows/{made['id']}/cases"
    given = {"contact": {"email": "ada@example.com"}, "startAt": "2026-03-01T09:00:00Z"}
    case = {"given": given, "expect": {"end": {"status": "COMPLETED"}}}
    for number in range(20):
        kept = await cast.ed.call("PUT", f"{path}/case {number}", json=case)
        assert kept.status_code == 201
    light = {"name": "N", "steps": [{"type": "add_tag", "tag": "x"}]}

    async def lightly() -> float:
        await asyncio.sleep(0.2)
        began = time.perf_counter()
        checked = await cast.mallory.post("/workflows/check", light)
        assert checked.json()["findings"] == []
        return time.perf_counter() - began

    heavy = [cast.ed.post(f"{path}/run") for _ in range(6)]
    worst, [*answers, took] = await worst_of_neighbour(cast, process, [*heavy, lightly()])
    assert worst < SOON
    assert took < SOON
    assert {200, 429} <= {answer.status_code for answer in answers} <= {200, 429, 503}
    [first, *_] = [answer.json() for answer in answers if answer.status_code == 200]
    assert len(first["cases"]) == 20


@STRICTEST
async def test_previews_that_take_long_hold_up_nobody(cast: Cast, process: Process) -> None:
    """A7: beyond its share, the workspace is refused; a light preview of another is not."""
    content = {"subject": "s", "html": HEAVY, "text": HEAVY, "preheader": HEAVY}
    made = await cast.ed.made("/templates", {"name": "T", "channel": "email", "content": content})
    light = {"subject": "s", "html": "Hi {{contact.firstName}}"}
    other = await cast.mallory.made(
        "/templates", {"name": "T", "channel": "email", "content": light}
    )

    async def lightly() -> float:
        await asyncio.sleep(0.2)
        began = time.perf_counter()
        shown = await cast.mallory.post(f"/templates/{other['id']}/preview", {})
        assert shown.json()["html"]["rendered"] == "Hi "
        return time.perf_counter() - began

    heavy = [cast.ed.post(f"/templates/{made['id']}/preview", {}) for _ in range(16)]
    worst, [*answers, took] = await worst_of_neighbour(cast, process, [*heavy, lightly()])
    assert worst < SOON
    assert took < SOON
    # One that others of this machine held up may have been ended as a whole.
    assert {200, 429} <= {answer.status_code for answer in answers} <= {200, 422, 429, 503}
    for answer in answers:
        if answer.status_code == 200:
            assert "0.5 seconds" in answer.json()["html"]["error"]
        elif answer.status_code != 422:
            assert answer.headers["Retry-After"] == "2"


@STRICTEST
async def test_long_templates_are_read_beside_the_loop(cast: Cast, process: Process) -> None:
    """A3: as many tokens as may be saved, and more."""

    def source(tokens: int, number: int) -> str:
        return "{% case 1 %}{% when " + f"{number}," * (tokens // 2) + "1 %}{% endcase %}"

    def saved_as(text: str) -> Awaitable[httpx2.Response]:
        body = {"name": "T", "channel": "sms", "content": {"text": text}}
        return patiently(partial(cast.ed.post, "/templates", body))

    texts = [source(TOKENS - 100, n) for n in range(4)] + [source(TOKENS + 100, 7)]
    saves = [saved_as(text) for text in texts]
    inline = {"channel": "email", "to": "ada@example.com"}
    parts = {"subject": "s", "html": source(TOKENS - 100, 8), "text": source(TOKENS - 100, 9)}
    saves.append(patiently(partial(cast.ed.post, "/messages", {**inline, "content": parts})))
    worst, [*saved, refused, sent] = await worst_of_neighbour(cast, process, saves)
    assert sent.status_code == 202, sent.text
    assert worst < SOON
    assert [answer.status_code for answer in saved] == [201] * 4
    [error] = refused.json()["errors"]
    assert (error["pointer"], f"{TOKENS:,}" in error["message"]) == ("/content/text", True)
    id = saved[0].json()["id"]
    shown = await patiently(partial(cast.vic.post, f"/templates/{id}/preview", {}))
    assert shown.json()["text"] == {"rendered": ""}


@STRICTEST
async def test_a_large_definition_is_checked_beside_the_loop(cast: Cast, process: Process) -> None:
    """As a draft, when it is activated, read, drawn and run."""
    step = {"type": "update_contact", "set": {"firstName": "{{trigger.a | default: 'x'}}" * 13}}
    body = {"name": "N", "trigger": WEBHOOK, "steps": [step] * 490, "state": "ACTIVE"}

    async def use() -> dict[str, Any]:
        made: dict[str, Any] = (await patiently(partial(cast.ed.post, "/workflows", body))).json()
        read = await patiently(partial(cast.ed.get, f"/workflows/{made['id']}"))
        assert read.json()["findings"] == made["findings"]
        drawn = await patiently(partial(cast.ed.get, f"/workflows/{made['id']}/graph.svg"))
        assert drawn.status_code == 200
        return made

    worst, [made] = await worst_of_neighbour(cast, process, [use()])
    assert worst < SOON
    assert made["state"] == "ACTIVE"
