"""Answers of contacts about topics, as members and their programs record them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from starlette.responses import Response

from app.audience import topics, writing
from app.audience.subscriptions import Given
from app.audience.topics import Answer
from app.consent import in_flight
from app.consent.consent import LeftTopic
from app.errors import FieldError, Problem
from app.machine import document
from app.machine.content import ADDRESS_FIELD, ChannelName
from app.messages import double_opt_in
from app.messages.double_opt_in import Wanted
from app.routes.contacts import ContactInFull, answer_changed, locked, own_workspace
from app.store import topics as store
from app.web import reply
from app.web.body import Name, Shape
from app.web.reply import JsonResponse
from app.web.routing import Call, put

LONGEST_EVIDENCE = 2_000
Choice: TypeAlias = Literal["subscribed", "unsubscribed"]
Evidence = Annotated[str, Field(max_length=LONGEST_EVIDENCE)]


class TopicAnswer(Shape):
    """An answer of the contact: `source` says where it comes from, such as the name of a form, and
    `evidence` what shows it, such as the words that were agreed to. With `doubleOptIn`,
    `subscribed` asks for a confirmation: the state is `pending` until then."""

    channel: ChannelName
    state: Choice
    source: Name
    evidence: Evidence | None = None


async def answer(call: Call) -> Response:
    """Records an answer. If the contact is unsubscribed, the response comes once no further message
    is on its way."""
    row, before = await locked(call)
    new = call.read(TopicAnswer)
    topic = await store.by_id(
        call.db, workspace_id=call.member.workspace_id, id=call.path("topicId")
    )
    topic = reply.found(topic, "topic")
    if message := topics.wrong_channel(topic, new.channel):
        raise refused([FieldError("/channel", message)])
    workspace, given = await own_workspace(call), Given(new.source, new.evidence)
    if topic.is_default:
        patch = {"subscriptions": {new.channel: new.state}}
        changed = await writing.change(call.db, workspace, row, patch, given)
    else:
        one = Answer(topic.id, new.channel, new.state)
        wanted = Wanted({topic.id: topic}, [one], given, is_by_itself=True)
        changed = await double_opt_in.answer(call.process, call.db, workspace, row, wanted)
    return await answer_changed(call, row, before, changed)


def refused(errors: list[FieldError]) -> Problem:
    return Problem("invalid", "The answer cannot be recorded; see errors.", errors=errors)


async def quiet(call: Call, answered: JsonResponse) -> Response:
    """Record an answer. Who is unsubscribed, be it since before, gets nothing after it."""
    if "topics" not in answered.shown:  # refused; its body may be no JSON
        return answered
    asked = document.parse(call.body)
    if asked["state"] == "unsubscribed":
        await quieten(call, answered.shown, [(call.path("topicId"), asked["channel"])])
    return answered


async def quieten(call: Call, shown: Mapping[str, Any], left: Iterable[tuple[str, str]]) -> None:
    """Wait until nothing is on its way to the contact, as it is shown, by the channels on which it
    left topics. That it left the default one, which it does not show, its suppression records."""
    out = []
    for topic_id, channel in left:
        address = shown[ADDRESS_FIELD[channel]]
        if address:
            known = in_flight.known(
                call.process, call.member.workspace_id, channel, address, "unsubscribed"
            )
            answered = topic_id in shown["topics"]
            recorded = LeftTopic(shown["id"], channel, topic_id) if answered else None
            out.append(replace(known, left=recorded))
    await in_flight.all_quiet(call.process, out)


routes = [
    put(
        "/contacts/{id}/topics/{topicId}",
        answer,
        can="contacts:write",
        takes=TopicAnswer,
        gives={200: ContactInFull},
        awaits=quiet,
    ),
]
