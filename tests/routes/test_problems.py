"""Every error has a page that says what it means and what to do."""

from __future__ import annotations

import re

import httpx2
import pytest

from app.errors import CODES
from app.routes.problems import TEXTS


def test_every_code_has_its_text_and_every_text_its_code():
    assert TEXTS.keys() == CODES.keys()


@pytest.mark.parametrize("code", TEXTS)
def test_a_text_says_what_it_means_and_what_to_do_in_whole_sentences(code: str):
    for text in TEXTS[code]:
        assert text[0].isupper()
        assert text.endswith(".")
        assert re.sub(r"</?code>", "", text).isprintable()
        assert not re.search("[<>&]", re.sub(r"</?code>", "", text))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_type_of_a_problem_leads_to_its_page(client: httpx2.AsyncClient):
    problem = (await client.get("/contacts")).json()
    response = await client.get(problem["type"])
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    for told in (problem["title"], problem["code"], str(problem["status"]), "/auth/refresh"):
        assert told in response.text


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_every_code_is_answered_and_no_other(client: httpx2.AsyncClient):
    for code, (_, title) in CODES.items():
        page = await client.get(f"/problems/{code}")
        assert (page.status_code, f"<h1>{title}</h1>" in page.text) == (200, True)
    for code in ("nonsense", "Invalid", "invalid/", "%3Cscript%3E", ""):
        page = await client.get(f"/problems/{code}")
        assert (page.status_code, page.json()["code"]) == (404, "not_found")
