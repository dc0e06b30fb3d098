"""The oracle: rules that hold when all is over, by the ledgers of both sides and the database.

A sender that got no answer knows nothing: that its event is there and that it is not are both
right. What it was told must be so.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from app.store.usage import CONTACTS, MESSAGES
from lab.chaos import answers, events, probes, timing
from lab.chaos.answers import Check, Judged
from lab.chaos.evidence import Evidence, Row
from lab.chaos.faults import FINAL_DOTS, NO_DATABASE_FOR_WORKERS, PAUSES
from lab.chaos.senders import REFUSED
from lab.chaos.stage import WEBS, WORKERS
from lab.chaos.timing import WAIT_SECONDS
from workers import kinds

SETTLED = {"SENT", "DELIVERED", "FAILED", "UNKNOWN", "SUPPRESSED"}
RESENDING = "resending"  # the flow whose message is sent again when its outcome is UNKNOWN
ATTEMPTS = 3  # of such a message
CALLS = 3  # that a step may make, all told
PASSING = {"provider_unreachable", "provider_throttled", "worker_lost"}  # it is tried again
CUT_CALL = "http_broken"  # why a run fails whose call was cut off, or lost with its workers
TAG = "seen"  # that the flow of three steps gives
IN_HAND = kinds.WORKERS["message"].concurrency // 2  # of one workspace, by one worker
SEEN_SECONDS = 1.0  # between what happened and who wrote it down


def findings(evidence: Evidence) -> list[str]:
    """Everything that should not be, in words; empty is what we want."""
    timing.measure(evidence)
    found: list[str] = []
    for check, judged in CHECKS.items():
        wrong = list(check(evidence))
        found += wrong
        if judged is not None:
            evidence.figures[_words(check)] = f"not: {_bounded(len(wrong), judged(evidence))}"
    if not found:
        for name, some in (("faults", ""), ("kills", "kill -9")):
            struck = [one.name for one in evidence.faults if one.hits and one.name.startswith(some)]
            evidence.figures[f"{name} that did harm"] = _bounded(0, len(struck))
    return found


def _words(check: Check) -> str:
    return check.__name__.strip("_").replace("_", " ")


def _bounded(wrong: int, of: int) -> str:
    """0 of n says, at 95 %, less than 3 in n (the rule of three)."""
    bound = f", at 95 % less than {3 / of:.1e}" if of > 3 else ", too few to say anything"
    return f"{wrong} of {of:,}{'' if wrong else bound}"


# --- runs -----------------------------------------------------------------------------------------


def _runs(evidence: Evidence) -> Iterator[tuple[str, Row]]:
    """List the runs with their flow's name; the probes have runs of their own."""
    for row in evidence.runs:
        if flow := evidence.definitions.get(row["definition_id"]):
            yield flow, row


def _every_run_ended(evidence: Evidence) -> Iterator[str]:
    for row in evidence.runs:
        if row["finished_at"] is None:
            yield f"{row['id']} is still {row['status']}"
    for flow, row in _runs(evidence):
        honest = (flow, row["status"], row["reason_code"]) == ("calling", "FAILED", CUT_CALL)
        if row["finished_at"] is not None and row["status"] != "COMPLETED" and not honest:
            yield f"{row['id']} ({flow}) is {row['status']}: {row['reason_code']}"
    ended = Counter(
        " ".join(filter(None, (flow, row["status"], row["reason_code"])))
        for flow, row in _runs(evidence)
    )
    evidence.figures["runs ended"] = dict(sorted(ended.items()))


