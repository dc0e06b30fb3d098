"""A directory of definitions and a workspace on a real server: pulled, compared, pushed."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.commands import definition_files
from app.commands.definition_files import KNOWN, FilesError, connected
from app.net.tls import system_trust
from tests import servers
from tests.cast import PASSWORD, any_address
from tests.deployment import Command, Part, answers, until

pytestmark = pytest.mark.drill

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SECRET = "a shared secret of good length"
BASE = {"SECRET_KEY": "a secret key that only the tests have", "LOG_LEVEL": "error"}
BEHIND_A_PROXY = {"TRUSTED_HOPS": "1"}


@dataclass(frozen=True, slots=True)
class Workspace:
    """One on the server, and a key of its owner."""

    url: str
    key: str

    def call(self, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx2.request(
            method, self.url + path, headers=headers, verify=system_trust(), **options
        )

    def list(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", f"{path}?limit=200").json()["data"]
        return sorted(found, key=lambda one: one["name"])

    def run(self, *words: str, **environ: str) -> tuple[int, Sequence[str], str]:
        """`python -m app …` as somebody types it; exit code, lines, errors."""
        known = {"TIDINGS_URL": self.url, "TIDINGS_API_KEY": self.key}
        code, out, err = Command(*words, environ={**BASE, **known, **environ}).ended()
        return code, out.splitlines(), err


@contextmanager
def served(database_url: str, directory: Path) -> Iterator[str]:
    """The address of a server that runs."""
    port = str(servers.free_port())
    environ = {
        **BASE,
        **BEHIND_A_PROXY,
        "DATABASE_URL": database_url,
        "PORT": port,
        "HOST": "127.0.0.1",
    }
    part = Part("run", environ, directory, forked=True)
    at = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(at + "/readyz"), "the server is ready", part, seconds=40)
        yield at
    finally:
        part.kill()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service's URL, on SQLite. What the routes do that a command asks,
    tests/routes/test_definition_files.py shows on both engines; here one way there and back
    does."""
    directory = tmp_path_factory.mktemp("served")
    with served(f"sqlite:///{directory}/tidings.db", directory) as at:
        yield at


