"""Screens of the console, for whatever the API can do; docs/console.md says what has none, and
why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from app.definitions.drawing.kind_styles import KIND_STYLES
from app.machine import secrets
from app.machine.reasons import Reason
from app.routes import ROUTES, SANDBOX_ROUTES
from app.runs.explaining_broadcasts import BARRED
from app.runs.explanations import Explanation
from app.store.broadcast_recipients import BUSY_DOMAIN, OF_MESSAGES

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "console/src"

TYPED = re.compile(r"\bapi\.(GET|POST|PUT|PATCH|DELETE)\(\s*'([^']+)'")
# By what carries a path that the generated client does not: its method is said elsewhere.
PLAIN = re.compile(r"\b(?:ask|at|begin|download|exactly|post|raw)(?:<[^>]*>)?\(\s*['`](/[^'`]*)")
# A path of both shapes of definitions.
OF_BOTH = re.compile(r"`/\$\{(?:of|kind)\}([^`]*)`")
MENTIONED = re.compile(
    r"\b((?:GET|POST|PUT|PATCH|DELETE)(?:, (?:GET|POST|PUT|PATCH|DELETE))*) `(/[^`]*)`"
)


def sources() -> str:
    files = [path for path in sorted(SOURCES.rglob("*.ts*")) if path.name != "schema.d.ts"]
    return "\n".join(path.read_text("utf-8") for path in files)


def shape(path: str) -> str:
    """The path, whatever stands in its variable parts."""
    return re.sub(r"\$\{(?:[^{}]|\{[^{}]*\})*\}|\{[^}]*\}|:[A-Za-z]+", "*", path.partition("?")[0])


def called() -> Iterator[tuple[str, str]]:
    """Each method, or "" for any, and the shape of a path that the console asks for."""
    text = sources()
    for method, path in TYPED.findall(text):
        yield method, shape(path)
    for path in PLAIN.findall(text):
        yield "", shape(path)
    for rest in OF_BOTH.findall(text):
        for kind in ("workflows", "automations"):
            yield "", shape(f"/{kind}{rest}")


def without_screen() -> set[tuple[str, str]]:
    """The routes in the table of docs/console.md."""
    page = (ROOT / "docs/console.md").read_text("utf-8")
    table = page.partition("## What has no screen")[2].partition("\n## ")[0]
    found = MENTIONED.findall(table)
    return {(method, shape(path)) for methods, path in found for method in methods.split(", ")}


def test_the_console_keeps_no_header_in_a_tab_that_the_service_seals() -> None:
    """And hides no other: what is hidden is stored as the mask."""
    source = " ".join((SOURCES / "flow/kept.ts").read_text("utf-8").split())
    for name in ("SECRET", "HUMP"):
        assert f"const {name} = /{getattr(secrets, name).pattern}/" in source
    assert f"const MASK = '{secrets.MASK}'" in source


def test_no_value_of_the_console_is_let_past_its_type() -> None:
    assert re.findall(r"\bas (?:any|never)\b", sources()) == []


def test_each_route_is_asked_for_by_the_console_or_the_manual_says_why_not() -> None:
    asked = set(called())
    routes = {(route.method, shape(route.path)) for route in (*ROUTES, *SANDBOX_ROUTES)}
    missing = {one for one in routes if one not in asked and ("", one[1]) not in asked}
    assert len(routes - missing) > 100, "the sources are not read as they are written"
    assert missing - without_screen() == set()
    assert without_screen() - missing == set(), "these have a screen, or are no routes any more"


def test_every_moment_on_a_page_is_written_by_the_part_that_has_utc_on_hover() -> None:
    text = sources().replace((SOURCES / "ui.tsx").read_text("utf-8"), "")
    assert re.findall(r"new Date\([^)]*\)\.toLocale\w+|\bDateTimeFormat\(\)\.format", text) == []


ADVICE: dict[str, dict[str, str]] = {
    **json.loads((SOURCES / "advice.json").read_text("utf-8")),
    **json.loads((SOURCES / "screens/why.json").read_text("utf-8")),
}


def test_the_console_says_of_each_code_what_to_do_about_it() -> None:
    assert sorted(ADVICE["reasons"]) == sorted(Reason)
    assert sorted(ADVICE["explanations"]) == sorted(Explanation)
    assert sorted(ADVICE["exclusions"]) == sorted(BARRED)
    short = [text for table in ADVICE.values() for text in table.values() if len(text) < 10]
    assert short == []


def test_a_kind_of_node_has_the_same_title_on_a_card_and_in_a_picture() -> None:
    source = (SOURCES / "words.ts").read_text("utf-8")
    table = source.partition("const KINDS")[2].partition("\n}")[0]
    titles = dict(re.findall(r"\b(\w+): '([^']+)',", table))
    assert titles == {kind: style.title for kind, style in KIND_STYLES.items()}


# What the message of a broadcast does not end with, nor waits for as its recipient alone.
OF_NO_RECIPIENT = {
    Reason.SUPPRESSED_ANSWERED,  # of letters that ask for consent
    Reason.SENDING_PAUSED,
    Reason.BROADCAST_PAUSED,
    Reason.BROADCAST_CANCELLED,  # a recipient's is "cancelled"
    Reason.SCHEDULED,
    Reason.ARRIVED_BEFORE,  # of an attempt
}


def test_the_recipients_of_a_broadcast_are_narrowed_by_every_reason_that_they_can_have() -> None:
    source = (SOURCES / "audience/recipients.tsx").read_text("utf-8")
    table = source.partition("const WHY")[2].partition("\n}")[0]
    offered = re.findall(r"\b(\w+): '[^']+',", table)
    reasons = list(Reason)
    of_messages = {*reasons[: reasons.index(Reason.HTTP_STATUS)], Reason.POISONED} - OF_NO_RECIPIENT
    given = {OF_MESSAGES.get(code, code) for code in of_messages} | set(OF_MESSAGES.values())
    assert sorted(offered) == sorted({*given, BUSY_DOMAIN, "cancelled"})


def test_the_pages_beside_the_console_have_its_colours() -> None:
    def colours(path: str) -> list[tuple[str, str]]:
        """Names and values: those of a light screen, then those of a dark one."""
        style = (ROOT / path).read_text("utf-8").partition("box-sizing")[0]
        return re.findall(r"--(paper|ink|soft|line|wash|accent|on-accent): (#\w+)", style)

    of_the_console = colours("console/src/console.css")
    assert len(of_the_console) == 14
    for page in ("app/web/reference.html", "app/routes/account.html"):
        assert len(found := colours(page)) >= 10
        assert [one for one in found if one not in of_the_console] == []