def _calls_fail_for_a_reason(evidence: Evidence) -> Iterator[str]:
    """Find calls that failed for no reason that the receiver or the proxy before it knows.

    A POST that was cut off is not made again, so one cut is reason enough. A call whose worker was
    lost is made again, CALLS times in all: it fails after as many losses while the step lasted, and
    of its calls the receiver has all but those whose worker died before making them.
    """
    received = Counter(call.run_id for call in evidence.calls)
    cut = set(evidence.cut_calls)
    steps = {row["run_id"]: row for row in evidence.steps if row["node_id"] == "call"}
    causes: Counter[str] = Counter()
    for flow, row in _runs(evidence):
        if flow != "calling" or row["status"] != "FAILED":
            continue
        calls, step = received[row["id"]], steps.get(row["id"])
        if row["id"] in cut:
            causes["cut off"] += 1
        elif not calls or step is None:
            yield f"{row['id']} failed ({row['reason_code']}), and nobody was called"
        else:
            lost = _losses(evidence, step["started_at"], step["finished_at"])
            deaths = sum(began == ended for began, ended in lost)
            if len(lost) < CALLS or calls + deaths < CALLS:
                yield f"{row['id']} failed: {calls} calls, none cut off, {len(lost)} losses"
            causes["workers lost"] += 1
    evidence.figures["calls failed"] = dict(causes)


def _every_path_was_walked_once(evidence: Evidence) -> Iterator[str]:
    walked: dict[str, list[str]] = {}
    for row in evidence.steps:
        walked.setdefault(row["run_id"], []).append(row["node_id"])
    for flow, row in _runs(evidence):
        way = list(evidence.paths[flow])
        gone = walked.get(row["id"], [])
        if gone != way if row["status"] == "COMPLETED" else gone != way[: len(gone)]:
            yield f"{row['id']} ({flow}) walked {gone}"


def _every_step_ended_with_its_run(evidence: Evidence) -> Iterator[str]:
    """Find steps that did not end with their run, or not well where the run did."""
    runs = {row["id"]: row for row in evidence.runs}
    for row in evidence.steps:
        run = runs[row["run_id"]]
        if run["finished_at"] is not None and row["finished_at"] is None:
            yield f"{run['id']} is {run['status']}, and its step {row['node_id']} has no end"
        if run["status"] == "COMPLETED" != row["status"]:
            yield f"{run['id']} completed, and its step {row['node_id']} is {row['status']}"


def _contacts_show_what_was_done_to_them(evidence: Evidence) -> Iterator[str]:
    """Find contacts that do not show what was done to them. By the steps that did it, there is
    neither a step without its effect nor an effect without its step. Of several who named a contact
    any may have been the last."""
    done = {
        (row["run_id"], row["node_id"]) for row in evidence.steps if row["status"] == "COMPLETED"
    }
    tagged: set[str] = set()
    named: dict[str, set[str]] = {}
    for _, row in _runs(evidence):
        if (row["id"], "tag") in done:
            tagged.add(row["contact_id"])
        if (row["id"], "note") in done:
            named.setdefault(row["contact_id"], set()).add(json.loads(row["body"])["name"])
    for row in evidence.contacts:
        if (TAG in row["tags"]) != (row["id"] in tagged):
            yield f"{row['id']} has the tags {row['tags']}: {row['id'] in tagged}, say its runs"
        if row["last_name"] not in named.get(row["id"], {None}):
            yield f"{row['id']} is called {row['last_name']}, not {named.get(row['id'])}"


def _waits_never_end_early(evidence: Evidence) -> Iterator[str]:
    """`PT2S` counts from the step's own beginning; so the message comes no earlier than so long
    after its event was sent, by the clocks of sender and receiver."""
    arrived: dict[str, float] = {}
    for mail in evidence.mails:
        arrived[mail.subject] = min(mail.at, arrived.get(mail.subject, mail.at))
    for sent in evidence.ledger:
        if sent.flow == "waiting" and sent.tries and sent.name in arrived:
            took = arrived[sent.name] - sent.tries[0].began
            if took < WAIT_SECONDS:
                yield f"the message of {sent.name} came {took:.3f} s after its event"
    for row in evidence.steps:
        if row["kind"] == "wait" and row["finished_at"] is not None:
            took = (row["finished_at"] - row["started_at"]).total_seconds()
            if took < WAIT_SECONDS:
                yield f"{row['run_id']} waited for {took:.3f} s instead of {WAIT_SECONDS}"


