"""The document: valid, whole, in words that people can use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Literal

import openapi_spec_validator
import pytest
from starlette.responses import Response

from app.errors import CODES
from app.machine.nodes import NODES
from app.routes.outbound_events import EVENTS
from app.routes.reference import EXAMPLES
from app.web import naming, openapi, reference
from app.web.body import Query, Shape, Writable
from app.web.reply import Page, Revised
from app.web.routing import MEMBER, PUBLIC, Call, Endpoint, delete, get, patch, post
from tests import conformance
from tests.conformance import EVERY


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return conformance.document()


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


# --- of the whole API -----------------------------------------------------------------------------


def test_it_is_valid(document: dict[str, Any]) -> None:
    openapi_spec_validator.validate(document)


def test_every_route_is_in_it_and_nothing_else(document: dict[str, Any]) -> None:
    found = operations(document)
    assert sorted(found) == sorted(f"{one.method} {naming.path_of(one)}" for one in EVERY)


def test_every_route_says_what_it_answers() -> None:
    assert [str(endpoint) for endpoint in EVERY if not endpoint.gives] == []


def test_what_a_route_raises_has_a_status() -> None:
    unknown = {code for endpoint in EVERY for code in endpoint.raises} - CODES.keys()
    assert unknown == set()


def test_operations_have_names_of_their_own_in_plain_words(document: dict[str, Any]) -> None:
    ids = Counter(operation["operationId"] for operation in operations(document).values())
    assert [id for id, times in ids.items() if times > 1] == []
    assert [id for id in ids if not re.fullmatch(r"[a-z]+([A-Z][a-z0-9]*)*", id)] == []


def test_models_have_plain_names(document: dict[str, Any]) -> None:
    names = document["components"]["schemas"]
    assert [name for name in names if not re.fullmatch(r"([A-Z][a-z0-9]*)+", name)] == []


def test_no_description_speaks_of_our_own_files(document: dict[str, Any]) -> None:
    assert re.findall(r"\b\w+\.py\b", str(document)) == []


def test_every_example_is_what_its_schema_says(document: dict[str, Any]) -> None:
    for name, media in examples(document):
        conformance.check(media["schema"], media["example"], f"the example of {name}")


def examples(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, operation in operations(document).items():
        contents = [operation.get("requestBody", {}).get("content", {})]
        contents += [answer.get("content", {}) for answer in operation["responses"].values()]
        found += [
            (name, media)
            for content in contents
            for media in content.values()
            if "example" in media
        ]
        found += [(name, one) for one in operation.get("parameters", ()) if "example" in one]
    assert len(found) > 100
    return found


# JSON Schema 2020-12's, as far as they are used: pydantic writes what it cannot place as it is
# called there, such as `ge`, and no reader of the document knows that.
KEYWORDS = {
    *("$ref", "type", "const", "enum", "anyOf", "oneOf", "allOf", "if", "then", "not"),
    *("discriminator", "format", "pattern", "x-default", "x-ports"),
    *("properties", "required", "additionalProperties", "propertyNames"),
    *("minProperties", "maxProperties"),
    *("items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("title", "description", "default", "examples", "writeOnly", "readOnly"),
}


def test_schemas_are_written_in_words_that_their_readers_know(document: dict[str, Any]) -> None:
    found = operations(document).values()
    parameters = [one["schema"] for each in found for one in each.get("parameters", ())]
    schemas = [*document["components"]["schemas"].values(), *parameters]
    assert {word for schema in schemas for word in keywords(schema)} - KEYWORDS == set()


def keywords(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    yield from schema
    within = [*schema.get("properties", {}).values()]
    within += [schema.get(one) for one in ("items", "additionalProperties", "propertyNames")]
    within += [one for several in ("anyOf", "oneOf") for one in schema.get(several, ())]
    for inner in within:
        yield from keywords(inner)


def test_every_parameter_of_a_query_says_what_it_is(document: dict[str, Any]) -> None:
    silent = {
        f"{name} ?{one['name']}"
        for name, operation in operations(document).items()
        for one in operation.get("parameters", ())
        if one["in"] == "query" and operation["security"] and not one.get("description")
    }
    assert silent == set()


def test_the_bounds_of_a_page_are_told(document: dict[str, Any]) -> None:
    parameters = operations(document)["GET /contacts"]["parameters"]
    [limit] = [one["schema"] for one in parameters if one["name"] == "limit"]
    assert limit == {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}


def test_what_a_contact_holds_is_told(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name in ("WritableContact", "ContactPatch"):
        payload = {"$ref": f"#/components/schemas/{name}"}
        for body in (
            {"email": "ada@example.com", "metadata": {"plan": "pro", "seats": 3, "x": None}},
            {"phone": "0151 123 45 67", "tags": ["lead"], "subscriptions": {"sms": "subscribed"}},
            {"email": "grün@exämple.com", "firstName": None, "tags": None},
        ):
            conformance.check(payload, body, name)
        assert schemas[name]["additionalProperties"] is False
        refused: list[dict[str, Any]] = [
            {"email": "nobody"},
            {"email": 1},
            {"phone": 4915112345678},
            {"firstName": "A" * 201},
            {"lastName": "a\nb"},
            {"metadata": {"": 1}},
            {"metadata": {"x": []}},
            {"metadata": {"x": "y" * 501}},
            {"subscriptions": {"fax": "subscribed"}},
            {"subscriptions": {"sms": "yes"}},
            {"tags": [""]},
            {"nickname": "Ada"},
        ]
        for wrong in refused:
            with pytest.raises(AssertionError, match=name):
                conformance.check(payload, wrong, name)


def test_it_says_who_may(document: dict[str, Any]) -> None:
    found = operations(document)
    assert found["GET /healthz"]["security"] == []
    assert found["GET /healthz"]["x-permission"] == PUBLIC
    assert found["POST /contacts"]["security"] == [{"bearer": []}]
    assert found["POST /contacts"]["x-permission"] == "contacts:write"
    assert "editor and above" in found["POST /contacts"]["description"]


def test_it_is_the_same_every_time() -> None:
    again = openapi.document(
        EVERY,
        base_url="http://127.0.0.1:8000",
        version="1",
        examples=EXAMPLES,
        events=EVENTS,
    )
    assert list(again["paths"]) == list(conformance.document()["paths"])
    assert again == conformance.document()


# --- of a small one -------------------------------------------------------------------------------


class Inner(Shape):
    colour: str | None = None


class WritableThing(Writable):
    name: str
    size: int = 1
    inner: Inner = Inner()
    labels: dict[str, str] | None = None


class Thing(Revised):
    id: str
    name: str


class Filters(Query):
    state: Literal["NEW", "OLD"] | None = None
    labels: dict[str, str] | None = None


async def index(_call: Call) -> Response:
    """The newest first, and
    all of them."""
    raise NotImplementedError


async def show(_call: Call) -> Response:
    raise NotImplementedError


create = update = remove = paint = show


def small(*endpoints: Endpoint) -> dict[str, Any]:
    return openapi.document(
        endpoints, base_url="http://tidings.test", version="1", examples={"name": "A 'thing'"}
    )


def only(*endpoints: Endpoint) -> dict[str, Any]:
    """Read what is written of the last one."""
    return list(operations(small(*endpoints)).values())[-1]


SHOWN = get("/things/{id}", show, can=MEMBER, gives={200: Thing})


def test_parameters_come_from_the_query_s_model() -> None:
    listed = only(get("/things", index, can=MEMBER, query=Filters, gives={200: Page[Thing]}))
    state, labels, _ = listed["parameters"]
    assert (state["name"], state["schema"]["enum"]) == ("state", ["NEW", "OLD"])
    assert (labels["style"], labels["explode"]) == ("deepObject", True)
    assert listed["description"].startswith("The newest first, and all of them.")


def test_a_patch_may_leave_out_everything_and_take_away_what_is_optional() -> None:
    changed = patch("/things/{id}", update, can=MEMBER, takes=WritableThing, gives={200: Thing})
    found = small(SHOWN, changed)
    [schema] = {
        media["schema"]["$ref"]
        for media in found["paths"]["/things/{id}"]["patch"]["requestBody"]["content"].values()
    }
    assert schema == "#/components/schemas/ThingPatch"
    schemas = found["components"]["schemas"]
    assert "required" not in schemas["ThingPatch"]
    assert schemas["ThingPatch"]["additionalProperties"] is False
    null = {"type": "null"}
    properties = schemas["ThingPatch"]["properties"]
    assert properties["name"] == {"type": "string"}
    assert properties["size"] == {"anyOf": [{"type": "integer"}, null]}
    assert properties["inner"] == {"anyOf": [{"$ref": "#/components/schemas/InnerPatch"}, null]}
    assert null in properties["labels"]["anyOf"][0]["additionalProperties"]["anyOf"]


def test_revisions_are_told_where_there_are_some() -> None:
    shown = only(SHOWN)
    assert "ETag" in shown["responses"]["200"]["headers"]
    assert "304" in shown["responses"]
    assert [one["name"] for one in shown["parameters"]] == ["id", "If-None-Match"]
    removed = only(SHOWN, delete("/things/{id}", remove, can=MEMBER, gives={204: None}))
    assert [one["name"] for one in removed["parameters"]] == ["id", "If-Match", "If-None-Match"]
    listed = only(get("/things", show, can=MEMBER, gives={200: Page[Thing]}))
    assert "304" in listed["responses"]
    assert "If-None-Match" in [one["name"] for one in listed["parameters"]]
    made = only(post("/things", create, can=MEMBER, takes=WritableThing, gives={201: Thing}))
    assert {"ETag", "Location", "Idempotency-Replayed"} <= made["responses"]["201"][
        "headers"
    ].keys()
    assert [one["name"] for one in made["parameters"]] == ["Idempotency-Key"]


@pytest.mark.parametrize(
    ("endpoint", "codes"),
    [
        (get("/a", show, can=PUBLIC, gives={200: Thing}), set()),
        (get("/a", show, can=MEMBER, gives={200: Thing}), {"unauthenticated", "rate_limited"}),
        (get("/a", show, can="contacts:read", gives={200: Thing}), {"forbidden"}),
        (get("/a/{id}", show, can=PUBLIC, gives={200: Thing}), {"not_found"}),
        (
            post("/a", create, can=PUBLIC, takes=WritableThing, gives={201: Thing}),
            {"malformed_json", "unsupported_media_type", "invalid", "body_too_large"},
        ),
        (
            post("/a", create, can=MEMBER, takes=("text/csv",), gives={200: Thing}),
            {"unsupported_media_type", "idempotency_mismatch", "idempotency_in_progress"},
        ),
        (
            post("/a", create, can=MEMBER, tx=None, gives={200: Thing}, raises=("last_owner",)),
            {"last_owner"},
        ),
    ],
)
def test_what_can_go_wrong_follows_from_the_route(endpoint: Endpoint, codes: set[str]) -> None:
    shown = small(endpoint)
    refusals = shown["components"]["responses"].values()
    found = [code for refusal in refusals for code in refusal["x-codes"]]
    assert codes <= set(found)
    assert len(found) == len(set(found))
    assert "internal" not in found


@pytest.mark.parametrize(
    ("endpoint", "id"),
    [
        (get("/memberships", index, can=MEMBER), "listMemberships"),
        (get("/memberships/invitations", index, can=MEMBER), "listInvitations"),
        (get("/contacts/{id}/activity", index, can=MEMBER), "listContactActivity"),
        (get("/admin/workspaces", index, can=MEMBER), "listAdminWorkspaces"),
        (get("/settings/api-keys", index, can=MEMBER), "listApiKeys"),
    ],
)
def test_an_operation_is_called_by_its_path(endpoint: Endpoint, id: str) -> None:
    assert naming.operation_id(endpoint) == id


# --- the page -------------------------------------------------------------------------------------


def test_the_page_tells_every_operation_and_model(document: dict[str, Any]) -> None:
    page = reference.page(document)
    for operation in operations(document).values():
        assert f'<article id="{operation["operationId"]}"' in page
        assert f'href="#{operation["operationId"]}"' in page
    for name in document["components"]["schemas"]:
        assert f'<article id="{name}"' in page
    for type, item in document["webhooks"].items():
        assert f'href="#{item["post"]["operationId"]}">{type}</a>' in page


def test_the_page_tells_what_each_step_and_node_may_say(document: dict[str, Any]) -> None:
    page = reference.page(document)
    for kind in NODES.values():
        assert escape(kind.about).replace("`", "") in re.sub("</?code>", "", page)
    [step] = re.findall(r'<article id="SendMessageStep".*?</article>', page, re.DOTALL)
    for member in ("channel", "templateId", "content", "onUnknown", "failed"):
        assert f"<b>{member}</b>" in step
    assert '<a href="#InlineContent">' in step
    assert "anything" not in step


def test_the_page_fetches_nothing_and_links_only_to_what_is_there(document: dict[str, Any]) -> None:
    page = reference.page(document)
    assert re.findall(r"(?:src|@import|url\()", page) == []
    links = set(re.findall(r'href="([^"]*)"', page)) - {"data:,"}
    ids = set(re.findall(r'id="([^"]*)"', page))
    inside = {link[1:] for link in links if link.startswith("#")}
    assert inside <= ids
    outside = {link for link in links if not link.startswith(("#", "data:"))}
    assert outside == {"/openapi.json"} | {link for link in outside if "/problems/" in link}


def test_what_it_says_is_text() -> None:
    hostile = "<script>alert(1)</script> `<b>` **<i>**"

    async def paint(_call: Call) -> Response:
        raise NotImplementedError

    paint.__doc__ = hostile
    found = small(post("/paint", paint, can=MEMBER, takes=WritableThing, gives={200: Thing}))
    page = reference.page(found)
    assert page.count("<script>") == 1  # its own
    assert "&lt;script&gt;alert(1)&lt;/script&gt; <code>&lt;b&gt;</code> <b>&lt;i&gt;</b>" in page


def test_a_curl_can_be_pasted(tmp_path: Path) -> None:
    """Whatever stands in the body, a shell takes it for what it is."""
    assert reference.quoted("it's $HOME `id` \\") == "'it'\\''s $HOME `id` \\'"