@pytest.fixture
def url_on_postgresql(
    postgres_server: servers.PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    database_url = asyncio.run(servers.new_database(postgres_server.url, ""))
    with served(database_url, tmp_path_factory.mktemp("served")) as at:
        yield at


@pytest.fixture
def workspace(url: str) -> Workspace:
    return founded(url)


def founded(url: str) -> Workspace:
    """An empty one."""
    name = secrets.token_hex(6)
    body = {
        "workspaceName": name,
        "name": name,
        "email": f"{name}@tidings.example",
        "password": PASSWORD,
    }
    stranger = {"X-Forwarded-For": any_address()}  # of one address only a few may register
    registered = httpx2.post(
        f"{url}/auth/register", json=body, headers=stranger, verify=system_trust()
    )
    assert registered.status_code == 201, registered.text
    bearer = {"Authorization": f"Bearer {registered.json()['accessToken']}"}
    made = httpx2.post(
        f"{url}/settings/api-keys",
        json={"name": "CI", "role": "editor"},
        headers=bearer,
        verify=system_trust(),
    )
    assert made.status_code == 201, made.text
    return Workspace(url, made.json()["key"])


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    """The examples, in a directory of one's own."""
    folder = tmp_path / "flows"
    folder.mkdir()
    for path in EXAMPLES.glob("*.json"):
        shutil.copy(path, folder)
    return folder


def contents(folder: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.json") if path.name != KNOWN}


def state_of(workspace: Workspace) -> Any:
    """All that could have changed."""
    return [workspace.list(path) for path in ("/workflows", "/automations", "/templates")]


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["url", "url_on_postgresql"])
def test_the_examples_are_pushed_twice_and_come_back_as_they_were(
    request: pytest.FixtureRequest, server: str, flows: Path, tmp_path: Path
) -> None:
    workspace = founded(request.getfixturevalue(server))
    code, lines, errors = workspace.run("push", str(flows))
    assert (code, errors) == (0, "")
    assert lines[-1] == "12 files: 12 created, 0 updated, 0 unchanged."
    before = state_of(workspace)
    assert [len(one) for one in before[:2]] == [7, 5]

    code, lines, errors = workspace.run("push", str(flows))
    assert (code, errors) == (0, "")
    assert lines[-1] == "12 files: 0 created, 0 updated, 12 unchanged."
    assert state_of(workspace) == before

    code, lines, _ = workspace.run("pull", str(tmp_path / "pulled"))
    assert (code, lines[-1]) == (0, "12 definitions.")
    assert contents(tmp_path / "pulled") == contents(flows)
    assert workspace.run("diff", str(tmp_path / "pulled")) == (0, ["No differences."], "")
    code, lines, _ = workspace.run("pull", str(tmp_path / "pulled"))
    assert {line.partition(": ")[2] for line in lines[:-1]} == {"unchanged"}


def test_one_file_makes_a_flow_that_runs(workspace: Workspace, flows: Path) -> None:
    code, lines, _ = workspace.run("push", str(flows / "welcome-series.json"), "--activate")
    assert (code, lines[0]) == (0, "welcome-series.json: created, ACTIVE")
    [flow] = workspace.list("/workflows")
    hook = workspace.call("GET", f"/workflows/{flow['id']}").json()["trigger"]["webhookUrl"]
    event = json.loads((flows / "welcome-series.json").read_text())["input"]["trigger"]
    started = httpx2.post(hook, json=event, verify=system_trust())
    assert started.status_code == 202

    def sent() -> bool:
        run = workspace.call("GET", f"/runs/{started.json()['runId']}").json()
        return any(
            (step["nodeId"], step["status"]) == ("welcome", "COMPLETED") for step in run["steps"]
        )

    until(sent, "the welcome is sent")


def test_a_signed_flow_moves_to_another_workspace_without_its_secret(
    workspace: Workspace, url: str, tmp_path: Path
) -> None:
    """From a sandbox to production, say."""
    folder, production = tmp_path / "flows", founded(url)
    template = {"name": "Hi", "channel": "email", "content": {"subject": "Hi", "text": "Hi"}}
    made = workspace.call("POST", "/templates", json=template).json()
    step = {"id": "hi", "type": "send_message", "channel": "email", "templateId": made["id"]}
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "signingSecret": SECRET}
    flow = {"name": "Sign up", "state": "ACTIVE", "trigger": trigger, "steps": [step]}
    assert workspace.call("POST", "/workflows", json=flow).status_code == 201
    assert workspace.run("pull", str(folder))[0] == 0
    written = (folder / "sign-up.json").read_text()
    assert SECRET not in written
    assert made["id"] not in written

    code, lines, _ = production.run("push", str(folder), "--activate")
    assert code == 1
    assert lines[0] == "sign-up.json: created, DRAFT"
    assert lines[1].startswith("  secret_missing at /trigger/signingSecret: ")
    [moved] = production.list("/workflows")
    refused = production.call("PATCH", f"/workflows/{moved['id']}", json={"state": "ACTIVE"})
    assert refused.json()["findings"][0]["code"] == "secret_missing"
    code, lines, _ = production.run(
        "push", str(folder), "--activate", TIDINGS_SECRET_SIGN_UP=SECRET
    )
    assert (code, lines[0]) == (0, "sign-up.json: updated, ACTIVE")
    shown = production.call("GET", f"/workflows/{moved['id']}").json()
    assert shown["trigger"]["signingSecretSet"]
    unsigned = httpx2.post(
        shown["trigger"]["webhookUrl"], json={"email": "ada@example.com"}, verify=system_trust()
    )
    assert unsigned.status_code == 401
    code, lines, _ = production.run("push", str(folder), TIDINGS_SECRET_SIGN_UP=SECRET)
    assert lines[-1] == "1 files: 0 created, 0 updated, 1 unchanged."


# --- what others changed --------------------------------------------------------------------------


def test_what_was_changed_there_since_is_not_overwritten(workspace: Workspace, flows: Path) -> None:
    workspace.run("push", str(flows))
    [flow] = [one for one in workspace.list("/workflows") if one["name"] == "Welcome series"]
    patch = {"trigger": {"createContact": False}}
    assert workspace.call("PATCH", f"/workflows/{flow['id']}", json=patch).status_code == 200
    mine = flows / "order-updates.json"
    mine.write_text(mine.read_text().replace('"Order updates"', '"All order updates"'))
    before = state_of(workspace)
    code, lines, errors = workspace.run("push", str(flows))
    assert (code, lines) == (1, [])
    assert "welcome-series.json: it was changed in the workspace since" in errors
    assert "Nothing was pushed." in errors
    assert state_of(workspace) == before

    code, lines, _ = workspace.run("diff", str(flows))
    assert code == 1
    assert "welcome-series.json: updated" in lines
    assert '+      "createContact": true,' in lines
    assert '-  "name": "Order updates",' in lines
    code, lines, _ = workspace.run("push", str(flows), "--force")
    assert (code, lines[-1]) == (0, "12 files: 0 created, 2 updated, 10 unchanged.")
    assert workspace.run("diff", str(flows))[0] == 0


