"""The console in a real browser: Debian's Chromium, driven against a service of its own.

Without Chromium these tests are skipped; with REQUIRE_BROWSER=1 its absence is a failure. Nothing
here waits for time: it asks the API, then looks.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from app.net.tls import system_trust
from tests.browser.light import untroubled
from tests.cast import any_address
from tests.deployment import Command, Forked
from tests.servers import free_port

ROOT = Path(__file__).parents[2]
AXE = ROOT / "console/node_modules/axe-core/axe.min.js"
# The first does what the others do without a window, in three quarters of the time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
REQUIRED = os.environ.get("REQUIRE_BROWSER") == "1"
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # There is nobody but this machine: what is asked of others fails, by which Watch knows of it.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)
DESK: ViewportSize = {"width": 1280, "height": 720}  # as pages begin
PHONE: ViewportSize = {"width": 390, "height": 844}
PATIENCE_SECONDS = 60.0  # for what the service does; a machine may be slow


def hasty(times: int = 5) -> str:
    """The script of a page that looks again sooner, and sooner takes a text for typed, for its
    pauses are made for people; unless it is PATIENT."""
    return f"""const every = setInterval.bind(window), later = setTimeout.bind(window)
        const pace = () => window.isPatient ? 1 : {times}
        const isRest = pause => pause >= 200 && pause < 1000 // after the last key
        window.setInterval = (work, pause, ...rest) => every(work, pause / pace(), ...rest)
        window.setTimeout = (work, pause = 0, ...rest) =>
            later(work, isRest(pause) ? pause / pace() : pause, ...rest)"""


PATIENT = "window.isPatient = true"
HASTY = "window.isPatient = false"


# The screen is there, with all that it reads, and still is when its effects have run. It looks when
# something has changed: whoever asks with each frame has the browser draw every one of them.
READY = """() => new Promise((ready, late) => {
    // Not of the whole page's text: of a long list, which comes in parts, that takes its time.
    const isLoading = () => [...document.querySelectorAll('[role=status]')]
        .some(one => one.textContent.includes('Loading…'))
    const isThere = () => document.querySelector('h1:not([data-left])') !== null && !isLoading()
    const settle = () => {
        if (!isThere()) return
        looking.disconnect()
        ready()
    }
    const look = () => { if (isThere()) requestAnimationFrame(() => setTimeout(settle)) }
    const looking = new MutationObserver(look)
    looking.observe(document, { childList: true, subtree: true, characterData: true })
    look()
    setTimeout(() => late(new Error('the screen is still loading')), 30_000)
})"""
# Nothing of the screen that is left is taken for the next one.
WENT = """path => {
    document.querySelector('h1')?.setAttribute('data-left', '')
    history.pushState(null, '', path)
    dispatchEvent(new PopStateEvent('popstate'))
}"""
# The screen before has gone, and writes nothing down any more.
SHOWN = """async () => {
    for (let turn = 0; turn < 5_000 && !document.querySelector('h1:not([data-left])'); turn++)
        await new Promise(later => setTimeout(later))
}"""
GONE = f"""async paths => {{
    for (const [place, path] of paths.entries()) {{
        if (place > 0) await ({SHOWN})();
        ({WENT})(path);
    }}
    await ({READY})();
}}"""
NOTHING = "/console/nothing"
LEFT = f"""async () => {{
    ({WENT})('{NOTHING}');
    await ({SHOWN})();
    sessionStorage.clear();
}}"""

PASSWORD = "correct horse battery"

# Of each colour that the code editor has.
CODE = """<p style="color: #333">{{contact.firstName}}</p>
<!-- {% if trigger.vip %}thanks{% endif %} &amp; bye -->
"""
# Names, subjects, tags, keys and bodies as somebody would send who wants a script to run.
HOSTILE = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>"


def missing() -> str:
    """Explain what these tests lack, in a sentence; "" for nothing."""
    if CHROMIUM is None:
        return "There is no Chromium here: apt-get install chromium-headless-shell."
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.timeout(240))
        item.add_marker(pytest.mark.filterwarnings("default::ResourceWarning"))
        if missing() and not REQUIRED:
            item.add_marker(pytest.mark.skip(missing()))


@pytest.fixture(scope="session")
def built() -> None:
    """The console, built from the sources as they are."""
    if missing():
        pytest.fail(missing())
    build = [sys.executable, str(ROOT / "console/build.py"), "--if-stale"]
    with Path(tempfile.gettempdir(), "tidings-console.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes of tests, one build
        subprocess.run(build, check=True, timeout=600)
    if not AXE.exists() or not (ROOT / "app/web/dist/index.html").exists():
        sentence = "The console cannot be built here; `make console` says why."
        pytest.fail(sentence) if REQUIRED else pytest.skip(sentence)


@dataclass(frozen=True, slots=True)
class Service:
    """`python -m app run`, and what it printed."""

    url: str
    link: str  # to the console
    hook: str
    signature: str
    event: str
    api: httpx2.Client
    directory: Path
    others: list[httpx2.Client] = field(default_factory=list)  # closed with it

    def command(self, *arguments: str) -> None:
        """`python -m app` beside it, as its operator would."""
        environ = environment(self.directory)
        code, _, errors = Command(*arguments, environ=environ, directory=self.directory).ended()
        assert code == 0, errors

    def send(self, body: str | None = None, **headers: str) -> dict[str, Any]:
        """The demo's event, signed, and its answer."""
        sent = {"Content-Type": "application/json", "X-Service-Signature": self.signature}
        response = self.api.post(self.hook, content=body or self.event, headers={**sent, **headers})
        answer: dict[str, Any] = response.json()
        return answer

    def read(self, path: str) -> Any:
        response = self.api.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    def made(self, path: str, body: Any) -> dict[str, Any]:
        response = self.api.post(path, json=body)
        assert response.status_code in (200, 201, 202), response.text
        made: dict[str, Any] = response.json()
        return made

    def joined(self, role: str) -> str:
        """The address of a new member of the demo's workspace, whose password is PASSWORD."""
        email = f"{role}-{secrets.token_hex(4)}@example.com"
        self.made("/memberships/invitations", {"email": email, "role": role})
        self.accepted(self.letter("invitation", email), role.title())
        return email

    def accepted(self, link: str, name: str) -> None:
        """Accept an invitation as its addressee, whose account this makes if there is none."""
        token = link.rpartition("token=")[2]
        answer = httpx2.post(
            f"{self.url}/memberships/invitations/accept",
            json={"token": token, "name": name, "password": PASSWORD},
            headers={"X-Forwarded-For": any_address()},
            verify=system_trust(),
        )
        assert answer.status_code in (200, 201), answer.text

    def registered(self, name: str, workspace: str) -> tuple[str, str]:
        """Somebody new with a workspace of their own: their address, and their bearer."""
        email = f"{secrets.token_hex(6)}@example.com"
        account = {"name": name, "email": email, "password": PASSWORD, "workspaceName": workspace}
        headers = {"X-Forwarded-For": any_address()}
        answer = httpx2.post(
            f"{self.url}/auth/register", json=account, headers=headers, verify=system_trust()
        )
        assert answer.status_code == 201, answer.text
        return email, answer.json()["accessToken"]

    def acting(self, bearer: str) -> Service:
        """The same service, for who has this bearer."""
        api = httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {bearer}"},
            timeout=30,
            verify=system_trust(),
        )
        self.others.append(api)
        return replace(self, api=api)

    def till(self, plan: str) -> str:
        """The address of the page on which this plan is paid for."""
        back = f"{self.url}/console/settings/plan"
        asked = {"plan": plan, "successUrl": back, "cancelUrl": back}
        return str(self.made("/billing/checkout", asked)["checkoutUrl"])

    def pays(self, plan: str) -> None:
        assert self.api.post(f"{self.till(plan)}/complete").status_code == 303
        self.until(lambda: self.read("/billing/plan")["plan"] == plan)

    def letter(self, kind: str, to: str) -> str:
        """The link in the newest letter of this kind to this address."""

        def links() -> list[str]:
            mails = self.read(f"/sandbox/messages?to={to}")["data"]
            pattern = rf"http\S+/account#{kind}&token=[\w.~-]+"
            return [link for mail in mails for link in re.findall(pattern, mail["text"] or "")]

        return str(self.until(links)[0])

    def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until `holds` answers something true, and return it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := holds()):
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.1)
        return found


