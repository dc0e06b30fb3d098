"""Seeded defects that only the database can tell: each is found at its pointer, all at once."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.machine import template
from app.process import Process
from app.store import templates as stored
from tests.cast import Cast, settle
from tests.machine import codes

WEBHOOK = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
BY_ID = {"source": "inbound_webhook", "contactLookup": "contact_id"}
SHORT = "too short"


def send(channel: str = "email", **more: Any) -> dict[str, Any]:
    return {"type": "send_message", "channel": channel, **more}


def text(channel: str, content: str = "x") -> dict[str, Any]:
    return send(channel, content={"text": content})


def arms(*steps: Any) -> dict[str, Any]:
    return {
        "type": "branch",
        "cases": [{"when": {"path": "now", "op": "exists"}, "steps": list(steps)}],
    }


def start(**target: str) -> dict[str, Any]:
    return {"type": "start_workflow", **target}


def graph(data: dict[str, Any]) -> dict[str, Any]:
    nodes = [
        {"id": "t", "type": "trigger", "data": {}},
        {"id": "a", "type": "send_message", "data": data},
    ]
    return {"nodes": nodes, "edges": [{"source": "t", "target": "a"}]}


def templates(mail: str, chat: str) -> list[tuple[str, Any, str]]:
    gone = "tpl_" + "0" * 26
    return [
        ("template_unknown", [send(templateId=gone)], "/steps/0/templateId"),
        ("template_unknown", [arms(send(templateId="x"))], "/steps/0/cases/0/steps/0/templateId"),
        (
            "template_unknown",
            graph({"channel": "sms", "templateId": gone}),
            "/graph/nodes/1/data/templateId",
        ),
        ("template_channel", [send(templateId=chat)], "/steps/0/templateId"),
        ("template_channel", [send("sms", templateId=mail)], "/steps/0/templateId"),
        (
            "template_channel",
            graph({"channel": "whatsapp", "templateId": mail}),
            "/graph/nodes/1/data/templateId",
        ),
    ]


def large(mail: str) -> list[tuple[str, Any, str]]:
    """`mail` is a template that is larger than may be read."""
    return [
        ("templates_too_large", [send(templateId=mail)], "/steps"),
        ("templates_too_large", [arms(send("sms", templateId=mail))], "/steps"),
        ("templates_too_large", graph({"channel": "email", "templateId": mail}), "/graph"),
    ]


TRIGGERS: list[tuple[str, dict[str, Any], str]] = [
    ("lookup_missing", {"source": "inbound_webhook"}, "/trigger/contactLookup"),
    (
        "lookup_missing",
        {"source": "inbound_webhook", "contactPath": "a.b"},
        "/trigger/contactLookup",
    ),
    (
        "lookup_missing",
        {"source": "inbound_webhook", "createContact": True, "signingSecret": SHORT},
        "/trigger/contactLookup",
    ),
    ("create_without_address", {**BY_ID, "createContact": True}, "/trigger/createContact"),
    (
        "create_without_address",
        {**BY_ID, "createContact": True, "metadataField": "crm"},
        "/trigger/createContact",
    ),
    (
        "create_without_address",
        {**BY_ID, "createContact": True, "signingSecret": SHORT},
        "/trigger/createContact",
    ),
    ("short_secret", {**WEBHOOK, "signingSecret": "x"}, "/trigger/signingSecret"),
    ("short_secret", {**WEBHOOK, "signingSecret": "x" * 15}, "/trigger/signingSecret"),
    ("short_secret", {**BY_ID, "signingSecret": SHORT}, "/trigger/signingSecret"),
    ("secret_missing", {**WEBHOOK, "signed": True}, "/trigger/signingSecret"),
    ("secret_missing", {**BY_ID, "signed": True}, "/trigger/signingSecret"),
    (
        "secret_missing",
        {**WEBHOOK, "signed": True, "signingSecret": None},
        "/trigger/signingSecret",
    ),
    ("tag_missing", {"source": "tag_added"}, "/trigger/tag"),
    ("tag_missing", {"source": "tag_added", "tag": None}, "/trigger/tag"),
    ("tag_missing", {"source": "tag_added", "name": "vip"}, "/trigger/tag"),
    ("name_missing", {"source": "event"}, "/trigger/name"),
    ("name_missing", {"source": "event", "name": None}, "/trigger/name"),
    ("name_missing", {"source": "event", "tag": "paid"}, "/trigger/name"),
    *(
        ("segment_missing", {"source": source}, "/trigger/segmentId")
        for source in ("segment_entered", "segment_left")
    ),
    ("segment_missing", {"source": "schedule", "cron": "0 9 * * *"}, "/trigger/segmentId"),
    *(
        ("segment_unknown", {"source": source, "segmentId": "seg_0"}, "/trigger/segmentId")
        for source in ("segment_entered", "segment_left")
    ),
    (
        "segment_unknown",
        {"source": "schedule", "cron": "0 9 * * *", "segmentId": "x"},
        "/trigger/segmentId",
    ),
    ("field_missing", {"source": "date"}, "/trigger/field"),
    ("field_missing", {"source": "date", "offset": "-P7D"}, "/trigger/field"),
    ("field_missing", {"source": "date", "time": "09:00"}, "/trigger/field"),
    ("schedule_missing", {"source": "schedule", "segmentId": "seg_0"}, "/trigger/rrule"),
    (
        "schedule_missing",
        {"source": "schedule", "segmentId": "seg_0", "timezone": "Europe/Rome"},
        "/trigger/rrule",
    ),
    (
        "schedule_missing",
        {"source": "schedule", "segmentId": "x", "cron": "0 9 * * *", "rrule": "FREQ=DAILY"},
        "/trigger/rrule",
    ),
    *(
        (
            "repeats_once",
            {"source": "date", "repeat": "yearly", "reentry": "once", **more},
            "/trigger/reentry",
        )
        for more in (
            {"field": "createdAt"},
            {"field": "metadata.born", "time": "09:00"},
            {"field": "metadata.born", "offset": "-P7D", "timezone": "contact"},
        )
    ),
    (
        "schedule_over",
        {"source": "schedule", "segmentId": "x", "rrule": "FREQ=DAILY;UNTIL=20260102T000000"},
        "/trigger/rrule",
    ),
    (
        "schedule_over",
        {"source": "schedule", "rrule": "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;UNTIL=20260301T000000"},
        "/trigger/rrule",
    ),
    (
        "schedule_over",
        {
            "source": "schedule",
            "rrule": "FREQ=YEARLY;BYMONTH=5;UNTIL=20260601T000000",
            "timezone": "Europe/Rome",
        },
        "/trigger/rrule",
    ),
    (
        "schedule_zone",
        {"source": "schedule", "segmentId": "x", "rrule": "FREQ=DAILY", "timezone": "contact"},
        "/trigger/timezone",
    ),
    ("schedule_zone", {"source": "schedule", "timezone": "contact"}, "/trigger/timezone"),
    (
        "schedule_zone",
        {"source": "schedule", "segmentId": "x", "cron": "0 9 * * *", "timezone": "contact"},
        "/trigger/timezone",
    ),
]


def starts(mine: str, theirs: str, drawn: str) -> list[tuple[str, Any, str]]:
    """`theirs` starts `mine`; `drawn` is a draft."""
    return [
        ("start_loop", [start(workflowId=mine)], "/steps/0/workflowId"),
        ("start_loop", [start(workflowId=theirs)], "/steps/0/workflowId"),
        ("start_loop", [arms(start(workflowId=theirs))], "/steps/0/cases/0/steps/0/workflowId"),
        ("start_unknown", [start(workflowId="wfl_0")], "/steps/0/workflowId"),
        ("start_unknown", [start(automationId=theirs)], "/steps/0/automationId"),
        ("start_unknown", [start(workflowId=drawn)], "/steps/0/workflowId"),
        ("start_inactive", [start(automationId=drawn)], "/steps/0/automationId"),
        (
            "start_inactive",
            [arms(start(automationId=drawn))],
            "/steps/0/cases/0/steps/0/automationId",
        ),
        (
            "start_inactive",
            [send("sms", content={"text": "x"}), start(automationId=drawn)],
            "/steps/1/automationId",
        ),
    ]


CHANNELS: list[tuple[str, Any, str]] = [
    ("channel_not_configured", [text("sms")], "/steps/0/channel"),
    ("channel_not_configured", [arms(text("whatsapp"))], "/steps/0/cases/0/steps/0/channel"),
    (
        "channel_not_configured",
        graph({"channel": "sms", "content": {"text": "x"}}),
        "/graph/nodes/1/data/channel",
    ),
]


def call(url: str) -> dict[str, Any]:
    return {"id": "ask", "type": "http_request", "method": "GET", "url": url}


CALLS: list[tuple[str, Any, str]] = [
    ("private_address", [call("http://localhost:8080/x")], "/steps/0/url"),
    ("private_address", [call("https://user@10.0.0.8/{{trigger.x}}")], "/steps/0/url"),
    ("private_address", [arms(call("http://[::1]"))], "/steps/0/cases/0/steps/0/url"),
    ("private_address", [call("http://169.254.169.254?a=b")], "/steps/0/url"),
]

TAGGED = {"source": "tag_added", "tag": "vip"}


def tag(name: str) -> dict[str, Any]:
    return {"type": "add_tag", "tag": name}


TAGS: list[tuple[str, Any, str]] = [
    ("tag_starts_again", [tag("vip")], "/steps/0/tag"),
    ("tag_starts_again", [{"type": "remove_tag", "tag": "vip"}, tag(" vip ")], "/steps/1/tag"),
    ("tag_starts_again", [tag("lead"), arms(tag("vip"))], "/steps/1/cases/0/steps/0/tag"),
]

# What is no definition at all, each beside a step that is wrong as well.
UNREADABLE: list[tuple[str, dict[str, Any], str]] = [
    ("invalid", {"stepz": []}, "/stepz"),
    ("invalid", {"name": ""}, "/name"),
    ("invalid", {"name": None}, "/name"),
    ("invalid", {"trigger": {**WEBHOOK, "contactLokup": "email"}}, "/trigger/contactLokup"),
    ("invalid", {"trigger": {**WEBHOOK, "contactLookup": "mail"}}, "/trigger/contactLookup"),
    ("invalid", {"trigger": {**WEBHOOK, "metadataField": "crm"}}, "/trigger/metadataField"),
    (
        "invalid",
        {"trigger": {**WEBHOOK, "contactDefaults": {"tags": [7]}}},
        "/trigger/contactDefaults/tags/0",
    ),
    ("invalid", {"trigger": 5}, "/trigger"),
]


async def found(cast: Cast, body: Any, trigger: Any = WEBHOOK) -> list[tuple[str, str]]:
    """Read what activating it answers, be that 201 or 422."""
    shape, path = ("graph", "/automations") if isinstance(body, dict) else ("steps", "/workflows")
    response = await cast.ed.post(
        path, {"name": "N", "state": "ACTIVE", "trigger": trigger, shape: body}
    )
    assert response.status_code in (201, 422), response.text
    return [(one["code"], one["pointer"]) for one in response.json()["findings"]]


LETTER = {"subject": "News", "html": "<p>Spring</p>"}
LINKED = {"subject": "News", "html": '<p><a href="{{unsubscribeUrl}}">Out</a></p>'}


def news(content: dict[str, str], **more: Any) -> dict[str, Any]:
    return send(**more, content={**content, "category": "marketing"})


def marketing(letter: str) -> list[tuple[str, Any, str]]:
    """`letter` is a template without a link."""
    return [
        ("footer_added", [send(templateId=letter)], "/steps/0/templateId"),
        ("footer_added", [arms(news(LETTER))], "/steps/0/cases/0/steps/0/content"),
        ("footer_added", [news({"text": "Spring"}, channel="sms")], "/steps/0/content"),
        ("postal_address_missing", [send(templateId=letter)], "/steps/0/templateId"),
        ("postal_address_missing", [news(LINKED)], "/steps/0/content"),
        ("postal_address_missing", [news({"subject": "s", "text": "t"})], "/steps/0/content"),
    ]


def topics(chat: str) -> list[tuple[str, Any, str]]:
    """`chat` is a topic on SMS alone."""
    gone = {**LETTER, "topicId": "top_" + "0" * 26}
    other = {**LETTER, "topicId": chat}
    drawn = {"channel": "email", "content": {**gone, "category": "marketing"}}
    wrong = {"channel": "email", "content": {**other, "category": "marketing"}}
    return [
        ("topic_unknown", [news(gone)], "/steps/0/content/topicId"),
        ("topic_unknown", [arms(news(gone))], "/steps/0/cases/0/steps/0/content/topicId"),
        ("topic_unknown", graph(drawn), "/graph/nodes/1/data/content/topicId"),
        ("topic_channel", [news(other)], "/steps/0/content/topicId"),
        ("topic_channel", [arms(news(other))], "/steps/0/cases/0/steps/0/content/topicId"),
        ("topic_channel", graph(wrong), "/graph/nodes/1/data/content/topicId"),
    ]


def frozen(segment: str) -> list[tuple[str, Any, str]]:
    """`segment` is a frozen one."""
    waits = {"type": "wait_for", "timeout": "P1D"}
    moves = [
        {"port": port, name: segment, "steps": []}
        for port, name in (("in", "segmentEntered"), ("out", "segmentLeft"))
    ]
    drawn = {
        "nodes": [
            {"id": "t", "type": "trigger", "data": {}},
            {"id": "w", "type": "wait_for", "data": {"timeout": "P1D", "conditions": [
                {"port": "in", "segmentEntered": segment}
            ]}},
        ],
        "edges": [{"source": "t", "target": "w"}],
    }  # fmt: skip
    return [
        (
            "segment_frozen",
            [{**waits, "conditions": moves[:1]}],
            "/steps/0/conditions/0/segmentEntered",
        ),
        ("segment_frozen", [{**waits, "conditions": moves}], "/steps/0/conditions/1/segmentLeft"),
        ("segment_frozen", drawn, "/graph/nodes/1/data/conditions/0/segmentEntered"),
    ]


def given_up(segment: str) -> list[tuple[str, dict[str, Any], str]]:
    return [
        ("work_given_up", {"source": "date", "field": "metadata.renewsAt"}, "/trigger"),
        (
            "work_given_up",
            {"source": "schedule", "segmentId": segment, "cron": "0 9 * * *"},
            "/trigger",
        ),
        (
            "work_given_up",
            {"source": "segment_entered", "segmentId": segment},
            "/trigger/segmentId",
        ),
    ]


@pytest.fixture
def mail_alone(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process where nobody has set up a provider but for mail."""
    for channel in ("sms", "whatsapp"):
        monkeypatch.delitem(process.channels, channel)