def test_a_change_during_a_push_stops_it_at_the_file(workspace: Workspace, flows: Path) -> None:
    workspace.run("push", str(flows))
    for path in flows.glob("[!.]*.json"):
        file = json.loads(path.read_text())
        path.write_text(json.dumps({**file, "name": f"New {file['name']}"}))
    with connected(workspace.url, workspace.key) as server:
        pushing = definition_files.push(server, [flows])
        first = next(pushing).line
        # Somebody else, between two files of it: whichever is the last is theirs now.
        order = [file.key for file in definition_files.read_all([flows])]
        last = json.loads((EXAMPLES / f"{order[-1]}.json").read_text())
        [changed] = [
            f"{kind}/{one['id']}"
            for kind in ("/workflows", "/automations")
            for one in workspace.list(kind)
            if one["name"] == last["name"]
        ]
        theirs = {"name": "Theirs"}
        assert workspace.call("PATCH", changed, json=theirs).status_code == 200
        with pytest.raises(FilesError) as stopped:
            list(pushing)
    assert first == f"{order[0]}.json: updated, DRAFT"
    assert f"{order[-1]}.json: it was changed in the workspace meanwhile." in str(stopped.value)
    assert "nothing was changed; the 11 before it are pushed." in str(stopped.value)
    export = workspace.call("GET", f"{changed}/export").json()
    assert export == {**last, "key": order[-1], "name": "Theirs"}


# --- what belongs together ------------------------------------------------------------------------


def started(name: str, key: str | None = None, **more: Any) -> dict[str, Any]:
    """A file of a flow that starts another one, or none."""
    step: dict[str, Any] = {"id": "go", "type": "start_workflow", "workflowId": key, "data": {}}
    return {"name": name, "definition": {"steps": [step] if key else []}, **more}