@pytest.fixture(scope="session")
def service(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("console")) as service:
        yield service


@contextmanager
def running(directory: Path, **more: str) -> Iterator[Service]:
    """A service of its own, with these settings more, until the block ends."""
    process, output = started(directory, free_port(), **more)
    try:
        service = serving(process, output)
        yield service
        for client in (service.api, *service.others):
            client.close()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def environment(directory: Path) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "DATABASE_URL": f"sqlite:///{directory}/tidings.db",
        "LOG_LEVEL": "warning",
    }


def started(directory: Path, port: int, **more: str) -> tuple[Forked, Path]:
    """The service on this directory's database, and the file that it prints to."""
    environ = {**environment(directory), "PORT": str(port), "TRUSTED_HOPS": "1", **more}
    output = directory / f"output-{time.monotonic_ns()}.txt"
    return Forked(["run"], environ, directory, output, program=untroubled), output


def serving(process: Forked, output: Path) -> Service:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "Stop with" not in (text := output.read_text()):
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.1)
    link = re.findall(r"\S+#sign-in=\S+", text)[0]
    key, url = re.findall(r"(td_test_\w+)", text)[0], link.partition("/console")[0]
    api = httpx2.Client(
        base_url=url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=30,
        verify=system_trust(),
    )
    expect.set_options(timeout=30_000)
    return Service(
        url,
        link,
        re.findall(r"http\S+/v1/webhooks/in/\w+", text)[0],
        re.findall(r"X-Service-Signature: (\S+)'", text)[0],
        re.findall(r"--data-binary '(.*?)'\n", text, re.DOTALL)[0],
        api,
        output.parent,
    )


