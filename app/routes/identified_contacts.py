"""PUT /contacts: a contact is found by what is known of it and changed, or created."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from app.audience import lookups, profile, shapes, topics, writing
from app.audience.subscriptions import Given
from app.audience.workspace_context import WorkspaceContext
from app.audience.writing import Lookup
from app.billing import quotas
from app.config.plans import PLANS
from app.errors import FieldError, Problem
from app.machine import document
from app.machine.content import ChannelName
from app.machine.program import Json
from app.messages import double_opt_in
from app.messages.double_opt_in import Wanted
from app.routes import topic_answers
from app.routes.contacts import (
    ContactInFull,
    WritableContact,
    answer_changed,
    answer_created,
    own_workspace,
    quiet,
    resource_of,
)
from app.routes.matching import Match
from app.routes.topic_answers import Evidence
from app.store import topics as store
from app.web.body import Name, Shape
from app.web.reply import JsonResponse
from app.web.routing import Call, put


class ConsentOrigin(Shape):
    """The source of the answers about `topics`."""

    source: Name
    evidence: Evidence | None = None


class IdentifiedContact(WritableContact, extra="forbid"):
    """The contact that `match` finds, created if there is none. What is left out stays as it is;
    null removes (RFC 7396), and `tags` replace those that it has. `topics` are answers, as PUT
    `/contacts/:id/topics/:topicId` takes them one by one, and need `consent`."""

    match: Match
    topics: dict[str, dict[ChannelName, topic_answers.Choice]] = Field(default_factory=dict)
    consent: ConsentOrigin | None = None

    def values(self) -> dict[str, Json]:
        """The values of the contact that are given."""
        apart = {"match", "topics", "consent"}
        return self.model_dump(by_alias=True, exclude_unset=True, exclude=apart)


async def _answers_in(call: Call, new: IdentifiedContact) -> Wanted:
    """The answers about topics in a body. Raises Problem `invalid`."""
    if not new.topics:
        return Wanted({}, (), NOBODY)
    if new.consent is None:
        message = "Say where the answers about topics come from."
        raise topic_answers.refused([FieldError("/consent", message)])
    known = await store.of_workspace(call.db, workspace_id=call.member.workspace_id)
    answers, errors = topics.read(new.topics, known)
    if errors:
        raise topic_answers.refused(errors)
    return Wanted(known, answers, Given(new.consent.source, new.consent.evidence))


NOBODY = Given("")


async def identify(call: Call) -> Response:
    """Create the contact or change it, by what is known of it. That is an address, an id of ours,
    or one of yours in its metadata. `If-None-Match: *` only creates, If-Match only changes. Sending
    the same again changes nothing."""
    new = call.read(IdentifiedContact)
    workspace = await own_workspace(call)
    answered = await _answers_in(call, new)
    lookup = new.match.lookup(workspace.country, "match")
    row = await lookups.find_locked(call.db, workspace.id, lookup)
    if row is None:
        call.match(None)
        try:
            return await _create(call, workspace, lookup, new, answered)
        except Problem as problem:
            if problem.code != "conflict":
                raise
            row = await lookups.find_locked(call.db, workspace.id, lookup)
            if row is None:  # else somebody was faster
                if lookup.kind == "metadata" and problem.extra["existingId"]:
                    problem.detail += (
                        f" To have it found by {lookup.field} too, match it once by its contactId,"
                        f" email or phone, and give {lookup.field} in metadata."
                    )
                raise
    call.match(row.revision)
    before = await resource_of(call, row)
    stored = shapes.writable(row, before["tags"])
    values = document.merge(stored, profile.normal(new.values()))
    tags = values.pop("tags", [])
    counted = await double_opt_in.count(call.db, workspace, row, answered)
    changed = await writing.replace(
        call.db,
        workspace,
        row,
        values,
        tags,
        answers=counted.answers,
        answered=answered.given,
    )
    await double_opt_in.ask(call.process, call.db, workspace, changed, counted)
    return await answer_changed(call, row, before, changed)


async def _create(
    call: Call,
    workspace: WorkspaceContext,
    lookup: Lookup,
    new: IdentifiedContact,
    answered: Wanted,
) -> Response:
    """Create the contact with what it is matched by. Raises Problem; then nothing was done, and
    nothing stays locked."""
    if lookup.kind == "contact_id":
        raise lookups.unknown(lookup, "match it by what you know of it, and it is created")
    match: dict[str, Json] = {**new.match.given()}
    async with call.db.savepoint():
        made = document.merge(match, new.values())
        tags = made.pop("tags", None)
        counted = answered.of_new()  # before it appears: it never was without them
        row = await writing.create(
            call.db, workspace, made, tags, answers=counted.answers, given=answered.given
        )
        if not lookups.fits(row, lookup):
            message = (
                "There is no such contact, and the new one would not have it: the fields differ."
            )
            [kind] = match
            raise profile.invalid([FieldError(document.pointer("match", kind), message)])
        await quotas.require_contact(call.db, workspace.id, PLANS[call.member.plan])
        await double_opt_in.ask(call.process, call.db, workspace, row, counted)
    resource = await resource_of(call, row)
    await call.note("contact.created", row.id, after=resource)
    return await answer_created(call, row, resource)


async def _quiet(call: Call, answer: JsonResponse) -> Response:
    """Nothing is on its way any more to whom the body unsubscribes."""
    await quiet(call, answer)
    if "topics" in answer.shown:
        answered = document.parse(call.body).get("topics") or {}
        out = [
            (topic_id, channel)
            for topic_id, states in answered.items()
            for channel, state in states.items()
            if state == "unsubscribed"
        ]
        await topic_answers.quieten(call, answer.shown, out)
    return answer


routes = [
    put(
        "/contacts",
        identify,
        can="contacts:write",
        takes=IdentifiedContact,
        gives={200: ContactInFull, 201: ContactInFull},
        raises=("conflict", "contact_not_found", "quota_exceeded"),
        awaits=_quiet,
    ),
]
