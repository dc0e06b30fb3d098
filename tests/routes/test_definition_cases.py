"""Cases of a definition: kept, run, and looked at before it is activated."""

from __future__ import annotations

from typing import Any

import pytest

from app.machine import document
from app.process import Process
from app.simulation import proofs
from tests.cast import Cast
from tests.routes.test_simulations import ADA, STEPS, counted

START = "2026-03-01T09:00:00Z"
GIVEN = {"trigger": {"total": 2}, "contact": ADA, "startAt": START}
RICH = {"given": GIVEN, "expect": {"steps": [{"nodeId": "tag"}], "end": {"status": "COMPLETED"}}}
POOR = {
    "given": {**GIVEN, "trigger": {"total": 1}},
    "expect": {"steps": [{"nodeId": "rich", "port": "case1"}]},
}
KINDS = ("workflows", "automations")


async def made(cast: Cast, kind: str = "workflows", **more: Any) -> str:
    body: dict[str, Any] = {"steps": STEPS}
    if kind == "automations":
        case = {"when": {"path": "trigger.total", "op": "gte", "value": 1.10}}
        nodes = [
            {"id": "t", "type": "trigger"},
            {"id": "rich", "type": "branch", "data": {"cases": [case]}},
            {"id": "tag", "type": "add_tag", "data": {"tag": "rich"}},
        ]
        edges = [
            {"source": "t", "target": "rich"},
            {"source": "rich", "sourceHandle": "case1", "target": "tag"},
        ]
        body = {"graph": {"nodes": nodes, "edges": edges}}
    definition = await cast.ed.made(f"/{kind}", {"name": "Try me", **body, **more})
    return f"/{kind}/{definition['id']}"


async def put(cast: Cast, path: str, name: str, case: Any, status: int = 201) -> dict[str, Any]:
    response = await cast.ed.call("PUT", f"{path}/cases/{name}", json=case)
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json()
    return answer


def codes(answer: Any) -> list[tuple[str, str, str]]:
    return [
        (one["severity"], one["code"], one["pointer"])
        for one in answer["findings"]
        if one["code"] == "case_failed"
    ]


# --- kept -----------------------------------------------------------------------------------------


async def test_a_case_is_put_read_changed_and_deleted(cast: Cast) -> None:
    path = await made(cast)
    first = await put(cast, path, "a rich one", RICH)
    assert {name: first[name] for name in ("name", "given", "expect")} == {
        "name": "a rich one",
        **RICH,
    }
    read = await cast.vic.get(f"{path}/cases/a rich one")
    assert read.json() == first
    tag = {"If-Match": read.headers["ETag"]}
    changed = await cast.ed.call("PUT", f"{path}/cases/a rich one", json=POOR, headers=tag)
    assert (changed.status_code, changed.json()["given"]) == (200, POOR["given"])
    stale = await cast.ed.call("PUT", f"{path}/cases/a rich one", json=RICH, headers=tag)
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    await put(cast, path, "another", RICH)
    listed = (await cast.vic.read(f"{path}/cases"))["data"]
    assert [one["name"] for one in listed] == ["a rich one", "another"]
    assert (await cast.ed.delete(f"{path}/cases/a rich one")).status_code == 204
    assert (await cast.vic.get(f"{path}/cases/a rich one")).status_code == 404
    assert (await cast.ed.delete(f"{path}/cases/a rich one")).status_code == 404
    log = (await cast.adam.read("/audit-logs?limit=6"))["data"]
    acts = [one["action"] for one in log if "case" in one["action"]]
    assert "ada@example.com" not in str(log)  # where no erasure would look for her
    assert acts == [f"workflow.case_{act}" for act in ("deleted", "created", "updated", "created")]


