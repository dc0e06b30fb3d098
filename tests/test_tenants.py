"""A workspace sees itself alone: every route, by every id that it takes, as every role and rival.

What is asked comes from the route table, so that a later route is asked too: the ids in its path,
its query and its body are known by their models. Who adds a kind of id adds how one is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import httpx2
import pytest
from pydantic import BaseModel

from app.accounts import registration as accounts
from app.database.db import new_id
from app.identity import roles
from app.process import Process
from app.routes import ROUTES, SANDBOX_ROUTES
from app.store import outbound_events
from app.web.routing import ADMIN, MEMBER, PUBLIC, Endpoint
from tests import cast as company
from tests.cast import HELLO, PASSWORD, Cast, Person, hook, settle
from tests.routes.conftest import visiting
from tests.test_policy import PEOPLE, name, session

EVERY = [*ROUTES, *SANDBOX_ROUTES]
ENDING = "7zzzzzzzzz" + "0" * 16  # of an id that is well formed and nobody's

# The prefix of the id that a parameter or field of this name takes; None is no id of ours.
NAMES: Mapping[str, str | None] = {
    "automationId": "aut",
    "broadcastId": "bro",
    "contactId": "con",
    "defaultTopicId": None,
    "definitionId": "wfl",
    "messageId": "msg",
    "resourceId": "con",
    "runId": "run",
    "segmentId": "seg",
    "templateId": "tpl",
    "topicId": "top",
    "userId": "usr",
    "workflowId": "wfl",
    "workspaceId": "ws",
}

# Bodies that are right but for the id in them: what the model alone does not tell.
TEST_EMAIL = {"to": "ada@example.com", "subject": "S", "html": "H"}
MESSAGE = {"channel": "email", "to": "ada@example.com"}
NEWS = {"name": "N", "channel": "email", "category": "marketing", "content": HELLO}
BODIES: Mapping[str, Mapping[str, Any]] = {
    "POST /messages contactId": {**MESSAGE, "content": HELLO, "contactId": "con"},
    "POST /messages templateId": {**MESSAGE, "templateId": "tpl"},
    "POST /messages/test-email contactId": {**TEST_EMAIL, "contactId": "con"},
    "POST /messages/test-email templateId": {"to": "ada@example.com", "templateId": "tpl"},
    "POST /templates/{id}/preview contactId": {"contactId": "con"},
    "POST /templates/preview contactId": {
        "template": {"name": "T", "channel": "email", "content": HELLO},
        "contactId": "con",
    },
    "POST /automations/simulate contactId": {"definition": {"name": "A"}, "contactId": "con"},
    "POST /workflows/simulate contactId": {"definition": {"name": "W"}, "contactId": "con"},
    "POST /automations/{id}/simulate contactId": {"contactId": "con"},
    "POST /workflows/{id}/simulate contactId": {"contactId": "con"},
    "POST /automations/{id}/runs contactId": {"contactId": "con"},
    "POST /workflows/{id}/runs contactId": {"contactId": "con"},
    "PUT /contacts contactId": {"match": {"contactId": "con"}},
    "POST /events contactId": {"match": {"contactId": "con"}, "name": "seen"},
    "POST /events/batch contactId": {"events": [{"match": {"contactId": "con"}, "name": "seen"}]},
    "POST /segments/preview contactId": {"filter": {"event": "seen"}, "contactId": "con"},
    "POST /templates topicId": {**NEWS, "topicId": "top"},
    "POST /templates/preview topicId": {"template": {**NEWS, "topicId": "top"}},
    "PATCH /templates/{id} topicId": {"category": "marketing", "topicId": "top"},
    "POST /definitions/import topicId": {
        "file": {
            "key": "brought",
            "name": "Brought",
            "definition": {
                "steps": [{"type": "send_message", "channel": "email", "templateId": "news"}],
            },
            "templates": {"news": {**NEWS, "topicId": "top"}},
        },
    },
    "POST /broadcasts segmentId": {"name": "B", "segmentId": "seg", "templateId": "tpl"},
    "POST /broadcasts templateId": {"name": "B", "tag": "lead", "templateId": "tpl"},
    "POST /broadcasts topicId": {
        "name": "B",
        "tag": "lead",
        "templateId": "tpl",
        "topicId": "top",
    },
    "PATCH /broadcasts/{id} topicId": {"topicId": "top"},
    "PATCH /broadcasts/{id} segmentId": {"tag": None, "segmentId": "seg"},
    "PATCH /broadcasts/{id} templateId": {"templateId": "tpl"},
    "POST /broadcasts/{id}/test contactId": {"to": "ada@example.com", "contactId": "con"},
    **{
        f"{method} /{path} segmentId": {
            "name": "F",
            "state": "ACTIVE",
            "trigger": {"source": "segment_entered", "segmentId": "seg"},
        }
        for method, path in (
            *(("POST", "automations"), ("POST", "workflows")),
            *(("PATCH", "automations/{id}"), ("PATCH", "workflows/{id}")),
        )
    },
    "POST /auth/switch workspaceId": {"workspaceId": "ws"},
    "POST /auth/token workspaceId": {
        "email": "mallory@tidings.example",
        "password": PASSWORD,
        "workspaceId": "ws",
    },
}
YES = {"channel": "email", "state": "subscribed", "source": "form"}
CASE = {"given": {"startAt": "2026-01-31T09:30:00Z"}, "expect": {"end": {"status": "FAILED"}}}
# What else a route by id wants, for its owner to get an answer that a rival does not.
WANTS: Mapping[str, Any] = {
    "POST /broadcasts/{id}/test": {"to": "ada@example.com"},
    "POST /contacts/{id}/tags": {"tags": ["new"]},
    "POST /contacts/{id}/events": {"name": "seen"},
    "PUT /contacts/{id}/topics/{topicId}": YES,
    "POST /messages/{id}/resolve": {"arrived": True},
    "POST /event-endpoints/{id}/replay": {"since": "2026-01-31T09:30:00Z"},
    "POST /automations/{id}/runs": {"contactId": "con"},
    "POST /workflows/{id}/runs": {"contactId": "con"},
    "POST /automations/{id}/simulate": {"contactId": "con"},
    "POST /workflows/{id}/simulate": {"contactId": "con"},
    "PUT /automations/{id}/cases/{name}": CASE,
    "PUT /workflows/{id}/cases/{name}": CASE,
}


# --- what the route table says --------------------------------------------------------------------


def prefix_in_path(endpoint: Endpoint) -> str:
    """Find the prefix of `{id}`: the route's own resource, as the routes of that path say what they
    give."""
    head = endpoint.path.partition("/{id}")[0]
    for other in EVERY:
        if other.path in (head, f"{head}/{{id}}"):
            for model in models_of(other):
                found = [pattern_of(kind) for kind in kinds_within(model)]
                if any(found):
                    return next(prefix for prefix in found if prefix)
    pytest.fail(f"{endpoint}: no route at {head} gives a resource whose id has a pattern")


def models_of(endpoint: Endpoint) -> Iterator[type[BaseModel]]:
    for content in endpoint.gives.values():
        if isinstance(content, type) and issubclass(content, BaseModel):
            yield content


def kinds_within(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The resource itself, or the one that a page is of."""
    yield model
    if "data" in model.model_fields:
        for inner in get_args(model.model_fields["data"].annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield inner


def pattern_of(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("id")
    if field is None:
        return None
    found = re.search(r"\^([a-z]+)_\[", str(field.metadata))
    return found[1] if found else None


def fields_with_ids(model: object) -> list[str]:
    """Names of a body's or a query's fields that hold an id, those of fields within it too."""
    model = getattr(model, "__origin__", model)  # of Annotated
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return []
    names = []
    for field in model.model_fields.values():
        alias = field.alias or ""
        if alias.endswith("Id") and NAMES[alias] is not None:  # KeyError: say what it is, in NAMES
            names.append(alias)
        for inner in (field.annotation, *get_args(field.annotation)):
            names += fields_with_ids(inner)
    return names


def fields_of(endpoint: Endpoint) -> set[str]:
    """List the fields of a JSON body, as clients name them."""
    model = endpoint.takes
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return set()
    return {field.alias or name for name, field in model.model_fields.items()}


def own_prefix(endpoint: Endpoint) -> str:
    return prefix_in_path(endpoint) if "{id}" in endpoint.path else ""


BY_PATH = [endpoint for endpoint in EVERY if "{id}" in endpoint.path]
# Of lists. A picture takes the ID of a run, an explanation that of a definition: the tests of both
# (tests/routes/test_drawings.py, tests/runs/test_explaining.py) ask for a stranger's.
BY_QUERY = [
    (endpoint, field)
    for endpoint in EVERY
    for field in fields_with_ids(endpoint.query)
    if not endpoint.path.endswith(("graph.svg", "explain"))
]
# A simulation of what is not saved refuses nothing of a trigger: what is wrong is a finding.
BY_BODY = [
    (endpoint, field)
    for endpoint in EVERY
    for field in fields_with_ids(endpoint.takes)
    if not (field == "segmentId" and endpoint.path.endswith("/simulate"))
]


KNOWN = {
    *("id", "name", "tag", "token", "code", "version", "other", "channel", "domain"),
    *("attemptId", "topicId"),
}


def test_every_id_in_a_path_a_query_and_a_body_is_known() -> None:
    stray = {
        parameter
        for endpoint in EVERY
        for parameter in re.findall(r"\{(\w+)", endpoint.path)
        if parameter not in KNOWN
    }
    assert stray == set(), "a path has an id that nobody asks about: teach this file"
    asked = {f"{name(endpoint)} {field}" for endpoint, field in BY_BODY}
    assert asked == set(BODIES), "give each a body that is right but for its id"
    assert len(BY_PATH) > 20
    assert len(BY_QUERY) > 5


# --- one of everything ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class World:
    cast: Cast
    own: Mapping[str, str]  # prefix → the id of one of Acme's
    rivals: Mapping[str, Person]  # by role

    def id(self, prefix: str | None) -> str:
        if prefix is None or prefix not in self.own:
            pytest.fail(f"nothing makes a {prefix}_…: make one in `world`")
        return self.own[prefix]


@pytest.fixture
async def world(cast: Cast, process: Process) -> World:
    token = await hook(process, cast.ed.workspace_id)
    ada = {"email": "ada@example.com"}
    receipt = (await cast.client.post(f"/v1/webhooks/in/{token}", json=ada)).json()
    await settle(process)
    [attempt] = (await cast.vic.read("/messages/delivery-attempts"))["data"]
    made = {
        prefix: (await cast.adam.made(path, body))["id"]
        for prefix, path, body in (
            ("tpl", "/templates", NEWS),
            ("aut", "/automations", {"name": "A", "state": "ACTIVE"}),
            ("seg", "/segments", {"name": "S", "filter": {"event": "seen"}}),
            ("top", "/topics", {"name": "Offers", "channels": ["email"]}),
            ("sup", "/suppressions", {"channel": "email", "address": "no@example.com"}),
            ("key", "/settings/api-keys", {"name": "K", "role": "viewer"}),
            ("ep", "/event-endpoints", {"url": "https://x.test", "enabled": False}),
            ("inv", "/memberships/invitations", {"email": "eve@example.com", "role": "viewer"}),
        )
    }
    news = {"name": "B", "tag": "lead", "templateId": made["tpl"]}
    made["bro"] = (await cast.adam.made("/broadcasts", news))["id"]
    contact = f"/contacts/{receipt['contactId']}"
    await cast.ed.post(f"{contact}/tags", {"tags": ["lead"]})
    event = (await cast.ed.post(f"{contact}/events", {"name": "seen"})).json()
    [workflow] = (await cast.vic.read("/workflows"))["data"]
    for path in (f"/workflows/{workflow['id']}", f"/automations/{made['aut']}"):
        await cast.ed.call("PUT", f"{path}/cases/lost", json=CASE)
    refused = await refused_request(cast, process)
    acme_id = cast.adam.workspace_id
    found = await attempted(process, acme_id, made["ep"])
    await company.person(process, cast.client, acme_id, "una", "viewer")  # to be removed
    una = (await cast.adam.read("/memberships"))["data"][0]
    rival_id = cast.mallory.workspace_id
    rivals = {
        role: await company.person(process, cast.client, rival_id, f"rival-{role}", role)
        for role in roles.ROLES[:-1]
    }
    return World(
        cast,
        {
            **made,
            "ws": acme_id,
            "usr": cast.ed.user_id,
            "mem": una["id"],
            "wfl": workflow["id"],
            "con": receipt["contactId"],
            "run": receipt["runId"],
            "msg": attempt["messageId"],
            "att": attempt["id"],
            "evt": event["id"],
            "req": refused,
            "eva": found,
        },
        {**rivals, "owner": cast.mallory},
    )


async def attempted(process: Process, workspace_id: str, endpoint_id: str) -> str:
    """An attempt to tell the endpoint of something, which has come to an end."""
    id, event_id = new_id("eva"), new_id("evt")
    async with process.database.write() as db:
        await db.execute(
            """
            INSERT INTO events (workspace_id, id, type, data, created_at)
            VALUES (:workspace_id, :id, 'contact.created', '{}', :now)
            """,
            workspace_id=workspace_id,
            id=event_id,
        )
        rows = [(id, endpoint_id, event_id)]
        await outbound_events.insert_attempts(db, workspace_id=workspace_id, rows=rows)
        await db.execute(
            """
            UPDATE event_attempts SET status = 'SUCCEEDED', finished_at = :now
            WHERE workspace_id = :workspace_id AND id = :id
            """,
            workspace_id=workspace_id,
            id=id,
        )
    return id


async def refused_request(cast: Cast, process: Process) -> str:
    """Its contact was not there, and is now."""
    trigger = {"source": "inbound_webhook", "contactLookup": "email"}
    token = await hook(process, cast.ed.workspace_id, trigger=trigger)
    event = {"email": "late@example.com"}
    await cast.client.post(f"/v1/webhooks/in/{token}", json=event)
    await cast.ed.made("/contacts", event)
    await settle(process)
    [newest, _] = (await cast.vic.read("/workflows"))["data"]
    [refused] = (await cast.vic.read(f"/workflows/{newest['id']}/webhook-requests"))["data"]
    return str(refused["id"])


# --- asked ----------------------------------------------------------------------------------------


def random_like(id: str) -> str:
    return id[:-26] + ENDING


def kind_within(endpoint: Endpoint) -> str:
    return "top" if "{topicId}" in endpoint.path else "eva"


def path_of(endpoint: Endpoint, id: str, within: str = "eva_" + ENDING) -> str:
    """`within` is the id of what belongs to that."""
    fill = {
        "id": id,
        "tag": "lead",
        "token": "A" * 30,
        "code": "invalid",
        "version": "1",
        "other": "1",
        "name": "lost",
    }
    fill |= {"channel": "email", "domain": "acme.example"}
    fill |= {"attemptId": within, "topicId": within}
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: fill[match[1]], endpoint.path)


async def asked(
    world: World, person: Person, endpoint: Endpoint, id: str, within: str | None = None
) -> httpx2.Response:
    """Ask as it would be if the id were theirs."""
    needs_body = endpoint.method not in ("GET", "DELETE")
    wants = WANTS.get(name(endpoint), {})
    filled = {key: world.own.get(str(value), value) for key, value in wants.items()}
    body = {"json": filled} if needs_body else {}
    path = path_of(endpoint, id, within or world.own[kind_within(endpoint)])
    return await person.call(endpoint.method, path, **body)


def indistinct(response: httpx2.Response) -> tuple[int, dict[str, str], Any]:
    """All of an answer but what is different every time."""
    changing = ("x-request-id", "ratelimit")
    headers = {key: value for key, value in response.headers.items() if key not in changing}
    body = response.json()
    return response.status_code, headers, {k: v for k, v in body.items() if k != "requestId"}


def removals_last(endpoint: Endpoint) -> tuple[bool, int]:
    return endpoint.method == "DELETE", -len(endpoint.path)  # what is within, before the whole


def may(endpoint: Endpoint, role: str) -> bool:
    return endpoint.can in (PUBLIC, MEMBER) or endpoint.can in roles.PERMISSIONS[role]


async def test_an_id_in_a_path_tells_a_stranger_nothing_and_its_own_people_what_they_may(
    world: World,
) -> None:
    """A rival of any role hears of it what they hear of nothing; a member who may not hear more is
    told that, whether it is there or not; and it was there all the time."""
    for endpoint in sorted(BY_PATH, key=removals_last):
        id = world.id(prefix_in_path(endpoint))
        for role, rival in world.rivals.items():
            foreign = indistinct(await asked(world, rival, endpoint, id))
            assert foreign == indistinct(await asked(world, rival, endpoint, random_like(id))), (
                name(endpoint),
                role,
            )
            assert foreign[0] == (404 if may(endpoint, role) else 403), (name(endpoint), role)
            assert id not in str(foreign)
        for role in roles.ROLES:
            if not may(endpoint, role):
                member = world.cast.people[PEOPLE[role]]
                own = indistinct(await asked(world, member, endpoint, id))
                assert own == indistinct(await asked(world, member, endpoint, random_like(id)))
                assert own[0] == 403, (name(endpoint), role)
        if endpoint.can != ADMIN:
            owner = await asked(world, world.cast.olivia, endpoint, id)
            there = owner.status_code // 100 == 2 or owner.status_code == 409  # but not as it is
            assert there, (name(endpoint), owner.text)


WITHIN = [endpoint for endpoint in BY_PATH if "attemptId" in endpoint.path]


@pytest.mark.parametrize("endpoint", WITHIN, ids=str)
async def test_an_id_within_another_is_asked_of_one_s_own_too(
    endpoint: Endpoint, world: World
) -> None:
    """The endpoint is Mallory's, the attempt is Acme's."""
    own = {"url": "https://x.test", "enabled": True}
    theirs = (await world.cast.mallory.made("/event-endpoints", own))["id"]
    attempt = world.own["eva"]
    foreign, unknown = [
        indistinct(await asked(world, world.cast.mallory, endpoint, theirs, id))
        for id in (attempt, random_like(attempt))
    ]
    assert foreign == unknown
    assert foreign[0] == 404
    assert attempt not in str(foreign)
    other = (await world.cast.adam.made("/event-endpoints", own))["id"]
    elsewhere = await asked(world, world.cast.adam, endpoint, other, attempt)
    assert elsewhere.status_code == 404  # nor is it of another endpoint of Acme's
    await world.cast.adam.patch(f"/event-endpoints/{world.own['ep']}", {"enabled": True})
    found = await asked(world, world.cast.adam, endpoint, world.own["ep"], attempt)
    assert found.status_code == 202, found.text


async def test_no_list_shows_a_stranger_anything(world: World) -> None:
    """And every id that is made here is in some list of its own people's."""
    below = {world.own[one] for one in ("req", "evt", "eva")}  # of a definition, a contact …
    unseen = set(world.own.values()) - below
    for endpoint in EVERY:
        if endpoint.method == "GET" and "{" not in endpoint.path and endpoint.can != PUBLIC:
            foreign = await world.cast.mallory.get(endpoint.path)
            leaks = [id for id in world.own.values() if id in foreign.text]
            assert leaks == [], name(endpoint)
            own = await world.cast.olivia.get(endpoint.path)
            unseen -= {id for id in unseen if id in own.text}
    assert unseen == set()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_an_id_in_a_query_finds_its_own_people_s_things_alone(
    world: World, database_url: str
) -> None:
    for endpoint, field in BY_QUERY:
        id = world.id(NAMES[field])
        own = await world.cast.olivia.get(f"{endpoint.path}?{field}={id}")
        if field == "automationId":  # the one that is there has not run
            assert own.json()["data"] == []
        elif own.status_code != 403:  # a plan may be asked for
            assert own.json()["data"] != [], (name(endpoint), field)
        for role, rival in world.rivals.items():
            foreign, unknown = [
                indistinct(await rival.get(f"{endpoint.path}?{field}={i}"))
                for i in (id, random_like(id))
            ]
            assert foreign == unknown, (name(endpoint), field, role)
            assert id not in str(foreign)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_an_id_in_a_body_is_nobody_s_to_a_stranger(
    world: World, process: Process, database_url: str
) -> None:
    """By session, for an API key signs nobody in; from an address of its own, for its limits."""
    async with visiting(process) as client:
        strangers = replace(world.cast.mallory, client=client)
        own = replace(world.cast.olivia, client=client)
        mallory = replace(strangers, key=await session(process, strangers))
        olivia = replace(own, key=await session(process, own))
        theirs = {
            "tpl": (await mallory.made("/templates", NEWS))["id"],
            "aut": (await mallory.made("/automations", {"name": "A", "state": "ACTIVE"}))["id"],
            "wfl": (await mallory.made("/workflows", {"name": "W", "state": "ACTIVE"}))["id"],
            "": "",
        }
        news = {"name": "B", "tag": "lead", "templateId": theirs["tpl"]}
        theirs["bro"] = (await mallory.made("/broadcasts", news))["id"]
        for endpoint, field in BY_BODY:
            right = BODIES[f"{name(endpoint)} {field}"]
            id = world.id(NAMES[field])
            foreign, unknown = [
                indistinct(
                    await mallory.call(
                        endpoint.method,
                        path_of(endpoint, theirs[own_prefix(endpoint)]),
                        json=filled_in(right, field, i),
                    )
                )
                for i in (id, random_like(id))
            ]
            assert foreign == unknown, (name(endpoint), field)
            refused = foreign[2].get("refused") if foreign[0] == 200 else None
            assert refused == 1 or foreign[0] in (404, 422), (name(endpoint), field)
            assert id not in str(foreign)
            if "email" in right:
                right = {**right, "email": olivia.email}
            path = path_of(endpoint, world.own.get(own_prefix(endpoint), ""))
            body = filled_in(right, field, id)
            if "templateId" in right and field != "templateId":
                body = filled_in(body, "templateId", world.own["tpl"])
            accepted = await olivia.call(endpoint.method, path, json=body)
            assert accepted.status_code // 100 == 2, (name(endpoint), field, accepted.text)
            if accepted.content:
                assert not accepted.json().get("refused"), accepted.text


def filled_in(right: Any, field: str, id: str) -> Any:
    """The body with this id wherever the field stands."""
    if isinstance(right, list):
        return [filled_in(one, field, id) for one in right]
    if not isinstance(right, Mapping):
        return right
    return {
        key: id if key == field else filled_in(value, field, id) for key, value in right.items()
    }


NAMED_IN_STEPS = {  # field → a step that names such an id
    "templateId": {"type": "send_message", "channel": "email"},
    "workflowId": {"type": "start_workflow"},
    "automationId": {"type": "start_workflow"},
}


@pytest.mark.parametrize("state", ["DRAFT", "ACTIVE"])
@pytest.mark.parametrize("field", NAMED_IN_STEPS)
async def test_an_id_in_a_definition_is_nobody_s_to_a_stranger(
    world: World, field: str, state: str
) -> None:
    id = world.id(NAMES[field])
    step = NAMED_IN_STEPS[field]
    kind = step["type"]
    data = {key: value for key, value in step.items() if key != "type"}
    for path, body_of in (
        ("/workflows", lambda i: {"steps": [{**step, field: i}]}),
        (
            "/automations",
            lambda i: {"graph": {"nodes": [
                {"id": "t", "type": "trigger", "data": {}},
                {"id": "n", "type": kind, "data": {**data, field: i}},
            ], "edges": [{"id": "e", "source": "t", "target": "n"}]}},
        ),
    ):  # fmt: skip
        listed: list[object] = []
        for one in (id, random_like(id)):
            response = await world.cast.mallory.post(
                path, {"name": "Theirs", "state": state, **body_of(one)}
            )
            assert response.status_code == (422 if state == "ACTIVE" else 201), response.text
            if state == "ACTIVE":
                assert field in str(response.json()["errors"])
                listed.append(indistinct(response))
                assert one not in str(listed[-1])
            else:  # what is told of it: nothing but what was sent
                listed.append(sorted(response.json()))
                for secret in (HELLO["subject"], world.cast.adam.workspace_id):
                    assert secret not in response.text
        assert listed[0] == listed[1], (path, field)


# --- what is nobody's to set ----------------------------------------------------------------------

OURS_TO_SET = (
    "id", "workspaceId", "userId", "isAdmin", "superAdmin", "permissions", "plan", "suspended",
    "createdAt", "updatedAt", "deletedAt", "revision", "version", "status", "token", "hash",
)  # fmt: skip
JSON_BODIES = [
    endpoint
    for endpoint in EVERY
    if endpoint.method in ("POST", "PUT", "PATCH") and fields_of(endpoint)
]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_no_body_sets_what_is_ours_to_set(
    world: World, process: Process, database_url: str
) -> None:
    """Nor is it passed over: whoever tries is told, at every route that reads a body."""
    assert await accounts.grant_super_admin(process, world.cast.olivia.email)
    key = await session(process, world.cast.olivia)
    for endpoint in JSON_BODIES:
        async with visiting(process) as client:  # each from an address of its own, for its limits
            bearer = replace(world.cast.olivia, client=client, key=key)
            path = path_of(endpoint, world.own.get(own_prefix(endpoint), "none"))
            strange = [field for field in OURS_TO_SET if field not in fields_of(endpoint)]
            body = dict.fromkeys(strange, "x")
            response = await bearer.call(endpoint.method, path, json=body)
            finds = endpoint.path in ("/automations/check", "/workflows/check")
            assert response.status_code == (200 if finds else 422), (name(endpoint), response.text)
            wrong = response.json()["findings" if finds else "errors"]
            named = {error["pointer"] for error in wrong}
            assert named >= {f"/{field}" for field in strange}, name(endpoint)