def _every_call_is_one_step(evidence: Evidence) -> Iterator[str]:
    """Find calls that are not one step: one key for each, and no more requests than are allowed."""
    keys: dict[str | None, Counter[str | None]] = {}
    for call in evidence.calls:
        keys.setdefault(call.run_id, Counter())[call.key] += 1
    calling = {row["id"]: row for flow, row in _runs(evidence) if flow == "calling"}
    for run_id, asked in keys.items():
        if run_id not in calling:
            yield f"a call was made for {run_id}, which is not there"
        if len(asked) > 1 or None in asked:
            yield f"the step of {run_id} called under {set(asked)}"
        if asked.total() > CALLS:
            yield f"the step of {run_id} called {asked.total()} times"
    for key, times in Counter(key for asked in keys.values() for key in asked).items():
        if times > 1:
            yield f"{times} steps called under {key}"
    for run_id, row in calling.items():
        if row["status"] == "COMPLETED" and run_id not in keys:
            yield f"{run_id} completed, and nobody was called"
    evidence.figures["calls received"] = len(evidence.calls)


# --- messages -------------------------------------------------------------------------------------


def _no_message_went_twice(evidence: Evidence) -> Iterator[str]:
    for key, times in Counter(mail.message_key for mail in evidence.mails).items():
        if times > 1:
            yield f"the receiver has {key} {times} times"
    steps = Counter(
        (row["run_id"], row["node_id"], row["number"]) for row in evidence.attempts if row["run_id"]
    )
    for (run_id, node_id, _), times in steps.items():
        if times > 1:
            yield f"{run_id} sent {node_id} {times} times"
    ordered = _ordered_again(evidence)
    for row in evidence.attempts:
        if row["number"] > 1 and (row["message_id"], row["number"]) not in ordered:
            yield f"attempt {row['id']} was ordered by nobody"
    for message_id, number in ordered - {
        (row["message_id"], row["number"]) for row in evidence.attempts
    }:
        yield f"{message_id} is UNKNOWN, and attempt {number} was not made"
    evidence.figures["messages received"] = len(evidence.mails)
    evidence.figures["sent again"] = f"{len(ordered)}, as their flow asks for"


def _ordered_again(evidence: Evidence) -> set[tuple[str, int]]:
    """The attempts, by message and number, that a flow asks for because the one before is UNKNOWN:
    one for each, and so no more doubles."""
    flows = {row["id"]: flow for flow, row in _runs(evidence)}
    return {
        (row["message_id"], row["number"] + 1)
        for row in evidence.attempts
        if flows.get(row["run_id"]) == RESENDING
        and row["status"] == "UNKNOWN"
        and row["number"] < ATTEMPTS
    }


def _every_event_has_its_own_messages(evidence: Evidence) -> Iterator[str]:
    """Find events without messages of their own, whatever keys we gave them."""
    runs = evidence.runs_by_event()
    again = Counter(row["run_id"] for row in evidence.attempts if row["number"] > 1)
    received: dict[str, list[str]] = {}
    for mail in evidence.mails:
        received.setdefault(mail.subject, []).append(mail.recipients[0])
    for sent in evidence.ledger:
        recipients, made = received.get(sent.name, []), runs.get(sent.body, ())
        if len(recipients) > len(made) + sum(again[row["id"]] for row in made):
            yield f"the receiver has {len(recipients)} messages of {sent.name}, of {len(made)} runs"
        if any(recipient != sent.email for recipient in recipients):
            yield f"{sent.name} is of {sent.email}, and {set(recipients)} got its message"


def _every_message_is_accounted_for(evidence: Evidence) -> Iterator[str]:
    received = {mail.message_key for mail in evidence.mails}
    for row in evidence.attempts:
        there, status = row["message_key"] in received, row["status"]
        if status not in SETTLED:
            yield f"attempt {row['id']} is still {status}"
        elif status in {"SENT", "DELIVERED"} and not there:
            yield f"attempt {row['id']} is {status}, and the receiver does not have it"
        elif status in {"FAILED", "SUPPRESSED"} and there:
            yield f"attempt {row['id']} is {status}, and the receiver has it"
        elif status == "FAILED" and not _known_late(evidence, row):
            yield f"attempt {row['id']} failed: {row['reason_code']} {row['reason_detail']}"
    for key in received - {row["message_key"] for row in evidence.attempts}:
        yield f"the receiver has {key}, of which there is no attempt"
    sent_for = {(row["run_id"], row["node_id"]) for row in evidence.attempts}
    for _, row in _runs(evidence):
        if row["status"] == "COMPLETED" and (row["id"], "say") not in sent_for:
            yield f"{row['id']} completed without its message"
    by_status = Counter(row["status"] for row in evidence.attempts)
    evidence.figures["attempts"] = dict(by_status)


