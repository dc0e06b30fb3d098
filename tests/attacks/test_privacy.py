"""Privacy of logs, Redis, the trail and exports: each line of the catalogue of attacks, and the
tests that try it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import pytest

from app.process import Process
from app.runtime import logs
from tests import test_canaries
from tests.audit import test_chain, test_trail
from tests.conftest import Records
from tests.files import test_sheets
from tests.jobs import test_hints
from tests.routes import (
    test_attacks,
    test_audit_logs,
    test_contacts_erased,
    test_imports,
)
from tests.routes.conftest import visiting
from tests.runtime import test_logs
from tests.vault import test_vault
from tests.web import test_edge
from tests.workers import test_retention

NASTY = (
    "a\r\nb",
    "\x1b[31mred",
    "\u2028\u2029\x85",
    "\x00\x7f\x9b",
    "\u202eevil",
    '"}\n{"',
    "x" * 1_000_000,
)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_whatever_is_sent_a_request_is_one_short_line(
    process: Process, records: Records
) -> None:
    """L1, by path, query, header and body; the lines are read as a log drain reads them."""
    sent = 0
    async with visiting(process) as client:
        for nasty in NASTY:
            raw = nasty.encode()
            named = {b"User-Agent": raw.replace(b"\0", b""), b"X-Name": raw}
            json = {b"Content-Type": b"application/json"}
            requests: tuple[tuple[str, Mapping[bytes, bytes], bytes], ...] = (
                (f"/contacts/{quote(nasty[:60_000], safe='')}", {}, b""),
                (f"/contacts?q={'%0a%1b' * 1_000}", {}, b""),
                ("/auth/token", named, b"{}"),
                ("/auth/token", json, raw),
                ("/auth/token", json, b'{"email": "%b"}' % raw),
            )
            for url, headers, body in requests:
                response = await client.post(url, headers=headers, content=body)
                assert response.status_code < 500
                sent += 1
    lines = records("")
    assert len([line for line in lines if line["event"] == "request"]) == sent
    assert all(len(str(line)) <= logs.RECORD_BYTES for line in lines)


# Line → who tries it.
LINES: dict[str, tuple[Callable[..., Any], ...]] = {
    "L1": (
        test_whatever_is_sent_a_request_is_one_short_line,
        test_logs.test_nothing_in_a_record_reaches_a_terminal,
        test_logs.test_a_record_is_at_most_8_kilobytes,
    ),
    "L2": (
        test_edge.test_what_nobody_else_should_know_of_a_path_is_not_logged,
        test_attacks.test_a_key_in_a_query_string_opens_nothing_and_is_not_logged,
    ),
    "L3": (test_canaries.test_no_planted_secret_is_found_anywhere,),
    "L4": (
        test_logs.test_a_traceback_shows_no_locals,
        test_edge.test_an_error_nobody_caught_is_answered_and_logged_once_without_locals,
    ),
    "L5": (test_canaries.test_no_planted_secret_is_found_anywhere,),
    "L6": (
        test_canaries.test_no_planted_secret_is_found_anywhere,
        test_vault.test_a_ciphertext_with_any_bit_flipped_or_any_byte_missing_does_not_open,
    ),
    "L7": (
        test_hints.test_redis_holds_ids_as_json_and_nothing_else,
        test_canaries.test_no_planted_secret_is_found_anywhere,
    ),
    "L8": (
        test_audit_logs.test_every_route_that_changes_something_is_looked_at,
        test_audit_logs.test_an_act_leaves_one_entry,
        test_trail.test_an_act_that_fails_leaves_no_entry,
    ),
    "L9": (
        test_chain.test_every_tampering_with_any_entry_is_found,
        test_chain.test_a_chain_cannot_be_begun_anew_without_an_entry,
    ),
    "L10": (
        test_chain.test_what_is_forgotten_leaves_the_chain_whole,
        test_audit_logs.test_an_erased_contact_is_forgotten_in_the_trail_too,
    ),
    "L11": (
        test_contacts_erased.test_nothing_that_it_said_or_was_told_is_left,
        test_contacts_erased.test_what_was_sent_to_its_address_by_itself_is_left_nowhere_either,
        test_contacts_erased.test_what_a_copy_of_a_request_would_be_told_is_forgotten,
    ),
    "L12": (
        test_imports.test_an_export_is_a_sheet_without_formulas_that_may_come_back,
        test_sheets.test_what_is_written_is_read_back_and_no_cell_of_it_is_a_formula,
        test_attacks.test_no_filter_no_search_and_no_export_finds_a_rival_s,
    ),
    "L13": (
        test_retention.test_what_is_old_goes_from_every_table_that_grows,
        test_retention.test_every_table_is_swept_or_the_guide_says_why_it_stays,
    ),
}


def test_every_line_is_tried_somewhere() -> None:
    assert set(LINES) == {f"L{number}" for number in range(1, 14)}
    for tests in LINES.values():
        assert all(one.__name__.startswith("test_") for one in tests)
