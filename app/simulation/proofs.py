"""The cases of a definition: kept within limits, and run whenever the definition is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from app.database.db import Handle
from app.definitions import filing
from app.definitions.case_results import CaseResult
from app.definitions.findings import Subject
from app.errors import FieldError, Problem
from app.machine import document
from app.machine.program import Json
from app.messages import facts, providers, senders
from app.process import Process
from app.runtime.compute import Computation, Unfinished
from app.simulation import cases as case_files
from app.simulation import trial
from app.simulation.expected import Expected
from app.simulation.gating import Gate
from app.simulation.scenes import Given
from app.simulation.simulation import NOBODY
from app.simulation.trial import Setting, Tried
from app.store import (
    channel_settings,
    definition_cases,
    definition_starts,
    definitions,
    templates,
    topics,
    workspaces,
)
from app.store.definition_cases import DefinitionCase
from app.store.row_keys import DefinitionKey
from app.web.body import Shape

MOST = 20  # of one definition
MOST_BYTES = 32 * 1024  # of one
SECONDS = 3.0  # of CPU time for all of a definition: then no other is begun
LAST_SECONDS = 1.5  # more for the one that is under way
EXPECTED = "expected"  # the case that a definition's file is
LARGE = 8 * 1024  # characters of a definition and its cases that are not run on the event loop


def _not_taken(name: str) -> str:
    """Raises ValueError."""
    if name == "run":
        raise ValueError("Must not be run, which is what runs the cases.")
    if name == EXPECTED:
        raise ValueError("Must not be expected, which is what the definition's file expects.")
    return name


CaseName = Annotated[
    str,
    Field(max_length=100, pattern=r"^[A-Za-z0-9]([A-Za-z0-9 ._-]*[A-Za-z0-9])?$"),
    AfterValidator(_not_taken),
]


class WritableCase(Shape):
    """`given` happens to a run, and `expect` is a part of its trace. A case needs no stored
    contact, and says when the run starts: it comes out alike wherever it is run."""

    given: Given
    expect: Expected

    @field_validator("given")
    @classmethod
    def _has_a_start(cls, given: Given) -> Given:
        if given.start_at is None:
            raise ValueError("Say when the run starts: startAt.")
        return given


class NamedCase(WritableCase):
    """The form that files have."""

    name: CaseName


# --- kept -----------------------------------------------------------------------------------------


def texts(given: Json, expect: Json) -> tuple[str, str]:
    """Write both as the JSON texts that are kept. Raises Problem `invalid` for too much of it."""
    both = document.dumps(given), document.dumps(expect)
    if sum(map(len, both)) > MOST_BYTES:
        detail = f"A case has at most {MOST_BYTES // 1024} KiB of JSON."
        raise Problem("invalid", detail, errors=[FieldError("", detail)])
    return both[0].decode(), both[1].decode()


async def put(
    db: Handle, workspace_id: str, definition_id: str, name: str, case: tuple[str, str]
) -> None:
    """Keep its texts; the definition is locked. Raises Problem for too many."""
    of: DefinitionKey = {"workspace_id": workspace_id, "definition_id": definition_id}
    others = [one for one in await definition_cases.of_definition(db, **of) if one.name != name]
    if len(others) >= MOST:
        raise Problem("conflict", f"A definition has at most {MOST} cases; delete one.")
    await definition_cases.put(db, **of, name=name, given=case[0], expect=case[1])


def written(case: DefinitionCase) -> dict[str, Any]:
    """The form that clients and files have."""
    given, expect = (document.parse(text.encode()) for text in (case.given, case.expect))
    return {"name": case.name, "given": given, "expect": expect}


# --- run ------------------------------------------------------------------------------------------


async def run(process: Process, db: Handle, subject: Subject) -> Sequence[CaseResult]:
    """Run each case, and what the definition's file expects. Raises Heavy."""
    of: DefinitionKey = {"workspace_id": subject.workspace_id, "definition_id": subject.row.id}
    kept = await definition_cases.of_definition(db, **of)
    filed = await definitions.filed(db, workspace_id=subject.workspace_id, id=subject.row.id)
    file = document.parse(filed.beside.encode()) if filed.beside else {}
    if not kept and "expected" not in file:
        return ()
    place = await setting(process, db, subject)
    if place is None:
        why = "The definition cannot run: its check says why."
        return [_unable(one.name, one.expect, why) for one in kept]
    cases = [Tried(one.name, one.given, one.expect, place) for one in kept]
    unread: list[CaseResult] = []
    if "expected" in file:
        given, expect = texts(file["input"], file["expected"])
        try:
            there = await _in_file(db, subject.workspace_id, file, place)
            cases.append(Tried(EXPECTED, given, expect, there))
        except Problem as problem:
            unread.append(_unable(EXPECTED, expect, trial.sentence(problem)))
    computation = Computation(
        subject.workspace_id,
        trial.prove,
        (cases, subject.trigger, subject.compiled, SECONDS),
        seconds=SECONDS + LAST_SECONDS,
        same=lambda: [subject.trigger, subject.body, [case.compared() for case in cases]],
    )
    length = subject.length + sum(len(case.given) + len(case.expect) for case in cases)
    try:
        return [*process.compute.here(computation, large=length > LARGE), *unread]
    except Unfinished as unfinished:
        return [*(_unable(one.name, one.expect, unfinished.detail) for one in cases), *unread]