def written(folder: Path, **files: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_new_flow_and_the_active_one_that_starts_it_are_pushed_together(
    workspace: Workspace, tmp_path: Path
) -> None:
    folder = written(tmp_path / "flows", caller=started("Caller"))
    assert workspace.run("push", str(folder), "--activate")[0] == 0
    written(folder, caller=started("Caller", "z-part"), **{"z-part": started("Part")})
    code, lines, errors = workspace.run("diff", str(folder))
    assert (code, errors) == (1, "")
    assert "z-part.json: created" in lines
    code, lines, errors = workspace.run("push", str(folder))
    assert (code, errors) == (0, "")
    assert lines == [
        "z-part.json: created, DRAFT",
        "caller.json: updated, ACTIVE",
        "2 files: 1 created, 1 updated, 0 unchanged.",
    ]
    part, caller = (workspace.list("/workflows")[place] for place in (1, 0))
    shown = workspace.call("GET", f"/workflows/{caller['id']}").json()
    assert shown["steps"][0]["workflowId"] == part["id"]


def test_flows_that_start_one_another_in_a_circle_are_refused_in_words(
    workspace: Workspace, tmp_path: Path
) -> None:
    folder = written(
        tmp_path / "flows", a=started("A", "b"), b=started("B", "c"), c=started("C", "a")
    )
    code, lines, errors = workspace.run("push", str(folder))
    assert (code, lines) == (1, [])
    assert "start one another in a circle" in errors
    assert all(f"{name}.json" in errors for name in "abc")
    assert state_of(workspace) == [[], [], []]


def test_what_was_pulled_can_be_pushed_whatever_it_is_called(
    workspace: Workspace, tmp_path: Path
) -> None:
    for text in ("One", "Two"):
        template = {"name": "Hi", "channel": "sms", "content": {"text": text}}
        made = workspace.call("POST", "/templates", json=template).json()
        step = {"id": "hi", "type": "send_message", "channel": "sms", "templateId": made["id"]}
        flow = {"name": "Greet", "steps": [step]}
        assert workspace.call("POST", "/workflows", json=flow).status_code == 201
    before = state_of(workspace)
    folder = tmp_path / "flows"
    code, lines, errors = workspace.run("pull", str(folder))
    assert (code, errors, len(contents(folder))) == (0, "", 2)
    code, lines, errors = workspace.run("push", str(folder))
    assert (code, errors) == (0, "")
    assert lines[-1] == "2 files: 0 created, 0 updated, 2 unchanged."
    assert state_of(workspace) == before


def test_a_file_with_a_key_of_its_own_is_pulled_where_it_is(
    workspace: Workspace, tmp_path: Path
) -> None:
    own = {"key": "welcome", **started("Welcome")}
    folder = written(tmp_path / "flows", other=started("Other"), **{"sign-up": own})
    assert workspace.run("push", str(folder))[0] == 0
    [_, flow] = workspace.list("/workflows")
    renamed = {"name": "Welcome to us"}
    assert workspace.call("PATCH", f"/workflows/{flow['id']}", json=renamed).status_code == 200
    (folder / "notes.json").write_text("[]")  # which is no definition
    code, lines, errors = workspace.run("pull", str(folder))
    assert (code, errors) == (0, "")
    assert {*lines} == {
        "sign-up.json: changed",
        "other.json: changed",  # by the members that it left out
        "notes.json: not in the workspace",
        "2 definitions.",
    }
    assert contents(folder).keys() == {"sign-up.json", "other.json", "notes.json"}
    pulled = json.loads((folder / "sign-up.json").read_text())
    assert (pulled["key"], pulled["name"]) == ("welcome", "Welcome to us")
    assert "key" not in json.loads((folder / "other.json").read_text())
    (folder / "notes.json").unlink()
    assert workspace.run("diff", str(folder)) == (0, ["No differences."], "")
    code, lines, _ = workspace.run("pull", str(folder))
    assert sorted(lines[:-1]) == ["other.json: unchanged", "sign-up.json: unchanged"]


def test_a_pull_overwrites_no_file_that_has_another_key(
    workspace: Workspace, tmp_path: Path
) -> None:
    assert workspace.call("POST", "/workflows", json={"name": "Welcome"}).status_code == 201
    folder = written(tmp_path / "flows", welcome={"key": "other", **started("Other")})
    before = contents(folder)
    code, lines, errors = workspace.run("pull", str(folder))
    assert (code, lines) == (1, [])
    assert "welcome.json: it has the key other; rename it and pull again." in errors
    assert contents(folder) == before


def test_what_was_pulled_and_starts_one_another_shows_no_difference(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Nothing came from a file, so no key is stored, and the case sees the start."""
    tag = {"id": "tag", "type": "add_tag", "tag": "won"}
    part = {"name": "Win back", "state": "ACTIVE", "steps": [tag]}
    made = workspace.call("POST", "/workflows", json=part).json()
    go = {"id": "go", "type": "start_workflow", "workflowId": made["id"], "data": {}}
    caller = {"name": "Caller", "state": "ACTIVE", "casesGate": True, "steps": [go]}
    calling = workspace.call("POST", "/workflows", json=caller).json()
    given = {"startAt": "2026-03-02T10:00:00Z", "contact": {"email": "ada@example.com"}}
    case = {"given": given, "expect": {"steps": [{"nodeId": "go", "status": "COMPLETED"}]}}
    kept = workspace.call("PUT", f"/workflows/{calling['id']}/cases/starts", json=case)
    assert kept.status_code == 201, kept.text
    before = state_of(workspace)
    folder = tmp_path / "flows"
    assert workspace.run("pull", str(folder))[0] == 0
    assert workspace.run("diff", str(folder)) == (0, ["No differences."], "")
    code, lines, errors = workspace.run("push", str(folder))
    assert (code, errors) == (0, "")
    assert lines[-1] == "2 files: 0 created, 0 updated, 2 unchanged."
    assert state_of(workspace) == before


def test_a_case_that_fails_is_shown_by_a_push(workspace: Workspace, flows: Path) -> None:
    path = flows / "welcome-series.json"
    file = json.loads(path.read_text())
    file["expected"]["end"]["status"] = "FAILED"
    path.write_text(json.dumps(file))
    code, lines, _ = workspace.run("push", str(path))
    assert (code, lines[0]) == (0, "welcome-series.json: created, DRAFT")
    assert lines[1].startswith("  case_failed at /cases/expected: ")


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", b"{", "a.json: "),
        ("a.json", b"[]", "a file is a JSON object with a definition"),
        ("a.json", b'{"definition": {}}', "/file/name"),
        ("A B.json", b'{"name": "x", "definition": {}}', "Rename the file, or give it a key"),
        (
            "a.json",
            b'{"name": "x", "definition": {"steps": [{"type": "sent"}]}}',
            "/file/definition/steps/0/type",
        ),
        (
            "a.json",
            b'{"key": "nps", "name": "x", "definition": {}}',
            "has the key nps too",
        ),
        ("a.json", b'{"name": "x", "definition": {}, "templates": ["t"]}', "by their keys"),
    ],
)
def test_a_file_that_cannot_be_pushed_is_named_and_holds_up_all(
    workspace: Workspace, flows: Path, name: str, content: bytes, expected: str
) -> None:
    (flows / name).write_bytes(content)
    code, lines, errors = workspace.run("push", str(flows))
    assert (code, lines) == (1, [])
    assert expected in errors
    assert ".json" in errors
    assert state_of(workspace) == [[], [], []]


def test_a_template_of_two_files_is_the_same_one(workspace: Workspace, flows: Path) -> None:
    file = json.loads((flows / "nps.json").read_text())
    file["templates"]["tpl_nps"]["category"] = "marketing"
    (flows / "other.json").write_text(json.dumps({**file, "name": "Other"}))
    code, _, errors = workspace.run("push", str(flows))
    assert code == 1
    assert "its template tpl_nps is another one in" in errors


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TIDINGS_API_KEY": ""}, "Give --url and --key"),
        ({"TIDINGS_URL": "ftp://acme.example"}, "must begin with https:// or http://"),
        ({"TIDINGS_URL": "http://127.0.0.1:9"}, "cannot be reached"),
        ({"TIDINGS_URL": "http://ada:canary@127.0.0.1:9"}, "must not contain a user or password"),
        ({"TIDINGS_URL": "ftp://ada:canary@127.0.0.1"}, "must begin with https:// or http://"),
        ({"TIDINGS_API_KEY": "td_test_nobody"}, "tidings: "),
    ],
)
def test_a_server_that_does_not_answer_is_told_in_a_sentence(
    workspace: Workspace, tmp_path: Path, environ: Mapping[str, str], expected: str
) -> None:
    code, lines, errors = workspace.run("pull", str(tmp_path / "flows"), **environ)
    assert (code, lines) == (1, [])
    assert expected in errors
    assert errors.count("\n") == 1
    assert workspace.key not in errors
    assert "canary" not in errors
    assert not list(tmp_path.rglob(KNOWN))


def test_what_is_in_the_way_of_a_pull_or_a_push_is_said_in_a_sentence(
    workspace: Workspace, flows: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    code, lines, errors = workspace.run("pull", str(tmp_path / "file" / "flows"))
    assert (code, lines) == (1, [])
    assert errors == f"tidings: {tmp_path / 'file' / 'flows'}: Not a directory.\n"
    for broken in ("[]", '{"x": 1}', "<<<<<<< ours"):
        (flows / KNOWN).write_text(broken)
        code, lines, errors = workspace.run("push", str(flows / "nps.json"))
        assert (code, errors) == (0, ""), broken


def test_a_template_of_two_files_is_changed_by_one_push(
    workspace: Workspace, tmp_path: Path
) -> None:
    """The first file changes it, which is no change by somebody else to the second."""

    def write(text: str) -> None:
        template = {"name": "Hi", "channel": "sms", "content": {"text": text}}
        step = {"id": "hi", "type": "send_message", "channel": "sms", "templateId": "hi"}
        for name in ("one", "two"):
            file = {"name": name, "definition": {"steps": [step]}, "templates": {"hi": template}}
            (tmp_path / f"{name}.json").write_text(json.dumps(file))

    write("v1")
    assert workspace.run("push", str(tmp_path))[0] == 0
    write("v2")
    code, lines, errors = workspace.run("push", str(tmp_path))
    assert (code, errors) == (0, "")
    assert [line.partition(",")[0] for line in lines[:2]] == [
        "one.json: updated",
        "two.json: unchanged",
    ]
    assert workspace.run("diff", str(tmp_path)) == (0, ["No differences."], "")
