"""Every way that we know of to harm the intake, tried on what a user would deploy.

A line is named by the number it has in the catalogue of attacks: A is HTTP, B the JSON, C the
contact, D the signature, E the limit.
"""

from __future__ import annotations

import pytest

from tests.attacks import bodies, contacts, framing, limits, signatures
from tests.attacks.target import Line, Target
from tests.web import test_throttle

pytestmark = pytest.mark.drill

CATALOGUE = {"A": 25, "B": 20, "C": 13, "D": 16, "E": 11}
LINES: dict[str, Line] = {
    **framing.LINES,
    **bodies.LINES,
    **contacts.LINES,
    **signatures.LINES,
    **limits.LINES,
    "A21": framing.slow_clients,  # last: they have been slow for all of it
}
# A window that moves can be waited for where it is shorter than a minute.
ELSEWHERE = {"E2": test_throttle.test_a_window_moves}


# What needs a proxy, or none. HTTP is read before there is a database, and alike by all processes.
ONLY = {
    **dict.fromkeys(framing.LINES, "alone"),
    "A17 in parallel": "proxied",
    "E3": "alone",
    "E4": "proxied",
    "E5": "proxied",
    "E6": "proxied",
    "E7": "proxied",
    "E11 of a key": "alone",
}


def lines(deployment: str) -> list[str]:
    return [line for line in LINES if ONLY.get(line, deployment) == deployment]


@pytest.mark.parametrize("line", lines("alone"))
async def test_on_one_process_an_attack_gets_nowhere(alone: Target, line: str) -> None:
    await attack(alone, line)


@pytest.mark.parametrize("line", lines("proxied"))
async def test_behind_a_proxy_an_attack_gets_nowhere(proxied: Target, line: str) -> None:
    await attack(proxied, line)


async def attack(target: Target, line: str) -> None:
    target.hooks.clear()
    await LINES[line](target)
    for hook in target.hooks:
        await hook.balance()


def test_no_line_of_the_catalogue_is_left_out() -> None:
    numbered = {f"{part}{n + 1}" for part, count in CATALOGUE.items() for n in range(count)}
    here = {line.partition(" ")[0] for line in LINES}
    assert here | ELSEWHERE.keys() == numbered
