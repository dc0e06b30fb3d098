"""The gate before marketing on paper: it waits, suppresses and says so, as a real run would."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.process import Process
from tests.cast import HELLO, Cast, settle
from tests.driving import set_clock
from tests.messages.test_gate import EVENING, MORNING, NEWS, NIGHT, ada, setting
from tests.routes.test_topics import about, answer, topic

AT = EVENING.isoformat()


async def workflow(cast: Cast, *contents: Any) -> str:
    steps = [
        {"id": f"s{number}", "type": "send_message", "channel": "email", "content": content}
        for number, content in enumerate(contents)
    ]
    made = await cast.ed.made(
        "/workflows",
        {"name": "W", "state": "ACTIVE", "trigger": {"source": "manual"}, "steps": steps},
    )
    return f"/workflows/{made['id']}"


async def simulated(cast: Cast, path: str, contact_id: str, **given: Any) -> list[dict[str, Any]]:
    asked = {"contactId": contact_id, "startAt": AT, **given}
    response = await cast.vic.post(f"{path}/simulate", asked)
    assert response.status_code == 200, response.text
    steps: list[dict[str, Any]] = response.json()["steps"]
    return steps


def reasons(steps: list[dict[str, Any]]) -> list[str | None]:
    return [step["reason"] and step["reason"]["code"] for step in steps]


async def test_quiet_hours_hold_marketing_until_the_morning(cast: Cast) -> None:
    await setting(cast, quietHours=NIGHT)
    contact_id = await ada(cast)
    path = await workflow(cast, HELLO, NEWS, NEWS)
    first, held, after = await simulated(cast, path, contact_id)
    assert first["message"]["heldUntil"] is None
    assert first["leftAt"] == first["enteredAt"]
    morning = MORNING.isoformat()
    assert held["enteredAt"] == first["leftAt"]
    for moment in (held["message"]["heldUntil"], held["leftAt"], after["enteredAt"]):
        assert moment[:19] == "2026-10-25T07:00:00", (moment, morning)
    assert after["message"]["heldUntil"] is None
    gone = {"at": "PT3H", "contact": {"subscriptions": {"email": "unsubscribed"}}}
    _, left, _ = await simulated(cast, path, contact_id, events=[gone])
    assert (left["message"]["status"], reasons([left])) == (
        "SUPPRESSED",
        ["suppressed_unsubscribed"],
    )
    await setting(cast, quietHours={**NIGHT, "maxWait": "PT1H"})
    _, late, _ = await simulated(cast, path, contact_id)
    assert reasons([late]) == ["suppressed_max_wait"]


async def test_a_cap_counts_what_the_run_sends(cast: Cast) -> None:
    await setting(cast, frequencyCap={"limit": 1, "window": "P7D"})
    path = await workflow(cast, NEWS, HELLO, NEWS)
    steps = await simulated(cast, path, await ada(cast))
    assert reasons(steps) == [None, None, "suppressed_capped"]


async def test_a_cap_counts_what_the_scenario_says_was_sent(cast: Cast) -> None:
    """As the real one: each message once, but not what failed or was suppressed."""
    await setting(cast, frequencyCap={"limit": 1, "window": "P7D"})
    path, contact_id = await workflow(cast, NEWS, NEWS), await ada(cast)
    for outcome, reason in (
        ("sent", "suppressed_capped"),
        ("unknown", "suppressed_capped"),
        ("suppressed", None),
    ):
        steps = await simulated(cast, path, contact_id, outcomes={"s0": outcome})
        assert reasons(steps)[1:] == [reason], outcome


async def test_a_cap_counts_a_message_that_is_sent_again_once(cast: Cast) -> None:
    await setting(cast, frequencyCap={"limit": 2, "window": "P7D"})
    step = {"type": "send_message", "channel": "email", "content": NEWS, "onUnknown": "resend"}
    steps = [{**step, "id": f"s{number}"} for number in range(3)]
    made = await cast.ed.made("/workflows", {"name": "W", "steps": steps})
    outcomes = {"s0": [{"status": "unknown"}, {"status": "sent"}]}
    path, contact_id = f"/workflows/{made['id']}", await ada(cast)
    walked = await simulated(cast, path, contact_id, outcomes=outcomes)
    assert walked[0]["output"]["number"] == 2
    assert reasons(walked) == [None, None, "suppressed_capped"]


async def test_a_cap_counts_what_the_contact_has_got_before(cast: Cast, process: Process) -> None:
    await setting(cast, frequencyCap={"limit": 2, "window": "P7D"})
    path, contact_id = await workflow(cast, NEWS, HELLO, NEWS), await ada(cast)
    set_clock(process, EVENING - timedelta(days=6))
    news = {"contactId": contact_id, "channel": "email", "content": NEWS}
    await cast.ed.made("/messages", news)
    await settle(process)
    assert reasons(await simulated(cast, path, contact_id)) == [None, None, "suppressed_capped"]
    later = (EVENING + timedelta(days=1, seconds=1)).isoformat()
    assert reasons(await simulated(cast, path, contact_id, startAt=later)) == [None] * 3
    earlier = (EVENING - timedelta(days=7)).isoformat()
    assert reasons(await simulated(cast, path, contact_id, startAt=earlier)) == [None] * 3
    assert reasons(await simulated(cast, path, contact_id, received=[])) == [None] * 3
    asked = {"contactId": contact_id, "startAt": AT}
    case = (await cast.vic.post(f"{path}/simulate?case=true", asked)).json()["case"]
    assert [one["channel"] for one in case["input"]["received"]] == ["email"]
    again = {**case["input"], "received": case["input"]["received"] * 2}
    response = await cast.vic.post(f"{path}/simulate", again)
    capped = ["suppressed_capped", None, "suppressed_capped"]
    assert reasons(response.json()["steps"]) == capped


async def test_a_topic_needs_a_yes_on_paper_too(cast: Cast) -> None:
    offers, default = await topic(cast.ed), await topic(cast.ed, isDefault=True)
    contact_id = await ada(cast)
    path = await workflow(cast, about(offers), about(default), NEWS, HELLO)
    steps = await simulated(cast, path, contact_id)
    assert reasons(steps) == ["suppressed_no_consent", None, None, None]
    await answer(cast.ed, contact_id, offers)
    assert reasons(await simulated(cast, path, contact_id)) == [None, None, None, None]
    given = await simulated(cast, path, contact_id, outcomes={"s0": "suppressed"})
    assert reasons(given)[0] == "suppressed_unsubscribed"  # as the scenario has it


async def test_the_real_run_comes_out_alike(cast: Cast, process: Process) -> None:
    await setting(cast, quietHours=NIGHT, frequencyCap={"limit": 1, "window": "P7D"})
    offers, contact_id = await topic(cast.ed), await ada(cast)
    set_clock(process, EVENING)
    path = await workflow(cast, about(offers), NEWS, HELLO, NEWS)
    on_paper = await simulated(cast, path, contact_id)
    started = await cast.ed.made(f"{path}/runs", {"contactId": contact_id})
    for moment in (EVENING, MORNING, MORNING):
        set_clock(process, moment)
        await settle(process)
        run = await cast.vic.read(f"/runs/{started['runId']}")
        if run["status"] == "WAITING":
            [newest] = (await cast.vic.read(f"/messages?runId={started['runId']}&limit=1"))["data"]
            if newest["until"]:
                from_quiet = newest["until"]
                set_clock(process, MORNING.fromisoformat(from_quiet))
                await settle(process)
    run = await cast.vic.read(f"/runs/{started['runId']}")
    assert run["status"] == "COMPLETED"
    assert reasons(run["steps"]) == reasons(on_paper)


async def test_a_case_carries_the_rules_of_its_workspace(cast: Cast) -> None:
    await setting(cast, quietHours=NIGHT, frequencyCap={"limit": 1, "window": "P7D"})
    path = await workflow(cast, NEWS)
    given = {"contactId": await ada(cast), "startAt": AT}
    case = (await cast.vic.post(f"{path}/simulate?case=true", given)).json()["case"]
    assert case["workspace"]["frequencyCap"]["limit"] == 1
    assert case["workspace"]["quietHours"]["from"] == "21:00"
