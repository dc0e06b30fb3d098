"""The page behind the link at the end of a mail: who wants no more of it says so, without signing
in.

Programs open links to look at them, so opening one does nothing; only a POST acts (RFC 8058).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from urllib.parse import parse_qs

from starlette.responses import Response

from app.consent import consent, in_flight, preferences
from app.consent.preferences import Choice, Link, TopicChoice
from app.database.db import Handle
from app.machine.contact_values import State
from app.messages import double_opt_in
from app.messages.footers import EXAMPLE
from app.store import topics, workspaces
from app.store.suppressions import Reason
from app.store.topics import Topic
from app.web.page import page
from app.web.routing import PUBLIC, Call, get, post

CHANNELS = {"email": "email", "sms": "text messages", "whatsapp": "WhatsApp"}
STATES: Mapping[Reason | None, str] = {
    None: "gets messages.",
    "unsubscribed": "gets only necessary messages, such as receipts.",
    "stopped": "gets nothing, because you replied STOP. Reply START to get messages again.",
    "manual": "gets nothing: the sender has suppressed this address.",
    "erased": "gets nothing: your data has been erased.",
    "bounced": "gets nothing: messages to it bounced.",
    "complained": "gets nothing: a message was reported as spam.",
}
BUTTONS: Mapping[Reason | None, str] = {
    None: '<button name="unsubscribe" value="{0}">Unsubscribe from {1}</button>',
    "unsubscribed": '<button name="subscribe" value="{0}">Subscribe to {1} again</button>',
}
EVERYTHING = "all"
ALL = f'<button name="unsubscribe" value="{EVERYTHING}">Unsubscribe from everything</button>'
LEAVE = '<button name="leave" value="{value}">Stop {name} by {by}</button>'
JOIN = '<button name="join" value="{value}">Get {name} by {by}</button>'
TOPIC_STATES: Mapping[State | None, str] = {
    None: "You do not get this by {by}.",
    "unsubscribed": "You do not get this by {by}.",
    "pending": "You asked for this by {by}, and have not confirmed it: see the message about it.",
    "subscribed": "You get this by {by}.",
}
TOPIC_BUTTONS: Mapping[State | None, str] = {
    None: JOIN,
    "unsubscribed": JOIN,
    "pending": LEAVE,
    "subscribed": LEAVE,
}
ASKED = "Almost done: you get a message with a link; confirm there that you want this."
SUBSCRIBED = "Done: your choice has been saved."
JOINED: Mapping[str | None, str] = {"pending": ASKED, "subscribed": SUBSCRIBED}
BARRED = "This cannot be changed here; see the reason below."
UNSUBSCRIBED = "Done: you are unsubscribed, and no further message is on its way."
LEFT = "Done: you are unsubscribed. A message sent before may still arrive."
UNKNOWN = "The address that this mail was sent to"
EXAMPLE_WORDS = (
    "This link comes from a preview, a simulation or a test email, and changes nothing. In a"
    " message that is sent, it leads its recipient to their own choices."
)
NOBODY = "We no longer have an address of yours, so you get no messages."


async def show(call: Call) -> Response:
    if call.path("token") == EXAMPLE:
        return _example()
    link = preferences.read_link(call.process, call.path("token"))
    return nowhere() if link is None else await _page(call, link)


async def choose(call: Call) -> Response:
    """A request that says nothing else unsubscribes from the topic of the mail, or from its channel
    if it is of the default topic. Answered once no further message is on its way."""
    if call.path("token") == EXAMPLE:
        return _example()
    link = preferences.read_link(call.process, call.path("token"))
    if link is None:
        return nowhere()
    sent = (await call.receive_body()).decode("utf-8", "replace")
    try:
        given = parse_qs(sent, max_num_fields=10)
    except ValueError:  # more than any form of ours: no less a wish to hear no more
        given = {}
    # By a browser's form; a mail program's one click says nothing that we need.
    form = {name: values[-1] for name, values in given.items()}
    if "subscribe" in form:
        async with call.process.database.write() as db:
            is_back = await preferences.opt_in(call.process, db, link, form["subscribe"])
        return await _page(call, link, SUBSCRIBED if is_back else BARRED)
    if "join" in form:
        state = None
        async with call.process.database.write() as db:
            # The page offers topics on channels that get messages; of others nothing changes.
            choice = _named(form["join"], await _topics(call, db, link))
            if choice is not None:
                state = await double_opt_in.join(call.process, db, link, choice)
        return await _page(call, link, JOINED.get(state, BARRED))
    out = await _opt_out(call, link, form)
    on_its_way = await in_flight.all_quiet(call.process, out)
    return await _page(call, link, LEFT if on_its_way else UNSUBSCRIBED)


async def _opt_out(
    call: Call, link: Link, form: Mapping[str, str]
) -> Sequence[consent.Suppression]:
    """Opt out by a form; whatever it says, it is no less a wish to get no more."""
    process, channel = call.process, form.get("unsubscribe", "")
    async with process.database.write() as db:
        if channel == EVERYTHING:
            # Also those on which the contact has no address, or not the link's: it may get one.
            outs = [await preferences.opt_out(process, db, link, one) for one in CHANNELS]
            return [one for out in outs for one in out]
        if channel not in CHANNELS:
            choice = _named(form.get("leave", ""), await _topics(call, db, link))
            topic_id, channel = (
                (choice.topic.id, choice.channel)
                if choice
                else (await preferences.topic_of(db, link), link.channel)
            )
            left = None
            if topic_id is not None:
                left = await preferences.leave(process, db, link, topic_id, channel)
            if left is not None:
                return left
            channel = link.channel
        return await preferences.opt_out(process, db, link, channel)


async def _topics(call: Call, db: Handle, link: Link) -> list[TopicChoice]:
    found = await preferences.choices(call.process, db, link)
    known = await topics.of_workspace(db, workspace_id=link.workspace_id)
    return await preferences.topic_choices(db, link, found, known)


def _named(named: str, offered: Sequence[TopicChoice]) -> TopicChoice | None:
    return next((one for one in offered if f"{one.topic.id}.{one.channel}" == named), None)


async def _page(call: Call, link: Link, *first: str) -> Response:
    async with call.process.database.read() as db:
        workspace = await workspaces.by_id(db, id=link.workspace_id)
        choices = await preferences.choices(call.process, db, link)
        known = await topics.of_workspace(db, workspace_id=link.workspace_id)
        offered = await preferences.topic_choices(db, link, choices, known)
    if workspace is None:
        return nowhere()
    title = f"Messages from {workspace.name}"
    if not choices:
        return page(title, NOBODY)
    channels = [*map(partial(_choice, topics.default_of(known)), choices)]
    if len([one for one in choices if one.reason is None]) > 1 or offered:
        channels.append(ALL)
    return page(title, *first, *map(_topic, offered), *channels, asks=True)


def _topic(choice: TopicChoice) -> str:
    topic, value = choice.topic, escape(f"{choice.topic.id}.{choice.channel}")
    name, by = escape(topic.name), CHANNELS[choice.channel]
    button = TOPIC_BUTTONS[choice.state].format(value=value, name=name, by=by)
    return f"{_about(topic)}{TOPIC_STATES[choice.state].format(by=by)}<br>{button}"


def _about(topic: Topic) -> str:
    about = f" — {escape(topic.description)}" if topic.description else ""
    return f"<b>{escape(topic.name)}</b>{about}<br>"


def _choice(default: Topic | None, choice: Choice) -> str:
    """A channel; the default topic on it has no answers of its own."""
    about = _about(default) if default and choice.channel in default.channels else ""
    whose = UNKNOWN if choice.address is None else masked(choice.address)
    sentence = f"{escape(whose)} {STATES[choice.reason]}"
    button = BUTTONS.get(choice.reason, "").format(choice.channel, CHANNELS[choice.channel])
    return f"{about}{sentence}<br>{button}"


def masked(address: str) -> str:
    """Enough for whoever knows it: a link may be passed on with its mail."""
    local, at, domain = address.rpartition("@")
    return f"{local[:1]}•••@{domain}" if at else f"•••{address[-4:]}"


def _example() -> Response:
    return page("An example of the link", EXAMPLE_WORDS)


def nowhere() -> Response:
    """A page, too: whoever follows a link out of a mail sees what is answered."""
    found = page("This link is not valid", "Use the link in a newer message.")
    found.status_code = 404
    return found


PAGES = {200: ("text/html",), 404: ("text/html",)}

routes = [
    get("/u/{token}", show, can=PUBLIC, tx=None, gives=PAGES),
    post("/u/{token}", choose, can=PUBLIC, tx=None, gives=PAGES),
]
