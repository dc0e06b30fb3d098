"""Credentials in a definition, and what only sounds like one."""

from __future__ import annotations

import time
from typing import Any

import pytest

from app.machine import template
from app.machine.exposure import exposed
from app.machine.fields import Liquid, Place, read_members
from app.machine.nodes.http_request import HTTP_REQUEST


def found(**config: Any) -> list[str]:
    wrong: list[Any] = []
    read = read_members(config, HTTP_REQUEST.fields, Place("", wrong))
    return [name for _, name in exposed(read)]


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("https://a.test/?api_key=x", ["api_key"]),
        ("https://a.test/?APIKey=x&X-Api-Key=y", ["APIKey", "X-Api-Key"]),
        ("https://a.test/?accessToken=x{{trigger.id}}", ["accessToken"]),
        ("https://a.test/{{trigger.id}}?sig=x", ["sig"]),
        ("https://ada:x@a.test/", ["user:password@"]),
        ("{{trigger.url}}?token=x", ["token"]),
        ("https://a.test/?token={{trigger.token}}&key={{ contact.id }}", []),
        ("https://a.test/?author=ada&keyword=tea&tokens=3&monkey=1&sort_key=name", []),
        ("https://a.test/?token=", []),
        ("https://a.test/{{ trigger.text | append: '?token=x' }}", []),
        ("https://a.test/token/secret?id=1", []),
        ("https://[a.test/?token=x", []),
    ],
)
def test_a_url_is_read_as_a_server_would(url: str, names: list[str]) -> None:
    assert found(url=url) == names


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("grant_type=client_credentials&client_secret=x", ["client_secret"]),
        ("{'password' : 'x'}", ["password"]),
        ('{"token": "{{trigger.token}}", "key": "plan"}', []),
        ({"key": "plan", "signature": "Yours, Ada", "author": "Ada"}, []),
        ({"auth": {"apikey": "x", "token": "{{trigger.token}}"}}, ["apikey"]),
        ({"text": "token: ask Ada for it"}, []),
        ({"max_tokens": 100, "secret": 7, "password": " "}, []),
        ([{"privateKey": "x"}], ["privateKey"]),
    ],
)
def test_a_body_is_read_member_by_member(body: Any, names: list[str]) -> None:
    assert found(body=body) == names


@pytest.mark.parametrize("part", ["a", "a ", "a:", "{% raw %}{{", "a=b&", '"'])
def test_no_text_is_read_twice(part: str) -> None:
    """Else this would take minutes."""
    body = Liquid(part * (200_000 // len(part)), template.parse("any"))
    began = time.process_time()
    list(exposed({"body": body, "url": body}))
    assert time.process_time() - began < 1