def _known_late(evidence: Evidence, row: Row) -> bool:
    """Return whether the message was UNKNOWN before, by the loss of a worker that came back. That
    one could report that nobody had accepted it. For any other cause it would have been tried
    again."""
    if row["reason_code"] not in PASSING:
        return False
    reports = json.loads(row["events"])
    at = {one["status"]: datetime.fromisoformat(one["at"]) for one in reports}
    return "UNKNOWN" in at and bool(_losses(evidence, at["SENDING"], at["UNKNOWN"]))


def _a_message_and_its_attempt_agree(evidence: Evidence) -> Iterator[str]:
    """The newest. They are written in one transaction; who writes after its lease spoils one of
    them."""
    newest = {row["message_id"]: row for row in sorted(evidence.attempts, key=_number)}
    for row in newest.values():
        if row["status"] != row["of_message"]:
            yield f"attempt {row['id']} is {row['status']}, and its message {row['of_message']}"


def _number(row: Row) -> int:
    number: int = row["number"]
    return number


def _what_is_unknown_has_a_cause(evidence: Evidence) -> Iterator[str]:
    """A sender cannot know how a message ended when its connection was cut around the final dot, or
    when its worker was lost, or could not write the end down in its lease. So each UNKNOWN has a
    loss of the second kind between its intent and its end, or is one of the first; and a loss
    leaves at most what the workers that it struck had in hand."""
    dots = sum(fault.hits for fault in evidence.faults if fault.name in FINAL_DOTS)
    alone = 0
    of_losses: list[list[tuple[float, float]]] = []
    for row in evidence.attempts:
        if row["status"] == "UNKNOWN":
            reports = json.loads(row["events"])
            intent = next(one for one in reversed(reports) if one["status"] == "SENDING")
            lost = _losses(evidence, datetime.fromisoformat(intent["at"]), row["finished_at"])
            alone += not lost
            if lost:
                of_losses.append(lost)
    if alone > dots:
        yield f"{alone} are UNKNOWN without a worker's loss, of {dots} cuts of the final dot"
    over = _over(of_losses)
    if alone + over > dots:
        yield (
            f"{len(of_losses)} are UNKNOWN by losses of workers, which is {over} more than these"
            f" had in hand; {alone} have no such loss, and {dots} dots were cut"
        )
    evidence.figures["UNKNOWN"] = f"{len(of_losses)} by losses of workers, {alone} without"


def _over(of_losses: Sequence[Sequence[tuple[float, float]]]) -> int:
    """Count those that find no room under any of their losses. Each goes to one of them, and
    whoever has the fewest to choose from goes first."""
    room: dict[tuple[float, float], int] = {}
    over = 0
    for losses in sorted(of_losses, key=len):
        for one in losses:
            is_death = one[0] == one[1]
            room.setdefault(one, IN_HAND if is_death else IN_HAND * len(WORKERS))
        most = max(losses, key=lambda one: room[one])
        room[most] -= 1
        over += room[most] < 0
    return over


def _losses(evidence: Evidence, began: datetime, ended: datetime) -> list[tuple[float, float]]:
    """List when a worker died, was paused, or could not reach the database, in this time."""
    since, until = began.timestamp() - SEEN_SECONDS, ended.timestamp() + SEEN_SECONDS
    return [
        lost
        for lost in (
            *((death.at, death.at) for death in evidence.deaths if death.name not in WEBS),
            *(
                (fault.began, fault.ended)
                for fault in evidence.faults
                if fault.name in PAUSES  # the other one pauses too, for a moment
                or (fault.name in NO_DATABASE_FOR_WORKERS and fault.hits)
            ),
        )
        if lost[0] < until and since < lost[1]
    ]


