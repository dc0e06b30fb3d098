"""The credentials in a definition's HTTP steps: sealed where it is kept, masked where it is shown.

A header whose name sounds like one (`Authorization`, `X-Api-Key`) is encrypted before the body is
stored. Whoever reads the definition sees a mask; whoever saves it with the mask keeps what is
stored, as long as the step still calls the same server: a credential must not be led elsewhere by
somebody who does not know it. Only the worker that walks the step opens it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app.errors import FieldError
from app.machine import document
from app.machine.program import Json
from app.machine.secrets import MASK, is_secret_name
from app.vault.vault import Vault

PURPOSE = "http credential"
PREFIX = "sealed:"
STAND_IN = "masked"  # the mask itself may be in no header
HALF_PAIRS = "surrogatepass"  # JSON may carry half a surrogate pair


@dataclass(frozen=True, slots=True)
class Held:
    """One header of one HTTP step."""

    value: Json
    where: tuple[int | str, ...]
    key: tuple[str, str]  # the step's id, or where it stands; the header's name
    server: str  # as the URL says it before any Liquid


Change: TypeAlias = Callable[[Held], Json]


def masked(body: Json) -> Json:
    return _changed(body, lambda _: MASK)


def stood_in(body: Json) -> Json:
    """Replace each mask, and what looks sealed and came from a client, by what may be sent. For a
    run on paper."""

    def stand_in(held: Held) -> Json:
        is_sealed = isinstance(held.value, str) and held.value.startswith(PREFIX)
        return STAND_IN if is_sealed or held.value == MASK else held.value

    return _changed(body, stand_in)


def opened(vault: Vault, workspace_id: str, definition_id: str, body: Json) -> Json:
    """Raises VaultError for what was sealed elsewhere."""
    return _changed(body, _opener(vault, workspace_id, definition_id))


def sealed(
    vault: Vault, workspace_id: str, definition_id: str, body: Json, stored: Json
) -> tuple[Json, list[FieldError]]:
    """The body as it is to be stored in place of `stored`, and where a credential is missing."""
    known: dict[tuple[str, str], Held] = {}

    def know(held: Held) -> Json:
        known[held.key] = held
        return held.value

    _changed(stored, know)
    unseal = _opener(vault, workspace_id, definition_id)
    errors: list[FieldError] = []

    def seal(held: Held) -> Json:
        if not isinstance(held.value, str):
            return held.value  # the check of the body says what is wrong with it
        kept = known.get(held.key)
        if kept is not None and unseal(kept) == held.value:
            return kept.value  # nothing has changed
        if held.value != MASK:
            given = held.value.encode("utf-8", HALF_PAIRS)
            text = vault.encrypt(PURPOSE, given, workspace_id, definition_id)
            return PREFIX + base64.b64encode(text).decode()
        if kept is None or kept.server != held.server:
            detail = "The mask keeps a stored credential, but this step and server have none."
            errors.append(
                FieldError(document.pointer(*held.where), f"{detail} Give the credential.")
            )
            return held.value
        return kept.value

    return _changed(body, seal), errors


def _opener(vault: Vault, workspace_id: str, definition_id: str) -> Change:
    def unseal(held: Held) -> Json:
        if not isinstance(held.value, str) or not held.value.startswith(PREFIX):
            return held.value
        text = base64.b64decode(held.value.removeprefix(PREFIX))
        opened = vault.decrypt(PURPOSE, text, workspace_id, definition_id)
        return opened.decode("utf-8", HALF_PAIRS)

    return unseal


# --- where they are -------------------------------------------------------------------------------


def _changed(body: Json, change: Change, *where: int | str) -> Json:
    """A copy, the credentials in it changed; all else as it is, be it what it should be or not."""
    match body:
        case list():
            return [_changed(one, change, *where, n) for n, one in enumerate(body)]
        case {"type": "http_request", "data": dict() as config}:  # a node of a graph
            id = str(body.get("id"))
            return {**body, "data": _request(config, id, change, *where, "data")}
        case {"type": "http_request"}:
            id = str(body.get("id", document.pointer(*where)))
            return _request(body, id, change, *where)
        case dict():
            return {name: _changed(one, change, *where, name) for name, one in body.items()}
        case _:
            return body


def _request(
    config: Mapping[str, Json], id: str, change: Change, *where: int | str
) -> dict[str, Json]:
    """An HTTP step, and in an array of steps those in its arms; its body is data, and no step."""
    url, server = config.get("url"), ""
    if isinstance(url, str):  # up to the path, which may change while the credential stays
        scheme, _, rest = url.strip().partition("://")
        server = f"{scheme}://{re.split(r'[/?#]', rest, maxsplit=1)[0]}".lower()
        if "{" in server:  # Liquid chooses the server, and may go on behind any slash
            server = url
    copy = {}
    for name, value in config.items():
        if name == "headers" and isinstance(value, dict):
            copy[name] = {
                header: change(Held(text, (*where, name, header), (id, header.lower()), server))
                if is_secret_name(header)
                else text
                for header, text in value.items()
            }
        else:
            copy[name] = _changed(value, change, *where, name) if name in ARMS else value
    return copy


ARMS = ("failed", "steps")