async def test_a_case_keeps_its_numbers_to_the_last_literal(cast: Cast) -> None:
    path = await made(cast)
    raw = (
        b'{"given": {"trigger": {"id": 123456789012345678901, "total": 1.10},'
        b' "contact": {"email": "ada@example.com"}, "startAt": "2026-03-01T09:00:00Z"},'
        b' "expect": {"steps": [{"nodeId": "hello",'
        b' "message": {"content": {"subject": " 1.10"}}}]}}'
    )
    json = {"Content-Type": "application/json"}
    response = await cast.ed.call("PUT", f"{path}/cases/exact", content=raw, headers=json)
    assert response.status_code == 201, response.text
    assert b'"id":123456789012345678901,"total":1.10' in response.content
    assert (await cast.vic.made(f"{path}/cases/run", None))["passes"]


WRONG: list[tuple[Any, str]] = [
    ({}, "/given"),
    ({"given": GIVEN}, "/expect"),
    ({"given": {"contact": ADA}, "expect": {"end": {"status": "FAILED"}}}, "/given"),
    ({**RICH, "given": {**GIVEN, "contactId": "con_1"}}, "/given/contactId"),
    ({**RICH, "expect": {}}, "/expect"),
    ({**RICH, "expect": {"step": []}}, "/expect/step"),
    ({**RICH, "expect": {"steps": [{"prot": "else"}]}}, "/expect/steps/0/prot"),
]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_is_no_case_is_refused_at_its_place(cast: Cast) -> None:
    path = await made(cast)
    for case, pointer in WRONG:
        response = await cast.ed.call("PUT", f"{path}/cases/x", json=case)
        assert response.status_code == 422, case
        assert response.json()["errors"][0]["pointer"] == pointer, response.text
    for name in ("a ", " a", "-a", "a" * 101, "ä"):
        response = await cast.ed.call("PUT", f"{path}/cases/{name}", json=RICH)
        assert (response.status_code, response.json()["code"]) == (422, "invalid"), name
    assert (await cast.ed.call("PUT", f"{path}/cases/run", json=RICH)).status_code == 405
    assert (await cast.vic.read(f"{path}/cases"))["data"] == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_cases_are_bounded_in_number_and_bytes(cast: Cast) -> None:
    path = await made(cast)
    for number in range(proofs.MOST):
        await put(cast, path, f"case {number}", RICH)
    refused = await cast.ed.call("PUT", f"{path}/cases/one more", json=RICH)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    await put(cast, path, "case 3", POOR, 200)
    large = {**RICH, "given": {**GIVEN, "trigger": {"x": "x" * proofs.MOST_BYTES}}}
    refused = await cast.ed.call("PUT", f"{path}/cases/case 3", json=large)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert (await cast.vic.read(f"{path}/cases/case 3"))["given"] == POOR["given"]


# --- run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_cases_are_run_and_show_what_was_expected_and_what_came(
    cast: Cast, process: Process, kind: str
) -> None:
    path = await made(cast, kind)
    await put(cast, path, "rich", RICH)
    await put(cast, path, "poor", POOR)
    before = await counted(process)
    answer = await cast.vic.made(f"{path}/cases/run", None)
    assert await counted(process) == before
    assert answer == {
        "passes": False,
        "cases": [
            {
                "name": "poor",
                "passes": False,
                "difference": 'At /steps/0/port there is "else", not "case1".',
                "expected": POOR["expect"],
                "actual": {"steps": [{"nodeId": "rich", "port": "else"}]},
            },
            {
                "name": "rich",
                "passes": True,
                "difference": None,
                "expected": RICH["expect"],
                "actual": RICH["expect"],
            },
        ],
    }


async def test_a_case_that_cannot_be_run_says_why(cast: Cast) -> None:
    path = await made(cast)
    await put(cast, path, "nobody", {**RICH, "given": {"startAt": START}})
    await put(cast, path, "misspelt", {**RICH, "given": {**GIVEN, "outcomes": {"helo": "sent"}}})
    found = (await cast.vic.made(f"{path}/cases/run", None))["cases"]
    assert [(one["passes"], one["actual"]) for one in found] == [(False, None)] * 2
    assert "/outcomes/helo: There is no send_message" in found[0]["difference"]
    assert "/contact: Say which contact" in found[1]["difference"]
    broken = await cast.ed.patch(path, {"steps": [{"type": "wait"}]})
    assert broken.status_code == 200
    found = (await cast.vic.made(f"{path}/cases/run", None))["cases"]
    assert {one["difference"] for one in found} == {
        "The definition cannot run: its check says why."
    }


