"""Each check of the oracle finds what it is there for, and nothing where all is well."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app.database.engine import OUT_OF_REACH, OUTCOME_UNKNOWN
from lab.chaos import oracle, probes
from lab.chaos.evidence import Called, Evidence, Struck, cut_calls, keep
from lab.chaos.probes import Probed
from lab.chaos.senders import AWAY, CUT, LATE, LEFT, Sent, Try
from lab.chaos.stage import Death, Interrupted
from lab.chaos.subscriber import ABOUT, ReceivedEvent
from lab.chaos.timing import JUDGED_FROM, JUDGED_KILLS
from tests.receivers import Received

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
PATHS = {
    "three steps": ["tag", "say", "note"],
    "waiting": ["wait", "say"],
    "calling": ["call", "say"],
    "resending": ["say"],
}
PORTS = {"web 1": 8001, "web 2": 8002}


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOON + seconds, UTC)


def event(name: str, kind: str, flow: str, *tries: Try) -> Sent:
    body = json.dumps({"email": f"{name}@customer.example", "name": name}).encode()
    return Sent(name, kind, flow, body[:-1] if kind == "malformed" else body, list(tries))


def refused(
    began: float, status: int, name: str = "", detail: str = OUT_OF_REACH, **more: Any
) -> Try:
    accepted = {"runId": f"run_{name}", "contactId": f"con_{name}"}
    answer = accepted if status == 202 else {"detail": detail}
    return Try(NOON + began, NOON + began + 0.1, status, answer, port=8001, **more)


def late(began: float, seconds: float, status: int, **more: Any) -> Try:
    return replace(refused(began, status, **more), ended=NOON + began + seconds)


def silent(began: float, why: str, **more: Any) -> Try:
    return Try(NOON + began, NOON + began + 0.1, None, {}, why, port=8001, **more)


def clean() -> Evidence:
    """A short campaign in which everything went as it should, some of it badly."""
    ledger = [
        event("plain", "once", "three steps", refused(1, 202, "plain")),
        event("keyed", "keyed", "waiting", refused(2, 202, "keyed"), refused(3, 202, "keyed")),
        event("called", "once", "calling", refused(4, 202, "called")),
        event("failed", "once", "calling", refused(5, 202, "failed")),
        event("unsure", "once", "resending", refused(6, 202, "unsure")),
        event("forged", "forged", "waiting", refused(7, 401)),
        event("broken", "malformed", "waiting", refused(7, 400)),
        event("half", "hasty", "waiting", silent(8, LEFT, whole=False)),
        event("refused", "once", "waiting", refused(21, 503, retry_after="2")),
        event("early", "once", "waiting", refused(61, 503, retry_after="1")),
        event("cut", "once", "waiting", silent(30, CUT)),
        event("nobody", "once", "waiting", silent(50, AWAY)),
    ]
    ledger[9].tries[0].port = PORTS["web 2"]
    evidence = Evidence(
        ledger=ledger,
        paths=PATHS,
        definitions={f"wfl_{flow}": flow for flow in PATHS},
        planned=6,
        faults=[
            Struck("an HTTP answer cut off", NOON + 5, NOON + 5.5),
            Struck("the final dot cut after", NOON + 6, NOON + 6.5),
            Struck("PostgreSQL stopped at once", NOON + 19, NOON + 20),
            Struck("kill -9 a web process", NOON + 30, NOON + 30),
            Struck("RCPT cut before", NOON + 33, NOON + 36, hits=0),
            Struck("kill -9 everything", NOON + 49, NOON + 49),
        ],
        deaths=[
            Death(NOON + 30.05, "web 1", -9, as_struck=True),
            Death(NOON + 49, "web 1", -9, as_struck=True),
            Death(NOON + 49, "web 2", -9, as_struck=True),
        ],
        interrupted=[],
        booting={8001: [(NOON - 60, NOON - 58)], 8002: [(NOON + 60, NOON + 62)]},
        ports=PORTS,
        probed=Probed(
            made=Counter(probe.__name__ for probe in (*probes.FIRST, *probes.ALWAYS)),
            leaving={"out@customer.example"},
            silent_from={"out@customer.example": NOON + 10},
        ),
        runs=[],
        steps=[],
        attempts=[],
        contacts=[],
        usage={("ws_1", "contacts"): 6, ("ws_1", "messages"): 5},
        mails=[],
        calls=[Called("run_called", "key of called"), Called("run_failed", "key of failed")],
        cut_calls=["run_failed"],
        received=[],
        subscribed_at=at(0),
        event_attempts=[],
        changes={"request 1": "PATCH /workflows/wfl_1"},
        audited={"request 1"},
        astray=[],
        trails=[],
        tracebacks=[],
    )
    for sent in ledger[:5]:
        ran(evidence, sent)
    out = event("out", "once", "probe")
    ran(evidence, out)
    became(evidence, "called", "SENT")
    became(evidence, "failed", None)
    run(evidence, "failed").update(status="FAILED", reason_code="http_broken")
    evidence.steps = [row for row in evidence.steps if row != step("failed", "say")]
    became(evidence, "unsure", "UNKNOWN")
    became(evidence, "out", "SUPPRESSED")
    send(evidence, "run_unsure", "unsure", "second key of run_unsure", number=2)
    reported(evidence, "run.failed", "run_failed")
    reported(evidence, "message.unknown", "att_unsure")
    evidence.received.append(evidence.received[-1])
    return evidence


def reported(evidence: Evidence, type: str, about: str) -> None:
    id = f"evt_{about}"
    body = json.dumps({"type": type, "data": {ABOUT[type]: about}}).encode()
    evidence.received.append(ReceivedEvent(id, body))
    taken = {"event_id": id, "status": "SUCCEEDED", "reason_code": None}
    evidence.event_attempts.append(taken)


def ran(evidence: Evidence, sent: Sent, id: str = "") -> None:
    """Its run, walked to the end, and its message, received."""
    name, run_id = sent.name, id or f"run_{sent.name}"
    if not any(row["id"] == f"con_{name}" for row in evidence.contacts):
        evidence.contacts.append(contact(sent))
        reported(evidence, "contact.created", f"con_{name}")
    evidence.runs.append(
        {
            "id": run_id,
            "definition_id": f"wfl_{sent.flow}",
            "contact_id": f"con_{name}",
            "body": sent.body,
            "status": "COMPLETED",
            "reason_code": None,
            "created_at": at(1),
            "finished_at": at(9),
        }
    )
    evidence.steps += [step(run_id.removeprefix("run_"), node) for node in PATHS.get(sent.flow, ())]
    send(evidence, run_id, name, f"key of {run_id}")


def contact(sent: Sent) -> dict[str, Any]:
    done = PATHS.get(sent.flow, ())
    return {
        "workspace_id": "ws_1",
        "id": f"con_{sent.name}",
        "email": f"{sent.name}@customer.example",
        "last_name": sent.name if "note" in done else None,
        "tags": ["seen"] if "tag" in done else [],
        "created_at": at(1),
    }


def step(name: str, node: str) -> dict[str, Any]:
    return {
        "status": "COMPLETED",
        "run_id": f"run_{name}",
        "node_id": node,
        "kind": node,
        "started_at": at(2),
        "finished_at": at(4.1),
    }


def send(evidence: Evidence, run_id: str, name: str, key: str, number: int = 1) -> None:
    events = [{"at": at(6).isoformat(), "status": "SENDING"}]
    evidence.attempts.append(
        {
            "id": f"att_{name}{number if number > 1 else ''}",
            "workspace_id": "ws_1",
            "tries": 1,
            "account_mail": None,
            "message_id": f"msg_{name}",
            "run_id": run_id,
            "node_id": "say",
            "number": number,
            "message_key": key,
            "status": "SENT",
            "of_message": "SENT",
            "reason_code": None,
            "reason_detail": None,
            "events": json.dumps(events),
            "finished_at": at(7),
        }
    )
    evidence.mails = [*evidence.mails, mail(name, key)]


def mail(name: str, key: str, to: str = "") -> Received:
    raw = f"Message-ID: <{key}@acme.test>\r\nSubject: {name}\r\n\r\nHello\r\n".encode()
    to = to or f"{name}@customer.example"
    return Received(NOON + 8, "hello@acme.test", (to,), False, 1, raw)


def became(evidence: Evidence, name: str, status: str | None) -> None:
    """Another end of its message, or none; only what is SENT was received."""
    if status is None:
        evidence.attempts.remove(attempt(evidence, name))
    else:
        tries = status != "SUPPRESSED"
        one = attempt(evidence, name)
        history = [*json.loads(one["events"]), {"at": at(7).isoformat(), "status": status}]
        one.update(status=status, of_message=status, tries=tries, events=json.dumps(history))
    if status != "SENT":
        evidence.mails = [mail for mail in evidence.mails if mail.subject != name]


def row_of(rows: Sequence[Mapping[str, Any]], id: str) -> dict[str, Any]:
    """The row itself, to be changed."""
    row = next(row for row in rows if row["id"] == id)
    assert isinstance(row, dict)
    return row


def run(evidence: Evidence, name: str) -> dict[str, Any]:
    return row_of(evidence.runs, f"run_{name}")


def attempt(evidence: Evidence, name: str) -> dict[str, Any]:
    return row_of(evidence.attempts, f"att_{name}")


def sent(evidence: Evidence, name: str) -> Sent:
    return next(one for one in evidence.ledger if one.name == name)


Plant: TypeAlias = Callable[[Evidence], object]


def plain_is_told(*tries: Try) -> Plant:
    return lambda evidence: sent(evidence, "plain").tries.extend(tries)


def of_run(name: str, **columns: Any) -> Plant:
    return lambda evidence: run(evidence, name).update(columns)


def of_attempt(name: str, **columns: Any) -> Plant:
    return lambda evidence: attempt(evidence, name).update(columns)


def of_contact(name: str, **columns: Any) -> Plant:
    return lambda evidence: row_of(evidence.contacts, f"con_{name}").update(columns)


def another_run_of(name: str) -> Plant:
    return lambda evidence: ran(evidence, sent(evidence, name), "run_other")


def called(*calls: Called) -> Plant:
    return lambda evidence: setattr(evidence, "calls", [*evidence.calls, *calls])


def received(one: ReceivedEvent) -> Plant:
    return lambda evidence: evidence.received.append(one)


def added(list_name: str, value: object) -> Plant:
    return lambda evidence: getattr(evidence, list_name).append(value)


def without_mail(name: str) -> Plant:
    def plant(evidence: Evidence) -> None:
        evidence.mails = [mail for mail in evidence.mails if mail.subject != name]

    return plant


def with_mail(name: str, key: str, to: str = "") -> Plant:
    def plant(evidence: Evidence) -> None:
        evidence.mails = [*evidence.mails, mail(name, key, to)]

    return plant


def all_of(*plants: Plant) -> Plant:
    return lambda evidence: [plant(evidence) for plant in plants]


def without_steps(name: str, *nodes: str) -> Plant:
    def plant(evidence: Evidence) -> None:
        gone = [step(name, node) for node in nodes]
        evidence.steps = [row for row in evidence.steps if row not in gone]

    return plant


def failed(name: str) -> Plant:
    return of_run(name, status="FAILED", reason_code="http_broken")


def worker_deaths(*seconds: float) -> list[Plant]:
    return [
        added("deaths", Death(NOON + second, "worker 1", -9, as_struck=True)) for second in seconds
    ]


def promised(number: int) -> Plant:
    return lambda evidence: setattr(evidence, "promise", number)


def in_hand(kill: float, end: float, count: int) -> list[Plant]:
    """Plant so many kills."""
    return [
        of_run("plain", finished_at=at(end)),
        lambda evidence: setattr(
            evidence, "interrupted", [Interrupted(NOON + kill, ["run_plain"])] * count
        ),
    ]


def no_run_in_hand(evidence: Evidence) -> None:
    evidence.interrupted = [Interrupted(NOON + 10, [])] * JUDGED_KILLS


CALLED = Called("run_called", "key of called")

# By check: what is planted, and what must be found.
PLANTS: dict[str, list[tuple[Plant, str]]] = {
    "every_sender_was_answered": [
        (plain_is_told(refused(40, 503, retry_after="1")), "plain .*: 503, without a reason"),
        (plain_is_told(refused(25.5, 503, retry_after="1")), "plain .*: 503, without a reason"),
        (plain_is_told(refused(61, 503, retry_after="1")), "plain .*: 503, without a reason"),
        (plain_is_told(refused(20.5, 503)), "plain .* 503 without Retry-After"),
        (plain_is_told(late(19.5, 10.5, 503, retry_after="1")), "plain .*: 503 after 10.5 s"),
        (plain_is_told(refused(20.5, 500)), "plain .*was answered with 500"),
        (plain_is_told(refused(20.5, 404)), "plain .*was answered with 404"),
        (plain_is_told(silent(30, LATE)), "plain .*: nothing came in time, without a reason"),
        (plain_is_told(silent(40, CUT)), "plain .*: cut off, without a reason"),
        (
            lambda evidence: setattr(sent(evidence, "cut").tries[0], "port", 8002),
            "cut .*: cut off, without a reason",
        ),
        (plain_is_told(silent(35, AWAY)), "plain .*: nobody took .*, without a reason"),
        (
            lambda evidence: sent(evidence, "forged").tries.append(refused(8, 202, "forged")),
            "forged .*was accepted",
        ),
        (
            lambda evidence: sent(evidence, "forged").tries.append(refused(8, 400)),
            "forged .*was answered with 400",
        ),
    ],
    "what_was_accepted_is_there": [
        (plain_is_told(refused(2, 202, "lost")), "plain .*run_lost, which is not there"),
        (of_run("plain", body=b"{}"), "plain: the body of its run is another"),
        (of_run("plain", contact_id="con_x"), "plain: its run is about another contact"),
    ],
    "one_event_is_as_many_runs_as_were_accepted": [
        (another_run_of("plain"), "plain .*2 runs of 1 tries"),
        *(
            (all_of(plain_is_told(one), another_run_of("plain")), "plain .*2 runs of 2 tries, 1 of")
            for one in (silent(50, AWAY), refused(21, 503, retry_after="2"), refused(21, 401))
        ),
        (another_run_of("keyed"), "keyed .*2 runs of 2 tries"),
        (another_run_of("forged"), "forged .*1 runs of 1 tries"),
        (another_run_of("broken"), "broken .*1 runs of 1 tries"),
        (another_run_of("half"), "half .*1 runs of 1 tries"),
        (
            lambda evidence: sent(evidence, "keyed").tries.append(refused(4, 202, "plain")),
            "keyed: one key was answered with",
        ),
        (
            lambda evidence: ran(evidence, event("stranger", "once", "waiting")),
            "a run of what nobody sent: .*stranger",
        ),
    ],
    "_every_run_ended": [
        (of_run("plain", status="RUNNING", finished_at=None), "run_plain is still RUNNING"),
        (of_run("plain", status="FAILED", reason_code="http_broken"), "run_plain .*is FAILED"),
        (of_run("called", status="FAILED", reason_code="poisoned"), "run_called .*is FAILED"),
        (of_run("plain", status="CANCELLED"), "run_plain .*is CANCELLED"),
        (of_run("failed", reason_code="http_timeout"), "run_failed .*is FAILED: http_timeout"),
    ],
    "_calls_fail_for_a_reason": [
        (failed("called"), "run_called failed: 1 calls, none cut off, 0 losses"),
        (
            all_of(failed("called"), lambda evidence: setattr(evidence, "calls", [])),
            "run_called failed .*, and nobody was called",
        ),
        (all_of(failed("called"), *worker_deaths(3, 3.1)), "1 calls, none cut off, 2 losses"),
        # Before the step began, whenever its run was made.
        (
            all_of(failed("called"), *[called(CALLED)] * 2, *worker_deaths(0.1, 0.2, 0.3)),
            "3 calls, none cut off, 0 losses",
        ),
        (
            all_of(
                failed("called"),
                *(
                    added("faults", Struck("PostgreSQL read-only", NOON + n, NOON + n + 0.5))
                    for n in (2, 3, 4)
                ),
            ),
            "1 calls, none cut off, 3 losses",
        ),
    ],
    "_every_path_was_walked_once": [
        (without_steps("plain", "note"), "run_plain .*walked"),
        (added("steps", step("plain", "tag")), "run_plain .*walked"),
        (added("steps", step("failed", "tag")), "run_failed .*walked"),
    ],
    "_every_step_ended_with_its_run": [
        (
            added("steps", {**step("failed", "call"), "finished_at": None}),
            "run_failed is FAILED, and its step call has no end",
        ),
        (
            added("steps", {**step("plain", "note"), "status": "WAITING"}),
            "run_plain completed, and its step note is WAITING",
        ),
    ],
    "_contacts_show_what_was_done_to_them": [
        (of_contact("plain", tags=[]), "con_plain has the tags \\[\\]: True, say its runs"),
        (of_contact("keyed", tags=["seen"]), "con_keyed has the tags .*: False, say its runs"),
        (of_contact("plain", last_name=None), "con_plain is called None, not {'plain'}"),
        (of_contact("keyed", last_name="keyed"), "con_keyed is called keyed, not None"),
    ],
    "_waits_never_end_early": [
        (
            added("steps", {**step("keyed", "wait"), "finished_at": at(3.9)}),
            "run_keyed waited for 1.900 s",
        ),
        (
            lambda evidence: setattr(
                sent(evidence, "keyed"), "tries", [refused(6.5, 202, "keyed")]
            ),
            "the message of keyed came 1.500 s after its event",
        ),
    ],
    "_every_call_is_one_step": [
        (called(Called("run_lost", "key")), "a call was made for run_lost"),
        (called(Called("run_called", "another key")), "the step of run_called called under"),
        (called(Called("run_called", None)), "the step of run_called called under"),
        (called(*[Called("run_called", "key of called")] * 3), "run_called called 4 times"),
        (
            lambda evidence: setattr(
                evidence, "calls", [Called(f"run_{name}", "one") for name in ("called", "failed")]
            ),
            "2 steps called under one",
        ),
        (lambda evidence: setattr(evidence, "calls", []), "run_called completed, and nobody"),
    ],
    "_no_message_went_twice": [
        (with_mail("plain", "key of run_plain"), "the receiver has key of run_plain 2 times"),
        (
            lambda evidence: send(evidence, "run_plain", "plain", "second key"),
            "run_plain sent say 2 times",
        ),
        (of_attempt("plain", number=2), "attempt att_plain was ordered by nobody"),
        (of_attempt("unsure", status="SENT"), "attempt att_unsure2 was ordered by nobody"),
        (of_attempt("unsure2", number=3), "attempt att_unsure2 was ordered by nobody"),
        (
            lambda evidence: evidence.attempts.remove(attempt(evidence, "unsure2")),
            "msg_unsure is UNKNOWN, and attempt 2 was not made",
        ),
    ],
    "_every_event_has_its_own_messages": [
        (with_mail("plain", "another key"), "the receiver has 2 messages of plain, of 1 runs"),
        (with_mail("forged", "another key"), "the receiver has 1 messages of forged, of 0 runs"),
        (
            all_of(with_mail("unsure", "key"), with_mail("unsure", "another key")),
            "the receiver has 3 messages of unsure, of 1 runs",
        ),
        (
            all_of(without_mail("plain"), with_mail("plain", "key of run_plain", "eve@x.example")),
            "plain is of plain@customer.example, and .*eve@x.example",
        ),
    ],
    "_every_message_is_accounted_for": [
        (of_attempt("plain", status="SENDING"), "att_plain is still SENDING"),
        (without_mail("plain"), "att_plain is SENT, and the receiver does not have it"),
        (of_attempt("plain", status="FAILED"), "att_plain is FAILED, and the receiver has it"),
        (of_attempt("plain", status="SUPPRESSED"), "att_plain is SUPPRESSED, and the receiver has"),
        (
            all_of(of_attempt("plain", status="FAILED"), without_mail("plain")),
            "att_plain failed",
        ),
        (with_mail("letter", "nobody's key"), "nobody's key, of which there is no attempt"),
        (
            lambda evidence: became(evidence, "plain", None),
            "run_plain completed without its message",
        ),
    ],
    "_a_message_and_its_attempt_agree": [
        (of_attempt("plain", status="SENDING"), "att_plain is SENDING, and its message SENT"),
        (of_attempt("unsure2", status="FAILED"), "att_unsure2 is FAILED, and its message SENT"),
    ],
    "_what_is_unknown_has_a_cause": [
        (of_attempt("plain", status="UNKNOWN"), "2 are UNKNOWN without a worker's loss, of 1"),
        (
            all_of(
                added("deaths", Death(NOON + 6.5, "worker 1", -9, as_struck=True)),
                *(
                    lambda evidence, n=n: send(evidence, f"run_{n}", f"more{n}", f"key {n}")
                    for n in range(129)
                ),
                *(of_attempt(f"more{n}", status="UNKNOWN") for n in range(129)),
            ),
            "130 are UNKNOWN by losses of workers, which is 2 more than",
        ),
    ],
    "every_event_is_signed_and_its_copies_are_the_same": [
        (
            received(ReceivedEvent("evt_x", b"{}", "No matching signature")),
            "evt_x is signed wrongly: No",
        ),
        (received(ReceivedEvent("evt_run_failed", b"{}")), "evt_run_failed came with two bodies"),
    ],
    "what_happened_was_told_once": [
        (
            lambda evidence: evidence.received.pop(0),
            "contact.created of con_plain happened 1 times, and 0 were told",
        ),
        (
            lambda evidence: reported(evidence, "run.failed", "run_plain"),
            "run.failed of run_plain happened 0 times, and 1 were told",
        ),
        (
            lambda evidence: evidence.received.append(replace(evidence.received[-1], id="evt_x")),
            "message.unknown of att_unsure happened 1 times, and 2 were told",
        ),
        (
            lambda evidence: evidence.contacts.append(
                {**contact(sent(evidence, "refused")), "created_at": at(1)}
            ),
            "contact.created of con_refused happened 1 times, and 0",
        ),
    ],
    "every_event_was_taken": [
        (
            lambda evidence: setattr(
                evidence,
                "event_attempts",
                [{**evidence.event_attempts[0], "status": "QUEUED"}, *evidence.event_attempts[1:]],
            ),
            "evt_con_plain is QUEUED",
        ),
        (
            lambda evidence: setattr(evidence, "received", evidence.received[1:]),
            "evt_con_plain is SUCCEEDED, and nobody heard it",
        ),
    ],
    "_opt_outs_hold": [
        (
            lambda evidence: evidence.probed.silent_from.update(
                {"plain@customer.example": NOON + 7}
            ),
            "plain@customer.example got a message 1.0 s after opting out",
        ),
        (
            all_of(
                without_mail("plain"),
                lambda evidence: evidence.probed.silent_from.update(
                    {"plain@customer.example": NOON + 5.5}
                ),
            ),
            "att_plain to plain@customer.example began 0.5 s after opting out",
        ),
        (
            lambda evidence: evidence.probed.named_at_once.add("msg_plain"),
            "msg_plain was named as in flight, and not waited for",
        ),
        (of_attempt("plain", status="SUPPRESSED"), "att_plain to plain@.* was suppressed"),
    ],
    "_every_contact_is_one": [
        (
            all_of(another_run_of("plain"), of_run("other", contact_id="con_x")),
            "plain@customer.example is 2: con_plain, con_x",
        ),
        (of_run("plain", contact_id="con_keyed"), "con_keyed is 2: keyed@.*, plain@"),
    ],
    "_every_contact_is_somebody": [
        (
            lambda evidence: evidence.contacts.append(
                {**contact(sent(evidence, "plain")), "id": "con_x"}
            ),
            "ws_1 has 2 contacts at plain@customer.example",
        ),
        (of_contact("plain", email="eve@x.example"), "con_plain is at eve@.*are about .*plain@"),
        (
            lambda evidence: evidence.contacts.append(contact(sent(evidence, "refused"))),
            "con_refused at refused@customer.example has no run",
        ),
    ],
    "_what_is_counted_is_there": [
        (
            lambda evidence: setattr(
                evidence, "usage", {**evidence.usage, ("ws_1", "messages"): 6}
            ),
            "ws_1: 6 messages counted, of 5",
        ),
        (of_attempt("out", tries=1), "ws_1: 5 messages counted, of 6"),
        (lambda evidence: evidence.contacts.pop(), "ws_1: 6 contacts counted, of 5"),
        (lambda evidence: setattr(evidence, "usage", {}), "ws_1: 0 contacts counted, of 6"),
    ],
    "work_went_on_soon": [
        (
            all_of(*in_hand(10, 40, JUDGED_FROM), promised(4)),
            r"p99 30.0 s from a kill .*, of 20 s, at a load of \d+\.\d",
        ),
        (
            all_of(no_run_in_hand, promised(4)),
            "no run was in hand at a kill",
        ),
    ],
    "_every_fault_struck": [
        (lambda evidence: setattr(evidence, "planned", 7), "only 6 of 7 faults came to strike"),
        (
            lambda evidence: setattr(evidence.faults[0], "broke", "was cut short"),
            "an HTTP answer cut off: was cut short",
        ),
    ],
    "_nobody_died_by_himself": [
        (
            added("deaths", Death(NOON, "worker 2", 1, as_struck=False)),
            "worker 2 ended with 1 .* struck by nobody",
        ),
    ],
    "_every_probe_was_made": [
        (lambda evidence, probe=probe: evidence.probed.made.pop(probe), f"nobody saw .*{word}")
        for probe, word in (
            ("a_new_secret_holds_at_once", "a new secret"),
            ("a_pause_holds_at_once", "a pause"),
            ("nothing_is_sent_after_an_opt_out", "nothing is sent"),
            ("what_is_being_sent_is_waited_for", "what is being sent"),
            ("strangers_see_nothing", "strangers"),
            ("one_address_is_limited", "one address"),
        )
    ]
    + [(lambda evidence: evidence.probed.findings.append("a leak"), "a leak")],
    "_rows_and_jobs_agree": [
        (added("astray", "runs run_1 should be worked on, and has no job"), "run_1 .* no job")
    ],
    "_every_trail_is_whole": [
        (added("trails", "ws_1 NOT WHOLE"), "NOT WHOLE"),
        (
            lambda evidence: evidence.audited.clear(),
            "PATCH /workflows/wfl_1 was answered 2xx, and the audit trail has no entry",
        ),
    ],
    "_nothing_was_unexpected": [(added("tracebacks", "web.log: Traceback"), "Traceback")],
}
CHECKS = {check.__name__: check for check in oracle.CHECKS}


def test_where_all_is_well_nothing_is_found() -> None:
    evidence = clean()
    assert oracle.findings(evidence) == []
    assert evidence.figures["accepted"] == 5


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_finds_what_is_planted_for_it(name: str) -> None:
    for plant, wanted in PLANTS[name]:
        evidence = clean()
        plant(evidence)
        found = list(CHECKS[name](evidence))
        assert any(re.search(wanted, finding) for finding in found), (wanted, found)


@pytest.mark.parametrize(
    "doubt", [refused(21, 503, detail=OUTCOME_UNKNOWN, retry_after="2"), silent(30, CUT)]
)
def test_a_try_whose_outcome_its_sender_cannot_know_may_be_a_run(doubt: Try) -> None:
    evidence = clean()
    for plant in (plain_is_told(doubt), another_run_of("plain")):
        plant(evidence)
    check = CHECKS["one_event_is_as_many_runs_as_were_accepted"]
    assert list(check(evidence)) == []


def test_of_few_kills_nothing_is_judged_however_many_runs_they_interrupted() -> None:
    evidence = clean()
    for plant in [*in_hand(10, 90, 1), promised(4)]:
        plant(evidence)
    evidence.interrupted = [Interrupted(NOON + 10, ["run_plain"] * 50)] * (JUDGED_KILLS - 1)
    assert list(CHECKS["work_went_on_soon"](evidence)) == []


@pytest.mark.parametrize(
    ("end", "count", "promise"),
    [(30, JUDGED_FROM, 4), (90, JUDGED_FROM - 1, 4), (90, JUDGED_FROM, 5), (90, JUDGED_FROM, None)],
)
def test_how_soon_work_went_on_is_judged_only_where_it_was_promised_and_of_enough_runs(
    end: float, count: int, promise: int | None
) -> None:
    evidence = clean()
    for plant in in_hand(10, end, count):
        plant(evidence)
    evidence.promise = promise
    assert list(CHECKS["work_went_on_soon"](evidence)) == []


def test_beside_each_zero_stands_what_it_says() -> None:
    evidence = clean()
    oracle.findings(evidence)
    none = evidence.figures["every run ended"]
    assert none == "not: 0 of 6, at 95 % less than 5.0e-01"
    assert evidence.figures["kills that did harm"] == "0 of 2, too few to say anything"
    of_run("plain", status="RUNNING", finished_at=None)(evidence)
    oracle.findings(evidence)
    assert evidence.figures["every run ended"] == "not: 1 of 6"


def test_only_what_the_killed_had_in_hand_was_interrupted() -> None:
    evidence = clean()
    oracle.findings(evidence)
    assert "interrupted by a kill" not in evidence.figures
    evidence.interrupted = [Interrupted(NOON - 5, ["run_plain", "run_of_a_probe"])]
    of_run("plain", finished_at=at(9))(evidence)
    oracle.findings(evidence)
    assert evidence.figures["interrupted by a kill"] == (
        "1 runs, ended p50 14.0 s, p99 14.0 s, last 14.0 s later"
    )


def test_a_503_that_takes_longer_than_promised_is_counted() -> None:
    evidence = clean()
    plain_is_told(late(19.5, 2.5, 503, retry_after="1"))(evidence)
    oracle.findings(evidence)
    detail = "1 of 3 after more than 2 s, {'PostgreSQL stopped at once': 1}"
    assert str(evidence.figures["answered with 503"]).endswith(detail)


def nothing_is_found(evidence: Evidence) -> bool:
    return oracle.findings(evidence) == []


def test_a_call_whose_worker_was_lost_three_times_may_fail() -> None:
    evidence = clean()
    for plant in (failed("called"), called(CALLED), called(CALLED), *worker_deaths(2.5, 3, 3.5)):
        plant(evidence)
    became(evidence, "called", None)
    reported(evidence, "run.failed", "run_called")
    evidence.steps.remove(step("called", "say"))
    evidence.usage = {**evidence.usage, ("ws_1", "messages"): 4}
    assert nothing_is_found(evidence)
    assert evidence.figures["calls failed"] == {"cut off": 1, "workers lost": 1}
    ended = evidence.figures["runs ended"]
    assert isinstance(ended, dict)
    assert ended["calling FAILED http_broken"] == 2


def test_a_call_that_was_cut_before_it_arrived_may_fail_although_nobody_was_called() -> None:
    evidence = clean()
    evidence.calls = [CALLED]
    assert nothing_is_found(evidence)


def test_the_run_of_a_cut_call_is_read_from_its_head() -> None:
    head = b"POST / HTTP/1.1\r\nHost: shop.test\r\nx-run: run_1\r\nContent-Length: 2\r\n\r\n"
    assert list(cut_calls([head, b"POST / HTT"])) == ["run_1"]


def test_each_loss_has_room_for_what_its_workers_had_in_hand() -> None:
    """128 by the death of one worker, 256 by a fault that both of them see; "unsure" is one too."""
    evidence = clean()
    for plant in worker_deaths(6.5):
        plant(evidence)
    evidence.faults = [*evidence.faults, Struck("PostgreSQL read-only", NOON + 6, NOON + 7)]
    evidence.planned += 1
    check = CHECKS["_what_is_unknown_has_a_cause"]
    for n in range(384):  # the last one takes the cut dot
        unknown(evidence, n)
    assert list(check(evidence)) == []
    unknown(evidence, 384)
    assert list(check(evidence)) != []


def unknown(evidence: Evidence, number: int) -> None:
    send(evidence, f"run_{number}", f"unknown{number}", f"key {number}")
    became(evidence, f"unknown{number}", "UNKNOWN")


def test_what_was_given_up_for_lost_may_have_failed_for_sure() -> None:
    evidence, check = clean(), CHECKS["_every_message_is_accounted_for"]
    failed_late(evidence)
    found = [f"attempt att_plain failed: {reason} None" for reason in ("worker_lost", "poisoned")]
    assert list(check(evidence)) == found[:1]
    for plant in worker_deaths(6.5):
        plant(evidence)
    assert list(check(evidence)) == []
    of_attempt("plain", reason_code="poisoned")(evidence)
    assert list(check(evidence)) == found[1:]
    failed_late(evidence, given_up=False)
    assert list(check(evidence)) == found[:1]


def failed_late(evidence: Evidence, *, given_up: bool = True) -> None:
    became(evidence, "plain", "FAILED")
    statuses = ["SENDING", *["UNKNOWN"] * given_up, "FAILED"]
    events = [{"at": at(6 + n).isoformat(), "status": one} for n, one in enumerate(statuses)]
    of_attempt("plain", reason_code="worker_lost", events=json.dumps(events))(evidence)


def test_the_evidence_of_a_campaign_is_kept_for_whoever_looks_into_a_finding(
    tmp_path: Path,
) -> None:
    keep(clean(), tmp_path / "evidence")
    kept = {file.stem: file.read_text() for file in (tmp_path / "evidence").iterdir()}
    assert "plain@customer.example" in kept["ledger"]
    assert '"id":"run_failed"' in kept["runs"]
    assert len(kept["faults"].splitlines()) == 6


def test_how_late_waits_end_is_measured_where_no_fault_is_near() -> None:
    evidence = clean()
    sent(evidence, "keyed").tries.pop()
    oracle.findings(evidence)
    assert evidence.figures["waits, late"] == "none; wanted 1 s between faults"
    evidence.faults = []
    oracle.findings(evidence)
    assert str(evidence.figures["waits, late"]).startswith("p50 3900 ms")
