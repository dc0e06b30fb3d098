"""Section D of the defects: what the surface says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import httpx2

from lab.attacks.lines import Seen, Skipped, line
from lab.attacks.staging import (
    Stage,
    codes,
    event,
    log_of,
    posted,
    raw,
    read,
    run_of,
    unique,
    words_of,
    workflow,
)
from lab.attacks.surroundings import small_disk
from tests import servers
from tests.deployment import Command, made

RUN_STATUSES = ("QUEUED", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED")
CSV = {"Content-Type": "text/csv"}


@line("D1", "GET /admin/runs without a query: 422 'say which: FAILED'")
def operators_list_without_a_query(at: Stage) -> Seen:
    root = at.someone()
    email = root.headers["X-Email"]
    environ, directory = at.service.environ, at.service.directory
    words = ("grant-super-admin", email, "--unverified")
    granted = Command(*words, environ=environ, directory=directory).ended()
    assert granted[0] == 0, granted
    paths = ["/admin/runs", "/admin/delivery-attempts"]
    paths += [f"/admin/runs?status={status}" for status in RUN_STATUSES]
    statuses = ("QUEUED", "SENT", "FAILED", "BOUNCED", "UNKNOWN", "SUPPRESSED", "DELIVERED")
    paths += [f"/admin/delivery-attempts?status={status}" for status in statuses]
    answers = {path: root.get(path) for path in paths}
    wrong = {
        path: words_of(answer) for path, answer in answers.items() if answer.status_code != 200
    }
    slowest = max(answer.elapsed.total_seconds() for answer in answers.values())
    seen = f"{len(paths)} lists, {wrong or 'all 200'}, the slowest {slowest:.2f} s"
    return seen, not wrong and slowest < 1


@line("D2", "single sign-on not configured: a bare 404")
def single_sign_on_says_what_is_missing(at: Stage) -> Seen:
    login = at.stranger().get("/auth/oidc/login")
    domain = at.someone().put("/settings/sign-in-domains/people.test", json={"role": "viewer"})
    seen = f"login: {words_of(login)}; a workspace claims its domain: {domain.status_code}"
    seen += " (the page to land on is another issue's)"
    return seen, "OIDC" in login.text and domain.status_code in (200, 201)


FORM = (
    b"--x\r\nContent-Disposition: form-data; name=file; filename=contacts.csv\r\n\r\n%s"
    b"\r\n--x--\r\n"
)
SHEET = "E-Mail Address;Plan\nada@sheet.test;pro\n"


@line("D3", "files of other tools: unknown columns fail, multipart 415, no mapping")
def files_of_other_tools_are_read(at: Stage) -> Seen:
    client, mapped = at.someone(), "?columns[E-Mail%20Address]=email&unknown="
    refused = client.post("/contacts/import", content=SHEET, headers=CSV)
    ways = {
        "metadata": ("metadata", SHEET.encode(), CSV),
        "skip": ("skip", SHEET.replace(";", ",").encode(), CSV),
        "UTF-16": ("skip", SHEET.encode("utf-16"), CSV),
        "form": (
            "skip",
            FORM % SHEET.encode(),
            {"Content-Type": "multipart/form-data; boundary=x"},
        ),
    }
    totals = {}
    for name, (unknown, body, headers) in ways.items():
        url = f"/contacts/import{mapped}{unknown}"
        answer = client.post(url, content=body, headers=headers)
        totals[name] = (answer.json() if answer.status_code == 200 else {}).get(
            "failed", words_of(answer)
        )
    [ada] = read(client, "/contacts?email=ada@sheet.test")["data"]
    seen = f"refused: {words_of(refused)[:90]}…; rows that failed: {totals}; {ada['metadata']}"
    lists = "firstName" in refused.text and refused.status_code == 422
    return seen, lists and set(totals.values()) == {0} and ada["metadata"] == {"Plan": "pro"}


@line("D4", "short_secret is forgotten for 12–15 characters at re-activation")
def a_short_secret_is_always_warned_of(at: Stage) -> Seen:
    client, warned = at.someone(), {}
    for length in (1, 11, 12, 15, 16):
        made_ = workflow(client, [], signingSecret="s" * length)
        path = f"/workflows/{made_['id']}"
        client.patch(path, json={"state": "PAUSED"}).raise_for_status()  # which is not judged
        again = client.patch(path, json={"state": "ACTIVE"}).json()
        warned[length] = ["short_secret" in codes(one) for one in (made_, again)]
    holds = all(set(each) == {length < 16} for length, each in warned.items())
    return f"saved, active again: {warned}", holds


@line("D5", "trigger fields on the graph's trigger node: 422 it has no fields")
def the_trigger_may_stand_on_its_node(at: Stage) -> Seen:
    client = at.someone()
    trigger = {
        "source": "inbound_webhook",
        "contactLookup": "email",
        "contactPath": "email",
        "createContact": True,
    }
    place = {"x": 0, "y": 0}
    graph = {
        "nodes": [
            {"id": "start", "type": "trigger", "position": place, "data": trigger},
            {"id": "end", "type": "exit", "position": place, "data": {}},
        ],
        "edges": [{"id": "e1", "source": "start", "target": "end"}],
    }
    drawn = client.post("/automations", json={"name": "D", "state": "ACTIVE", "graph": graph})
    assert drawn.status_code == 201, drawn.text
    status = event(client, drawn.json()).status_code
    path = f"/automations/{drawn.json()['id']}"
    read = client.get(path)
    same = client.patch(path, json=read.json(), headers={"If-Match": read.headers["ETag"]})
    is_same = same.status_code == 200 and same.json()["updatedAt"] == read.json()["updatedAt"]
    seen = f"201; an event {status}; GET → PATCH unchanged {same.status_code}, same: {is_same}"
    return seen, status == 202 and is_same


@line("D6", "http://localhost in a call: refused without naming EGRESS_ALLOW, and no finding")
def a_private_address_is_told(at: Stage) -> Seen:
    client = at.someone()
    step = {"type": "http_request", "method": "GET", "url": "http://localhost:1/", "failed": []}
    definition = workflow(client, [step])
    [reason] = [one["reason"] for one in run_of(client, definition)["steps"] if one["reason"]]
    seen = f"{codes(definition)}; {reason['code']}: {reason['detail']}"
    return seen, "private_address" in codes(definition) and "EGRESS_ALLOW" in seen


@line("D7", "a key without Bearer, an unknown field or path, page=2: nothing that helps")
def what_was_meant_is_asked(at: Stage) -> Seen:
    client = at.someone()
    key = made(client, "/settings/api-keys", {"name": "k", "role": "owner"})["key"]
    bare = at.stranger().get("/contacts", headers={"Authorization": key})
    answers = {
        "without Bearer": bare,
        "first_name": client.post("/contacts", json={"first_name": "Ada"}),
        "/contact": client.get("/contact"),
        "page=2": client.get("/contacts?page=2"),
    }
    wanted = ("without Bearer", "firstName", "/contacts", "cursor")
    holds = all(word in one.text for word, one in zip(wanted, answers.values(), strict=True))
    return "; ".join(f"{name}: {words_of(one)}" for name, one in answers.items()), holds


@line("D8", "audit of an upgrade: canceled → active; 1.5 'must be a string'; 'Ask for a new one'")
def words_are_true(at: Stage) -> Seen:
    with at.booted(ENVIRONMENT="sandbox", DEFAULT_PLAN="") as it:
        buyer = at.someone(it)
        urls = dict.fromkeys(("successUrl", "cancelUrl"), "https://acme.test/")
        till = made(buyer, "/billing/checkout", {"plan": "growth", **urls})["checkoutUrl"]
        assert buyer.post(f"{till}/complete").status_code == 303
        changes = read(buyer, "/audit-logs?action=plan.changed")["data"][0]["changes"]
    client = at.someone()
    by_id = workflow(client, [], contactLookup="contact_id", createContact=False)
    number = event(client, by_id, {"contact_id": 1.5})
    reset = at.stranger().post(
        "/auth/password/reset", json={"token": "x", "password": "correct horse battery 2"}
    )
    seen = f"{changes}; 1.5: {words_of(number)}; a reset: {words_of(reset)}"
    holds = changes == {"plan": ["starter", "growth"]} and "or a whole number" in number.text
    return seen, holds and "/auth/password/forgot" in reset.text


@line("D9", "full disk: 'did not answer in time', /readyz 200, no log line says disk")
def a_full_disk_is_told(at: Stage) -> Seen:
    with small_disk(at) as url, at.booted(url, DEFAULT_PLAN="enterprise") as it:
        client = at.someone(it)
        refused = next((one for one in _filling(client) if one.status_code != 201), None)
        ready = client.get("/readyz")
        logged = [one for one in log_of(it) if "disk is full" in str(one.get("event"))]
    levels = {one["level"] for one in logged}
    seen = f"POST: {words_of(refused) if refused else 'never full'}; /readyz: {words_of(ready)};"
    holds = refused is not None and refused.status_code == 503 and "disk" in refused.text
    return f"{seen} log {sorted(levels)}, {len(logged)} lines", (
        holds and ready.status_code == 503 and levels == {"error"}
    )


def _filling(client: httpx2.Client) -> Iterator[httpx2.Response]:
    """Contacts, one by one, once a file of them did not fit any more."""
    while True:
        rows = "".join(f"{unique()}@full.test,{'y' * 480},{'z' * 480}\n" for _ in range(2_000))
        sheet = "email,metadata.a,metadata.b\n" + rows
        answer = client.post("/contacts/import", content=sheet, headers=CSV)
        if answer.status_code != 200 or '"problem"' in answer.text:
            break
    for _ in range(500):
        metadata = {f"f{number}": "y" * 480 for number in range(20)}
        body = {"email": f"{unique()}@full.test", "metadata": metadata}
        yield client.post("/contacts", json=body)


@line("D10", "Redis down: a warning twice a second for ever")
def a_lost_redis_is_told_once_a_minute(at: Stage) -> Seen:
    if at.shape == "embedded":
        raise Skipped("there is no Redis in this shape")
    redis = servers.redis_server()
    redis.start()
    with at.booted(REDIS_URL=redis.url) as it:
        before = len(log_of(it))
        redis.stop()
        client = at.someone(it)
        definition, began = workflow(client, []), time.monotonic()
        statuses = Counter[int]()
        while time.monotonic() < began + 20:
            statuses[event(client, definition).status_code] += 1
            time.sleep(0.5)
        logged = [one for one in log_of(it)[before:] if one.get("level") in ("warning", "error")]
    redis.remove()
    lines = Counter(str(one["event"]) for one in logged)
    return f"20 s without Redis: {dict(lines)}; events {dict(statuses)}", (
        0 < len(logged) <= 2 * len(it.parts) and set(statuses) == {202}
    )


@line("D11", "get counts as GET; HTTP/1.0 with Transfer-Encoding is read; a byte order mark is 400")
def requests_are_read_as_the_standards_say(at: Stage) -> Seen:
    client, port = at.someone(), at.service.port
    path = workflow(client, [])["trigger"]["webhookUrl"].removeprefix(at.service.url)
    body = b'{"email": "ada@people.test"}'
    head = f"POST {path} HTTP/1.0\r\nHost: a.test\r\nContent-Type: application/json\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    statuses = {
        "get": raw(port, b"get /healthz HTTP/1.1\r\nHost: a.test\r\n\r\n")[9:12],
        "1.0 with Transfer-Encoding": raw(port, head.encode() + chunks)[9:12],
        "byte order mark": raw(port, posted(path, b"\xef\xbb\xbf" + body))[9:12],
    }
    shown = {name: status.decode() for name, status in statuses.items()}
    return str(shown), list(shown.values()) == ["501", "400", "202"]


@line("D12", "/ and /sandbox without main, no favicon; /docs 627 KB; the tour names port 8000")
def pages_are_whole(at: Stage) -> Seen:
    with at.booted(ENVIRONMENT="sandbox") as it:
        client = at.stranger(it)
        pages = {path: client.get(path) for path in ("/", "/sandbox", "/docs")}
    lacking = {path: _lacks(page) for path, page in pages.items()}
    packed = int(pages["/docs"].headers["Content-Length"]) // 1_024
    names_port = f":{it.port}" in pages["/"].text and ":8000" not in pages["/"].text
    seen = (
        f"lacking: {lacking}; /docs {packed} KB; / names the port that it listens on: {names_port}"
    )
    return f"{seen} (the inbox's links are another issue's)", (
        not any(lacking.values()) and packed < 314 and names_port
    )


def _lacks(page: httpx2.Response) -> list[str]:
    wanted = {"<main": "main", 'rel="icon"': "icon"}
    lacks = [name for text, name in wanted.items() if text not in page.text]
    return lacks + ([] if page.headers.get("Content-Encoding") else ["compression"])
