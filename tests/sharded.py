"""The tests that a database sharded by Citus does not pass, each with its reason."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pytest

PLANS = "asks how one PostgreSQL reads its tables; lab/citus/statements.py asks a cluster"
MAINTENANCE = "is of one PostgreSQL; of a cluster, maintenance deletes in one workspace at a time"
STATISTICS = "looks at the statistics of one server; each node of a cluster has its own"
LOOKS = "claims several times a second, in which a cluster is looked at once"
ONCE_A_SECOND = "is of one PostgreSQL; a cluster is looked at once a second, whatever is due next"
TAKEN = "leaves what is due to others; on a cluster who has looked at all shards takes it"
LOCKS = "looks by itself for a row that somebody has locked, in whatever shard"

# By the file, or by the test.
SKIPPED: Mapping[str, str] = {
    "test_plans.py": PLANS,
    "test_contact_plans.py": PLANS,
    "test_statistics.py": STATISTICS,
    "test_a_claim_reads_no_backlog_that_came_after_its_plans_were_made": PLANS,
    "test_a_unique_index_that_breaks_the_rule_is_found": "makes an index that Citus refuses",
    "test_whoever_stands_behind_a_backlog_is_found_a_few_claims_later": LOOKS,
    "test_what_is_due_long_since_is_looked_for_now_and_then": LOOKS,
    "test_each_look_begins_where_the_one_before_it_ended": LOOKS,
    "test_a_claim_whose_scan_was_cut_off_is_followed_by_one_without": LOOKS,
    "test_whose_work_stalls_leaves_hands_for_the_others": LOOKS,
    "test_a_suspension_is_answered_once_nobody_sends_by_what_was_so_before": LOCKS,
    "test_a_pause_is_answered_once_nobody_sends_by_what_was_so_before": LOCKS,
    "test_sessions_go_when_they_have_expired": MAINTENANCE,
    "test_what_has_just_become_due_is_hinted_at": TAKEN,
    "test_the_next_to_be_due_is_known_leases_included": ONCE_A_SECOND,
    "test_it_sleeps_no_longer_than_until_the_next_row_is_due": ONCE_A_SECOND,
    "test_the_expired_are_deleted_so_many_at_once_and_the_oldest_first": MAINTENANCE,
    "test_each_table_has_the_statement": MAINTENANCE,
    "test_a_further_kind_is_found_everywhere": "adds a kind to those that a look at shards names",
    "test_a_clock_of_the_database_that_is_ahead_deletes_nothing": MAINTENANCE,
    "test_our_clock_that_is_ahead_deletes_nothing": MAINTENANCE,
    "test_an_expired_receipt_is_taken_over_and_swept": MAINTENANCE,
}


def skip(items: Sequence[pytest.Item]) -> None:
    if "citus" not in os.environ.get("ENGINES", ""):
        return
    for item in items:
        reason = SKIPPED.get(item.path.name) or SKIPPED.get(item.name.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
