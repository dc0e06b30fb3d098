"""The workspace's own settings."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from starlette.responses import Response

from app.accounts import closure
from app.audience import addresses, segments
from app.broadcasts import audience
from app.config import places
from app.consent import gate
from app.consent.gate_shapes import FrequencyCap, QuietHours, stored
from app.definitions import watching
from app.errors import FieldError, Problem
from app.messages import parking, senders
from app.routes.ids import WorkspaceId
from app.store import channel_settings, workspaces
from app.web import reply
from app.web.body import Name, Shape, Writable
from app.web.reply import JsonResponse, Revised
from app.web.routing import Call, delete, get, patch

# --- shapes -------------------------------------------------------------------------------------


def _email(text: str) -> str:
    return addresses.email(text).address


LONGEST_ADDRESS, MOST_LINES = 500, 8
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _postal_address(text: str) -> str:
    """Its lines, without empty ones."""
    lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
    if not lines or len(lines) > MOST_LINES or any(_CONTROL.search(line) for line in lines):
        raise ValueError(f"Must be one to {MOST_LINES} lines of text, without control characters.")
    return "\n".join(lines)


PostalAddress = Annotated[str, Field(max_length=LONGEST_ADDRESS), AfterValidator(_postal_address)]
EmailAddress = Annotated[str, AfterValidator(_email)]


class Sender(Shape):
    """The sender of the workspace's mail, unless its content names one. Where `fromEmail` is null,
    mail goes out from the sender of the workspace's own provider or, without one, from the address
    that the workspace has on the operator's domain."""

    from_name: Name | None = None
    from_email: EmailAddress | None = None
    reply_to: EmailAddress | None = None


class WritableWorkspace(Writable):
    name: Name
    timezone: Annotated[str, AfterValidator(places.check_timezone)]
    country: Annotated[str, AfterValidator(places.check_country)] | None = None
    retention_days: Annotated[int, Field(ge=1, le=3_650)] | None = None
    sender: Sender | None = None
    postal_address: PostalAddress | None = None
    frequency_cap: FrequencyCap | None = None
    quiet_hours: QuietHours | None = None
    sending_paused: bool = False


class Removal(Shape):
    name: Name  # the workspace's, repeated, so that nobody does it by mistake


# --- resources ----------------------------------------------------------------------------------


class WorkspaceFields(Shape):
    id: WorkspaceId
    name: str
    timezone: str
    country: str | None
    retention_days: int | None
    sender: Sender
    postal_address: str | None
    frequency_cap: FrequencyCap | None
    quiet_hours: QuietHours | None
    sending_paused: bool
    created_at: datetime
    updated_at: datetime


class Workspace(WorkspaceFields, Revised):
    pass


def workspace_resource(row: workspaces.Workspace) -> dict[str, Any]:
    return WorkspaceFields.of(row, sender=Sender.of(row))


# --- handlers -----------------------------------------------------------------------------------


async def show_workspace(call: Call) -> Response:
    row = reply.found(await workspaces.by_id(call.db, id=call.member.workspace_id), "workspace")
    return reply.ok(workspace_resource(row), revision=row.revision)


async def update_workspace(call: Call) -> Response:
    row = reply.found(await workspaces.locked(call.db, id=call.member.workspace_id), "workspace")
    call.match(row.revision)
    new = call.patch(WritableWorkspace, WritableWorkspace.of(row, sender=Sender.of(row)))
    await _require_kept(call, row, new)
    sender = new.sender or Sender()
    if sender.from_email not in (None, row.from_email):
        await _require_own_address(call, row, sender.from_email)
    changed = await workspaces.update(
        call.db,
        id=row.id,
        name=new.name,
        timezone=new.timezone,
        country=new.country,
        retention_days=new.retention_days,
        postal_address=new.postal_address,
        frequency_cap=stored(new.frequency_cap),
        quiet_hours=stored(new.quiet_hours),
        sending_paused=new.sending_paused,
        **sender.model_dump(),
    )
    if new.timezone != row.timezone:
        await watching.move_zone(call.process, call.db, row.id, row.timezone, new.timezone)
    if row.sending_paused and not new.sending_paused:
        await parking.resume(call.db, row.id)
    after = workspace_resource(changed)
    await call.note("workspace.updated", row.id, workspace_resource(row), after)
    return reply.ok(after, revision=changed.revision)