# --- the browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def chromium(built: None) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # It draws in software, for which a process of its own would only lengthen the way.
        arguments = [*QUIET, "--in-process-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@dataclass
class Watch:
    """Watch for what no page may do: messages of the browser, and requests to others."""

    own: str
    found: list[str] = field(default_factory=list)
    expected: str = "?"  # a refusal that the test itself brings about

    def on(self, page: Page) -> None:
        page.on("console", self._message)
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        # To be told of each request takes a tenth of what the load of a page does.
        page.on("requestfailed", self.asked)

    def _message(self, message: ConsoleMessage) -> None:
        """Ignore that a script in a mail was blocked, which is what the frame is for."""
        preview = f"{self.own}/preview"
        if message.location["url"].startswith(preview) or f"in '{preview}" in message.text:
            return
        if self.expected not in message.text or not message.text.startswith("Failed to load"):
            self.found.append(f"console: {message.text} {message.location['url']}")

    def _dialog(self, dialog: Any) -> None:
        self.found.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.own}/", "data:", "blob:", "about:")):
            self.found.append(f"request: {request.url}")


@pytest.fixture(scope="session")
def watching(service: Service) -> Watch:
    return Watch(service.url)


@pytest.fixture
def watch(watching: Watch) -> Iterator[Watch]:
    """The watch over the owner's tab, and what else this test lets it look at. What a tab says
    after the test that it was lent to is found by the next one."""
    watching.expected = Watch.expected
    yield watching
    found, watching.found = watching.found, []
    assert found == []


@pytest.fixture(scope="session")
def owner(chromium: Browser, service: Service) -> Iterator[BrowserContext]:
    """The browser of the demo's owner, signed in by the link that was printed."""
    context = chromium.new_context()
    context.add_init_script(hasty())
    page = context.new_page()
    page.goto(service.link)
    page.get_by_role("heading", level=1, name="Demo").wait_for()
    assert "sign-in" not in page.url  # the token is in no history
    page.close()
    yield context
    context.close()


def renewed(context: BrowserContext, service: Service) -> str:
    """The bearer of who is signed in in this browser, whose session this renews as a page does."""
    headers = {"Origin": service.url, "X-Forwarded-For": any_address()}
    answer = context.request.post(
        f"{service.url}/auth/refresh", headers=headers, data={"session": "cookie"}
    )
    return str(answer.json()["accessToken"])


@pytest.fixture(scope="session")
def tabs() -> list[Page]:
    """The owner's tab, once there is one."""
    return []


@pytest.fixture
def page(
    request: pytest.FixtureRequest, owner: BrowserContext, watch: Watch, tabs: list[Page]
) -> Iterator[Page]:
    """The owner's tab, which stays open as that of somebody at work does; a test finds it as a new
    one is, but for the scripts that are there already."""
    if not tabs:
        tabs.append(watched(owner, watch))
    with lent(request, watch, tabs, left, Page.close) as page:
        yield page


@pytest.fixture(scope="module")
def tour(owner: BrowserContext, service: Service) -> Iterator[tuple[Page, Watch]]:
    """One page for all screens, which goes from one to the next as a click does. While one is
    looked at and walked through, nothing is drawn anew more often than for people."""
    watch = Watch(service.url)
    page = watched(owner, watch)
    page.add_init_script(PATIENT)
    opened(page, service, "/")
    yield page, watch
    page.close()