def _opt_outs_hold(evidence: Evidence) -> Iterator[str]:
    """Find messages sent after an opt-out, and others left without one because of it."""
    probed = evidence.probed
    excused = {
        row["message_key"] for row in evidence.attempts if row["message_id"] in probed.in_flight
    }
    for mail in evidence.mails:
        since = probed.silent_from.get(mail.recipients[0])
        if since is not None and mail.at > since and mail.message_key not in excused:
            yield f"{mail.recipients[0]} got a message {mail.at - since:.1f} s after opting out"
    bodies = {row["id"]: row["body"] for row in evidence.runs}
    for row in evidence.attempts:
        email = json.loads(bodies[row["run_id"]])["email"] if row["run_id"] else None
        if row["status"] == "SUPPRESSED" and email not in probed.leaving:
            yield f"attempt {row['id']} to {email} was suppressed: {row['reason_code']}"
        since = probed.silent_from.get(email or "")
        if since is not None and (late := max(_times(row, "SENDING"), default=0) - since) > 0:
            yield f"attempt {row['id']} to {email} began {late:.1f} s after opting out"
    unsure = {row["message_id"] for row in evidence.attempts if _times(row, "UNKNOWN")}
    for id in probed.named_at_once - unsure:
        yield f"{id} was named as in flight, and not waited for"
    evidence.figures["opt-outs"] = len(probed.silent_from)


def _times(attempt: Row, status: str) -> list[float]:
    """List when an attempt had the status, by the database's clock, which no fault moves."""
    reports = json.loads(attempt["events"])
    return [
        datetime.fromisoformat(one["at"]).timestamp() for one in reports if one["status"] == status
    ]


# --- everything else ------------------------------------------------------------------------------


def _every_contact_is_one(evidence: Evidence) -> Iterator[str]:
    """Find contacts that are not one, by the ledger. Events about one address have one contact in
    all their runs, and no other address has it."""
    contacts: dict[str, set[str]] = {}
    emails = _addresses_by_run(evidence)
    for contact_id, theirs in emails.items():
        for email in theirs:
            contacts.setdefault(email, set()).add(contact_id)
    for several in (contacts, emails):
        for one, others in several.items():
            if len(others) > 1:
                yield f"{one} is {len(others)}: {', '.join(sorted(others))}"


def _addresses_by_run(evidence: Evidence) -> dict[str, set[str]]:
    """The addresses of the events whose runs have a contact, by its id."""
    runs = evidence.runs_by_event()
    emails: dict[str, set[str]] = {}
    for sent in evidence.ledger:
        if sent.kind not in REFUSED:
            for row in runs.get(sent.body, ()):
                emails.setdefault(row["contact_id"], set()).add(sent.email)
    return emails


def _every_contact_is_somebody(evidence: Evidence) -> Iterator[str]:
    """Find contacts that nobody is, by the table. No address is twice in a workspace, each is as
    its events have it, and none is without the run that it was made for."""
    at = Counter((row["workspace_id"], str(row["email"]).lower()) for row in evidence.contacts)
    for (workspace_id, address), times in at.items():
        if times > 1:
            yield f"{workspace_id} has {times} contacts at {address}"
    emails = _addresses_by_run(evidence)
    known = {row["id"]: row["email"] for row in evidence.contacts}
    for contact_id, theirs in emails.items():
        if known.get(contact_id) not in theirs:
            yield f"{contact_id} is at {known.get(contact_id)}, and its events are about {theirs}"
    meant = {sent.email for sent in evidence.ledger if sent.kind != "malformed"}
    for contact_id, address in known.items():
        if address in meant and contact_id not in emails:
            yield f"{contact_id} at {address} has no run"


def _what_is_counted_is_there(evidence: Evidence) -> Iterator[str]:
    """Find counts that are not those of the rows, to the last one. Both are written in one
    transaction, and nothing is erased here. A message counts once for each attempt, when it is
    first tried."""
    there = Counter((row["workspace_id"], CONTACTS) for row in evidence.contacts)
    for row in evidence.attempts:
        there[row["workspace_id"], MESSAGES] += row["tries"] > 0 and row["account_mail"] is None
    for workspace_id, meter in there.keys() | evidence.usage.keys():
        counted = evidence.usage.get((workspace_id, meter), 0)
        if counted != there[workspace_id, meter]:
            yield f"{workspace_id}: {counted} {meter} counted, of {there[workspace_id, meter]}"


