"""Every error has a page that says what it means and what to do."""

from __future__ import annotations

import re

import httpx2
import pytest

from app.errors import CODES
from app.outbound.chains import LONGEST_CHAIN, MOST_OF_ROOT
from app.process import Process
from app.routes.problems import TEXTS
from tests.cast import Cast, hook
from tests.tables import each_row


def test_every_code_has_its_text_and_every_text_its_code() -> None:
    assert TEXTS.keys() == CODES.keys()


@pytest.mark.parametrize("code", TEXTS)
def test_a_text_says_what_it_means_and_what_to_do_in_whole_sentences(code: str) -> None:
    for text in TEXTS[code]:
        assert text[0].isupper()
        assert text.endswith(".")
        assert re.sub(r"</?code>", "", text).isprintable()
        assert not re.search("[<>&]", re.sub(r"</?code>", "", text))


def test_the_page_of_an_unknown_contact_names_both_ways_to_create_one() -> None:
    meaning, remedy = TEXTS["contact_not_found"]
    assert "never" not in meaning
    assert "webhook, or in the event" in remedy


def test_the_page_of_a_chain_names_both_limits_and_both_ways() -> None:
    meaning, _ = TEXTS["chain_too_long"]
    assert LONGEST_CHAIN == 10
    for named in ("more than ten in a row", f"{MOST_OF_ROOT:,} in all", "outbound events"):
        assert named in meaning


def test_the_pages_of_what_one_may_not_do_name_more_than_the_role_and_the_plan() -> None:
    assert "another reason, which the detail says" in TEXTS["forbidden"][0]
    assert "daily limit while it is new" in TEXTS["quota_exceeded"][0]
    assert "usedBy" in TEXTS["conflict"][1]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_type_of_a_problem_leads_to_its_page(client: httpx2.AsyncClient) -> None:
    problem = (await client.get("/contacts")).json()
    response = await client.get(problem["type"])
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    for found in (problem["title"], problem["code"], str(problem["status"]), "/auth/refresh"):
        assert found in response.text


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_every_code_is_answered_and_no_other(client: httpx2.AsyncClient) -> None:
    for code, (_, title) in CODES.items():
        page = await client.get(f"/problems/{code}")
        assert (page.status_code, f"<h1>{title}</h1>" in page.text) == (200, True)
    for code in ("nonsense", "Invalid", "invalid/", "%3Cscript%3E", ""):
        page = await client.get(f"/problems/{code}")
        assert (page.status_code, page.json()["code"]) == (404, "not_found")


# --- what helps -----------------------------------------------------------------------------------


def messages(response: httpx2.Response) -> dict[str, str]:
    return {error["pointer"]: error["message"] for error in response.json()["errors"]}


async def test_a_misspelt_field_is_told_the_one_that_was_meant(cast: Cast) -> None:
    response = await cast.ed.post("/contacts", {"emial": "a@b.test", "first_name": "A", "zzz": 1})
    assert messages(response) == {
        "/emial": "This field is unknown or read-only. Did you mean email?",
        "/first_name": "This field is unknown or read-only. Did you mean firstName?",
        "/zzz": "This field is unknown or read-only.",
    }
    response = await cast.adam.patch("/settings/workspace", {"sender": {"fromMail": "a@b.test"}})
    assert messages(response)["/sender/fromMail"].endswith("Did you mean fromEmail?")
    response = await cast.adam.patch("/settings/workspace", {"createdAt": "2026-01-01T00:00:00Z"})
    assert messages(response) == {"/createdAt": "This field is unknown or read-only."}


async def test_a_misspelt_parameter_is_told_the_one_that_was_meant(cast: Cast) -> None:
    response = await cast.ed.get("/contacts?emails=a@b.test&lim=5")
    assert messages(response) == {
        "?emails": "This parameter is unknown. Did you mean email?",
        "?lim": "This parameter is unknown. Did you mean limit?",
    }


@each_row("name", ["page", "offset", "skip"])
@each_row("path", ["/contacts", "/runs", "/memberships", "/templates"])
async def test_whoever_asks_for_page_two_is_told_of_cursors(
    cast: Cast, path: str, name: str
) -> None:
    response = await cast.ed.get(f"{path}?{name}=2")
    assert response.status_code == 422
    assert "nextCursor" in messages(response)[f"?{name}"]


@each_row(
    ("path", "meant"),
    [
        ("/contact", "/contacts"),
        ("/Contacts/", "/contacts"),
        ("/contacts/con_1/event", "/contacts/{id}/events"),
        ("/auth/tokens", "/auth/token"),
        ("/membership/mem_secret", "/memberships/{id}"),
        ("/zzz", None),
        ("/" + "a" * 5_000, None),
        ("/x" * 300, None),
    ],
)
async def test_a_misspelt_path_is_told_the_pattern_that_was_meant(
    client: httpx2.AsyncClient, path: str, meant: str | None
) -> None:
    response = await client.get(path)
    assert response.status_code == 404
    hint = f" Did you mean {meant}?" if meant else ""
    assert response.json()["detail"] == f"Nothing exists at this path.{hint}"


async def test_a_key_without_bearer_is_told_so(cast: Cast) -> None:
    for bare in (cast.ed.key, f" {cast.ed.key}", "eyJhbGciOiJIUzI1NiJ9.e30.x"):
        response = await cast.client.get("/contacts", headers={"Authorization": bare})
        assert response.status_code == 401
        assert "holds a key without Bearer" in response.json()["detail"]
        assert cast.ed.key not in response.text
    for other in ("Basic YTpi", "", "nonsense"):
        response = await cast.client.get("/contacts", headers={"Authorization": other})
        assert "holds a key without Bearer" not in response.json()["detail"]


@pytest.mark.parametrize("value", [1.5, True, [1], {"a": 1}])
async def test_what_is_no_contact_s_id_is_told_what_one_may_be(
    cast: Cast, process: Process, value: object
) -> None:
    for lookup in ({"contactLookup": "contact_id"}, BY_METADATA):
        trigger = {"source": "inbound_webhook", "contactPath": "id", **lookup}
        token = await hook(process, cast.ed.workspace_id, [], trigger=trigger)
        response = await cast.client.post(f"/v1/webhooks/in/{token}", json={"id": value})
        assert response.status_code == 422
        assert "It must be a string or a whole number." in response.json()["detail"]


BY_METADATA = {"contactLookup": "contact_id", "metadataField": "crm"}