@contextmanager
def lent(
    request: pytest.FixtureRequest,
    watch: Watch,
    tabs: list[Page],
    cleared: Callable[[Page, str], None],
    closed: Callable[[Page], None],
) -> Iterator[Page]:
    """The tab of these, cleared for the next test. What a failed test leaves is closed."""
    failed = request.session.testsfailed
    yield tabs[0]
    if request.session.testsfailed == failed and watch.found == []:
        cleared(tabs[0], watch.own)
    else:
        closed(tabs.pop())


@pytest.fixture
def another_tab(owner: BrowserContext, watch: Watch) -> Iterator[Page]:
    """One of the owner's for this test alone, which changes what its page begins with."""
    page = watched(owner, watch)
    yield page
    page.close()


@pytest.fixture(scope="session")
def strangers() -> list[Page]:
    """The tab of the others, once there is one."""
    return []


@pytest.fixture
def stranger(
    request: pytest.FixtureRequest, chromium: Browser, watch: Watch, strangers: list[Page]
) -> Iterator[Page]:
    """A tab of another browser, in which nobody is signed in: of who was, it has kept nothing but
    the scripts. It is at an address of its own, for there are ten tries a minute for each."""
    if not strangers:
        strangers.append(watched(chromium.new_context(), watch))
    page, headers = strangers[0], {"X-Forwarded-For": any_address()}
    page.context.set_extra_http_headers(headers)
    page.set_extra_http_headers(headers)
    with lent(request, watch, strangers, forgotten, lambda page: page.context.close()) as page:
        yield page


def watched(context: BrowserContext, watch: Watch) -> Page:
    """A tab more."""
    page = context.new_page()
    watch.on(page)
    return page


def forgotten(page: Page, url: str) -> None:
    """Forget all that this browser has stored, of which this tab is left."""
    context = page.context
    for other in context.pages:
        if other != page:
            other.close()
    context.unroute_all(behavior="ignoreErrors")
    as_new(page)
    page.goto(f"{url}/readyz")  # where no script keeps anything
    page.evaluate("sessionStorage.clear(), localStorage.clear()")
    context.clear_cookies()


def as_new(page: Page) -> None:
    """Give the page nothing in the way of its requests, light on a desk."""
    page.unroute_all(behavior="ignoreErrors")
    if page.viewport_size != DESK:
        page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light")


def left(page: Page, url: str) -> None:
    """Leave the page on no screen, with nothing typed."""
    as_new(page)
    if page.url.startswith(f"{url}/console"):
        page.evaluate(LEFT)
    elif page.url.startswith(url):
        page.evaluate("sessionStorage.clear()")


def signed_in(page: Page, service: Service, email: str, path: str = "/") -> None:
    """Sign in, on this screen, by a cookie that the API gave to the browser. The form is filled in
    where that is looked at, as in test_doors, and to fill it in takes two thirds more."""
    headers = {"X-Forwarded-For": any_address()}
    page.set_extra_http_headers(headers)
    answer = page.context.request.post(
        f"{service.url}/auth/token",
        headers={**headers, "Origin": service.url},
        data={"email": email, "password": PASSWORD, "session": "cookie"},
    )
    assert answer.ok, answer.text()
    loaded(page, service, path)


def signed_in_by_form(page: Page, service: Service, email: str) -> None:
    """The same as people do, who are asked for the workspace where this browser was last."""
    page.set_extra_http_headers({"X-Forwarded-For": any_address()})
    page.goto(f"{service.url}/console/sign-in")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Home").wait_for()
    ready(page)


def opened(page: Page, service: Service, path: str) -> None:
    """The screen at this path, with all that it reads; where the console is open, as by a link."""
    if page.url.startswith(f"{service.url}/console"):
        went(page, path)
    else:
        loaded(page, service, path)


def loaded(page: Page, service: Service, path: str) -> None:
    """The same, as whoever types the address or reloads the page gets it."""
    page.goto(f"{service.url}/console{path}")
    ready(page)


def went(page: Page, path: str) -> None:
    """Go to this path as by a link. To another query of a screen, through a page without anything,
    for it would stay the same screen."""
    is_same = urlsplit(page.url).path == f"/console{path}".partition("?")[0]
    page.evaluate(GONE, [*[NOTHING] * is_same, f"/console{path}"])


def ready(page: Page) -> None:
    page.evaluate(READY)


def switched(page: Page, workspace: str) -> None:
    """Switch to another of their workspaces, by its name below the one that is open."""
    page.locator(".account summary").click()
    page.locator(".account").get_by_role("button", name=workspace, exact=True).click()


