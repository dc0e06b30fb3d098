"""Benchmark: a node among 500 dragged over the console's canvas for five seconds.

python -m lab.bench.canvas [seconds]: Debian's Chromium against `python -m app run`. Every task of
the page's thread that takes more than 50 ms is counted, from the press of the button to its
release: there has to be none.
"""

from __future__ import annotations

import math
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, sync_playwright

from tests.browser.conftest import CHROMIUM, QUIET, missing, opened, serving, started
from tests.servers import free_port

NODES = 500  # the most that a definition has
ROW = 20
SECONDS = 5.0
FRAME_SECONDS = 1 / 60
REACH = 90  # pixels about which the mouse circles
WATCH = """() => {
    window.long = []; window.frames = 0
    new PerformanceObserver(list => window.long.push(...list.getEntries().map(one => one.duration)))
        .observe({ type: 'longtask' })
    const frame = () => { window.frames++; requestAnimationFrame(frame) }
    requestAnimationFrame(frame)
}"""

PICTURES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass(frozen=True, slots=True)
class Dragged:
    """Milliseconds of each long task; the share of the time that the page's thread computed, by its
    own clock, which other processes do not change; pictures a second; pixels that the node moved.
    """

    long: list[float]
    busy: float
    frames: float
    moved: float


def graph() -> dict[str, Any]:
    """A chain of tags, in rows."""
    names = [f"tag{index}" for index in range(1, NODES)]
    nodes: list[dict[str, Any]] = [{"id": "trigger", "type": "trigger"}]
    nodes += [{"id": name, "type": "add_tag", "data": {"tag": name}} for name in names]
    placed = [
        {**node, "position": {"x": 260 * (index % ROW), "y": 130 * (index // ROW)}}
        for index, node in enumerate(nodes)
    ]
    ids = [node["id"] for node in nodes]
    edges = [
        {"id": f"e{index}", "source": source, "target": target}
        for index, (source, target) in enumerate(pairwise(ids))
    ]
    return {"nodes": placed, "edges": edges}


def center(box: Locator) -> tuple[float, float]:
    place = box.bounding_box()
    assert place is not None
    return place["x"] + place["width"] / 2, place["y"] + place["height"] / 2


def drag(page: Page, seconds: float) -> Dragged:
    """Drag a node in circles, at the pace of a screen."""
    box = page.locator(".react-flow__node[data-id='tag2']")
    x, y = center(box)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def computed() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        [seconds] = [each["value"] for each in metrics if each["name"] == "TaskDuration"]
        return float(seconds)

    page.mouse.move(x, y)
    page.evaluate(WATCH)
    page.mouse.down()
    before = computed()
    began, turn = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        angle = turn / 15
        page.mouse.move(x + REACH * math.sin(angle), y + REACH * (1 - math.cos(angle)))
        turn += 1
        time.sleep(max(0.0, turn * FRAME_SECONDS - passed))
    long, frames = page.evaluate("[window.long, window.frames]")
    busy = computed() - before
    page.mouse.move(x + REACH, y + REACH)
    page.evaluate(PICTURES)
    moved = math.dist(center(box), (x, y))
    page.mouse.up()
    return Dragged(long, busy / seconds, frames / seconds, moved)


def measured(seconds: float) -> Dragged:
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        process, output = started(Path(directory), free_port())
        try:
            service = serving(process, output)
            body = {"name": "Large", "trigger": {"source": "manual"}, "graph": graph()}
            made = service.made("/automations", body)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(service.link)
            page.get_by_role("heading", level=1, name="Demo").wait_for()
            opened(page, service, f"/flows/automations/{made['id']}/edit")
            page.locator(".react-flow__node[data-id='tag2']").wait_for()
            page.get_by_text("No findings").wait_for()
            found = drag(page, seconds)
            browser.close()
            service.api.close()
            return found
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def main(seconds: float = SECONDS) -> None:
    if missing():
        sys.exit(missing())
    found = measured(seconds)
    assert found.moved > REACH / 4, "the node was not dragged"
    longest = max(found.long, default=0.0)
    print(f"{NODES} nodes, one dragged for {seconds:g} s: {found.frames:.0f} pictures a second,")
    print(f"the page's thread busy {found.busy:.0%} of the time by its own clock;")
    print(f"{len(found.long)} tasks over 50 ms, the longest {longest:.0f} ms")
    sys.exit(1 if found.long else 0)


if __name__ == "__main__":
    main(*(float(each) for each in sys.argv[1:]))
