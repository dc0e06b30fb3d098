"""Credentials that stand where every reader of a definition sees them: in a URL, or in a body.

Only headers are sealed. What Liquid fills in stands in no definition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl

from app.machine.fields import Liquid
from app.machine.http_fields import split_url
from app.machine.program import Json
from app.machine.secrets import is_credential_name

IN_URL = frozenset({"key", "sig", "signature", "auth"})  # in a body they mostly are something else
# Each reads a text once, whatever it is.
LIQUID = re.compile(r"\{\{[^{}]*\}\}|\{%[^%]*%\}")
MEMBER = re.compile(  # of a form, or of JSON
    r"(?<![\w.-])([\w.-]{1,60})[\"']?\s*[:=]\s*[\"']?[^\s\"'&,;}]"
)


def exposed(config: Mapping[str, Json]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Each credential in the configuration of an HTTP step: its path, and its name."""
    url = config.get("url")
    if isinstance(url, Liquid):
        yield from ((("url",), name) for name in _in_url(_literal(url)))
    yield from _in_body(config.get("body"), ("body",))


def _literal(text: Liquid) -> str:
    return LIQUID.sub("", text.source)


def _in_url(url: str) -> Iterator[str]:
    try:
        parts = split_url(url.strip())
        pairs = parse_qsl(parts.query)
    except ValueError:  # it is judged when it is called
        return
    if parts.username or parts.password:
        yield "user:password@"
    yield from (name for name, _ in pairs if is_credential_name(name) or name.lower() in IN_URL)


def _in_body(
    body: Json, keys: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    match body:
        case Liquid() if keys == ("body",):
            found = MEMBER.findall(_literal(body))
            yield from ((keys, name) for name in found if is_credential_name(name))
        case dict():
            for name, inner in body.items():
                is_literal = isinstance(inner, Liquid) and _literal(inner).strip()
                if is_literal and is_credential_name(name):
                    yield (*keys, name), name
                yield from _in_body(inner, (*keys, name))
        case list():
            for index, inner in enumerate(body):
                yield from _in_body(inner, (*keys, index))