def paged(page: Page, limit: int, rows: int) -> None:
    """Make pages of so many rows where this page asks the API with this limit. To turn a page, few
    are enough."""
    asked = re.compile(rf"([?&]limit=){limit}\b")
    shorter = rf"\g<1>{rows}"
    page.route(asked, lambda route: route.continue_(url=asked.sub(shorter, route.request.url)))


# --- what tests look at ---------------------------------------------------------------------------


@pytest.fixture(scope="session")
def ids(service: Service) -> dict[str, str]:
    """A workspace in which everything that people can write is hostile."""
    template = service.made(
        "/templates",
        {
            "name": HOSTILE,
            "channel": "email",
            "content": {"subject": "{{trigger.data.name}}", "html": f"<h1>Hi</h1>{CODE}{HOSTILE}"},
        },
    )
    flow = service.made(
        "/workflows",
        {
            "name": HOSTILE,
            "state": "ACTIVE",
            "trigger": {
                "source": "inbound_webhook",
                "contactLookup": "email",
                "contactPath": "data.email",
                "createContact": True,
                "contactDefaults": {"firstName": "{{trigger.data.name}}", "tags": [HOSTILE[:40]]},
            },
            "steps": [
                {
                    "type": "branch",
                    "cases": [
                        {
                            "when": {"path": "trigger.data.name", "op": "eq", "value": HOSTILE},
                            "steps": [{"type": "add_tag", "tag": "hostile"}],
                        }
                    ],
                },
                {"type": "send_message", "channel": "email", "templateId": template["id"]},
            ],
        },
    )
    hook = flow["trigger"]["webhookUrl"]
    event = {"data": {"email": "mallory@example.com", "name": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}}}
    headers = {"Content-Type": "application/json", "User-Agent": HOSTILE}
    accepted = service.api.post(hook, content=json.dumps(event), headers=headers).json()
    refused = service.api.post(hook, content=json.dumps({HOSTILE: HOSTILE}), headers=headers)
    assert refused.status_code == 422
    service.made("/event-endpoints", {"url": "https://example.com/h", "description": HOSTILE})
    run = service.until(lambda: finished(service, accepted["runId"]))
    asked = f"/workflows/{flow['id']}/webhook-requests?outcome=REFUSED"
    requests = service.until(lambda: service.read(asked)["data"])  # written after its answer
    node = {"id": HOSTILE[:60], "type": "add_tag", "data": {"tag": HOSTILE}}
    drawn = service.made("/automations", {"name": HOSTILE, "graph": {"nodes": [node]}})
    named = {"name": HOSTILE[:60], "properties": {HOSTILE: HOSTILE}}
    service.made("/suppressions", {"channel": "email", "address": "no-more@hostile.example"})
    event = service.made(f"/contacts/{run['contactId']}/events", named)
    filter = {"path": "contact.tags", "op": "contains", "value": HOSTILE[:40]}
    segment = service.made("/segments", {"name": HOSTILE, "filter": filter})
    channels = {"name": HOSTILE, "description": HOSTILE, "channels": ["email"]}
    service.made("/topics", channels)
    audience = {"tag": HOSTILE[:40], "templateId": template["id"]}
    broadcast = service.made("/broadcasts", {"name": HOSTILE, **audience})
    sent = service.made("/broadcasts", {"name": HOSTILE, **audience})["id"]
    service.made(f"/broadcasts/{sent}/schedule", None)
    service.until(lambda: service.read(f"/broadcasts/{sent}")["state"] == "SENT")
    given = {"trigger": {HOSTILE: HOSTILE}, "startAt": "2026-03-02T10:00:00Z"}
    case = {"given": given, "expect": {"steps": [{"nodeId": HOSTILE}]}}
    kept = service.api.put(f"/workflows/{flow['id']}/cases/Hostile", json=case)
    assert kept.status_code in (200, 201), kept.text
    service.made("/settings/api-keys", {"name": HOSTILE, "role": "viewer"})
    return {
        "broadcast": broadcast["id"],
        "sent": sent,
        "segment": segment["id"],
        "event": event["id"],
        "drawn": drawn["id"],
        "run": run["id"],
        "contact": run["contactId"],
        "message": run["steps"][-1]["message"]["id"],
        "flow": flow["id"],
        "request": requests[0]["id"],
        "template": template["id"],
    }


def finished(service: Service, run_id: str) -> Any:
    run = service.read(f"/runs/{run_id}")
    return run if run["finishedAt"] else None
