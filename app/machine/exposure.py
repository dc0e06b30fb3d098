"""Credentials that stand where every reader of a definition sees them: in a URL, or in a body.

Only headers are sealed. A name says what is one, for nothing in a value does; and what Liquid
fills in stands in no definition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from urllib.parse import parse_qsl, urlsplit

from app.machine.fields import Liquid
from app.machine.program import Json

# Of words: an author, a keyword and a monkey are none.
WORDS = frozenset(
    {"token", "secret", "password", "passwd", "passphrase", "pwd", "apikey", "credential"}
)
KEYS = frozenset({"api", "access", "auth", "private", "secret"})  # of what a key may be
IN_URL = frozenset({"key", "sig", "signature", "auth"})  # in a body they mostly are something else
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# Each reads a text once, whatever it is.
LIQUID = re.compile(r"\{\{[^{}]*\}\}|\{%[^%]*%\}")
MEMBER = re.compile(  # of a form, or of JSON
    r"(?<![\w.-])([\w.-]{1,60})[\"']?\s*[:=]\s*[\"']?[^\s\"'&,;}]"
)


def exposed(config: Mapping[str, Json]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Where in the configuration of an HTTP step one stands, and by which name."""
    url = config.get("url")
    if isinstance(url, Liquid):
        yield from ((("url",), name) for name in _in_url(_literal(url)))
    yield from _in_body(config.get("body"), ("body",))


def _literal(text: Liquid) -> str:
    return LIQUID.sub("", text.source)


def _in_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url.strip())
        pairs = parse_qsl(parts.query)
    except ValueError:  # it is judged when it is called
        return
    if parts.username or parts.password:
        yield "user:password@"
    yield from (name for name, _ in pairs if _is_credential(name) or name.lower() in IN_URL)


def _in_body(
    body: Json, keys: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    match body:
        case Liquid() if keys == ("body",):
            found = MEMBER.findall(_literal(body))
            yield from ((keys, name) for name in found if _is_credential(name))
        case dict():
            for name, inner in body.items():
                if _is_credential(name) and isinstance(inner, Liquid) and _literal(inner).strip():
                    yield (*keys, name), name
                yield from _in_body(inner, (*keys, name))
        case list():
            for index, inner in enumerate(body):
                yield from _in_body(inner, (*keys, index))


def _is_credential(name: str) -> bool:
    words = [word.lower() for word in WORD.findall(name)]
    if not WORDS.isdisjoint(words):
        return True
    return any(word == "key" and before in KEYS for before, word in pairwise(words))