def _unable(name: str, expect: str, why: str) -> CaseResult:
    return CaseResult(name, document.parse(expect.encode()), None, why)


async def _in_file(
    db: Handle, workspace_id: str, file: Mapping[str, Json], place: Setting
) -> Setting:
    """The workspace that the file says, whichever it is in; the ID, by which splits go, and the
    version are those of the command that records what is expected. Raises Problem for what was kept
    under other rules."""
    workspace = case_files.workspace(document.dumps(file.get("workspace") or {}))
    startable = workspace.startable
    if startable is not None:  # also by the keys of what was not there yet
        known = await filing.keyed(db, workspace_id)
        startable = [one.id for key, one in known if key in startable or one.id in startable]
    return replace(
        place,
        definition_id=f"wfl_{NOBODY}",
        version=1,
        workspace=workspace.root,
        sender=workspace.sender,
        channels=workspace.channels,
        startable=startable,
        gate=workspace.gate,
    )


async def setting(process: Process, db: Handle, subject: Subject) -> Setting | None:
    """The setting in which it is tried; None for a program that cannot run."""
    compiled, workspace_id = subject.compiled, subject.workspace_id
    workspace = await workspaces.by_id(db, id=workspace_id)
    if compiled.program is None or workspace is None:
        return None
    sent = await templates.sent(db, workspace_id=workspace_id, ids=subject.template_ids)
    if sent is None:
        return None
    started = [start.id for start in compiled.starts]
    own = await channel_settings.names(db, workspace_id=workspace_id)
    is_own = process.settings.production and "email" in own
    sender = senders.WorkspaceSender(
        workspace_id,
        workspace.name,
        workspace.from_name,
        workspace.from_email,
        workspace.reply_to,
    )
    known = await topics.of_workspace(db, workspace_id=workspace_id)
    default = topics.default_of(known)
    return Setting(
        workspace=facts.workspace_root(workspace),
        definition_id=subject.row.id,
        version=max(subject.row.version, 1),
        sender=senders.of(process.settings, sender, through_operator=not is_own),
        templates={id: asdict(row) for id, row in sent.items()},
        channels=sorted(await providers.names(process, db, workspace_id)),
        startable=await definition_starts.active(db, workspace_id=workspace_id, ids=started),
        gate=Gate(workspace.frequency_cap, workspace.quiet_hours, default.id if default else None),
    )
