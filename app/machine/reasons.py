"""Reasons why a step did not do the obvious thing: the stable codes, and one sentence for each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """Codes are kept for ever: runs, messages and people's own programs remember them."""

    # A message was not sent because it must not be.
    SUPPRESSED_UNSUBSCRIBED = "suppressed_unsubscribed"
    SUPPRESSED_NO_CONSENT = "suppressed_no_consent"
    SUPPRESSED_CAPPED = "suppressed_capped"
    SUPPRESSED_MAX_WAIT = "suppressed_max_wait"
    SUPPRESSED_ANSWERED = "suppressed_answered"
    SUPPRESSED_BOUNCED = "suppressed_bounced"
    SUPPRESSED_COMPLAINED = "suppressed_complained"
    SUPPRESSED_STOPPED = "suppressed_stopped"
    SUPPRESSED_MANUAL = "suppressed_manual"
    SUPPRESSED_ERASED = "suppressed_erased"
    SUPPRESSED_QUOTA = "suppressed_quota"
    SUPPRESSED_UNVERIFIED = "suppressed_unverified"
    SUPPRESSED_DAILY_LIMIT = "suppressed_daily_limit"

    # A message could not be made or sent.
    NO_ADDRESS = "no_address"
    INVALID_ADDRESS = "invalid_address"
    TEMPLATE_ERROR = "template_error"
    TEMPLATE_MISSING = "template_missing"
    CHANNEL_NOT_CONFIGURED = "channel_not_configured"
    PROVIDER_REJECTED = "provider_rejected"
    PROVIDER_THROTTLED = "provider_throttled"
    PROVIDER_UNREACHABLE = "provider_unreachable"
    PROVIDER_MISCONFIGURED = "provider_misconfigured"
    RECIPIENT_DEFERRED = "recipient_deferred"
    RECIPIENTS_REFUSED = "recipients_refused"
    SENDING_PAUSED = "sending_paused"
    BROADCAST_PAUSED = "broadcast_paused"
    BROADCAST_CANCELLED = "broadcast_cancelled"
    SCHEDULED = "scheduled"
    QUIET_HOURS = "quiet_hours"

    # A message went out, or was refused for its recipient, and this is what became of it.
    BOUNCED_HARD = "bounced_hard"
    BOUNCED_SOFT = "bounced_soft"
    COMPLAINED = "complained"

    # Nobody can say whether a message went out.
    OUTCOME_UNKNOWN = "outcome_unknown"
    WORKER_LOST = "worker_lost"
    RESTORED = "restored"

    # Nobody could, until a member looked.
    FOUND_ARRIVED = "found_arrived"
    FOUND_LOST = "found_lost"
    # Of an attempt alone: its message has ended as the earlier one did.
    ARRIVED_BEFORE = "arrived_before"

    # Another system did not do what a step asked of it.
    HTTP_STATUS = "http_status"
    HTTP_INVALID = "http_invalid"
    HTTP_REFUSED = "http_refused"
    HTTP_UNREACHABLE = "http_unreachable"
    HTTP_TIMEOUT = "http_timeout"
    HTTP_BROKEN = "http_broken"

    # A step took the other way, or found nothing to do.
    CONDITION_FALSE = "condition_false"
    ALREADY_TRUE = "already_true"
    TIMED_OUT = "timed_out"
    THROTTLED = "throttled"
    TIME_PASSED = "time_passed"
    TIME_UNREADABLE = "time_unreadable"
    TAG_EMPTY = "tag_empty"
    NOTHING_TO_CHANGE = "nothing_to_change"
    CHANGE_REFUSED = "change_refused"
    START_REFUSED = "start_refused"
    CHAIN_TOO_LONG = "chain_too_long"
    CHAIN_TOO_WIDE = "chain_too_wide"
    DATA_TOO_LARGE = "data_too_large"

    # A broadcast paused by itself, wrote to nobody, is not scheduled, or may have to pause.
    TOO_MANY_BOUNCES = "too_many_bounces"
    TOO_MANY_COMPLAINTS = "too_many_complaints"
    NOBODY_REACHABLE = "nobody_reachable"
    SEND_AT_PASSED = "send_at_passed"
    AUDIENCE_NOT_COUNTED = "audience_not_counted"
    CHANGED_SINCE_SCHEDULED = "changed_since_scheduled"

    # The run itself ended.
    CONTACT_ERASED = "contact_erased"
    DEFINITION_ARCHIVED = "definition_archived"
    CANCELLED = "cancelled"
    REENTRY_REFUSED = "reentry_refused"
    VISIT_LIMIT = "visit_limit"
    OUTPUTS_TOO_LARGE = "outputs_too_large"
    STEP_MISSING = "step_missing"
    POISONED = "poisoned"
    SIMULATION_LIMIT = "simulation_limit"