@pytest.mark.usefixtures("mail_alone")
async def test_every_defect_is_found_where_it_is(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = await cast.ed.made(
        "/templates", {"name": "M", "channel": "email", "content": {"subject": "s", "html": "h"}}
    )
    chat = await cast.ed.made(
        "/templates", {"name": "C", "channel": "sms", "content": {"text": "{{ steps.a.status }}"}}
    )
    for code, body, pointer in [*templates(mail["id"], chat["id"]), *CHANNELS]:
        assert (code, pointer) in await found(cast, body)
    letter = {"name": "L", "channel": "email", "category": "marketing", "content": LETTER}
    for code, body, pointer in marketing((await cast.ed.made("/templates", letter))["id"]):
        assert (code, pointer) in await found(cast, body)
    texts = await cast.ed.made("/topics", {"name": "T", "channels": ["sms"]})
    for code, body, pointer in topics(texts["id"]):
        assert (code, pointer) in await found(cast, body)
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    then = await cast.ed.made("/segments", {"name": "Then", "kind": "frozen", "filter": vip})
    for code, body, pointer in frozen(then["id"]):
        assert (code, pointer) in await found(cast, body)
    for source in ("segment_entered", "segment_left", "schedule"):
        given = {"source": source, "segmentId": then["id"]}
        given |= {"cron": "0 9 * * *"} if source == "schedule" else {}
        wanted = ("segment_frozen", "/trigger/segmentId")
        assert (wanted in await found(cast, [], given)) is (source != "schedule")
    for code, trigger, pointer in TRIGGERS:
        assert (code, pointer) in await found(cast, [], trigger)
    monkeypatch.setattr(process.egress, "_allow", ())
    for code, body, pointer in CALLS:
        assert (code, pointer) in await found(cast, body)
    for url in ("https://1.1.1.1/", "https://crm.example", "http://{{trigger.host}}/10.0.0.8"):
        assert "private_address" not in {code for code, _ in await found(cast, [call(url)])}
    for code, body, pointer in TAGS:
        assert [(code, pointer)] == await found(cast, body, TAGGED)
    # What a template reads counts where it is sent.
    assert ("output_missing", "/steps/0/templateId") in await found(
        cast, [send("sms", templateId=chat["id"])]
    )


async def test_templates_that_are_too_large_together_are_not_checked(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check says so, wherever it is asked, and nothing else fails."""
    content = {"subject": "s", "html": "h"}
    new = {"name": "M", "channel": "email", "content": content}
    mail = (await cast.ed.made("/templates", new))["id"]
    draft = {"name": "N", "trigger": WEBHOOK, "steps": [send(templateId=mail)]}
    path = f"/workflows/{(await cast.ed.made('/workflows', draft))['id']}"
    case = {"given": GIVEN, "expect": {"end": {"status": "COMPLETED"}}}
    await cast.ed.call("PUT", f"{path}/cases/end", json=case)
    monkeypatch.setattr(stored, "MOST_BYTES", len('{"html":"h","subject":"s"}'))
    assert (await cast.ed.read(path))["findings"] == []
    monkeypatch.setattr(stored, "MOST_BYTES", 10)
    for code, body, pointer in large(mail):
        assert [(code, pointer)] == await found(cast, body)
    shown = [one["code"] for one in (await cast.vic.read(path))["findings"]]
    assert shown == ["templates_too_large", "case_failed"]
    simulated = await cast.vic.made(f"{path}/simulate", GIVEN)
    assert [one["code"] for one in simulated["findings"]] == ["templates_too_large"]
    assert (await cast.vic.get(f"{path}/graph.svg")).status_code == 200
    refused = await cast.vic.get(f"{path}/export")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


GIVEN = {"startAt": "2026-03-01T09:00:00Z", "contact": {"email": "ada@example.com"}}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("case_failed", {"given": GIVEN, "expect": {"end": {"status": "FAILED"}}}, "/cases/end"),
    ("case_failed", {"given": GIVEN, "expect": {"steps": [{"nodeId": "gone"}]}}, "/cases/step"),
    (
        "case_failed",
        {
            "given": {**GIVEN, "outcomes": {"gone": "sent"}},
            "expect": {"end": {"status": "COMPLETED"}},
        },
        "/cases/node",
    ),
]


async def test_work_that_was_given_up_is_found_until_it_is_begun_anew(
    cast: Cast, process: Process
) -> None:
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    segment = await cast.ed.made("/segments", {"name": "Vip", "filter": vip})
    seeds, paths = given_up(segment["id"]), []
    for _, trigger, _ in seeds:
        body = {"name": "N", "state": "ACTIVE", "trigger": trigger, "steps": []}
        paths.append(f"/workflows/{(await cast.ed.made('/workflows', body))['id']}")
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE segments SET reason_code = 'poisoned'")
    for (code, _, pointer), path in zip(seeds, paths, strict=True):
        assert (code, pointer) in await read(cast, path)
        for state in ("PAUSED", "ACTIVE"):
            await cast.ed.patch(path, {"state": state})
    await cast.ed.patch(f"/segments/{segment['id']}", {"filter": vip})
    for path in paths:
        assert "work_given_up" not in {code for code, _ in await read(cast, path)}


async def read(cast: Cast, path: str) -> list[tuple[str, str]]:
    return [(one["code"], one["pointer"]) for one in (await cast.ed.read(path))["findings"]]


@pytest.mark.parametrize(("code", "case", "pointer"), CASES)
async def test_a_case_that_fails_is_found(cast: Cast, code: str, case: Any, pointer: str) -> None:
    made = await cast.ed.made("/workflows", {"name": "N", "steps": [{"type": "exit"}]})
    path = f"/workflows/{made['id']}"
    await cast.ed.call("PUT", f"{path}{pointer}", json=case)
    for answer in (await cast.ed.read(path), (await cast.ed.patch(path, {"name": "M"})).json()):
        assert [(one["code"], one["pointer"]) for one in answer["findings"]] == [(code, pointer)]


def test_there_are_three_defects_for_each_finding() -> None:
    seeded = Counter(
        code
        for seeds in (
            *(TRIGGERS, CHANNELS, TAGS, CALLS, CASES, UNREADABLE, marketing("")),
            *(templates("", ""), large(""), topics(""), starts("", "", ""), frozen("")),
            given_up(""),
        )
        for code, _, _ in seeds
    )
    written = codes.written(codes.BEYOND)
    assert {code: seeded[code] for code in written if seeded[code] < 3} == {}
    assert seeded.keys() == written


def test_the_page_of_findings_has_each_of_them_once() -> None:
    page = Path(__file__).parents[2] / "docs" / "findings.md"
    rows = [line.split("|")[1] for line in page.read_text().splitlines() if line.startswith("| `")]
    shown = Counter(code for row in rows for code in re.findall(r"`(\w+)`", row))
    assert shown == Counter(codes.written([*codes.MACHINE, *codes.BEYOND]))


def test_nothing_else_finds() -> None:
    """Else its codes would be counted nowhere."""
    finds = {
        path
        for path in codes.APP.rglob("*.py")
        if re.search(r"^from app\.machine\.program import .*\bFinding\b", path.read_text(), re.M)
        and codes.written([path])
    }
    assert finds <= {*codes.MACHINE, *codes.BEYOND}


async def test_marketing_that_shows_its_way_out_and_its_sender_is_not_warned_of(cast: Cast) -> None:
    changed = await cast.adam.patch("/settings/workspace", {"postalAddress": "1 Main Street"})
    assert changed.status_code == 200
    stop = {"text": "Spring. Reply STOP to end"}
    other = [send(content=LETTER), text("whatsapp"), news({"text": "x"}, channel="whatsapp")]
    for steps in ([news(LINKED)], [news(stop, channel="sms")], other):
        codes = {code for code, _ in await found(cast, steps)}
        assert codes.isdisjoint({"footer_added", "postal_address_missing"})


@pytest.mark.parametrize(("length", "is_short"), [(1, True), (12, True), (15, True), (16, False)])
async def test_a_short_secret_is_warned_of_whenever_it_is_looked_at(
    cast: Cast, length: int, is_short: bool
) -> None:
    trigger = {**WEBHOOK, "signingSecret": "s" * length}
    made = await cast.ed.made(
        "/workflows", {"name": "N", "trigger": trigger, "steps": [], "state": "ACTIVE"}
    )
    path = f"/workflows/{made['id']}"
    paused = (await cast.ed.patch(path, {"state": "PAUSED"})).json()
    renamed = (await cast.ed.patch(path, {"state": "PAUSED", "name": "M"})).json()
    again = (await cast.ed.patch(path, {"state": "ACTIVE"})).json()
    assert paused["findings"] == []  # what is stopped as it is is not checked for that
    for answer in (made, renamed, again, await cast.ed.read(path)):
        codes = {finding["code"] for finding in answer["findings"]}
        assert ("short_secret" in codes) is is_short


async def test_a_loop_of_starts_is_found_wherever_it_closes(cast: Cast) -> None:
    mine = await cast.ed.made("/workflows", {"name": "M", "state": "ACTIVE"})
    theirs = await cast.ed.made(
        "/workflows",
        {"name": "T", "state": "ACTIVE", "steps": [start(workflowId=mine["id"])]},
    )
    drawn = await cast.ed.made("/automations", {"name": "D"})
    for code, steps, pointer in starts(mine["id"], theirs["id"], drawn["id"]):
        response = await cast.ed.patch(f"/workflows/{mine['id']}", {"steps": steps})
        findings = [(one["code"], one["pointer"]) for one in response.json()["findings"]]
        assert (code, pointer) in findings, steps


@pytest.mark.usefixtures("mail_alone")
async def test_all_is_answered_at_once_the_warnings_beside_the_errors(cast: Cast) -> None:
    trigger = {**BY_ID, "createContact": True, "signingSecret": SHORT}
    shown = await found(cast, [send(templateId="x"), text("sms"), {"type": "wait"}], trigger)
    assert set(shown) == {
        ("missing", "/steps/2/duration"),
        ("template_unknown", "/steps/0/templateId"),
        ("create_without_address", "/trigger/createContact"),
        ("short_secret", "/trigger/signingSecret"),
        ("channel_not_configured", "/steps/1/channel"),
    }


@pytest.mark.usefixtures("mail_alone")
async def test_what_cannot_be_saved_hides_nothing_of_what_cannot_run(cast: Cast) -> None:
    """And neither hides a warning that needs no way through the steps."""
    trigger = {**BY_ID, "createContact": True}
    steps = [
        {"type": "add_tag", "tag": "{{ nobody.x }}"},
        send("whatsapp", content={"contentSid": "x", "variables": {"a": "{{ nobody.x }}"}}),
        send(templateId="x"),
        {"type": "wait"},
        {"type": "wait_for", "conditions": [{"event": "paid", "steps": []}]},
    ]
    response = await cast.ed.post(
        "/workflows", {"name": "N", "state": "ACTIVE", "trigger": trigger, "steps": steps}
    )
    assert (response.status_code, response.json()["code"]) == (422, "invalid"), response.text
    assert {error["pointer"] for error in response.json()["errors"]} == {
        "/steps/0/tag",
        "/steps/1/content/contentSid",
        "/steps/1/content/variables/a",
        "/steps/2/templateId",
        "/steps/3/duration",
    }
    warned = {one["code"] for one in response.json()["findings"] if one["severity"] == "warning"}
    assert warned == {"create_without_address", "channel_not_configured", "no_timeout"}
    drafted = await cast.ed.post("/workflows", {"name": "N", "trigger": trigger, "steps": steps})
    assert len(drafted.json()["errors"]) == 3
    assert "findings" not in drafted.json()


@pytest.mark.usefixtures("mail_alone")
async def test_what_is_no_definition_hides_nothing_of_its_steps(cast: Cast) -> None:
    """Neither in a new one nor in a change; and a draft is told only what no draft may hold."""
    wrong = [tag("{{ nobody.x }}"), send(templateId="x"), {"type": "wait"}, text("sms")]
    steps = {"/steps/0/tag", "/steps/1/templateId", "/steps/2/duration"}
    made = await cast.ed.made("/workflows", {"name": "N", "trigger": WEBHOOK})
    for code, change, pointer in UNREADABLE:
        body = {"name": "N", "trigger": WEBHOOK, "steps": wrong, **change}
        live = {**body, "state": "ACTIVE"}
        for response in (
            await cast.ed.post("/workflows", live),
            await cast.ed.patch(f"/workflows/{made['id']}", live),
        ):
            answer = response.json()
            assert (response.status_code, answer["code"]) == (422, "invalid"), answer
            assert {error["pointer"] for error in answer["errors"]} == {pointer, *steps}, answer
            listed = [(one["code"], one["pointer"]) for one in answer["findings"]]
            assert (code, pointer) in listed
            assert ("channel_not_configured", "/steps/3/channel") in listed
            assert len(listed) == len(set(listed))
        drafted = await cast.ed.post("/workflows", body)
        assert {error["pointer"] for error in drafted.json()["errors"]} == {pointer, "/steps/0/tag"}
    assert (await cast.vic.read(f"/workflows/{made['id']}"))["name"] == "N"
    assert len((await cast.vic.read("/workflows"))["data"]) == 1


async def test_whatever_the_body_is_it_is_answered_in_order(cast: Cast) -> None:
    """Where there is nothing to go on with, by that alone."""
    for raw, pointers in (
        (b"[]", [""]),
        (b'{"name": "N", "state": "ACTIV", "steps": 5}', ["/state", "/steps"]),
        (b'{"name": "N", "steps": [{"type": "add_tag", "tag": "a\\u0000b"}]}', ["/steps/0/tag"]),
        (b'{"name": "N", "state": "PAUSED", "x": 1}', ["/x", "/state"]),
    ):
        response = await cast.ed.post(
            "/workflows", content=raw, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 422, response.text
        assert [error["pointer"] for error in response.json()["errors"]] == pointers, raw


async def test_what_could_not_be_read_makes_nothing_else_wrong(cast: Cast) -> None:
    """Of nodes that were left out no edge can be judged, nor by those that are stored."""

    def body(*ids: str, **data: str) -> dict[str, Any]:
        nodes: list[dict[str, Any]] = [{"id": "t", "type": "trigger"}]
        nodes += [{"id": id, "type": "add_tag", "data": {"tag": "x", **data}} for id in ids]
        ends = itertools.pairwise(["t", *ids])
        return {"nodes": nodes, "edges": [{"source": a, "target": b} for a, b in ends]}

    trigger = {"source": "event"}
    new = {"name": "N", "state": "ACTIVE", "trigger": trigger, "graph": body("a", "b", tag="\0")}
    made = await cast.ed.made("/automations", {"name": "N", "graph": body("c")})
    for response in (
        await cast.ed.post("/automations", new),
        await cast.ed.patch(f"/automations/{made['id']}", new),
    ):
        answer = response.json()
        assert (response.status_code, answer["code"]) == (422, "invalid"), answer
        pointers = [error["pointer"] for error in answer["errors"]]
        assert pointers == ["/graph/nodes/1/data/tag", "/graph/nodes/2/data/tag", "/trigger/name"]
        assert [one["pointer"] for one in answer["findings"]] == pointers


async def test_a_member_that_could_not_be_read_is_one_fault_wherever_it_stands(cast: Cast) -> None:
    segment = await cast.ed.made("/segments", {"name": "S", "filter": {"event": "x"}})
    schedule = {"source": "schedule", "segmentId": segment["id"], "cron": "0 25 * * *"}
    lookup = {**BY_ID, "contactLookup": "contactid", "metadataField": "crm"}
    for trigger, member in ((schedule, "cron"), (lookup, "contactLookup")):
        nodes = [
            {"id": "t", "type": "trigger", "data": trigger},
            {"id": "a", "type": "add_tag", "data": {"tag": "x"}},
        ]
        drawn = {"nodes": nodes, "edges": [{"source": "t", "target": "a"}]}
        for path, body, place in (
            ("/workflows", {"trigger": trigger, "steps": [tag("x")]}, "/trigger"),
            ("/automations", {"graph": drawn}, "/graph/nodes/0/data"),
        ):
            for at in (path, f"{path}/check"):
                answer = await cast.ed.post(at, {"name": "N", "state": "ACTIVE", **body})
                listed = [(one["code"], one["pointer"]) for one in answer.json()["findings"]]
                assert listed == [("invalid", f"{place}/{member}")]


async def test_what_is_wrong_with_what_is_stored_is_told_once(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = {**WEBHOOK, "contactDefaults": {"firstName": "{{trigger.x}}{{trigger.y}}"}}
    made = await cast.ed.made("/workflows", {"name": "N", "trigger": trigger})
    monkeypatch.setattr(template, "TAGS", 1)
    refused = await cast.ed.patch(f"/workflows/{made['id']}", {"name": "M"})
    pointers = [error["pointer"] for error in refused.json()["errors"]]
    assert (refused.status_code, pointers) == (422, ["/trigger/contactDefaults/firstName"])


async def test_a_limit_beyond_which_something_runs_already_is_a_warning_wherever_it_is_checked(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade that has a new one."""
    headers = {"Authorization": "Bearer hidden"}
    ask = {"type": "http_request", "method": "GET", "url": "https://crm.example"}
    steps = [tag("{{contact.email}}{{contact.phone}}"), {"id": "ask", **ask, "headers": headers}]
    made = await cast.ed.made("/workflows", {"name": "N", "state": "ACTIVE", "steps": steps})
    monkeypatch.setattr(template, "TAGS", 1)
    path = f"/workflows/{made['id']}"
    shown = await cast.vic.read(path)
    limit = ("warning", "bad_template", "/steps/0/tag")
    assert severities(shown) == [limit]
    for same in (shown["steps"], steps):
        body = {"name": "M", "steps": same}
        checked = await cast.vic.made(f"/workflows/check?id={made['id']}", body)
        assert severities(checked) == [limit]
        assert severities((await cast.ed.patch(path, body)).json()) == [limit]
    for other in ("/workflows/check", f"/workflows/check?id={made['id']}"):
        checked = await cast.vic.made(other, {"name": "N", "steps": [steps[0]]})
        assert severities(checked) == [("error", *limit[1:])]


def severities(answer: Any) -> list[tuple[str, str, str]]:
    return [(one["severity"], one["code"], one["pointer"]) for one in answer["findings"]]


async def test_a_change_of_which_nothing_is_right_is_told_as_for_any_resource(cast: Cast) -> None:
    made = await cast.ed.made("/workflows", {"name": "N", "state": "ACTIVE"})
    refused = await cast.ed.patch(f"/workflows/{made['id']}", {"nam": "M"})
    detail = "Correct the body: /nam: This field is unknown or read-only. Did you mean name?"
    assert (refused.status_code, refused.json()["detail"]) == (422, detail)


async def test_whoever_is_found_by_an_address_has_it(cast: Cast) -> None:
    mail = send(content={"subject": "s", "html": "h"})
    by_phone = {**WEBHOOK, "contactLookup": "phone"}
    assert await found(cast, [mail], WEBHOOK) == []
    for trigger in (by_phone, BY_ID, {"source": "manual"}):
        assert await found(cast, [mail], trigger) == [("address_uncertain", "/steps/0/channel")]


async def test_a_secret_that_is_kept_is_still_short(cast: Cast) -> None:
    made = await cast.ed.made(
        "/workflows", {"name": "N", "trigger": {**WEBHOOK, "signingSecret": SHORT}}
    )
    changed = await cast.ed.patch(f"/workflows/{made['id']}", {"state": "ACTIVE"})
    codes = [one["code"] for one in changed.json()["findings"]]
    assert codes == ["does_nothing", "short_secret"]


async def test_what_no_body_had_is_told_once_bodies_came(cast: Cast, process: Process) -> None:
    steps = [{"type": "add_tag", "tag": "{{ trigger.data.plan }}"}]
    defaults = {"firstName": "{{ trigger.name }}", "tags": ["{{ trigger.gone }}"]}
    made = await cast.ed.made(
        "/workflows",
        {
            "name": "N",
            "state": "ACTIVE",
            "trigger": {**WEBHOOK, "contactDefaults": defaults},
            "steps": steps,
        },
    )
    assert made["findings"] == []
    await cast.client.post(
        made["trigger"]["webhookUrl"], json={"email": "ada@example.com", "name": "Ada"}
    )
    await settle(process)
    renamed = await cast.ed.patch(f"/workflows/{made['id']}", {"name": "M"})
    assert [(one["code"], one["pointer"]) for one in renamed.json()["findings"]] == [
        ("trigger_unseen", "/trigger/contactDefaults/tags/0"),
        ("trigger_unseen", "/steps/0/tag"),
    ]


async def test_bodies_that_were_refused_tell_too_what_senders_send(
    cast: Cast, process: Process
) -> None:
    """As a rule the first ones are: the path was a guess."""
    trigger = {**WEBHOOK, "contactPath": "email"}
    steps = [{"type": "add_tag", "tag": "{{ trigger.data.plan }}"}]
    made = await cast.ed.made(
        "/workflows", {"name": "N", "state": "ACTIVE", "trigger": trigger, "steps": steps}
    )
    bodies: dict[str, list[str]] = {
        '{"data": {"mail": "ada@example.com"}}': ["trigger_unseen"],
        '{"data": {"plan": "pro"}}': [],
        '["no object"]': [],
    }
    for body, expected in bodies.items():
        json = {"Content-Type": "application/json"}
        refused = await cast.client.post(made["trigger"]["webhookUrl"], content=body, headers=json)
        assert refused.status_code == 422
        await process.batches.close()  # refused ones are written after their answer
        renamed = await cast.ed.patch(f"/workflows/{made['id']}", {"name": body})
        assert [one["code"] for one in renamed.json()["findings"]] == expected