def _every_fault_struck(evidence: Evidence) -> Iterator[str]:
    if len(evidence.faults) < evidence.planned:
        yield f"only {len(evidence.faults)} of {evidence.planned} faults came to strike"
    for fault in evidence.faults:
        if fault.broke:
            yield f"{fault.name}: {fault.broke}"
    struck = Counter(fault.name for fault in evidence.faults if fault.hits)
    missed = Counter(fault.name for fault in evidence.faults if not fault.hits)
    evidence.figures["faults"] = f"{struck.total()} struck, of {evidence.planned}"
    evidence.figures["of each"] = dict(struck)
    evidence.figures["found nothing to cut"] = dict(missed)


def _nobody_died_by_himself(evidence: Evidence) -> Iterator[str]:
    for death in evidence.deaths:
        if not death.as_struck:
            yield f"{death.name} ended with {death.code} at {death.at:.1f}, struck by nobody"
    evidence.figures["deaths"] = len(evidence.deaths)


def _every_probe_was_made(evidence: Evidence) -> Iterator[str]:
    yield from evidence.probed.findings
    for probe in (*probes.FIRST, *probes.ALWAYS):
        if not evidence.probed.made[probe.__name__]:
            yield f"nobody saw whether {probe.__name__.replace('_', ' ')}"
    evidence.figures["probes"] = dict(evidence.probed.made)


def _rows_and_jobs_agree(evidence: Evidence) -> Iterator[str]:
    """Check that what is to be worked on has its job, and every job something to be worked on."""
    yield from evidence.astray


def _every_trail_is_whole(evidence: Evidence) -> Iterator[str]:
    """Find audit trails with a gap, or without an entry of a change that was answered 2xx."""
    yield from evidence.trails
    for request_id, change in evidence.changes.items():
        if request_id not in evidence.audited:
            yield f"{change} was answered 2xx, and the audit trail has no entry of it"
    evidence.figures["changes audited"] = len(evidence.changes)


def _nothing_was_unexpected(evidence: Evidence) -> Iterator[str]:
    yield from evidence.tracebacks


# Each with how many it looks at; None where that says nothing.
CHECKS: Mapping[Check, Judged | None] = {
    **answers.CHECKS,
    **events.CHECKS,
    _every_run_ended: lambda evidence: len(evidence.runs),
    _calls_fail_for_a_reason: lambda evidence: sum(
        (flow, row["status"]) == ("calling", "FAILED") for flow, row in _runs(evidence)
    ),
    _every_path_was_walked_once: lambda evidence: len(list(_runs(evidence))),
    _every_step_ended_with_its_run: lambda evidence: len(evidence.steps),
    _contacts_show_what_was_done_to_them: lambda evidence: len(evidence.contacts),
    _waits_never_end_early: lambda evidence: sum(row["kind"] == "wait" for row in evidence.steps),
    _every_call_is_one_step: lambda evidence: len(evidence.calls),
    _no_message_went_twice: lambda evidence: len(evidence.mails),
    _every_event_has_its_own_messages: lambda evidence: len(evidence.mails),
    _every_message_is_accounted_for: lambda evidence: len(evidence.attempts),
    _a_message_and_its_attempt_agree: lambda evidence: len(evidence.attempts),
    _what_is_unknown_has_a_cause: lambda evidence: sum(
        row["status"] == "UNKNOWN" for row in evidence.attempts
    ),
    _opt_outs_hold: lambda evidence: len(evidence.probed.silent_from),
    _every_contact_is_one: lambda evidence: len(evidence.contacts),
    _every_contact_is_somebody: lambda evidence: len(evidence.contacts),
    _what_is_counted_is_there: lambda evidence: sum(evidence.usage.values()),
    timing.work_went_on_soon: None,
    _every_fault_struck: None,
    _nobody_died_by_himself: None,
    _every_probe_was_made: None,
    _rows_and_jobs_agree: None,
    _every_trail_is_whole: lambda evidence: len(evidence.changes),
    _nothing_was_unexpected: None,
}
