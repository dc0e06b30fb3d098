"""Reasons why a flow did or did not reach a contact, on the page as the API answers them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, get_args

from playwright.sync_api import Page, expect

from app.machine.reasons import SENTENCES
from app.runs.explaining_broadcasts import BARRED
from app.runs.explanations import MEANINGS, EvidenceType, Explanation
from tests.browser.conftest import Service, opened, ready
from tests.cast import NEXT_MONTH
from tests.test_console import ADVICE

HOOK = {"source": "inbound_webhook", "contactLookup": "email", "contactPath": "data.email"}
PLACES = {
    "definition": "/flows/workflows/",
    "event": "/events/",
    "webhook_request": "/requests/",
    "run": "/runs/",
    "message": "/messages/",
    "broadcast": "/broadcasts/",
}


def flow(service: Service, name: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    trigger = {**HOOK, **more.pop("trigger", {})}
    body = {"name": name, "state": "ACTIVE", "trigger": trigger, "steps": [*steps], **more}
    return service.made("/workflows", body)


MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def expected(one: Mapping[str, Any]) -> tuple[str, str, str]:
    """Expect of the page: the sentence, what to do about it, and its record."""
    kind, id = one["evidence"]["type"], one["evidence"]["id"]
    of_reasons = ADVICE["exclusions" if kind == "broadcast" else "reasons"]
    advice = of_reasons.get(one["reason"] or "") or ADVICE["explanations"][one["code"]]
    return one["sentence"], advice, PLACES[kind] + id


def read(page: Page) -> list[tuple[str, str, str]]:
    """Each sentence, its moments as the API has them, its advice, and where its record is."""
    script = """all => all.map(one => {
        const sentence = one.querySelector('.sentence').cloneNode(true)
        for (const moment of sentence.querySelectorAll('time')) moment.replaceWith(moment.dateTime)
        return [sentence.textContent, one.querySelector('b')?.textContent ?? '',
            new URL(one.querySelector('a').href).pathname.replace('/console', '')]
    })"""
    found = page.locator(".whys > li").evaluate_all(script)
    return [(sentence, advice, path) for sentence, advice, path in found]


def is_explained(page: Page, service: Service, contact: str, query: str) -> set[str]:
    """Check that it is explained as the API answers, each with its record; returns the codes."""
    answer = service.read(f"/contacts/{contact}/explain{query}")["data"]
    sentence, _, path = expected(answer[-1])
    page.locator(".whys > li", has_text=MOMENT.split(sentence)[0]).last.wait_for()
    page.locator(f".whys > li a[href*='{path}']").last.wait_for()
    assert read(page) == [expected(one) for one in answer]
    return {one["code"] for one in answer}


def test_every_reason_that_there_is_has_a_sentence_its_advice_and_a_link_to_a_page(
    page: Page, service: Service, ids: dict[str, str]
) -> None:
    """What brings each about, tests/runs/test_explaining.py shows; this answer holds them all."""
    records = {
        "definition": ids["flow"],
        "event": ids["event"],
        "webhook_request": ids["request"],
        "run": ids["run"],
        "message": ids["message"],
        "broadcast": ids["broadcast"],
    }
    assert set(records) == set(get_args(EvidenceType))
    reasons = [
        *((code, None, MEANINGS[code].sentence) for code in Explanation),
        *((Explanation.SUPPRESSED, *row) for row in SENTENCES.items()),
        *((Explanation.EXCLUDED, *row) for row in BARRED.items()),
    ]
    answer: list[dict[str, Any]] = [
        {
            "at": "2026-03-02T10:00:00.000Z",
            "code": code,
            "sentence": sentence,
            "reason": reason,
            "evidence": {
                "type": (kind := MEANINGS[code].evidence),
                "id": records[kind],
                "nodeId": None,
            },
        }
        for code, reason, sentence in reasons
    ]
    body = {"contactId": ids["contact"], "data": answer}
    page.route("**/explain**", lambda route: route.fulfill(json=body))
    opened(page, service, f"/contacts/{ids['contact']}?why=all")
    page.locator(".whys > li").nth(len(answer) - 1).wait_for()
    page.get_by_text("Only the newest 20 runs").wait_for()
    assert read(page) == [expected(one) for one in answer]
    for path in PLACES.values():
        page.locator(f".whys > li a[href*='/console{path}']").first.click()
        page.wait_for_url(re.compile(re.escape(path)))
        ready(page)
        assert page.get_by_role("alert").count() == 0
        page.go_back()
        page.locator(".whys > li").first.wait_for()
    expect(page.get_by_label("Since")).to_have_count(1)
    page.get_by_role("combobox", name="Flow or broadcast").select_option(ids["sent"])
    expect(page.get_by_label("Since")).to_have_count(0)  # of a broadcast all is explained


def test_every_reason_stands_on_the_page_with_its_record(page: Page, service: Service) -> None:
    mark = secrets.token_hex(4)
    email = f"ada-{mark}@example.com"
    contact = service.made("/contacts", {"email": email})["id"]
    letter = {"subject": "Hi", "html": "<p>Hi</p>"}
    send = {"id": "say", "type": "send_message", "channel": "email", "content": letter}
    once = {"id": "once", "type": "throttle", "limit": 1, "window": "P1D"}
    flows = {
        "letter": flow(service, f"Letter {mark}", once, send),
        "signed": flow(
            service,
            f"Signed {mark}",
            send,
            trigger={"signingSecret": "s" * 20, "source": HOOK["source"]},
        ),
        "nothing": flow(service, f"Nothing {mark}", send),
        "later": flow(service, f"Later {mark}", {"id": "pause", "type": "wait", "duration": "P9D"}),
    }
    for name in ("letter", "letter", "signed", "later"):
        service.api.post(flows[name]["trigger"]["webhookUrl"], json={"data": {"email": email}})
    service.api.patch(f"/workflows/{flows['nothing']['id']}", json={"state": "PAUSED"})
    service.made(f"/contacts/{contact}/events", {"name": f"looked-{mark}"})

    def settled() -> bool:
        runs = service.read(f"/runs?contactId={contact}")["data"]
        return len(runs) == 3 and all(
            run["finishedAt"] or run["status"] == "WAITING" for run in runs
        )

    service.until(settled)
    service.until(lambda: "sent" in codes(service, contact))
    met: set[str] = set()
    opened(page, service, f"/contacts/{contact}")
    for each in (*flows.values(), {"id": "all"}):
        page.get_by_role("combobox", name="Flow or broadcast").select_option(each["id"])
        page.wait_for_url(re.compile(f"why={each['id']}"))
        query = "" if each["id"] == "all" else f"?definitionId={each['id']}"
        met |= is_explained(page, service, contact, query)
    assert {"throttled", "waiting_for_time", "refused_signature", "not_active"} <= met
    page.get_by_role("combobox", name="Flow or broadcast").select_option(flows["letter"]["id"])
    page.get_by_role("link", name="the run, step once").click()
    page.locator(".way .meant").get_by_text("once", exact=True).wait_for()


def test_a_run_says_what_it_waits_for(page: Page, service: Service) -> None:
    mark = secrets.token_hex(4)
    filter = {"path": "contact.tags", "op": "contains", "value": mark}
    segment = service.made("/segments", {"name": f"VIP {mark}", "filter": filter})["id"]
    conditions = [{"event": "paid"}, {"segmentEntered": segment}]
    wait = {"type": "wait_for", "conditions": conditions, "timeout": "P9D"}
    made = flow(service, f"Waiting {mark}", wait, trigger={"createContact": True})
    event = {"data": {"email": f"ray-{mark}@example.com"}}
    run = service.api.post(made["trigger"]["webhookUrl"], json=event).json()["runId"]
    service.until(lambda: service.read(f"/runs/{run}")["status"] == "WAITING")
    opened(page, service, f"/runs/{run}")
    awaited = f"Waiting for the event paid, or for the contact to enter the segment VIP {mark}, "
    expect(page.locator(".verdict")).to_contain_text(awaited)
    expect(page.locator(".verdict")).to_contain_text("at the latest")
    why = f"/contacts/{service.read(f'/runs/{run}')['contactId']}?why={made['id']}"
    for path, where in ((f"/runs/{run}", ".verdict"), (why, ".sentence")):
        opened(page, service, path)
        link = page.locator(where).get_by_role("link", name=f"VIP {mark}", exact=True)
        expect(link).to_have_attribute("href", f"/console/segments/{segment}")
        expect(page.locator(where).filter(has_text=segment)).to_have_count(0)


def test_moments_in_sentences_are_in_the_readers_zone(another_tab: Page, service: Service) -> None:
    page = another_tab
    mark = secrets.token_hex(4)
    wait = {"id": "pause", "type": "wait", "duration": "P9D"}
    made = flow(service, f"Later {mark}", wait, trigger={"createContact": True})
    event = {"data": {"email": f"ray-{mark}@example.com"}}
    run = service.api.post(made["trigger"]["webhookUrl"], json=event).json()["runId"]
    path = f"/runs/{run}"
    service.until(lambda: service.read(path)["status"] == "WAITING")
    until, contact = service.read(path)["waitingFor"]["until"], service.read(path)["contactId"]
    zone = page.context.new_cdp_session(page)
    zone.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kathmandu"})
    script = """(text) => new Intl.DateTimeFormat(undefined,
        { dateStyle: 'medium', timeStyle: 'medium', timeZone: 'Asia/Kathmandu' })
        .format(new Date(text))"""
    shown = page.evaluate(script, until)
    for place, sentence in ((f"/contacts/{contact}?why=all", ".sentence"), (path, ".verdict")):
        opened(page, service, place)
        moment = page.locator(f"{sentence} time").first
        expect(moment).to_have_text(shown)
        expect(moment).to_have_attribute("title", until)
        assert until not in page.locator(sentence).first.inner_text()
    steps = [{"id": "pause", "type": "wait", "until": NEXT_MONTH}]
    assert service.api.patch(f"/workflows/{made['id']}", json={"steps": steps}).is_success
    opened(page, service, f"/flows/workflows/{made['id']}/versions?from=1&to=2")
    moment = page.locator(".differences time")
    expect(moment).to_have_text(page.evaluate(script, NEXT_MONTH))
    expect(moment).to_have_attribute("title", NEXT_MONTH)
    soon = NEXT_MONTH.replace("Z", ".250Z")
    steps = [{"id": "pause", "type": "wait", "until": soon}]
    assert service.api.patch(f"/workflows/{made['id']}", json={"steps": steps}).is_success
    opened(page, service, f"/flows/workflows/{made['id']}/versions?from=2&to=3")
    page.locator(".differences ins", has_text=soon).wait_for()  # which reads as the one before


def codes(service: Service, contact: str) -> set[str]:
    found = service.read(f"/contacts/{contact}/explain")["data"]
    return {one["code"] for one in found}


def test_an_event_of_a_contact_has_a_page(page: Page, service: Service) -> None:
    contact = service.made("/contacts", {"email": f"eve-{secrets.token_hex(4)}@example.com"})["id"]
    event = {"name": "bought", "properties": {"total": 12}}
    service.made(f"/contacts/{contact}/events", event)
    opened(page, service, f"/contacts/{contact}")
    page.get_by_role("link", name="bought").click()
    page.get_by_role("heading", level=1, name="bought").wait_for()
    page.get_by_text("total: ").wait_for()
