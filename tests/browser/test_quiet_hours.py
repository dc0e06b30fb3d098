"""Marketing in a night in which the clocks change: the console shows until when it waits, and an
opt-out by one click in that night ends it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from app.consent.gate import SPREAD
from app.net.tls import system_trust
from tests.browser.conftest import PATIENCE_SECONDS, Service, opened, serving, started
from tests.browser.test_preferences import NEWS, captured, link, states
from tests.deployment import Forked
from tests.servers import free_port

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = {"from": "21:00", "to": "08:00", "timezone": "contact", "channels": ["email"]}
ONE_CLICK = "List-Unsubscribe=One-Click"


# Late in the evening before the clocks go back, and the end of the quiet hours of that night. Those
# of the night in which they go forward are shown in tests/consent/test_gate.py.
LATE = datetime.fromisoformat("2026-10-24T22:30:00+02:00")
ENDS = datetime.fromisoformat("2026-10-25T08:00:00+01:00")


@dataclass(slots=True)
class ClockedService:
    """A service that is started again by another clock, on the same database and port."""

    directory: Path
    port: int
    process: Forked | None = None
    service: Service | None = None

    def started(self, moment: datetime) -> Service:
        """Start the service for the first time, by a clock that shows the moment."""
        self.service = serving(*self._start(moment))
        return self.service

    def move(self, service: Service, moment: datetime) -> None:
        """Start it again by that clock; once it answers."""
        self.stop()
        self._start(moment)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not answers(service):
            assert time.monotonic() < deadline, "it did not start again"
            time.sleep(0.1)

    def _start(self, moment: datetime) -> tuple[Forked, Path]:
        offset = round((moment - datetime.now(UTC)).total_seconds() * 1_000)
        self.process, output = started(self.directory, self.port, CLOCK_OFFSET_MS=str(offset))
        return self.process, output

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
            self.process = None


def answers(service: Service) -> bool:
    try:
        return service.api.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False


@pytest.fixture
def clocked(built: None, tmp_path: Path) -> Iterator[ClockedService]:
    clocked = ClockedService(tmp_path, free_port())
    yield clocked
    clocked.stop()
    if clocked.service is not None:
        clocked.service.api.close()


@pytest.fixture
def in_berlin(chromium: Browser) -> Iterator[Page]:
    """A page as somebody there sees it."""
    context = chromium.new_context(timezone_id=BERLIN.key, locale="en-GB")
    yield context.new_page()
    context.close()


def wrote(service: Service, contact_id: str) -> str:
    body = {"channel": "email", "contactId": contact_id, "content": NEWS}
    return str(service.made("/messages", body)["messageId"])


def outcome(service: Service, message_id: str) -> tuple[str, str | None]:
    message = service.read(f"/messages/{message_id}")
    return message["status"], message["reason"] and message["reason"]["code"]


def is_held(service: Service, id: str) -> bool:
    return outcome(service, id) == ("QUEUED", "quiet_hours")


def written(moment: datetime) -> str:
    """Write the moment as a British page has it, in Berlin."""
    local = moment.astimezone(BERLIN)
    return f"{local.day} {local:%b %Y, %H:%M:%S}"


def test_the_console_says_until_when_a_message_waits_and_one_click_of_that_night_ends_it(
    in_berlin: Page, clocked: ClockedService
) -> None:
    page = in_berlin
    service = clocked.started(LATE)
    page.goto(service.link)
    page.get_by_role("heading", level=1, name="Demo").wait_for()
    ada, bob = (
        service.made("/contacts", {"email": f"{who}@example.com", "timezone": BERLIN.key})["id"]
        for who in ("ada", "bob")
    )
    early = wrote(service, ada)  # while no hours are quiet
    service.until(lambda: outcome(service, early) == ("SENT", None))
    [mail] = captured(service, "ada@example.com")

    assert service.api.patch("/settings/workspace", json={"quietHours": NIGHT}).status_code == 200
    hers, his = wrote(service, ada), wrote(service, bob)
    for id in (hers, his):
        service.until(partial(is_held, service, id))
        until = datetime.fromisoformat(service.read(f"/messages/{id}")["until"])
        assert ENDS <= until < ENDS + SPREAD
        opened(page, service, f"/messages/{id}")
        waits = page.locator(".facts div", has_text="Waits until")
        expect(waits.locator("time")).to_have_text(written(until))
    assert written(until).startswith(f"{ENDS.day} {ENDS:%b %Y}, 08:")

    answer = httpx2.post(
        service.url + link(mail["text"], "u"),
        content=ONE_CLICK,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        verify=system_trust(),
    )
    assert answer.status_code == 200, answer.text
    assert states(service, ada)[0] == "unsubscribed"

    clocked.move(service, ENDS + SPREAD)
    service.until(lambda: outcome(service, his) == ("SENT", None))
    service.until(lambda: outcome(service, hers) == ("SUPPRESSED", "suppressed_unsubscribed"))
    assert len(captured(service, "ada@example.com")) == 1
    opened(page, service, f"/messages/{hers}")
    page.get_by_text("The contact has unsubscribed from this channel.").wait_for()
    assert page.get_by_text("Waits until").count() == 0
