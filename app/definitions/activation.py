"""A definition becomes ACTIVE: compile, refuse bad programs, pin a version, mint the token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

from app.database.db import Handle, new_id
from app.definitions import case_results, credentials, findings, trigger_node, watching
from app.definitions.case_results import CaseResult
from app.definitions.findings import LAST4_FROM, Subject
from app.errors import FieldError, Problem
from app.machine import check as checking
from app.machine import document
from app.machine.program import Finding, Json
from app.machine.reasons import Reason
from app.process import Process
from app.store import definition_cases, definition_versions, definitions, runs, templates
from app.store.definitions import Definition, State
from app.store.row_keys import DefinitionKey
from app.vault import tokens

Shape = Literal["graph", "steps"]

TRANSITIONS: Mapping[str, Sequence[str]] = {
    "DRAFT": ("DRAFT", "ACTIVE", "ARCHIVED"),
    "ACTIVE": ("ACTIVE", "PAUSED", "ARCHIVED"),
    "PAUSED": ("PAUSED", "ACTIVE", "ARCHIVED"),
    "ARCHIVED": (),
}
LIVE = ("ACTIVE", "PAUSED")  # runs may exist, so what they walk is checked and versioned
STOPPED = ("PAUSED", "ARCHIVED")
MAX_BYTES = 256 * 1024
MAX_TEXTS = 10_000  # each may be Liquid, and is an object of its own where the definition is kept
EMPTY: Mapping[Shape, str] = {"graph": '{"nodes":[],"edges":[]}', "steps": "[]"}
CANCELLED_AT_ONCE = 200
# The simulation stands above this room: whoever checks a definition passes what runs its cases
# (app/simulation/proofs.py).
RunCases: TypeAlias = Callable[[Process, Handle, Subject], Awaitable[Sequence[CaseResult]]]
UNSAVED = "The definition cannot be saved like this; see errors."


@dataclass(frozen=True, slots=True)
class Draft:
    """The definition that a member wants."""

    name: str
    state: State
    trigger: Mapping[str, Json]
    body: Json
    signing_secret: str | None = None  # None keeps the one that is stored, "" removes it
    wrong: Sequence[FieldError] = ()  # what could not be read; reported with what the check finds
    whole: bool = True  # False: parts of the body could not be read, so the rest is not checked
    cases_gate: bool = False  # a case that fails prevents the activation
    trigger_at: str = trigger_node.ELSEWHERE  # where it is said


async def create(
    process: Process, db: Handle, workspace_id: str, shape: Shape, draft: Draft
) -> tuple[Definition, list[Finding]]:
    """A new definition, activated at once when the draft says so; the findings are warnings, and of
    a DRAFT also what stands in the way of its activation."""
    if draft.state not in ("DRAFT", "ACTIVE"):
        error = FieldError("/state", "A new definition must be DRAFT or ACTIVE.")
        draft = replace(draft, state="DRAFT", wrong=[*draft.wrong, error])
    row = await _inserted(db, workspace_id, shape, draft)
    return await change(process, db, workspace_id, row, draft, run_cases=_has_none)


async def _has_none(_process: Process, _db: Handle, _subject: Subject) -> Sequence[CaseResult]:
    """The cases of a definition that is new."""
    return ()


async def _inserted(db: Handle, workspace_id: str, shape: Shape, draft: Draft) -> Definition:
    return await definitions.insert(
        db,
        workspace_id=workspace_id,
        id=new_id("aut" if shape == "graph" else "wfl"),
        shape=shape,
        name=draft.name,
        trigger_config=draft.trigger,
        body=EMPTY[shape],
    )


async def change(
    process: Process,
    db: Handle,
    workspace_id: str,
    row: Definition,
    draft: Draft,
    *,
    run_cases: RunCases,
) -> tuple[Definition, list[Finding]]:
    """The locked definition `row` becomes what the draft says, as a whole or not at all."""
    if draft.state not in TRANSITIONS[row.state]:
        ways = " or ".join(TRANSITIONS[row.state])
        detail = f"From {row.state} it may become {ways}, not {draft.state}."
        raise Problem("conflict", detail if ways else "ARCHIVED is final.")
    body, warnings = await _body_and_findings(
        process, db, workspace_id, row, draft, run_cases=run_cases
    )
    version = row.version
    is_changed = version == 0 or (body, draft.trigger) != (row.body, row.trigger_config)
    if draft.state in LIVE and is_changed:
        version += 1
        await definition_versions.pin(
            db,
            workspace_id=workspace_id,
            definition_id=row.id,
            version=version,
            trigger_config=draft.trigger,
            body=body,
        )
    if draft.signing_secret is not None:
        await _keep_secret(process, db, workspace_id, row.id, draft.signing_secret)
    if draft.state == "ARCHIVED":
        await _end_runs(db, workspace_id, row.id)
    takes_webhooks = draft.state == "ACTIVE" and draft.trigger["source"] == "inbound_webhook"
    changed = await definitions.update(
        db,
        workspace_id=workspace_id,
        id=row.id,
        name=draft.name,
        state=draft.state,
        trigger_config=draft.trigger,
        body=body,
        version=version,
        token=row.token or (tokens.drawn() if takes_webhooks else None),
        cases_gate=draft.cases_gate,
    )
    await watching.follow(process, db, workspace_id, row, changed)
    return changed, warnings


async def _body_and_findings(
    process: Process,
    db: Handle,
    workspace_id: str,
    row: Definition,
    draft: Draft,
    *,
    run_cases: RunCases,
) -> tuple[str, list[Finding]]:
    """The body as it will be stored, and what is found in it: all of it in a DRAFT, nothing in what
    is ARCHIVED or stops as it is, else the warnings. Raises Problem `invalid` for what cannot be
    saved, `not_activatable` for what cannot run; Heavy."""
    sealed, unkept = _sealed(process, workspace_id, row, draft)
    wrong, body = [*draft.wrong, *unkept], _written(sealed)
    is_kept = (body, draft.trigger) == (row.body, row.trigger_config)
    stops = draft.state in STOPPED and draft.state != row.state
    if stops and is_kept and draft.signing_secret is None and not wrong:
        # It is not judged to be stopped: the flow that fills the workspace's queue may be this one.
        return body, []
    opened = credentials.opened(process.vault, workspace_id, row.id, document.parse(body.encode()))
    compiled = checking.NOTHING
    if draft.whole:
        compiled = _compiled(process, workspace_id, row.shape, opened, wrong)
    found = _found(compiled, kept=row.version > 0 and body == row.body)
    subject = Subject(
        workspace_id, row, draft.trigger, opened, len(body), draft.signing_secret, compiled
    )
    if draft.state in LIVE:
        # One that is being deleted at this moment is waited for, and is gone then.
        await templates.lock(db, workspace_id=workspace_id, ids=subject.template_ids)
    if draft.state != "ARCHIVED":
        found += await findings.find(process, db, subject)
    _refuse_draft(findings.unread(wrong, _as_drafted(found, draft)), draft.state)
    if draft.state == "ARCHIVED":
        return body, []
    results = await _results(process, db, subject, run_cases)
    gate = draft.cases_gate and draft.state != "PAUSED"  # which stops what goes wrong
    found += case_results.found(results, gate=gate)
    if draft.state == "DRAFT":
        return body, found
    _refuse(_as_drafted(found, draft), results)
    return body, [finding for finding in found if finding.severity == "warning"]


async def duplicate(
    process: Process,
    db: Handle,
    workspace_id: str,
    row: Definition,
    name: str,
    *,
    run_cases: RunCases,
) -> tuple[Definition, list[Finding]]:
    """A DRAFT that says the same, with the credentials, the signing secret and the cases of the
    original."""
    body = document.parse(row.body.encode())
    secret = await findings.signing_secret(process, db, workspace_id, row.id)
    draft = Draft(
        name,
        "DRAFT",
        row.trigger_config,
        credentials.opened(process.vault, workspace_id, row.id, body),
        secret,
        cases_gate=row.cases_gate,
    )
    new = await _inserted(db, workspace_id, row.shape, draft)
    of: DefinitionKey = {"workspace_id": workspace_id, "definition_id": row.id}
    await definition_cases.copy(db, **of, to_id=new.id)
    return await change(process, db, workspace_id, new, draft, run_cases=run_cases)


async def check(
    process: Process,
    db: Handle,
    workspace_id: str,
    row: Definition,
    draft: Draft,
    *,
    run_cases: RunCases,
) -> list[Finding]:
    """All that an activation would find, in what may not even be saved; nothing is written. `row`
    is the definition that the draft would change, or `unsaved`."""
    sealed, unkept = _sealed(process, workspace_id, row, draft)
    wrong = [*draft.wrong, *unkept]
    compiled = checking.NOTHING
    if draft.whole:
        compiled = _compiled(process, workspace_id, row.shape, draft.body, wrong)
    length = len(_written(draft.body))
    secret = draft.signing_secret
    subject = Subject(workspace_id, row, draft.trigger, draft.body, length, secret, compiled)
    found = _found(compiled, kept=row.version > 0 and _written(sealed) == row.body)
    found += await findings.find(process, db, subject)
    results = await _results(process, db, subject, run_cases)
    found += case_results.found(results, gate=draft.cases_gate)
    return findings.unread(wrong, _as_drafted(found, draft))


def _as_drafted(found: Sequence[Finding], draft: Draft) -> list[Finding]:
    """Point the findings of the trigger at its node, where the draft has it on one."""
    at = draft.trigger_at
    return [replace(one, pointer=trigger_node.pointed(one.pointer, at)) for one in found]


def unsaved(shape: Shape, draft: Draft, now: datetime) -> Definition:
    """A definition that nobody has saved, under an ID that nothing else has."""
    return Definition(
        id=new_id("aut" if shape == "graph" else "wfl"),
        shape=shape,
        name=draft.name,
        state="DRAFT",
        trigger_config=draft.trigger,
        body=EMPTY[shape],
        version=0,
        secret_last4=None,
        secret_set=False,
        token=None,
        cases_gate=draft.cases_gate,
        deactivated_at=None,
        unwatched_since=None,
        revision=0,
        created_at=now,
        updated_at=now,
    )


async def look_at(
    process: Process,
    db: Handle,
    workspace_id: str,
    row: Definition,
    *,
    run_cases: RunCases,
) -> list[Finding]:
    """The findings of its check today, unless it is archived; of a DRAFT those of its
    activation."""
    if row.state == "ARCHIVED":
        return []
    looked_at = findings.subject_of(process, workspace_id, row)
    found = _found(looked_at.compiled, kept=row.version > 0)
    found += await findings.find(process, db, looked_at)
    found += await findings.of_watch(db, workspace_id, row)
    results = await _results(process, db, looked_at, run_cases)
    return [*found, *case_results.found(results, gate=row.cases_gate)]


async def _results(
    process: Process, db: Handle, subject: Subject, run_cases: RunCases
) -> Sequence[CaseResult]:
    """None of what cannot run: its check says so. Raises Heavy."""
    return () if subject.compiled.program is None else await run_cases(process, db, subject)


async def rotate(db: Handle, workspace_id: str, row: Definition) -> Definition:
    """The locked definition `row` gets another webhook URL, or its first; from the commit on the
    old one is known to nobody. Raises Problem `conflict` when it takes no webhooks."""
    if row.state == "ARCHIVED":
        raise Problem("conflict", "ARCHIVED is final: it no longer accepts webhooks.")
    if row.trigger_config["source"] != "inbound_webhook":
        raise Problem(
            "conflict", "Its trigger accepts no webhooks: set its source to inbound_webhook."
        )
    return await definitions.set_token(
        db, workspace_id=workspace_id, id=row.id, token=tokens.drawn()
    )


async def archive(process: Process, db: Handle, workspace_id: str, row: Definition) -> None:
    """Its runs end and stay readable; the definition is shown no more."""
    await _end_runs(db, workspace_id, row.id)
    await watching.forget(process, db, workspace_id, row.id)
    await definitions.archive(db, workspace_id=workspace_id, id=row.id)


async def _end_runs(db: Handle, workspace_id: str, id: str) -> None:
    """End as many as nobody waits long for; a worker ends the rest (app/accounts/closure.py)."""
    await runs.cancel_some(
        db,
        workspace_id=workspace_id,
        of="definition",
        id=id,
        reason_code=Reason.DEFINITION_ARCHIVED,
        limit=CANCELLED_AT_ONCE,
    )


# --- what is checked ----------------------------------------------------------------------------


def _sealed(
    process: Process, workspace_id: str, row: Definition, draft: Draft
) -> tuple[Json, list[FieldError]]:
    """The form that is stored; and every mask that stands where no credential is kept."""
    stored = document.parse(row.body.encode())
    body, errors = credentials.sealed(process.vault, workspace_id, row.id, draft.body, stored)
    return body, [FieldError(f"/{row.shape}{one.pointer}", one.message) for one in errors]


def _compiled(
    process: Process, workspace_id: str, shape: Shape, body: Json, wrong: Sequence[FieldError]
) -> checking.Compiled:
    """Raises Problem `invalid` for more than anybody reads; Heavy."""
    length = len(within_limits(shape, body, wrong).encode())
    return findings.compiled(process, workspace_id, shape, body, length=length)


def within_limits(
    shape: Shape, body: Json, wrong: Sequence[FieldError] = (), *, place: str = ""
) -> str:
    """The body as it is written; `place` is where the definition stands in what was sent. Raises
    Problem `invalid` for more than anybody reads."""
    text = _written(body)
    length = len(text.encode())
    if length > MAX_BYTES:
        large = FieldError(f"{place}/{shape}", f"At most {MAX_BYTES // 1024} KiB of JSON.")
        raise _invalid([*wrong, large])
    texts, waiting = 0, [body]
    while waiting and length > MAX_TEXTS:  # a shorter one has not so many
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        else:
            texts += isinstance(value, str)
    if texts > MAX_TEXTS:
        many = FieldError(f"{place}/{shape}", f"At most {MAX_TEXTS:,} texts in all, without names.")
        raise _invalid([*wrong, many])
    return text


def _found(compiled: checking.Compiled, *, kept: bool) -> list[Finding]:
    """The findings; of what runs already and is kept as it is, a limit that it is beyond is a
    warning."""
    return [
        replace(one, severity="warning", draft=False) if kept and one.limit else one
        for one in compiled.findings
    ]


def _refuse_draft(found: Sequence[Finding], state: State) -> None:
    """Raises Problem `invalid` for what not even a draft may hold. Who would have it run is told
    all that stands in the way of that too."""
    if not any(finding.draft for finding in found):
        return
    live = state in LIVE
    refused = [one for one in found if one.draft or (live and one.severity == "error")]
    errors = [FieldError(finding.pointer, finding.message) for finding in refused]
    if not live:
        raise _invalid(errors)
    raise Problem("invalid", UNSAVED, errors=errors, findings=listed(found))


def _refuse(found: Sequence[Finding], results: Sequence[CaseResult]) -> None:
    failed = [result for result in results if not result.passes]
    errors = [finding for finding in found if finding.severity == "error"]
    if errors:
        raise Problem(
            "not_activatable",
            "The definition cannot run; fix what errors lists and activate it again.",
            errors=[FieldError(finding.pointer, finding.message) for finding in errors],
            findings=listed(found),
            cases=case_results.listed(failed),
        )


def listed(found: Sequence[Finding]) -> list[dict[str, str]]:
    """The form that clients see."""
    return [
        {
            "severity": finding.severity,
            "code": finding.code,
            "pointer": finding.pointer,
            "message": finding.message,
        }
        for finding in found
    ]


def _invalid(errors: Sequence[FieldError]) -> Problem:
    return Problem("invalid", UNSAVED, errors=errors)


# --- the secret -----------------------------------------------------------------------------------


async def _keep_secret(
    process: Process, db: Handle, workspace_id: str, id: str, secret: str
) -> None:
    sealed = None
    if secret:
        sealed = process.vault.encrypt("signing secret", secret.encode(), workspace_id, id)
    await definitions.set_secret(
        db,
        workspace_id=workspace_id,
        id=id,
        signing_secret=sealed,
        last4=secret[-4:] if len(secret) >= LAST4_FROM else None,
    )


def _written(body: Json) -> str:
    return document.dumps(body).decode()
