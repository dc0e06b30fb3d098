"""Benchmark: what the console costs at the first start, and how soon it is there.

python -m lab.bench.console [rounds] [--fresh]: with --fresh also `make run` on two fresh clones of
what is committed, without the console and with it; each installs all that it needs and stops once
the service answers. Then, in Debian's Chromium against an installed checkout: the console's home
behind the link that is printed, with nothing in the browser's cache; and again and again with its
scripts there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import BrowserContext, sync_playwright

from tests.browser.conftest import CHROMIUM, QUIET, ROOT, missing, serving, started
from tests.servers import free_port

ROUNDS = 5
VISITS = 10  # of each round, with the scripts in the cache
FIRST_RUN_SECONDS = 900.0
MOST_LONGER = 30.0
MOST_AFTER = 1.0
MOST_OF_A_SCREEN = 0.3

# Milliseconds from the beginning of the navigation until nothing of the screen is missing.
SEEN = """new MutationObserver(() => {
    const heading = document.querySelector('main h1')
    const isThere = heading && !document.body.textContent.includes('Loading…')
    if (isThere) window.seen ??= performance.now()
}).observe(document, { childList: true, subtree: true, characterData: true })"""


def first_run(console: str) -> float:
    """Seconds of `make run` on a fresh clone until the service says how to try it."""
    with tempfile.TemporaryDirectory() as directory:
        tree, output = Path(directory, "tree"), Path(directory, "output.txt")
        subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", tree], check=True)
        environ = {**os.environ, "CONSOLE": console, "PORT": str(free_port())}
        began = time.perf_counter()
        with output.open("wb") as file:
            make = subprocess.Popen(
                ["make", "run"], cwd=tree, env=environ, stdout=file, start_new_session=True
            )
        try:
            while "Stop with" not in (text := output.read_text()):
                waited = time.perf_counter() - began
                if make.poll() is not None or waited > FIRST_RUN_SECONDS:
                    sys.exit(f"make run did not start:\n{text}")
                time.sleep(0.05)
            if (tree / "app/web/dist/index.html").exists() != (console == "on"):
                sys.exit(f"the console was to be {console}:\n{text}")
            return time.perf_counter() - began
        finally:
            os.killpg(make.pid, signal.SIGTERM)
            make.wait(30)


def shown(context: BrowserContext, url: str) -> float:
    """Seconds until the screen at this address is there."""
    page = context.new_page()
    page.goto(url)
    page.wait_for_function("() => window.seen !== undefined")
    seconds = float(page.evaluate("window.seen")) / 1_000
    page.close()
    return seconds


def round_of() -> tuple[float, list[float]]:
    """The first sight of the console, from the moment at which the service says that it is there,
    and others."""
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        context = browser.new_context()
        context.add_init_script(SEEN)
        context.new_page().goto("about:blank")  # a browser that is open
        process, output = started(Path(directory), free_port())
        try:
            service = serving(process, output)
            first = shown(context, service.link)
            again = [shown(context, f"{service.url}/console/") for _ in range(VISITS)]
            browser.close()
            service.api.close()
            return first, again
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def main(rounds: int, *, is_fresh: bool) -> None:
    if missing():
        sys.exit(missing())
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", flush=True)
    held = []
    if is_fresh:
        without = first_run("off")
        print(f"first make run without the console: {without:.1f} s", flush=True)
        took = first_run("on")
        print(f"with it: {took:.1f} s, {took - without:.1f} s longer", flush=True)
        held.append(took - without <= MOST_LONGER)
    found = [round_of() for _ in range(rounds)]
    first, again = [one for one, _ in found], [one for _, all in found for one in all]
    print(f"first sight: {median(first):.2f} s (median of {rounds}), at most {max(first):.2f} s")
    screens = f"{1_000 * median(again):.0f} ms (median of {len(again)})"
    print(f"home with the scripts cached: {screens}, at most {1_000 * max(again):.0f} ms")
    held += [median(first) <= MOST_AFTER, median(again) <= MOST_OF_A_SCREEN]
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    words = sys.argv[1:]
    counts = [int(word) for word in words if word.isdecimal()]
    main(*(counts or [ROUNDS]), is_fresh="--fresh" in words)
