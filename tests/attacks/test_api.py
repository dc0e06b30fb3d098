"""Every way that we know of to harm the API, each with the tests that try it.

A line is named by the number it has in the catalogue of attacks: F is who calls, G what they may
and whose it is, M the surface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests import test_canaries, test_layers, test_main, test_policy, test_tenants
from tests.accounts import test_account_mail
from tests.billing import test_quotas
from tests.config import test_settings as test_config
from tests.database import test_files
from tests.identity import test_identity, test_passwords, test_roles
from tests.jobs import test_hints
from tests.lab.fuzz import test_api as test_fuzz
from tests.machine import test_check, test_graph
from tests.messages import test_facts
from tests.providers import test_resend, test_stripe, test_twilio
from tests.routes import (
    test_admin,
    test_api_keys,
    test_attacks,
    test_billing,
    test_contacts,
    test_invitations,
    test_memberships,
    test_sessions,
    test_settings,
    test_single_sign_on,
    test_webhooks,
    test_workflows,
    test_workspaces,
)
from tests.routes import test_passwords as test_password_routes
from tests.runs import test_calling
from tests.store import test_idempotency
from tests.web import (
    test_auth,
    test_body,
    test_conditions,
    test_edge,
    test_openapi,
    test_paging,
    test_routing,
)
from tests.web import test_idempotency as test_keys
from tests.workers import test_main as test_worker
from tests.workers import test_pool

CATALOGUE = {"F": 20, "G": 17, "M": 12}
LINES: Mapping[str, Sequence[Callable[..., Any]]] = {
    # --- who calls ---
    "F1": (test_identity.test_a_forged_header_is_refused,),
    "F2": (
        test_identity.test_a_token_that_we_signed_under_another_header_is_refused,
        test_attacks.test_nobody_asks_where_a_token_says_that_its_key_is,
    ),
    "F3": (
        test_identity.test_a_token_with_claims_that_we_never_make_is_refused,
        test_identity.test_a_token_that_is_true_of_no_session_now_is_refused,
    ),
    "F4": (
        test_identity.test_a_damaged_token_is_refused_at_once,
        test_identity.test_no_token_takes_long_to_refuse,
        test_identity.test_a_token_with_any_bit_of_its_signature_flipped_is_refused,
        test_identity.test_a_signature_has_one_spelling,
        test_identity.test_a_duplicate_claim_needs_our_signature_too,
    ),
    "F5": (
        test_tenants.test_an_id_in_a_path_tells_a_stranger_nothing_and_its_own_people_what_they_may,
        test_tenants.test_an_id_in_a_body_is_nobody_s_to_a_stranger,
    ),
    "F6": (
        test_memberships.test_a_role_counts_on_the_very_next_request,
        test_memberships.test_whoever_is_removed_is_out_at_once_and_for_good,
        test_identity.test_a_session_loses_its_force_at_once,
        test_routing.test_who_may_no_longer_do_it_when_a_slow_body_ends_does_nothing,
        test_attacks.test_what_is_taken_away_in_one_process_is_gone_in_the_other,
    ),
    "F7": (
        test_sessions.test_logging_out_ends_the_session_at_once,
        test_password_routes.test_a_changed_password_ends_the_other_sessions_and_the_letters,
    ),
    "F8": (
        test_identity.test_no_token_does_the_work_of_another,
        test_attacks.test_no_other_secret_of_ours_is_a_bearer,
        test_password_routes.test_a_token_is_good_for_one_thing_only,
    ),
    "F9": (
        test_identity.test_a_key_has_the_published_form_and_an_honest_checksum,
        test_identity.test_a_damaged_key_is_refused_without_a_query,
    ),
    "F10": (
        test_canaries.test_no_planted_secret_is_found_anywhere,
        test_identity.test_the_database_holds_no_token_and_no_password,
        test_passwords.test_a_password_is_kept_as_argon2id,
    ),
    "F11": (
        test_api_keys.test_a_revoked_key_is_refused_on_the_next_request_and_listed_no_more,
        test_identity.test_a_key_loses_its_force_at_once,
        test_routing.test_who_may_no_longer_do_it_when_a_slow_body_ends_does_nothing,
        test_identity.test_a_key_works_until_the_moment_it_expires,
        test_attacks.test_what_is_taken_away_in_one_process_is_gone_in_the_other,
    ),
    "F12": (
        test_api_keys.test_a_new_key_is_shown_once_and_works,
        test_identity.test_the_last_use_of_a_key_is_noted_once_a_minute,
    ),
    "F13": (test_attacks.test_a_key_in_a_query_string_opens_nothing_and_is_not_logged,),
    "F14": (
        test_auth.test_anything_but_one_bearer_is_unauthenticated,
        test_auth.test_a_key_opens_in_any_case_of_the_scheme,
    ),
    "F15": (
        test_sessions.test_an_unknown_address_and_a_wrong_password_get_the_same_answer,
        test_passwords.test_nobody_s_password_costs_what_anybody_s_does,
        test_sessions.test_a_refused_sign_in_takes_as_long_for_a_stranger,
        test_password_routes.test_a_stranger_gets_the_same_answer_and_no_letter,
        test_password_routes.test_the_answer_takes_as_long_for_a_stranger,
        test_sessions.test_ten_wrong_passwords_are_what_an_account_gets_from_one_network,
        test_sessions.test_a_hundred_wrong_passwords_are_what_an_account_gets_from_anywhere,
        test_password_routes.test_a_limit_of_resets_tells_nothing_of_an_account,
    ),
    "F16": (
        test_attacks.test_there_is_no_other_door,
        test_config.test_production_refuses_what_is_unsafe,
        test_main.test_the_demo_is_not_for_production,
    ),
    "F17": (
        test_admin.test_only_a_super_admin_s_own_session_may,
        test_attacks.test_no_header_makes_a_request_another_one,
        test_identity.test_a_token_with_claims_that_we_never_make_is_refused,  # is_admin
    ),
    # Somebody kept out of their own account by a stranger who knows its address.
    "F18": (
        test_sessions.test_while_a_stranger_fails_the_right_password_works_elsewhere,
        test_sessions.test_only_failures_count,
        test_sessions.test_of_many_guesses_at_once_ten_are_judged,
        test_sessions.test_registering_with_somebody_s_address_bars_nobody_from_signing_in,
        test_sessions.test_a_password_is_guessed_by_registering_no_faster_than_by_signing_in,
        test_password_routes.test_guesses_at_a_session_s_password_are_few,
    ),
    # Their letters used up, or their inbox flooded.
    "F19": (
        test_password_routes.test_nobody_uses_up_somebody_else_s_resets,
        test_password_routes.test_fifteen_letters_an_hour_are_enough,
        test_password_routes.test_letters_of_other_kinds_are_not_used_up_by_resets,
        test_password_routes.test_in_production_one_network_has_us_write_a_hundred_letters_a_day,
    ),
    # Tokens on a screen, and a workspace that is not where one belongs.
    "F20": (
        test_single_sign_on.test_a_browser_lands_on_words_and_gets_no_tokens,
        test_single_sign_on.test_where_anybody_may_register_nobody_joins_without_asking_for_it,
        test_single_sign_on.test_a_domain_is_claimed_by_who_has_an_address_there,
        test_single_sign_on.test_a_domain_is_claimed_once_by_an_owner_who_is_verified,
    ),
    # --- what they may, and whose it is ---
    "G1": (
        test_tenants.test_an_id_in_a_path_tells_a_stranger_nothing_and_its_own_people_what_they_may,
        test_tenants.test_an_id_in_a_query_finds_its_own_people_s_things_alone,
        test_tenants.test_an_id_in_a_body_is_nobody_s_to_a_stranger,
        test_tenants.test_an_id_within_another_is_asked_of_one_s_own_too,
    ),
    "G2": (test_tenants.test_an_id_in_a_definition_is_nobody_s_to_a_stranger,),
    "G3": (
        test_tenants.test_no_list_shows_a_stranger_anything,
        test_attacks.test_no_filter_no_search_and_no_export_finds_a_rival_s,
        test_paging.test_a_cursor_is_good_for_its_own_list_only,
    ),
    "G4": (
        test_policy.test_the_policy_is_pinned,
        test_policy.test_every_role_is_held_to_the_policy,
        test_policy.test_without_a_bearer_only_what_is_public_is_open,
    ),
    "G5": (
        test_memberships.test_nobody_raises_themselves,
        test_memberships.test_an_admin_makes_no_owners,
        test_memberships.test_a_key_of_an_owner_grants_no_more_than_its_own_role,
        test_memberships.test_an_admin_neither_lowers_nor_removes_an_owner,
        test_memberships.test_the_last_owner_stays,
        test_memberships.test_of_two_owners_who_lower_each_other_at_once_one_stays,
        test_memberships.test_who_is_lowered_or_removed_meanwhile_gives_and_takes_nothing,
        test_invitations.test_an_inviter_who_is_lowered_while_a_password_is_hashed_gives_nothing,
        test_roles.test_nobody_grants_more_than_they_hold,
    ),
    "G6": (
        test_invitations.test_an_invitation_is_accepted_once,
        test_invitations.test_of_many_who_accept_at_once_one_succeeds,
        test_invitations.test_an_expired_invitation_is_worthless,
        test_invitations.test_who_is_removed_takes_no_invitation_along,
        test_invitations.test_what_is_no_invitation_is_not_found,
    ),
    "G7": (test_tenants.test_no_body_sets_what_is_ours_to_set,),
    # And every answer of the suite: tests/conformance.py.
    "G8": (test_fuzz.test_no_request_is_answered_otherwise_than_the_document_says,),
    "G9": (
        test_auth.test_a_plan_is_judged_after_the_role,
        test_billing.test_the_audit_feed_opens_with_the_plan,
    ),
    # In place of row-level security: nothing is asked for that does not name its workspace.
    "G10": (test_layers.test_every_statement_names_the_workspace_or_says_why_not,),
    "G11": (test_files.test_every_connection_is_set_alike,),  # and no setting is a tenant's
    "G12": (
        test_hints.test_redis_holds_ids_as_json_and_nothing_else,
        test_worker.test_rubbish_in_redis_does_no_harm,
        test_idempotency.test_workspaces_do_not_share_an_id,
    ),
    "G13": (
        test_pool.test_what_is_logged_of_a_row_names_its_own_workspace,
        test_facts.test_another_workspace_s_tags_are_not_seen,
        test_workflows.test_a_template_of_another_workspace_is_as_unknown_as_any,
    ),
    "G14": (
        test_identity.test_a_damaged_key_is_refused_without_a_query,  # td_live_
        test_identity.test_a_token_with_claims_that_we_never_make_is_refused,  # aud
    ),
    # A member unasked; an answer that tells who has an account.
    "G15": (
        test_memberships.test_whoever_has_the_address_is_pending_until_they_accept,
        test_memberships.test_nothing_tells_whether_an_address_has_an_account,
        test_invitations.test_whoever_is_signed_in_accepts_without_a_password,
        test_invitations.test_whoever_is_invited_may_decline,
    ),
    # Mail to anybody from a workspace of a minute ago, in the operator's name.
    "G16": (
        test_quotas.test_nothing_reaches_outsiders_before_an_owner_verified_their_address,
        test_quotas.test_a_text_message_has_no_insiders,
        test_quotas.test_a_new_workspace_sends_two_hundred_messages_a_day,
        test_quotas.test_of_many_at_once_no_more_are_sent_than_the_day_has,
        test_settings.test_nobody_chooses_an_address_on_the_operator_s_domain,
        test_settings.test_the_address_that_a_workspace_is_given_passes_for_nobody_else_s,
        test_workspaces.test_nobody_owns_more_than_twenty_workspaces,
        test_workspaces.test_in_production_nobody_makes_more_than_five_a_day,
    ),
    # Letters about accounts as a way to write to strangers.
    "G17": (
        test_invitations.test_in_production_nobody_invites_before_their_own_address_is_verified,
        test_invitations.test_a_hundred_a_day_are_enough_for_one_person,
        test_invitations.test_a_subject_has_an_end_and_no_links,
        test_account_mail.test_a_name_that_reads_as_an_address_stays_out,
    ),
    # --- the surface ---
    "M1": (
        test_paging.test_a_spoiled_cursor_is_refused,
        test_paging.test_a_cursor_is_good_for_its_own_list_only,
        test_paging.test_a_limit_is_1_to_200_in_plain_digits,
    ),
    "M2": (test_contacts.test_pages_follow_each_other_newest_first_whatever_comes_meanwhile,),
    "M3": (
        test_routing.test_a_parameter_that_no_handler_reads_is_refused,
        test_contacts.test_a_wrong_filter_is_named,
        test_layers.test_every_value_is_bound_and_only_fixed_clauses_are_joined,
    ),
    "M4": (
        test_body.test_null_clears_what_may_be_empty_and_nothing_else,
        test_body.test_what_is_wrong_is_said_where_it_is,
    ),
    "M5": (test_conditions.test_a_change_is_made_to_the_revision_that_is_meant,),
    "M6": (
        test_graph.test_a_graph_has_its_size,
        test_graph.test_a_draft_may_not_be,
        test_check.test_a_cycle_without_a_wait_is_an_error,
        test_attacks.test_a_definition_is_no_larger_than_anybody_reads,
    ),
    "M7": (
        test_edge.test_no_other_site_is_let_in,
        test_edge.test_credentials_are_never_asked_for,
    ),
    "M8": (
        test_keys.test_a_key_is_any_printable_ascii,
        test_keys.test_a_key_that_is_none_is_refused,
        test_keys.test_a_key_counts_in_its_workspace_and_at_its_path,
    ),
    "M9": (
        test_attacks.test_no_header_makes_a_request_another_one,
        test_attacks.test_there_is_no_other_door,
    ),
    "M10": (
        test_policy.test_every_role_is_held_to_the_policy,
        test_openapi.test_every_route_is_in_it_and_nothing_else,
        test_attacks.test_there_is_no_other_door,
    ),
    "M11": (
        test_resend.test_every_error_says_whether_resend_may_have_the_mail,
        test_twilio.test_without_a_clear_answer_nobody_knows,
        test_stripe.test_what_is_signed_but_no_json_is_malformed,
        test_calling.test_a_body_is_json_when_it_is_and_else_text,
    ),
    "M12": (
        test_attacks.test_many_changes_at_once_end_in_one_state_that_is_told_alike_everywhere,
        test_invitations.test_of_many_who_invite_one_address_at_once_one_invitation_is_pending,
        test_webhooks.test_the_old_secret_dies_in_every_process_the_moment_the_change_is_answered,
    ),
}


def test_no_line_of_the_catalogue_is_left_out() -> None:
    numbered = {f"{part}{n + 1}" for part, count in CATALOGUE.items() for n in range(count)}
    assert LINES.keys() == numbered
    assert all(LINES.values())
