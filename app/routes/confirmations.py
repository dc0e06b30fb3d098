"""The page behind the link in a message of double opt-in: a button confirms, and nothing else does.

Programs open links to look at them, so opening one changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from starlette.responses import Response

from app.audience import shapes
from app.consent import preferences
from app.consent.preferences import Link
from app.messages import double_opt_in
from app.messages.double_opt_in import Outcome, Question, Standing
from app.routes.preferences import CHANNELS, PAGES, STATES, masked, nowhere
from app.store import workspaces
from app.web.page import page
from app.web.routing import PUBLIC, Call, get, post

WORDS: Mapping[Outcome, str] = {
    "open": "{address} asked to get this by {by}. It does once you confirm it.",
    "confirmed": "Done: {address} gets this by {by}. Every message has a link to stop it.",
    "expired": "This message is too old to confirm. Ask for it again, and you get a new one.",
    "withdrawn": "This is not asked any more, and nothing has changed.",
}
# Beside what is said of their channel: the answer counts, and all the same nothing comes.
BARRED: Mapping[Outcome, str] = {
    "open": "{address} asked to get this by {by}. It does once you have confirmed it, and get"
    " messages by {by} again.",
    "confirmed": "Saved: you have confirmed it. But it does not come by {by} yet.",
}
CHOICES = "<a href='{url}'>Choose what you get</a>"
BUTTON = '<button name="confirm" value="yes">Confirm {}</button>'
UNKNOWN = "The address that the message went to"


async def show(call: Call) -> Response:
    question = double_opt_in.read(call.process, call.path("token"))
    if question is None:
        return nowhere()
    async with call.process.database.read() as db:
        standing = await double_opt_in.look(call.process, db, question)
    return await _page(call, question, standing)


async def confirm(call: Call) -> Response:
    """The contact gets the topic from now on."""
    question = double_opt_in.read(call.process, call.path("token"))
    if question is None:
        return nowhere()
    await call.receive_body()
    async with call.process.database.write() as db:
        standing = await double_opt_in.confirm(call.process, db, question)
    return await _page(call, question, standing)


async def _page(call: Call, question: Question, standing: Standing) -> Response:
    async with call.process.database.read() as db:
        workspace = await workspaces.by_id(db, id=question.workspace_id)
        topic, contact = standing.topic, standing.contact
        link = Link(
            question.workspace_id,
            message_id=None,
            contact_id=question.contact_id,
            channel=question.channel,
            address_hash=question.address_hash,
        )
        choices = await preferences.choices(call.process, db, link) if contact else []
    if workspace is None:
        return nowhere()
    title = f"{topic.name} from {workspace.name}" if topic else f"Messages from {workspace.name}"
    address = masked(shapes.address(contact, question.channel) or "") if contact else UNKNOWN
    by = CHANNELS[question.channel]
    reason = next((one.reason for one in choices if one.channel == question.channel), None)
    words = [WORDS[standing.outcome].format(address=escape(address), by=by)]
    if reason is not None and standing.outcome in BARRED:
        url = escape(preferences.url_of(call.process, link))
        words = [
            BARRED[standing.outcome].format(address=escape(address), by=by),
            f"{escape(address)} {STATES[reason]} {CHOICES.format(url=url)}",
        ]
    if topic and topic.description:
        words.insert(0, escape(topic.description))
    if topic and standing.outcome == "open":
        words.append(BUTTON.format(escape(topic.name)))
    return page(title, *words, asks=standing.outcome == "open")


routes = [
    get("/confirm/{token}", show, can=PUBLIC, tx=None, gives=PAGES),
    post("/confirm/{token}", confirm, can=PUBLIC, tx=None, gives=PAGES),
]