async def test_the_trace_of_a_simulation_is_a_case_as_it_stands(cast: Cast) -> None:
    path = await made(cast)
    file = (await cast.vic.made(f"{path}/simulate?case=true", GIVEN))["case"]
    await put(cast, path, "whole", {"given": file["input"], "expect": file["expected"]})
    assert (await cast.vic.made(f"{path}/cases/run", None))["passes"]


async def without_end(cast: Cast) -> str:
    """Twenty cases of an automation that goes round and round."""
    graph = {
        "nodes": [
            {"id": "t", "type": "trigger"},
            {"id": "w", "type": "wait", "data": {"duration": "P1D"}},
            {"id": "tag", "type": "add_tag", "data": {"tag": "again"}},
        ],
        "edges": [
            {"source": "t", "target": "w"},
            {"source": "w", "target": "tag"},
            {"source": "tag", "target": "w"},
        ],
    }
    made = await cast.ed.made("/automations", {"name": "Round", "graph": graph})
    path = f"/automations/{made['id']}"
    for number in range(10, 10 + proofs.MOST):
        expect = {"end": {"status": "STOPPED", "at": "P2000D"}}
        await put(cast, path, f"case {number}", {"given": GIVEN, "expect": expect})
    return path


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_cases_that_take_too_long_come_to_an_end(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is for all of them."""
    monkeypatch.setattr(proofs, "SECONDS", 0.3)
    path = await without_end(cast)
    found = (await cast.vic.made(f"{path}/cases/run", None))["cases"]
    assert len(found) == proofs.MOST
    assert found[-1]["difference"] == "The cases before it took all the time there is."


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_cases_that_are_killed_have_failed_and_the_definition_can_be_read(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process has 0.1 seconds for work that would take two."""
    path = await without_end(cast)
    monkeypatch.setattr(proofs, "SECONDS", 3.0)
    monkeypatch.setattr(proofs, "LAST_SECONDS", -2.9)
    found = (await cast.vic.made(f"{path}/cases/run", None))["cases"]
    assert {(one["passes"], one["actual"]) for one in found} == {(False, None)}
    assert "seconds to compute" in found[0]["difference"]
    assert len(codes(await cast.vic.read(path))) == proofs.MOST


# --- looked at ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_case_that_fails_is_a_warning_or_prevents_the_activation(
    cast: Cast, kind: str
) -> None:
    path = await made(cast, kind)
    await put(cast, path, "poor", POOR)
    draft = await cast.vic.read(path)
    assert codes(draft) == [("warning", "case_failed", "/cases/poor")]
    assert draft["casesGate"] is False
    gated = await cast.ed.patch(path, {"casesGate": True})
    assert codes(gated.json()) == [("error", "case_failed", "/cases/poor")]
    assert codes(await cast.vic.read(path)) == codes(gated.json())
    refused = await cast.ed.patch(path, {"state": "ACTIVE"})
    assert (refused.status_code, refused.json()["code"]) == (422, "not_activatable")
    assert refused.json()["cases"] == [
        {
            "name": "poor",
            "passes": False,
            "difference": 'At /steps/0/port there is "else", not "case1".',
            "expected": POOR["expect"],
            "actual": {"steps": [{"nodeId": "rich", "port": "else"}]},
        }
    ]
    assert (await cast.vic.read(path))["state"] == "DRAFT"
    warned = await cast.ed.patch(path, {"state": "ACTIVE", "casesGate": False})
    assert warned.status_code == 200, warned.text
    assert codes(warned.json()) == [("warning", "case_failed", "/cases/poor")]


