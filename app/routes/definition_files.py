"""Definitions as files: exported with their templates, imported by their keys, whole or not at
all."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from app.definitions import activation, credentials, filing, findings, portable, trigger_node
from app.definitions.activation import Draft
from app.definitions.filing import GivenTemplate, KeptTemplate
from app.errors import FieldError, Problem
from app.machine import document
from app.machine.program import Finding as Found
from app.machine.program import Json
from app.routes import automations, workflows
from app.routes.definition_shapes import LONGEST_SECRET, Finding, States
from app.routes.definitions import DefinitionKind
from app.routes.ids import AutomationId, TemplateId, WorkflowId
from app.simulation import cases as case_files
from app.simulation import proofs
from app.simulation.proofs import NamedCase
from app.store import definition_cases, definitions
from app.store.definitions import Definition
from app.web import reply
from app.web.body import WRITE_ONLY, Name, Shape
from app.web.routing import Call, Endpoint, get, post

MOST_BESIDE = 512 * 1024  # bytes of what a file says beside the definition
MOST_TEMPLATES = 100  # of one file
WHERE = "/file/definition"
KINDS: Mapping[str, DefinitionKind] = {"graph": automations.kind, "steps": workflows.kind}

Key = Annotated[str, Field(pattern=portable.KEY, examples=["welcome-series"])]


class DefinitionFile(Shape):
    """A definition with its templates, by names instead of IDs. `key` is its name among files;
    without, it is made of its name. `templates` are by their keys, which the definition names as
    `templateId`. `signed` in its trigger stands for a signing secret, which is in no file.
    Without `cases` or `casesGate`, those that are there stay."""

    editors_schema: str | None = Field(None, alias="$schema")
    key: Key | None = None
    name: Name
    about: str | None = None
    definition: case_files.Definition
    templates: Annotated[dict[str, case_files.FileTemplate], Field(max_length=MOST_TEMPLATES)] = (
        Field(default_factory=dict)
    )
    workspace: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    expected: dict[str, Any] | None = None
    cases: list[NamedCase] | None = None
    cases_gate: bool | None = None


class Import(Shape):
    """`create` refuses what is there; `update` creates or changes; `dry_run` answers what `update`
    would, and changes nothing. `activate` makes a DRAFT ACTIVE if nothing is in the way of that;
    else it stays DRAFT, and `findings` say why. With the ETag of an export as If-Match, nothing is
    changed that was changed since."""

    file: DefinitionFile
    mode: Literal["create", "update", "dry_run"] = "update"
    activate: bool = False
    signing_secret: Annotated[str, Field(min_length=1, max_length=LONGEST_SECRET)] | None = Field(
        None, json_schema_extra=WRITE_ONLY
    )


class ImportedTemplate(Shape):
    key: str
    id: TemplateId | None
    name: str
    action: filing.Action


class Imported(Shape):
    """What was done, or would be: then the ID of what is not there is null. `before` and `file` are
    its exports before and after, and `etagBefore` the tag of the former."""

    action: filing.Action
    id: AutomationId | WorkflowId | None
    key: str
    name: str
    state: States
    findings: list[Finding]
    templates: list[ImportedTemplate]
    before: dict[str, Any] | None
    etag_before: str | None
    file: dict[str, Any]
    etag: str


# --- out ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exporting:
    """The export of an automation or of a workflow."""

    kind: DefinitionKind

    async def show(self, call: Call) -> Response:
        row = await self.kind.named(call, call.db, call.path("id"))
        assert row is not None  # noqa: S101 - an id was given
        return reply.ok(await _exported(call, row))

    def routes(self) -> list[Endpoint]:
        path, read = f"{self.kind.path}/{{id}}/export", f"{self.kind.noun}s:read"
        return [get(path, self.show, can=read, gives={200: DefinitionFile})]


async def _exported(call: Call, row: Definition) -> dict[str, Json]:
    """With its cases."""
    workspace_id = call.member.workspace_id
    file = await filing.exported(call.db, workspace_id, row)
    of = {"workspace_id": workspace_id, "definition_id": row.id}
    cases = [proofs.written(one) for one in await definition_cases.of_definition(call.db, **of)]
    gate = {"casesGate": True} if row.cases_gate else {}
    return {**file, **({"cases": cases} if cases else {}), **gate}


# --- in -------------------------------------------------------------------------------------------


class _Undone(Exception):
    """Nothing that a dry run has done stays."""


@dataclass(frozen=True, slots=True)
class Outcome:
    action: filing.Action
    row: Definition
    found: list[Found]
    templates: list[KeptTemplate]


async def bring_in(call: Call) -> Response:
    """Creates or changes a definition and its templates, as the file says."""
    wanted = call.read(Import)
    file: dict[str, Json] = document.parse(call.body)["file"]
    answers: list[dict[str, Any]] = []
    with suppress(_Undone):
        async with call.db.savepoint():
            answers.append(await _imported(call, wanted, file))
            if wanted.mode == "dry_run":
                raise _Undone
    return reply.ok(answers[0])


async def _imported(call: Call, wanted: Import, file: Mapping[str, Json]) -> dict[str, Any]:
    db, workspace_id = call.db, call.member.workspace_id
    kind = KINDS[wanted.file.definition.shape]
    key = wanted.file.key or portable.key_of(wanted.file.name)
    known = await filing.find(db, workspace_id, kind.shape, key, wanted.file.name)
    row = before = None
    if known is not None:
        where = {"workspace_id": workspace_id, "shape": kind.shape, "id": known.id}
        row = await definitions.locked(db, **where)
    if row is not None:
        before = await _exported(call, row)
    _match(call, wanted, before)
    outcome = await _kept(call, wanted, kind, row, file)
    beside = document.dumps(portable.beside_of(file)).decode()
    if len(beside) > MOST_BESIDE:
        detail = f"At most {MOST_BESIDE // 1024} KiB beside the definition and its templates."
        raise _invalid([FieldError("/file", detail)])
    if known is None or (known.key, known.beside) != (key, beside):
        await definitions.set_file(
            db, workspace_id=workspace_id, id=outcome.row.id, key=key, beside=beside
        )
    after = await _exported(call, outcome.row)
    is_same = before == after
    if wanted.mode != "dry_run":
        await _note(call, kind, row, outcome)
    is_new = wanted.mode == "dry_run" and row is None
    return {
        "action": "updated" if outcome.action == "unchanged" and not is_same else outcome.action,
        "id": None if is_new else outcome.row.id,
        "key": key,
        "name": outcome.row.name,
        "state": outcome.row.state,
        "findings": activation.listed(outcome.found),
        "templates": [_template(one, wanted) for one in outcome.templates],
        "before": before,
        "etagBefore": before and reply.tag_of(before),
        "file": after,
        "etag": reply.tag_of(after),
    }


def _match(call: Call, wanted: Import, before: Mapping[str, Json] | None) -> None:
    """Raises Problem `stale`, `conflict`."""
    if before is None:
        call.match(None)
    else:
        call.match_shown(before)
    if before is not None and wanted.mode == "create":
        raise Problem("conflict", f"{before['name']} is there already; import it as an update.")


def _template(one: KeptTemplate, wanted: Import) -> dict[str, Any]:
    is_new = wanted.mode == "dry_run" and one.action == "created"
    return {
        "key": one.key,
        "id": None if is_new else one.id,
        "name": one.name,
        "action": one.action,
    }


async def _note(call: Call, kind: DefinitionKind, row: Definition | None, outcome: Outcome) -> None:
    for one in outcome.templates:
        if one.action != "unchanged":
            await call.note(f"template.{one.action}", one.id, one.before, one.after)
    if outcome.action != "unchanged":
        before = None if row is None else kind.resource(call, row)
        after = kind.resource(call, outcome.row)
        await call.note(f"{kind.noun}.{outcome.action}", outcome.row.id, before, after)


async def _kept(
    call: Call,
    wanted: Import,
    kind: DefinitionKind,
    row: Definition | None,
    file: Mapping[str, Json],
) -> Outcome:
    """Raises Problem, its pointers into the body."""
    db, workspace_id = call.db, call.member.workspace_id
    sent = {} if row is None else await filing.sent_by(db, workspace_id, row)
    kept = [
        await filing.keep_template(
            call.process,
            db,
            workspace_id,
            GivenTemplate(key, given.model_dump(), sent.get(key)),
        )
        for key, given in wanted.file.templates.items()
    ]
    try:
        draft = await _draft(call, wanted, row, file, {one.key: one.id for one in kept})
        if draft.wrong:
            raise _invalid(list(draft.wrong))
        changed, found, action = await _saved(call, kind, row, draft, file)
        if wanted.activate and changed.state == "DRAFT":
            changed, found, action = await _activated(call, changed, found, action, draft)
    except Problem as problem:
        raise _pointed(problem) from None
    return Outcome(action, changed, found, kept)


async def _draft(
    call: Call,
    wanted: Import,
    row: Definition | None,
    file: Mapping[str, Json],
    ids: Mapping[str, str],
) -> Draft:
    """What the file makes of the definition; `ids` are those of its templates."""
    kind = KINDS[wanted.file.definition.shape]
    given = trigger_node.moved(file["definition"])
    body = given.get(kind.shape) or kind.model(name="…").model_dump(by_alias=True)[kind.shape]
    body = await filing.resolved(call.db, call.member.workspace_id, kind.shape, body, ids)
    trigger = {**(given.get("trigger") or {})}
    is_signed = bool(trigger.pop("signed", None))
    if wanted.signing_secret is not None:
        trigger["signingSecret"] = wanted.signing_secret
    secret, kept = trigger.get("signingSecret"), row and await _secret(call, row)
    if isinstance(secret, str) and kept and hmac.compare_digest(secret.encode(), kept.encode()):
        del trigger["signingSecret"]  # it is no change
    has_secret = bool(trigger.get("signingSecret")) or (row is not None and row.secret_set)
    was_missing = row is not None and row.trigger_config.get("signed")
    if was_missing or (is_signed and not has_secret):
        trigger["signed"] = True
    gate = file.get("casesGate")
    if gate is None:
        gate = row is not None and row.cases_gate
    made = {"name": file["name"], "trigger": trigger, kind.shape: body, "casesGate": gate}
    draft = kind.read(call, None, document.dumps(made))
    return replace(draft, state="DRAFT" if row is None else row.state)


async def _secret(call: Call, row: Definition) -> str | None:
    workspace_id = call.member.workspace_id
    return await findings.signing_secret(call.process, call.db, workspace_id, row.id)


async def _saved(
    call: Call, kind: DefinitionKind, row: Definition | None, draft: Draft, file: Mapping[str, Json]
) -> tuple[Definition, list[Found], filing.Action]:
    """The cases before the definition, which is checked with them."""
    process, db, workspace_id = call.process, call.db, call.member.workspace_id
    if row is None:
        made, found = await activation.create(process, db, workspace_id, kind.shape, draft)
        if await _keep_cases(call, made.id, file):
            found = await _checked(call, made)
        return made, found, "created"
    has_other_cases = await _keep_cases(call, row.id, file)
    if _is_same(call, row, draft):
        return row, await _checked(call, row), "updated" if has_other_cases else "unchanged"
    changed, found = await activation.change(
        process, db, workspace_id, row, draft, run_cases=proofs.run
    )
    return changed, found, "updated"


async def _checked(call: Call, row: Definition) -> list[Found]:
    workspace_id = call.member.workspace_id
    return await activation.look_at(call.process, call.db, workspace_id, row, run_cases=proofs.run)


async def _keep_cases(call: Call, id: str, file: Mapping[str, Json]) -> bool:
    """Whether any is another one now."""
    if file.get("cases") is None:
        return False
    db, of = call.db, {"workspace_id": call.member.workspace_id, "definition_id": id}
    known = await definition_cases.of_definition(db, **of)
    old = {one.name: (one.given, one.expect) for one in known}
    new = {one["name"]: one for one in file["cases"]}
    for name in old.keys() - new.keys():
        await definition_cases.delete(db, **of, name=name)
    changed = [
        one
        for one in new.values()
        if old.get(one["name"])
        != tuple(document.dumps(one[member]).decode() for member in ("given", "expect"))
    ]
    for one in changed:
        await proofs.put(db, call.member.workspace_id, id, one["name"], one)
    return bool(changed) or bool(old.keys() - new.keys())


def _is_same(call: Call, row: Definition, draft: Draft) -> bool:
    """A secret that is given is a change: nobody can read the one that is kept."""
    stored = document.parse(row.body.encode())
    body, wrong = credentials.sealed(
        call.process.vault, call.member.workspace_id, row.id, draft.body, stored
    )
    return (
        not wrong
        and draft.signing_secret is None
        and (row.name, row.trigger_config) == (draft.name, draft.trigger)
        and row.cases_gate == draft.cases_gate
        and row.body == document.dumps(body).decode()
    )


async def _activated(
    call: Call, row: Definition, found: list[Found], action: filing.Action, draft: Draft
) -> tuple[Definition, list[Found], filing.Action]:
    """ACTIVE, or as it was where something is in the way of that."""
    wanted = replace(draft, state="ACTIVE", signing_secret=None)
    try:
        async with call.db.savepoint():
            changed, warnings = await activation.change(
                call.process,
                call.db,
                call.member.workspace_id,
                row,
                wanted,
                run_cases=proofs.run,
            )
    except Problem as problem:
        if problem.code != "not_activatable":
            raise
        return row, found, action
    return changed, warnings, "created" if action == "created" else "updated"


def _pointed(problem: Problem) -> Problem:
    """The same, its pointers into the body of the request."""
    problem.errors = tuple(
        FieldError(_within(error.pointer), error.message) for error in problem.errors
    )
    findings: Any = problem.extra.get("findings")
    if findings:
        pointed = [{**one, "pointer": _within(one["pointer"])} for one in findings]
        problem.extra = {**problem.extra, "findings": pointed}
    return problem


def _within(pointer: str) -> str:
    if pointer.startswith("/name"):
        return f"/file{pointer}"
    return pointer if pointer.startswith(("/file", "/templates")) else f"{WHERE}{pointer}"


def _invalid(errors: list[FieldError]) -> Problem:
    return Problem("invalid", "The file cannot be imported like this; see errors.", errors=errors)


routes = [
    *Exporting(automations.kind).routes(),
    *Exporting(workflows.kind).routes(),
    post(
        "/definitions/import",
        bring_in,
        can="workflows:write",
        takes=Import,
        gives={200: Imported},
        raises=("conflict", "not_activatable"),
    ),
]