async def _require_kept(call: Call, row: workspaces.Workspace, new: WritableWorkspace) -> None:
    """No cap, segment or broadcast may count what is not kept for so long. Looked at only when the
    cap or the retention changes: an operator's RETENTION_DAYS holds up no other change."""
    cap_stored = stored(new.frequency_cap)
    if (cap_stored, new.retention_days) == (row.frequency_cap, row.retention_days):
        return
    days = new.retention_days or call.process.settings.retention_days
    kept, errors = timedelta(days=days), []
    cap = gate.FrequencyCap.of(cap_stored)
    if cap is not None and cap.window > kept:
        sentence = f"Must be at most P{days}D: messages are kept for so long (retentionDays)."
        errors.append(FieldError("/frequencyCap/window", sentence))
    if days < (row.retention_days or call.process.settings.retention_days):
        askers = {"Segments": segments.asking_beyond, "Broadcasts": audience.asking_beyond}
        for kind, asking_beyond in askers.items():
            names = await asking_beyond(call.db, workspace_id=row.id, kept=kept)
            if names:
                sentence = f"{kind} ask for events of longer ago: {', '.join(names[:5])}."
                errors.append(FieldError("/retentionDays", sentence))
    if errors:
        raise Problem("invalid", "These settings are not valid; see errors.", errors=errors)


async def _await_senders(call: Call, answer: JsonResponse) -> Response:
    """A pause that was known before, too: that it was answered then is not known."""
    if answer.shown.get("sendingPaused"):
        await parking.await_senders(call.process, call.member.workspace_id)
    return answer


async def _require_own_address(call: Call, row: workspaces.Workspace, from_email: str) -> None:
    """Our mail server signs for MAIL_FROM's domain alone, and receivers check (RFC 7489 §3.1). On
    that domain, which all workspaces share, each has the address that it is given: whoever could
    choose one would be security@ to the world."""
    given = senders.given(call.process.settings, row.id, row.name)
    if from_email == given:
        return
    own = await channel_settings.get(call.db, workspace_id=row.id, channel="email")
    if own is None or senders.is_operators(call.process.settings, from_email):
        sentence = (
            f"Must be {given}, the workspace's address on this domain, or null, which means it"
            " too: for an address on another domain, set up the workspace's own email provider"
            " first, with PUT /settings/channels/email."
        )
        raise Problem("invalid", sentence, errors=[FieldError("/sender/fromEmail", sentence)])


async def remove_workspace(call: Call) -> Response:
    """Nothing runs in the workspace once this is answered; its rows are deleted shortly after."""
    await call.receive_body()
    wanted = call.read(Removal)
    workspace_id = call.member.workspace_id
    async with call.process.database.read() as db:
        row = await workspaces.by_id(db, id=workspace_id)
    row = reply.found(row, "workspace")
    call.match(row.revision)
    if wanted.name != row.name:
        sentence = "Must be the workspace's name, to the letter."
        raise Problem("invalid", sentence, errors=[FieldError("/name", sentence)])
    await closure.close(call.process, workspace_id)
    await closure.stop(call.process, workspace_id)
    return reply.no_content()


routes = [
    get("/settings/workspace", show_workspace, can="settings:read", gives={200: Workspace}),
    patch(
        "/settings/workspace",
        update_workspace,
        can="settings:write",
        takes=WritableWorkspace,
        gives={200: Workspace},
        awaits=_await_senders,
    ),
    delete(
        "/settings/workspace",
        remove_workspace,
        can="workspaces:write",
        tx=None,
        takes=Removal,
        gives={204: None},
    ),
]