async def test_what_is_active_is_not_changed_so_that_a_case_fails_but_can_be_paused(
    cast: Cast,
) -> None:
    path = await made(cast, state="ACTIVE", casesGate=True)
    await put(cast, path, "rich", RICH)
    changed = document.parse(document.dumps(STEPS))
    changed[0]["cases"][0]["when"]["value"] = 100
    refused = await cast.ed.patch(path, {"steps": changed})
    assert (refused.status_code, refused.json()["cases"][0]["name"]) == (422, "rich")
    assert (await cast.vic.read(path))["version"] == 1
    await put(cast, path, "rich", POOR, 200)
    assert (await cast.ed.patch(path, {"state": "PAUSED"})).status_code == 200
    assert (await cast.ed.patch(path, {"state": "ACTIVE"})).status_code == 422


@pytest.mark.parametrize("tags", [5, [{}], ["vip", 1], "vip"])
async def test_a_case_whose_event_gives_wrong_tags_fails_and_does_not_hold_up_its_definition(
    cast: Cast, tags: Any
) -> None:
    path = await made(cast, state="ACTIVE")
    event = {"at": "PT1H", "contact": {"tags": tags}}
    await put(cast, path, "wrong", {**RICH, "given": {**GIVEN, "events": [event]}})
    assert codes(await cast.vic.read(path)) == [("warning", "case_failed", "/cases/wrong")]
    [found] = (await cast.vic.made(f"{path}/cases/run", None))["cases"]
    assert "/tags" in found["difference"]
    paused = await cast.ed.patch(path, {"state": "PAUSED"})
    assert (paused.status_code, paused.json()["state"]) == (200, "PAUSED")


async def test_a_check_runs_the_cases_of_the_definition_that_it_would_change(cast: Cast) -> None:
    path = await made(cast)
    await put(cast, path, "rich", RICH)
    changed = document.parse(document.dumps(STEPS))
    changed[0]["cases"][0]["when"]["value"] = 100
    body, id = {"name": "Try me", "steps": changed, "casesGate": True}, path.rpartition("/")[2]
    answer = await cast.vic.made(f"/workflows/check?id={id}", body)
    assert codes(answer) == [("error", "case_failed", "/cases/rich")]
    assert codes(await cast.vic.made("/workflows/check", body)) == []


async def test_a_duplicate_has_the_cases_and_the_gate_too(cast: Cast) -> None:
    path = await made(cast, casesGate=True)
    await put(cast, path, "poor", POOR)
    copy = await cast.ed.made(f"{path}/duplicate", {})
    assert copy["casesGate"] is True
    assert codes(copy) == [("error", "case_failed", "/cases/poor")]
    [case] = (await cast.vic.read(f"/workflows/{copy['id']}/cases"))["data"]
    assert (case["name"], case["given"], case["expect"]) == ("poor", *POOR.values())
    await cast.ed.delete(f"/workflows/{copy['id']}/cases/poor")
    assert len((await cast.vic.read(f"{path}/cases"))["data"]) == 1


async def test_what_was_read_can_be_sent_back_and_changes_nothing(cast: Cast) -> None:
    path = await made(cast, casesGate=True)
    await put(cast, path, "poor", POOR)
    read = await cast.ed.get(path)
    again = await cast.ed.patch(path, read.json())
    assert (again.status_code, again.headers["ETag"]) == (200, read.headers["ETag"])


async def test_others_see_no_case(cast: Cast) -> None:
    path = await made(cast)
    await put(cast, path, "rich", RICH)
    for method, url in (
        ("GET", f"{path}/cases"),
        ("GET", f"{path}/cases/rich"),
        ("PUT", f"{path}/cases/rich"),
        ("DELETE", f"{path}/cases/rich"),
        ("POST", f"{path}/cases/run"),
    ):
        body = RICH if method == "PUT" else None
        assert (await cast.mallory.call(method, url, json=body)).status_code == 404
        if method in ("PUT", "DELETE"):
            assert (await cast.vic.call(method, url, json=body)).status_code == 403
    elsewhere = path.replace("workflows", "automations")
    assert (await cast.ed.get(f"{elsewhere}/cases")).status_code == 404
