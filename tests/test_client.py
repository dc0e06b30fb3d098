"""A client that is generated from the document drives the README's story with it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.process import Process
from app.web.edge import Edge
from clients import build
from tests import conformance
from tests.cast import Cast, settle, started

NAME = "tidings_client"
EXAMPLES = sorted((Path(__file__).parents[1] / "docs/examples").glob("*.json"))


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The client's code, generated as `make clients` does."""
    place = tmp_path_factory.mktemp("generated")
    (place / "openapi.json").write_text(json.dumps(conformance.document()))
    lacks = build.generate(place / "openapi.json", place / NAME)
    assert not lacks, lacks
    sys.path.insert(0, str(place))
    yield place / NAME
    sys.path.remove(str(place))


def module(name: str) -> Any:
    return import_module(f"{NAME}.{name}")


@pytest.fixture
async def application(process: Process) -> AsyncIterator[Edge]:
    async with started(process) as application:
        yield application


async def call(operation: str, through: Any, *path: str, **given: Any) -> Any:
    return await module(f"api.{operation}").asyncio(*path, client=through, **given)


@pytest.fixture
def client(process: Process, application: Edge, generated: Path) -> Callable[..., Any]:
    """A client of the generated code, for a bearer or for a stranger."""
    base_url = process.settings.base_url

    def client(bearer: str | None = None) -> Any:
        kinds = module("client")
        made = kinds.AuthenticatedClient(base_url, bearer) if bearer else kinds.Client(base_url)
        transport = httpx.ASGITransport(app=application, client=("192.0.2.44", 1))
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        return made.set_async_httpx_client(
            httpx.AsyncClient(transport=transport, base_url=base_url, headers=headers)
        )

    return client


async def test_the_readme_s_story(process: Process, client: Callable[..., Any]) -> None:
    models = module("models")
    registration = models.Registration(
        email="olivia@acme.test",
        password="correct horse battery",
        name="Olivia",
        workspace_name="Acme",
    )
    registered = await call("auth.register", client(), body=registration)
    new_key = models.NewKey(name="program", role=models.NewKeyRole.OWNER)
    key = await call("settings.create_api_key", client(registered.access_token), body=new_key)
    program = client(key.key)

    content = {"subject": "Welcome, {{contact.firstName}}", "html": "<p>{{trigger.data.plan}}</p>"}
    writable = {"name": "Welcome", "channel": "email", "content": content}
    template = await call(
        "templates.create_template", program, body=models.WritableTemplate.from_dict(writable)
    )
    assert template.variables == ["contact.firstName", "trigger.data.plan"]

    definition = {
        "name": "Welcome",
        "state": "ACTIVE",
        "trigger": {
            "source": "inbound_webhook",
            "contactLookup": "email",
            "contactPath": "data.email",
            "createContact": True,
            "contactDefaults": {"firstName": "{{trigger.data.name}}"},
        },
        "steps": [{"type": "send_message", "channel": "email", "templateId": template.id}],
    }
    workflow = await call(
        "workflows.create_workflow", program, body=models.WritableWorkflow.from_dict(definition)
    )
    token = workflow.trigger.webhook_url.rpartition("/")[2]

    event = {"data": {"email": "ada@example.com", "name": "Ada", "plan": "pro"}}
    accepted = await call(
        "webhooks.receive_webhook", client(), token, body=models.Event.from_dict(event)
    )
    await settle(process)

    run = await call("runs.get_run", program, accepted.run_id)
    assert (run.status, run.workflow_id) == ("COMPLETED", workflow.id)
    assert run.trigger == event
    contact = await call("contacts.get_contact", program, accepted.contact_id)
    assert (contact.email, contact.first_name) == ("ada@example.com", "Ada")
    attempts = await call("messages.list_delivery_attempts", program)
    [attempt] = [one for one in attempts.data if one.run_id == run.id]
    assert (attempt.status, attempt.to) == ("SENT", "ada@example.com")
    message = await call("messages.get_message", program, attempt.message_id)
    assert message.content["subject"] == "Welcome, Ada"

    unknown = await call("runs.get_run", program, "run_" + "0" * 26)
    assert (unknown.status, unknown.code) == (404, "not_found")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_generated_client_keeps_every_member_of_a_definition(generated: Path, path: Path) -> None:
    models, case = module("models"), json.loads(path.read_text())
    body = {"name": "x", **case["definition"]}
    model = models.WritableWorkflow if "steps" in body else models.WritableAutomation
    assert model.from_dict(json.loads(json.dumps(body))).to_dict() == body


async def test_a_program_that_repeats_pages_and_changes_what_it_has_read(
    cast: Cast, client: Callable[..., Any]
) -> None:
    models, program = module("models"), client(cast.ed.key)
    for number in range(5):
        given = models.WritableContact(email=f"ada{number}@example.com", tags=["lead"])
        key = {"idempotency_key": f"contact {number}"}
        first, again = [
            await call("contacts.create_contact", program, body=given, **key) for _ in range(2)
        ]
        assert (first.id, first.email) == (again.id, f"ada{number}@example.com")

    seen, page = [], None
    cursor: dict[str, str] = {}
    while page is None or page.next_cursor:
        page = await call("contacts.list_contacts", program, tag="lead", limit=2, **cursor)
        seen += [one.email for one in page.data]
        cursor = {"cursor": page.next_cursor}
    assert seen == [f"ada{number}@example.com" for number in reversed(range(5))]

    read = await module("api.contacts.get_contact").asyncio_detailed(first.id, client=program)
    tag = {"if_match": read.headers["etag"]}
    change = models.ContactPatch.from_dict({"firstName": "Ada", "metadata": {"plan": "pro"}})
    changed = await call("contacts.update_contact", program, first.id, body=change, **tag)
    assert (changed.first_name, changed.metadata.to_dict()) == ("Ada", {"plan": "pro"})
    stale = await call("contacts.update_contact", program, first.id, body=change, **tag)
    assert (stale.status, stale.code) == (412, "stale")
    wrong = models.ContactPatch.from_dict({"email": "nobody", "tags": [""]})
    refused = await call("contacts.update_contact", program, first.id, body=wrong)
    assert [error.pointer for error in refused.errors] == ["/email", "/tags/0"]
    gone = await module("api.contacts.delete_contact").asyncio_detailed(first.id, client=program)
    assert gone.status_code == 204
    unknown = await call("contacts.get_contact", program, first.id)
    assert (unknown.status, unknown.code) == (404, "not_found")
