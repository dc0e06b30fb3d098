"""Every way that we know of to harm by a template, a condition, or a value that one of them reads:
through the API, and judged by what is stored, shown and sent.

A line is named by the number it has in the catalogue of attacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import process_time, thread_time
from typing import Any, TypeAlias

import pytest

from app.intake import webhooks
from app.machine import condition, document, template
from app.machine.condition import MOST_COMPARISONS, OPS
from app.machine.fields import Place
from app.machine.liquid.filters import FILTERS
from app.machine.liquid.limits import OUTPUT
from app.machine.template import RenderError
from app.process import Process
from app.runtime.compute import Compute
from tests.attacks import test_mail
from tests.cast import Cast, hook, settle
from tests.machine import test_template
from tests.runs.test_runner import steps_of
from tests.runtime import test_heavy_workspaces

EVIL = '<script>alert(1)</script>" onload="x\' javascript:alert(1) &amp;'
JSON = {"Content-Type": "application/json"}
ONCE = "{{7*7}}{% for i in (1..3) %}{{secrets}}{% endfor %}{{ trigger.email }}"
SPENT = 0.1  # seconds of the processor on the event loop, whose budget is 0.005: the rest is apart


@dataclass(frozen=True, slots=True)
class Desk:
    """Ed writes templates; what comes of them."""

    cast: Cast
    process: Process
    spent: list[float]  # by each piece of work since it was last asked

    def most_spent(self) -> float:
        most = max(self.spent, default=0.0)
        self.spent.clear()
        return most

    async def saved(self, source: str, channel: str = "email") -> Any:
        content = {"subject": "s", "html": source} if channel == "email" else {"text": source}
        return await self.cast.ed.post(
            "/templates", {"name": "T", "channel": channel, "content": content}
        )

    async def previewed(self, source: str, trigger: Any) -> dict[str, Any]:
        """Save a template, and render its HTML."""
        made = await self.saved(source)
        assert made.status_code == 201, (source[:80], made.text)
        shown = await self.cast.vic.post(
            f"/templates/{made.json()['id']}/preview",
            content=document.dumps({"trigger": trigger}),
            headers=JSON,
        )
        assert shown.status_code == 200, shown.text
        html: dict[str, Any] = shown.json()["html"]
        return html

    async def run(self, steps: Sequence[Any], body: Mapping[str, Any]) -> dict[str, Any]:
        token = await hook(self.process, self.cast.ed.workspace_id, steps)
        raw = document.dumps({"email": "ada@example.com", **body})
        posted = await self.cast.client.post(f"/v1/webhooks/in/{token}", content=raw, headers=JSON)
        assert posted.status_code == 202, posted.text
        await settle(self.process)
        return await self.cast.vic.read(f"/runs/{posted.json()['runId']}")

    async def captured(self) -> dict[str, Any]:
        newest: dict[str, Any] = (await self.cast.vic.read("/sandbox/messages"))["data"][0]
        return newest


def send(channel: str, **content: str) -> dict[str, Any]:
    return {"type": "send_message", "channel": channel, "content": content, "to": TO[channel]}


TO = {"email": "ada@example.com", "sms": "+4915112345678"}


# --- the lines ------------------------------------------------------------------------------------


async def a_value_is_no_template(desk: Desk) -> None:
    """H1: rendered once, on its way through a contact's field and another template, too."""
    steps = [
        {"type": "update_contact", "set": {"firstName": "{{trigger.word}}"}},
        send("email", subject="{{contact.firstName}}", html="<p>{{trigger.word}}</p>"),
        send("sms", text="{{contact.firstName}}"),
    ]
    await desk.run(steps, {"word": ONCE})
    assert (await desk.captured())["text"] == ONCE
    mail = (await desk.cast.vic.read("/sandbox/messages?channel=email"))["data"][0]
    assert mail["subject"] == ONCE
    assert ONCE in mail["html"]


REACHING = [
    "{{ ''.__class__ }}",
    "{{ config }}",
    "{{ self }}",
    "{{ settings.SECRET_KEY }}",
    "{% include '/etc/passwd' %}",
    "{% render '/etc/passwd' %}",
    "{% layout '/etc/passwd' %}",
    "{% import 'os' %}",
    "{{ trigger | eval }}",
    "{{ request.headers }}",
    "{{ trigger.items[-1] }}",
]
PRINTING_NOTHING = [
    "{{ trigger.__class__ }}",
    "{{ trigger['__class__'].__mro__ }}",
    "{{ trigger.word.__class__ }}",
    "{{ trigger.word.upper }}",
    "{{ contact.__init__.__globals__ }}",
    "{{ now.year }}",
    "{{ workspace.id.__len__ }}",
]


