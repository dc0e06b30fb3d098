"""What schemathesis is told beside the document: who calls, and from where.

Keys take turns, and so do addresses: what a client is refused by its rate is not what is sought.
"""

from __future__ import annotations

import json
import os
import secrets
from ipaddress import IPv4Address
from itertools import cycle
from typing import Any

import schemathesis

KEYS: dict[str, str] = json.loads(os.environ["FUZZ_KEYS"])  # id → key
IDS: dict[str, str] = json.loads(os.environ["FUZZ_IDS"])  # path → what is below it
turns = cycle(KEYS.values())


@schemathesis.auth(refresh_interval=None)
class TakingTurns:
    def get(self, _case: Any, _context: Any) -> str:
        return next(turns)

    def set(self, case: Any, key: str, _context: Any) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {key}"}


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    case.headers["X-Forwarded-For"] = str(IPv4Address(0x0B000000 + secrets.randbelow(2**24)))
    known = IDS.get(case.path.partition("/{")[0])
    if known is not None and secrets.randbelow(2):  # else it would hardly ever find one
        name = case.path.partition("/{")[2].partition("}")[0]
        case.path_parameters[name] = known
    elif case.path_parameters.get("id") in KEYS:  # it would be revoked, and we with it
        case.path_parameters["id"] = "key_" + "0" * 26
