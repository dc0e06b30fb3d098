"""The page behind the link at the end of a mail: who wants no more of it says so, without signing
in.

Programs open links to look at them, so opening one does nothing; only a POST acts (RFC 8058).
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from urllib.parse import parse_qs

from starlette.responses import Response

from app.consent import consent, preferences
from app.consent.preferences import Choice, Link
from app.messages.footers import EXAMPLE
from app.store import workspaces
from app.store.suppressions import Reason
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
SUBSCRIBED = "Done: your choice has been saved."
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
    return _nowhere() if link is None else await _page(call, link)


async def choose(call: Call) -> Response:
    """A request that says nothing else unsubscribes from the channel of the mail. Answered once no
    further message is on its way."""
    if call.path("token") == EXAMPLE:
        return _example()
    link = preferences.read_link(call.process, call.path("token"))
    if link is None:
        return _nowhere()
    form = _said(await call.receive_body())
    channel = form.get("unsubscribe", link.channel)
    if channel not in CHANNELS:  # whatever it says, it is no less a wish to hear no more
        channel = link.channel
    if "subscribe" in form:
        async with call.process.database.write() as db:
            is_back = await preferences.opt_in(call.process, db, link, form["subscribe"])
        return await _page(call, link, SUBSCRIBED if is_back else BARRED)
    async with call.process.database.write() as db:
        out = await preferences.opt_out(call.process, db, link, channel)
    on_its_way = await consent.all_quiet(call.process, out)
    return await _page(call, link, LEFT if on_its_way else UNSUBSCRIBED)


def _said(body: bytes) -> dict[str, str]:
    """By a browser's form; a mail program's one click says nothing that we need."""
    try:
        given = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
    except ValueError:  # more than any form of ours: no less a wish to hear no more
        return {}
    return {name: values[-1] for name, values in given.items()}


async def _page(call: Call, link: Link, *first: str) -> Response:
    async with call.process.database.read() as db:
        workspace = await workspaces.by_id(db, id=link.workspace_id)
        choices = await preferences.choices(call.process, db, link)
    if workspace is None:
        return _nowhere()
    title = f"Messages from {workspace.name}"
    return (
        page(title, *first, *map(_choice, choices), asks=True) if choices else page(title, NOBODY)
    )


def _choice(choice: Choice) -> str:
    whose = UNKNOWN if choice.address is None else masked(choice.address)
    sentence = f"{escape(whose)} {STATES[choice.reason]}"
    button = BUTTONS.get(choice.reason, "").format(choice.channel, CHANNELS[choice.channel])
    return f"{sentence}<br>{button}"


def masked(address: str) -> str:
    """Enough for whoever knows it: a link may be passed on with its mail."""
    local, at, domain = address.rpartition("@")
    return f"{local[:1]}•••@{domain}" if at else f"•••{address[-4:]}"


def _example() -> Response:
    return page("An example of the link", EXAMPLE_WORDS)


def _nowhere() -> Response:
    """A page, too: whoever follows a link out of a mail sees what is answered."""
    found = page("This link is not valid", "Use the link in a newer message.")
    found.status_code = 404
    return found


PAGES = {200: ("text/html",), 404: ("text/html",)}

routes = [
    get("/u/{token}", show, can=PUBLIC, tx=None, gives=PAGES),
    post("/u/{token}", choose, can=PUBLIC, tx=None, gives=PAGES),
]
