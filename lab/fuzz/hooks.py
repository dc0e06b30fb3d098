"""Hooks of schemathesis: who calls, and from where.

An owner calls, and what the owner has sent a viewer sends too: to think of it costs far more than
to send it. Keys take turns, and so do addresses: what a client is refused by its rate is not what
is sought.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import secrets
from collections import Counter
from ipaddress import IPv4Address
from itertools import cycle
from pathlib import Path
from typing import Any

import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.generation.meta import TestPhase
from schemathesis.specs.openapi import checks

KEYS: dict[str, dict[str, str]] = json.loads(os.environ["FUZZ_KEYS"])  # role → id → key
IDS: dict[str, str] = json.loads(os.environ["FUZZ_IDS"])  # path → what is below it
TURNS = {role: cycle(keys.values()) for role, keys in KEYS.items()}
OURS = {id for keys in KEYS.values() for id in keys}
OWNERS = {f"Bearer {key}" for key in KEYS["owner"].values()}
SECONDS = 30
JUDGED = (  # of one answer by itself; the others compare it with what the owner did
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.positive_data_acceptance,
    checks.negative_data_rejection,
)
gc.set_threshold(100_000, 50, 50)  # what is thought of lives shortly
session = requests.Session()
session.trust_env = False  # looked through for proxies at every request

COUNTS = Path(os.environ["FUZZ_COUNTS"])  # read by lab/fuzz/api.py
WRITTEN_AFTER = 100  # cases
operations: set[str] = set()
statuses: dict[str, Counter[int]] = {role: Counter() for role in KEYS}


@atexit.register
def write_counts() -> None:
    """Whole or not at all, for somebody may be reading."""
    part = COUNTS.with_suffix(".part")
    part.write_text(json.dumps({"operations": len(operations), "statuses": statuses}))
    part.replace(COUNTS)


def address() -> str:
    return str(IPv4Address(0x0B000000 + secrets.randbelow(2**24)))


@schemathesis.auth(refresh_interval=None)
class TakingTurns:
    def get(self, _case: Any, _context: Any) -> str:
        return next(TURNS["owner"])

    def set(self, case: Any, key: str, _context: Any) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {key}"}


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    case.headers["X-Forwarded-For"] = address()
    known = IDS.get(case.path.partition("/{")[0])
    # What one answer leads to is kept as it is; else a case would hardly ever find anything.
    linked = case.meta is not None and case.meta.phase.name is TestPhase.STATEFUL
    if known is not None and not linked and secrets.randbelow(2):
        name = case.path.partition("/{")[2].partition("}")[0]
        case.path_parameters[name] = known
    elif case.path_parameters.get("id") in OURS:  # it would be revoked, and we with it
        case.path_parameters["id"] = "key_" + "0" * 26
    if case.operation.label == "DELETE /settings/workspace" and isinstance(case.body, dict):
        case.body["name"] = "Not this one"  # an example may have renamed it, and another delete it


@schemathesis.check
def as_a_viewer(ctx: Any, response: Any, case: Any) -> None:
    operations.add(case.operation.label)
    statuses["owner"][response.status_code] += 1
    if statuses["owner"].total() % WRITTEN_AFTER == 0:
        write_counts()
    sent = response.request.copy()
    if sent.headers.get("Authorization") not in OWNERS:
        return  # it was to be refused for that
    sent.headers["Authorization"] = f"Bearer {next(TURNS['viewer'])}"
    sent.headers["X-Forwarded-For"] = address()
    answer = Response.from_any(session.send(sent, timeout=SECONDS, allow_redirects=False))
    statuses["viewer"][answer.status_code] += 1
    for judge in JUDGED:
        judge(ctx, answer, case)