async def no_way_out_of_the_roots(desk: Desk) -> None:
    """H2."""
    for source in REACHING:
        answer = await desk.saved(source)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), source
        assert "root:" not in answer.text
    for source in PRINTING_NOTHING:
        assert (await desk.previewed(source, {"word": "x"}))["rendered"] == "", source


ENDLESS = [
    "{% for i in (1..1000000000) %}{% endfor %}",
    "{% assign x = 'x' %}{% for i in (1..40) %}{% assign x = x | append: x %}{% endfor %}",
    "{% for i in (1..9999) %}{% capture x %}{{trigger.big}}{% endcapture %}{% endfor %}",
]


async def no_template_without_an_end(desk: Desk) -> None:
    """H3: in a preview, and in every kind of step that renders; the run says why."""
    body = {"big": "a" * 200_000}
    for source in ENDLESS:
        answer = await desk.previewed(source, body)
        assert desk.most_spent() < SPENT, source
        assert answer["error"], source
        assert answer.get("rendered") is None, source
    steps: list[dict[str, Any]] = [
        send("email", subject="s", html=ENDLESS[0]),
        {"type": "http_request", "method": "POST", "url": "http://x.test", "body": ENDLESS[1]},
        {"type": "add_tag", "tag": ENDLESS[2]},
    ]
    for step in steps:
        run = await desk.run([step], body)
        assert desk.most_spent() < SPENT, step
        assert run["steps"][0]["reason"]["code"] == "template_error", step


