"""Ids sort by the moment they were made, also within a millisecond."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

from app.database.ids import new_id, uuid7

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def test_an_id_is_a_prefix_and_a_uuid_in_crockfords_base32() -> None:
    assert re.fullmatch(rf"con_[0-7][{ALPHABET}]{{25}}", new_id("con"))


def test_the_bits_are_those_of_rfc_9562() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert before <= made.int >> 80 <= after + 1


def test_an_id_decodes_to_its_time() -> None:
    before = time.time_ns() // 1_000_000
    value = 0
    for digit in new_id("run").removeprefix("run_"):
        value = value << 5 | ALPHABET.index(digit)
    assert value.bit_length() <= 128
    assert 0 <= (value >> 80) - before < 1000


def test_ids_rise_strictly() -> None:
    ids = [new_id("msg") for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_threads_never_share_an_id() -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: [uuid7() for _ in range(2_000)], range(4)))
    assert all(ids == sorted(ids) for ids in made)
    assert len({id for ids in made for id in ids}) == 8_000