SENTENCES: Mapping[str, str] = {
    Reason.SUPPRESSED_UNSUBSCRIBED: "The contact has unsubscribed from this channel.",
    Reason.SUPPRESSED_NO_CONSENT: "The contact has not agreed to get this topic on this channel.",
    Reason.SUPPRESSED_CAPPED: "The contact has got as much marketing lately as the workspace"
    " allows.",
    Reason.SUPPRESSED_MAX_WAIT: "Quiet hours would have held the message for longer than it may"
    " wait.",
    Reason.SUPPRESSED_ANSWERED: "The contact has answered since, so there was nothing left to"
    " confirm.",
    Reason.SUPPRESSED_BOUNCED: "An earlier message to this address bounced permanently.",
    Reason.SUPPRESSED_COMPLAINED: "The recipient reported an earlier message as spam.",
    Reason.SUPPRESSED_STOPPED: "The recipient replied STOP to an earlier message.",
    Reason.SUPPRESSED_MANUAL: "A member put this address on the workspace's suppression list.",
    Reason.SUPPRESSED_ERASED: "The person behind this address had their data erased.",
    Reason.SUPPRESSED_QUOTA: "The workspace has used up its messages for this month.",
    Reason.SUPPRESSED_UNVERIFIED: "No owner has verified their email address; do, then resend.",
    Reason.SUPPRESSED_DAILY_LIMIT: "The workspace has used up its messages for today (UTC).",
    Reason.NO_ADDRESS: "There is no address to send to on this channel.",
    Reason.INVALID_ADDRESS: "The address to send to is not valid on this channel.",
    Reason.TEMPLATE_ERROR: "A template could not be rendered with the values of this run.",
    Reason.TEMPLATE_MISSING: "The template that this step names no longer exists.",
    Reason.CHANNEL_NOT_CONFIGURED: "No provider is configured for this channel.",
    Reason.PROVIDER_REJECTED: "The provider rejected the message permanently.",
    Reason.PROVIDER_THROTTLED: "The provider throttles; retries continue for 72 hours.",
    Reason.PROVIDER_UNREACHABLE: "The provider is unreachable; retries continue for 24 hours.",
    Reason.PROVIDER_MISCONFIGURED: "The provider refused the channel's credentials or sender.",
    Reason.RECIPIENT_DEFERRED: "The recipient cannot be reached for now; retries continue for 72"
    " hours.",
    Reason.RECIPIENTS_REFUSED: "The provider refuses so many recipients that it may be at fault.",
    Reason.SENDING_PAUSED: "Sending is paused; the message waits until it is resumed.",
    Reason.BROADCAST_PAUSED: "The broadcast is paused; the message waits until it is resumed.",
    Reason.BROADCAST_CANCELLED: "The broadcast was cancelled before the message left.",
    Reason.SCHEDULED: "The message waits for the time at which it is to be sent.",
    Reason.QUIET_HOURS: "The message waits for the end of the workspace's quiet hours.",
    Reason.BOUNCED_HARD: "The address does not exist, or permanently refuses messages.",
    Reason.BOUNCED_SOFT: "The address refused the message this time; five in a row suppress it.",
    Reason.COMPLAINED: "The recipient reported the message as spam.",
    Reason.OUTCOME_UNKNOWN: "The provider may or may not have accepted the message.",
    Reason.WORKER_LOST: "A worker was lost while handing the message to the provider.",
    Reason.RESTORED: "It was due in a restored backup, and may have been done since.",
    Reason.FOUND_ARRIVED: "A member looked, and found that the message arrived.",
    Reason.FOUND_LOST: "A member looked, and found that the message did not arrive.",
    Reason.ARRIVED_BEFORE: "An earlier attempt has arrived, so this one was not made.",
    Reason.HTTP_STATUS: "The server did not answer with a success status.",
    Reason.HTTP_INVALID: "The step's templates did not render to a valid request.",
    Reason.HTTP_REFUSED: "The address is not on the public internet, so nothing was sent; the"
    " operator can allow others (EGRESS_ALLOW).",
    Reason.HTTP_UNREACHABLE: "The server could not be reached, so nothing was sent.",
    Reason.HTTP_TIMEOUT: "The server did not answer in time; it may have processed the request.",
    Reason.HTTP_BROKEN: "The response was lost; the server may have processed the request.",
    Reason.CONDITION_FALSE: "No case held, so the run took the else exit.",
    Reason.ALREADY_TRUE: "A condition held when the run arrived, so it did not wait.",
    Reason.TIMED_OUT: "Nothing that the step waits for happened in time.",
    Reason.THROTTLED: "The contact has passed this step as often as it allows.",
    Reason.TIME_PASSED: "The time to wait for had passed, so the run went on at once.",
    Reason.TIME_UNREADABLE: "The time to wait for cannot be parsed as a time.",
    Reason.TAG_EMPTY: "The tag rendered as empty, so no tag was changed.",
    Reason.NOTHING_TO_CHANGE: "Every value rendered as empty, so the contact was not changed.",
    Reason.CHANGE_REFUSED: "A new value is not valid for a contact, so nothing was changed.",
    Reason.START_REFUSED: "The flow to start is not active, so nothing was started.",
    Reason.CHAIN_TOO_LONG: "Ten runs had started one another, so no further run was started.",
    Reason.CHAIN_TOO_WIDE: "The chain that the first run began has started 1,000 runs, so no"
    " further run was started.",
    Reason.DATA_TOO_LARGE: "The data rendered for the run to start is too large.",
    Reason.TOO_MANY_BOUNCES: "Too many of the broadcast's last messages bounced permanently.",
    Reason.TOO_MANY_COMPLAINTS: "Too many of the broadcast's last messages were reported as spam.",
    Reason.NOBODY_REACHABLE: "Nobody in the audience can be written to, so nothing was sent.",
    Reason.SEND_AT_PASSED: "The time at which the broadcast was to be sent has passed; give another"
    " one, or none to send it at once.",
    Reason.AUDIENCE_NOT_COUNTED: "There was no time to count the whole audience: whether the"
    " messages left are enough for it is not known.",
    Reason.CHANGED_SINCE_SCHEDULED: "The broadcast was changed after it was scheduled, so it is a"
    " draft until it is scheduled again.",
    Reason.CONTACT_ERASED: "The contact was erased, which ends its runs.",
    Reason.DEFINITION_ARCHIVED: "The flow was archived, which ends its runs.",
    Reason.CANCELLED: "A member cancelled the run.",
    Reason.REENTRY_REFUSED: "The flow does not let the contact through again now.",
    Reason.VISIT_LIMIT: "The run exceeded the limit of steps per run.",
    Reason.OUTPUTS_TOO_LARGE: "What the run's steps left for later ones, such as the answers to"
    " HTTP requests, is more than 512 KiB in all.",
    Reason.STEP_MISSING: "The run's current step does not exist in its flow.",
    Reason.POISONED: "The work on it crashed its worker several times and was given up.",
    Reason.SIMULATION_LIMIT: "The simulation reached its limit of 2,000 visits, 4 MB, one second"
    " or the year 9990; a real run would continue.",
}


