"""Definitions come in as files: created or changed by their keys, whole or not at all."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from starlette.responses import Response

from app.broadcasts import audience as audiences
from app.definitions import activation, credentials, filing, findings, portable, trigger_node
from app.definitions.activation import Draft
from app.definitions.filing import KeptTemplate
from app.errors import Duplicate, FieldError, Problem
from app.machine import document
from app.machine.program import Finding as Found
from app.machine.program import Json
from app.routes import automations, workflows
from app.routes import definition_cases as case_routes
from app.routes.definition_files import DefinitionFile, KeyName, exported
from app.routes.definition_shapes import LONGEST_SECRET, Finding, States
from app.routes.definitions import DefinitionKind
from app.routes.ids import AutomationId, TemplateId, WorkflowId
from app.simulation import proofs
from app.store import definition_cases, definitions
from app.store.definitions import Definition, Filed
from app.store.row_keys import DefinitionKey
from app.web import reply
from app.web.body import WRITE_ONLY, Shape
from app.web.routing import Call, post

MOST_BESIDE = 512 * 1024  # bytes of what a file says beside the definition
MOST_ALONGSIDE = 500
WHERE = "/file/definition"
AT_ONCE = (
    "Another request brings in the same key, of the file or a template, at once; send it again."
)
UNSIGNED = "A file removes no signing secret: PATCH the trigger for that."
KINDS: Mapping[str, DefinitionKind] = {"graph": automations.kind, "steps": workflows.kind}
SHAPES: Mapping[str, activation.Shape] = {kind.noun: kind.shape for kind in KINDS.values()}


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
    alongside: Annotated[
        dict[KeyName, Literal["workflow", "automation"]],
        Field(
            max_length=MOST_ALONGSIDE,
            description="With `dry_run`: the keys of definitions that will be there by then, such"
            " as those that are pushed together and that this one starts.",
        ),
    ] = Field(default_factory=dict)


class ImportedTemplate(Shape):
    key: str
    id: TemplateId | None
    name: str
    action: filing.Action


class Imported(Shape):
    """The change that was made, or would be: then the ID of what is not there is null. `before` and
    `file` are its exports before and after, and `etagBefore` the tag of the former."""

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


class _Undone(Exception):
    """Nothing that a dry run has done stays."""


async def bring_in(call: Call) -> Response:
    """Create or change a definition and its templates, as the file says."""
    wanted = call.read(Import)
    file, errors = wanted.file, list[FieldError]()
    # Members that do not go together.
    if wanted.alongside and wanted.mode != "dry_run":
        errors.append(FieldError("/alongside", "Only with mode dry_run."))
    if (key := file.key or portable.key_of(file.name)) in wanted.alongside:
        errors.append(FieldError(f"/alongside/{key}", "The file itself has this key."))
    if file.expected is not None and file.input is None:
        errors.append(FieldError("/file/input", "What is expected comes of an input; give it."))
    elif file.expected is not None and file.input is not None and file.input.start_at is None:
        errors.append(FieldError("/file/input/startAt", "Say when the run starts."))
    names = [case.name for case in file.cases or ()]
    errors += [
        FieldError(f"/file/cases/{index}/name", "Another case has this name.")
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    if errors:
        raise _invalid(errors)
    answers: list[dict[str, Any]] = []
    try:
        async with call.db.savepoint():
            answers.append(await _imported(call, wanted, document.parse(call.body)["file"]))
            if wanted.mode == "dry_run":
                raise _Undone
    except _Undone:
        pass
    except Duplicate:
        raise Problem("conflict", AT_ONCE) from None
    return reply.ok(answers[0])


async def _imported(call: Call, wanted: Import, file: Mapping[str, Json]) -> dict[str, Any]:
    db, workspace_id = call.db, call.member.workspace_id
    kind = KINDS[wanted.file.definition.shape]
    known = await filing.find(db, workspace_id, kind.shape, wanted.file.key, wanted.file.name)
    row = before = None
    if known is not None:
        where = {"workspace_id": workspace_id, "shape": kind.shape, "id": known.id}
        row = await definitions.locked(db, **where)
    mentions = portable.mentions(kind.shape, file["definition"].get(kind.shape))
    contents = {key: one.model_dump() for key, one in wanted.file.templates.items()}
    contents = await filing.with_topics(db, workspace_id, contents, mentions)
    given = await filing.lock_templates(db, workspace_id, row, contents)
    if row is None:
        call.match(None)
    else:
        before = await exported(call, row)
        call.match_shown(before)
        if wanted.mode == "create":
            detail = f"{before['name']} is there already; import it as an update."
            raise Problem("conflict", detail)
    started = {one.id for one in mentions if one.member in portable.DEFINITIONS}
    shapes = {key: SHAPES[noun] for key, noun in wanted.alongside.items() if key in started}
    await filing.stand_in(db, workspace_id, shapes, call.new_id)
    kept = await filing.keep_templates(call.process, db, workspace_id, given, call.new_id)
    for one in kept:
        if one.action == "updated" and one.sends_otherwise:
            await audiences.require_sender(db, call.member, template_id=one.id)
        if one.action != "unchanged":
            await call.note(f"template.{one.action}", one.id, one.before, one.after)
    filed = await definitions.filed(db, workspace_id=workspace_id, id=known.id) if known else None
    ids = {one.key: one.id for one in kept}
    id_of = await filing.ids(db, workspace_id)
    importing = _Importing(call, wanted, file, kind, row, filed, ids, id_of)
    action, changed, found = await importing.run()
    after = await exported(call, changed)
    is_new = wanted.mode == "dry_run" and row is None
    return {
        "action": "updated" if action == "unchanged" and before != after else action,
        "id": None if is_new else changed.id,
        "key": after["key"],
        "name": changed.name,
        "state": changed.state,
        "findings": activation.listed(found),
        "templates": [_template(one, wanted) for one in kept],
        "before": before,
        "etagBefore": before and reply.tag_of(before),
        "file": after,
        "etag": reply.tag_of(after),
    }


def _template(one: KeptTemplate, wanted: Import) -> dict[str, Any]:
    is_new = wanted.mode == "dry_run" and one.action == "created"
    return {
        "key": one.key,
        "id": None if is_new else one.id,
        "name": one.name,
        "action": one.action,
    }


Outcome: TypeAlias = tuple[filing.Action, Definition, list[Found]]


@dataclass(frozen=True, slots=True)
class _Importing:
    """The definition of a file, with its cases. `row` is the one that it changes, locked, and
    `filed` says of which file that came; `template_ids` are those of its templates, by key, and
    `id_of` finds what its cases name."""

    call: Call
    wanted: Import
    file: Mapping[str, Json]
    kind: DefinitionKind
    row: Definition | None
    filed: Filed | None
    template_ids: Mapping[str, str]
    id_of: portable.Rename

    async def run(self) -> Outcome:
        """Raises Problem, its pointers into the body of the request."""
        try:
            draft = await self._draft()
            if draft.wrong:
                raise _invalid(list(draft.wrong))
            action, changed, found = await self._saved(draft)
            if self.wanted.activate and changed.state == "DRAFT":
                action, changed, found = await self._activated(action, changed, found, draft)
        except Problem as problem:
            # From here on its pointers are into the body of the request.
            problem.errors = tuple(
                FieldError(self._within(error.pointer), error.message) for error in problem.errors
            )
            wrong: Any = problem.extra.get("findings")
            if wrong:
                pointed = [{**one, "pointer": self._within(one["pointer"])} for one in wrong]
                problem.extra = {**problem.extra, "findings": pointed}
            raise problem from None
        if action != "unchanged":
            verb = "updated" if self.row else "created"
            before = self._noted(self.row, self.filed) if self.row else None
            after = self._noted(changed, self._file())
            await self.call.note(f"{self.kind.noun}.{verb}", changed.id, before, after)
        return action, changed, found

    def _noted(self, row: Definition, filed: Filed | None) -> dict[str, Any]:
        """The form that the audit trail has: an erasure does not look for somebody who is in a
        file."""
        beside = filed and filed.beside and sha256(filed.beside.encode()).hexdigest()
        return {**self.kind.resource(self.call, row), "key": filed and filed.key, "beside": beside}

    # --- what the file makes of it ---

    async def _draft(self) -> Draft:
        call, row, kind = self.call, self.row, self.kind
        given = trigger_node.moved(self.file["definition"])
        body = given.get(kind.shape) or kind.model(name="…").model_dump(by_alias=True)[kind.shape]
        body = await filing.resolved(
            call.db, call.member.workspace_id, kind.shape, body, self.template_ids
        )
        gate = self.file.get("casesGate")
        if gate is None:
            gate = row is not None and row.cases_gate
        trigger = await self._trigger({**(given.get("trigger") or {})})
        made = {"name": self.file["name"], "trigger": trigger, kind.shape: body, "casesGate": gate}
        draft = kind.read(call, None, document.dumps(made))
        return replace(draft, state="DRAFT" if row is None else row.state)

    async def _trigger(self, trigger: dict[str, Json]) -> dict[str, Json]:
        """Prepare the trigger, with the secret if it is another one. `signed` stays as long as one
        is missing."""
        row, call = self.row, self.call
        workspace_id = call.member.workspace_id
        if (named := trigger.get("segmentId")) is not None:
            trigger["segmentId"] = await filing.segment_of(call.db, workspace_id, named)
        signed = trigger.pop("signed", None)
        if self.wanted.signing_secret is not None:
            trigger["signingSecret"] = self.wanted.signing_secret
        secret, kept = trigger.get("signingSecret"), None
        if row is not None:
            kept = await findings.signing_secret(call.process, call.db, workspace_id, row.id)
        if kept and secret in (None, "") and "signingSecret" in trigger:
            raise _invalid([FieldError("/trigger/signingSecret", UNSIGNED)])
        if isinstance(secret, str) and kept and hmac.compare_digest(secret.encode(), kept.encode()):
            del trigger["signingSecret"]  # it is no change
        has_secret = bool(trigger.get("signingSecret")) or (row is not None and row.secret_set)
        was_missing = row is not None and row.trigger_config.get("signed")
        if not isinstance(signed, bool | None):
            trigger["signed"] = signed  # which is refused when the trigger is read
        elif was_missing or (signed and not has_secret):
            trigger["signed"] = True
        return trigger

    # --- kept ---

    async def _saved(self, draft: Draft) -> Outcome:
        """Store the definition. What stands beside it comes first: it is checked with its cases."""
        call, row = self.call, self.row
        process, db, workspace_id = call.process, call.db, call.member.workspace_id
        if row is None:
            made, _ = await activation.create(process, db, workspace_id, self.kind.shape, draft)
            await self._keep_file(made.id)
            await self._keep_cases(made.id)
            return "created", made, await self._checked(made)
        await self._keep_file(row.id)
        await self._keep_cases(row.id)
        stored = document.parse(row.body.encode())
        body, wrong = credentials.sealed(process.vault, workspace_id, row.id, draft.body, stored)
        if (
            not wrong
            and draft.signing_secret is None  # one is a change: nobody can read what is kept
            and (row.name, row.trigger_config) == (draft.name, draft.trigger)
            and row.cases_gate == draft.cases_gate
            and row.body == document.dumps(body).decode()
        ):
            is_same = self.filed and (self.filed.beside or "{}") == self._file().beside
            return "unchanged" if is_same else "updated", row, await self._checked(row)
        changed, found = await activation.change(
            process, db, workspace_id, row, draft, run_cases=proofs.run
        )
        return "updated", changed, found

    async def _checked(self, row: Definition) -> list[Found]:
        call = self.call
        workspace_id = call.member.workspace_id
        return await activation.look_at(
            call.process, call.db, workspace_id, row, run_cases=proofs.run
        )

    async def _activated(
        self, action: filing.Action, row: Definition, found: list[Found], draft: Draft
    ) -> Outcome:
        """ACTIVE, or as it was where something is in the way of that."""
        call = self.call
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
            return action, row, found
        return "created" if action == "created" else "updated", changed, warnings

    # --- beside it ---

    def _file(self) -> Filed:
        """Its key and the rest of the file, as they are to be kept."""
        given, kept = self.wanted.file, self.filed and self.filed.key
        beside = document.dumps(portable.beside_of(self.file, self.id_of)).decode()
        return Filed(given.key or kept or portable.key_of(given.name), beside)

    async def _keep_file(self, id: str) -> None:
        """Raises Problem `invalid` for too much of it."""
        filed, file = self._file(), self.file
        if len((filed.beside or "").encode()) > MOST_BESIDE:
            detail = f"At most {MOST_BESIDE // 1024} KiB beside the definition and its templates."
            raise _invalid([FieldError("/file", detail)])
        if file.get("expected") is not None:
            with _at("/file/expected"):
                proofs.texts(file["input"], file["expected"])
        if filed != self.filed:
            workspace_id = self.call.member.workspace_id
            await definitions.set_file(self.call.db, workspace_id=workspace_id, id=id, filed=filed)

    async def _keep_cases(self, id: str) -> None:
        """The cases as the file has them, unless it says nothing of them. Raises Problem
        `invalid`."""
        given = self.file.get("cases")
        if given is None:
            return
        call = self.call
        of: DefinitionKey = {"workspace_id": call.member.workspace_id, "definition_id": id}
        known = {one.name: one for one in await definition_cases.of_definition(call.db, **of)}
        for name in known.keys() - {case["name"] for case in given}:
            await case_routes.delete_case(call, id, known[name])
        for index, case in enumerate(given):
            with _at(f"/file/cases/{index}"):
                texts = proofs.texts(portable.given(case["given"], self.id_of), case["expect"])
                before = known.get(case["name"])
                if before is None or (before.given, before.expect) != texts:
                    await case_routes.keep_case(call, id, case["name"], texts)

    # --- pointers ---

    def _within(self, pointer: str) -> str:
        """Convert a pointer into the stored definition, or into the file, to one into the file."""
        _, member, *rest = [*pointer.split("/"), ""]
        if member == "cases":
            names = [document.pointer(case["name"]) for case in self.file.get("cases") or ()]
            if f"/{rest[0]}" in names:
                return f"/file/cases/{names.index(f'/{rest[0]}')}"
            # Another one is kept, and the file does not have it.
            return "/file/expected" if rest[0] == proofs.EXPECTED else pointer
        if member in ("name", "casesGate"):
            return f"/file{pointer}"
        if member == "file":
            return pointer
        at = trigger_node.place(self.file["definition"])
        return f"{WHERE}{trigger_node.pointed(pointer, at)}"


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Refusals of what stands there name it."""
    try:
        yield
    except Problem as problem:
        errors = [FieldError(place + error.pointer, error.message) for error in problem.errors]
        raise Problem(problem.code, problem.detail, errors=errors) from None


def _invalid(errors: list[FieldError]) -> Problem:
    return Problem("invalid", "The file cannot be imported like this; see errors.", errors=errors)


routes = [
    post(
        "/definitions/import",
        bring_in,
        can="workflows:write",
        takes=Import,
        gives={200: Imported},
        raises=("conflict", "not_activatable"),
    ),
]