async def no_text_without_an_end(desk: Desk) -> None:
    """H3: what is printed, captured or held is as long as it may be, and not a byte longer."""
    body = {"big": "a" * (OUTPUT // 5)}
    full = "{{trigger.big}}" * 5
    assert len((await desk.previewed(full, body))["rendered"]) == OUTPUT
    for source in (
        f"{full}a",
        f"{{% capture x %}}{full}a{{% endcapture %}}",
        "{% assign x = trigger.big" + " | append: trigger.big" * 5 + " %}",
    ):
        answer = await desk.previewed(source, body)
        assert str(OUTPUT) in answer["error"], source
        assert answer.get("rendered") is None, source
        run = await desk.run([{"type": "add_tag", "tag": source}], body)
        assert run["steps"][0]["reason"]["code"] == "template_error", source
    assert desk.most_spent() < SPENT


async def no_branch_without_an_end(desk: Desk) -> None:
    """H3: as many comparisons as a branch may make, over lists as long as a body can hold."""
    many = MOST_COMPARISONS
    for value, wanted in (([1] * 400_000, "2026-01-01"), ("a" * 1_000_000, "a" * 500 + "b")):
        when = {"path": "trigger.x", "op": "contains", "value": wanted}
        steps = [{"type": "branch", "cases": [{"when": {"any": [when] * many}, "steps": []}]}]
        token = await hook(desk.process, desk.cast.ed.workspace_id, steps)
        body = document.dumps({"email": "ada@example.com", "x": value})
        accepted = await webhooks.receive(desk.process, token=token, body=body)
        await settle(desk.process)
        assert desk.most_spent() < SPENT, wanted[:9]
        [step] = await steps_of(desk.process, desk.cast.ed.workspace_id, accepted.run_id)
        assert step.port == "else", wanted[:9]


HUGE = [
    "{{ 'x' | truncate: 999999999999 }}",
    "{{ 'x' | slice: 0, 999999999999999999999999 }}",
    "{{ 0 | date: '" + "%" * 10_000 + "' }}",
    "{{ 0 | date: '%999999999d' }}",
    "{{ 1 | times: trigger.huge }}",
    "{{ trigger.huge | times: trigger.huge | plus: 1 }}",
    "{{ trigger.huge | round: 999999999 }}",
]


async def no_argument_is_too_large(desk: Desk) -> None:
    """H4."""
    for source in HUGE:
        answer = await desk.previewed(source, document.parse(b'{"huge": 1e400}'))
        assert desk.most_spent() < SPENT, source
        assert answer.get("error") or len(answer["rendered"]) <= 10_000, source


async def no_markup_of_a_value(desk: Desk) -> None:
    """H5: escaped where a value enters HTML, and as it is in a text message."""
    steps = [
        send("email", subject="s", html='<p title="{{trigger.evil}}">{{trigger.evil}}</p>'),
        send("sms", text="{{trigger.evil}}"),
    ]
    await desk.run(steps, {"evil": EVIL})
    assert (await desk.captured())["text"] == EVIL
    mail = (await desk.cast.vic.read("/sandbox/messages?channel=email"))["data"][0]
    assert "<script" not in mail["html"]
    assert 'onload="' not in mail["html"]
    assert EVIL in mail["text"]


async def no_value_ends_a_run(desk: Desk) -> None:
    """H6: what is missing prints nothing and is noted; what is of another type, likewise."""
    html = "[{{trigger.none.x}}{{trigger.text[3]}}{{trigger.list.key}}{{trigger.number.x}}]"
    steps = [send("email", subject="s", html=html), {"type": "add_tag", "tag": "{{trigger.none}}"}]
    run = await desk.run(steps, {"text": "abc", "list": [1], "number": 1})
    assert run["status"] == "COMPLETED"
    sent, tagged = run["steps"]
    assert sent["output"]["missing"] == [
        "trigger.none.x", "trigger.text[3]", "trigger.list.key", "trigger.number.x",
    ]  # fmt: skip
    assert (await desk.captured())["text"].strip() == "[]"
    assert tagged["reason"]["code"] == "tag_empty"


LONG = "a" * 50_000 + "!"
QUICK = 0.05


async def no_value_is_matched_for_long(desk: Desk) -> None:
    """H7: there is no pattern of a user's; ours take 50 KB in their stride."""
    for name in FILTERS:
        parsed = template.parse(f"{{{{ trigger.a{test_template._piped(name)} }}}}", html=True)
        for value in (LONG, "<" * 50_000, " " * 50_000 + "x", "%" * 50_000, "2026-" * 10_000):
            began = thread_time()
            with contextlib.suppress(RenderError):
                parsed.render({"trigger": {"a": value, "evil": "x"}})
            assert thread_time() - began < QUICK, (name, value[:9])
    for op in OPS:
        for literal in ("a" * 1_000, True, "P1D", "2026-01-01T00:00:00Z", 5, [LONG]):
            findings: list[Any] = []
            raw = {"path": "trigger.a", "op": op, "value": literal}
            read = condition.read(raw, Place("", findings))
            if read is not None and not findings:
                began = thread_time()
                condition.evaluate(read, {"trigger": {"a": LONG}})
                assert thread_time() - began < QUICK, (op, str(value)[:9])


async def no_source_is_too_large(desk: Desk) -> None:
    """H9."""
    for source in (
        "x" * 1_000_000,
        "x" * 66_000,
        "{{1}}" * 10_000,
        "{% if 1 %}{% endif %}" * 3_000,
    ):
        began = process_time()
        answer = await desk.saved(source)
        assert process_time() - began < SPENT, source[:20]
        assert answer.status_code in (413, 422), source[:20]


Line: TypeAlias = Callable[[Desk], Awaitable[None]]
LINES: dict[str, Line] = {
    "H1": a_value_is_no_template,
    "H2": no_way_out_of_the_roots,
    "H3": no_template_without_an_end,
    "H3 by length": no_text_without_an_end,
    "H3 by conditions": no_branch_without_an_end,
    "H4": no_argument_is_too_large,
    "H5": no_markup_of_a_value,
    "H6": no_value_ends_a_run,
    "H7": no_value_is_matched_for_long,
    "H9": no_source_is_too_large,
}
# More of it, or at the mail server.
ELSEWHERE: Mapping[str, Sequence[Callable[..., object]]] = {
    "H3": [
        test_template.test_no_template_takes_for_ever_or_much_memory,
        test_heavy_workspaces.test_a_neighbour_s_run_does_not_wait_for_long_steps,
        test_heavy_workspaces.test_a_neighbour_s_message_does_not_wait_for_long_ones,
    ],
    "H4": [test_template.test_huge_arguments_do_not_hang],
    "H5": [test_template.test_no_filter_lets_a_payload_write_html],
    "H8": [test_mail.no_header_is_forged],
}


def test_no_line_of_the_catalogue_is_left_out() -> None:
    numbered = {f"H{number}" for number in range(1, 10)}
    assert {line.split()[0] for line in LINES} | ELSEWHERE.keys() == numbered


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_no_template_does_harm(
    line: str, cast: Cast, process: Process, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: list[float] = []
    attempt = Compute.attempt

    def timed(compute: Compute, *given: Any, **named: Any) -> Any:
        began = thread_time()  # of this work alone, however busy the machine is
        try:
            return attempt(compute, *given, **named)
        finally:
            spent.append(thread_time() - began)

    monkeypatch.setattr(Compute, "attempt", timed)
    await LINES[line](Desk(cast, process, spent))