# For a message: it was not sent because it must not be.
SUPPRESSING = (
    *(reason for reason in Reason if reason.startswith("suppressed_")),
    Reason.BROADCAST_CANCELLED,
    Reason.CANCELLED,
    Reason.CONTACT_ERASED,
    Reason.DEFINITION_ARCHIVED,
)


# What a program changes, where the sentence says it in words.
MEMBERS: Mapping[Reason, str] = {
    Reason.SUPPRESSED_CAPPED: "frequencyCap",
    Reason.SUPPRESSED_MAX_WAIT: "quietHours.maxWait",
    Reason.SENDING_PAUSED: "sendingPaused",
    Reason.SCHEDULED: "sendAt",
    Reason.QUIET_HOURS: "quietHours",
    Reason.SEND_AT_PASSED: "sendAt",
    Reason.REENTRY_REFUSED: "trigger.reentry",
}


# Of flows that start no runs, as a sentence goes on: "The flow is …".
STATES: Mapping[str, str] = {"DRAFT": "a draft", "PAUSED": "paused", "ARCHIVED": "archived"}


def member(name: str | None) -> str:
    """Name the member behind its sentence in a table."""
    return f" (`{name}`)" if name else ""


def page() -> str:
    """docs/reasons.md."""
    suppressing = ", ".join(f"`{reason}`" for reason in SUPPRESSING)
    rows = "\n".join(
        f"| `{reason}` | {SENTENCES[reason]}{member(MEMBERS.get(reason))} |" for reason in Reason
    )
    return f"""# Reasons

Every step, message and run that did not do the obvious thing carries one of these codes, with its
explanation or a more specific one, in the words of the console: a flow is an automation or a
workflow. In parentheses is the member that a program changes. Codes never change. `python -m app
reasons` prints this page.

A message's is on its page in the console, and in `GET /messages/:id` as `reason`. One that is
`SUPPRESSED` has one of {suppressing}.

| code | what it means |
|---|---|
{rows}
"""


def resource(code: str | None, detail: str | None) -> dict[str, str | None] | None:
    """The form that clients see; None for the obvious thing."""
    if code is None and detail is None:
        return None
    return {"code": code, "detail": detail or SENTENCES.get(code or "")}
