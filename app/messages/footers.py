"""The way out that every marketing message shows: what the default footer of a mail and the last
line of a text message say, and when they are added.

A mail is judged by what was rendered and not by its template: the link and the sender's postal
address may stand in a comment, in an element that is hidden, or under a condition that did not
hold. What of both is lacking is added; a mail in which it cannot be shown is not sent.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from app.machine import content as contents
from app.machine import effort
from app.machine.content import Message, PartError
from app.machine.program import Facts, Json
from app.machine.text import replace_unstorable
from app.machine.visible import shows_link, words
from app.providers.styling import inlined, weighed

LONGEST_HTML = 8 * 1024  # characters that are judged, a few times, on an event loop
# Of styling.weighed at a time there, which cannot be interrupted: a newsletter takes less than one
# millisecond, what was made to take long up to eight.
MOST_INLINED = 300_000
EXAMPLE: Final = "example"  # the token of links in what is not sent to a recipient


@dataclass(frozen=True, slots=True)
class Footer:
    """The words of one message's footer; for a text message, whether a reply arrives."""

    url: str
    name: str
    postal_address: str | None = None
    takes_replies: bool = False
    asks_for_stop: bool = False  # its author does, in the template and not by a value


def example_url(base_url: str) -> str:
    """The link in previews, simulations and test mails. It leads to a page that says so, and does
    nothing: whoever tries a template cannot unsubscribe anybody."""
    return f"{base_url}/u/{EXAMPLE}"


def with_links(facts: Facts, url: str) -> dict[str, Json]:
    """Add both links to the facts, to the page of channels: there are no topics to choose from."""
    return {**facts, "unsubscribeUrl": url, "preferencesUrl": url}


def footer_of(
    facts: Facts, content: Mapping[str, Json], url: str, *, takes_replies: bool = False
) -> Footer:
    workspace = facts["workspace"] or {}
    return Footer(
        url,
        workspace.get("name", ""),
        workspace.get("postalAddress"),
        takes_replies,
        _asks_for_stop(content),
    )


def render(
    channel: str, content: Mapping[str, Json], facts: Facts, footer: Footer | None
) -> Message:
    """The message as it leaves, with the footer if it needs one. Raises PartError."""
    made = contents.render(channel, content, facts)
    return made if footer is None else Message(added(channel, made.parts, footer), made.missing)


@dataclass(frozen=True, slots=True)
class Finished:
    """A message as it leaves; `styled` is its HTML with the style sheets in the elements, where
    that was done already or takes too long for an event loop. Otherwise whoever sends it does
    that."""

    message: Message
    styled: str | None = None


def finish(
    channel: str, content: Mapping[str, Json], facts: Facts, footer: Footer | None
) -> Finished:
    """Render the message. Raises PartError."""
    made = contents.render(channel, content, facts)
    written: str | None = None
    if footer is not None:
        parts, written = _added(channel, made.parts, footer)
        made = Message(parts, made.missing)
    if written is None and channel == "email":
        written = styled(made.parts.get("html", ""))
    return Finished(made, written)


def styled(markup: str) -> str | None:
    """The HTML with its style sheets in the elements, where that takes too long for an event loop;
    as it is, where no time is left for it."""
    weight = weighed(markup)
    if weight is None or weight <= MOST_INLINED:
        return None
    effort.yield_beyond(MOST_INLINED, weight)
    return _inlined(replace_unstorable(markup))


def _inlined(markup: str) -> str:
    """One inlining cannot be interrupted; before the next the time is looked at."""
    return markup if effort.is_exhausted() else inlined(markup)


def added(channel: str, parts: Mapping[str, str], footer: Footer) -> dict[str, str]:
    """The rendered parts, each of which shows the way out. Raises PartError. WhatsApp's messages
    are left as they are: its marketing templates have an opt-out of their own."""
    return _added(channel, parts, footer)[0]


def _added(
    channel: str, parts: Mapping[str, str], footer: Footer
) -> tuple[dict[str, str], str | None]:
    """The parts, and the HTML with its style sheets in the elements if it was judged by that."""
    shown = dict(parts)
    written: str | None = None
    if channel == "sms":
        # The line at its end is all of GSM 7-bit: it makes no message longer than by itself.
        text = shown.get("text", "")
        if footer.takes_replies:
            has_way = footer.asks_for_stop and _STOP.search(text) is not None
            shown["text"] = text if has_way else _closed(text, STOP_LINE)
        else:
            has_way = _has(text, footer.url)
            shown["text"] = text if has_way else _closed(text, f"Opt out: {footer.url}")
    if channel == "email":
        if shown.get("html"):
            shown["html"], written = _html(shown["html"], footer)
        text = shown.get("text", "")
        lacking = _judged(_has(text, footer.url), text, footer)
        if lacking:
            lines = _sender(footer, lacking)
            if "link" in lacking:
                lines.append(f"Unsubscribe: {footer.url}")
            block = "\n".join(lines)
            text = f"{text.rstrip()}\n\n---\n{block}\n".lstrip("\n")
        shown["text"] = text
    return shown, written


ADDED = (
    "This marketing does not show its recipients how to opt out, as {{unsubscribeUrl}} does: it is"
    " added at the end, in mail with the workspace's name and postal address."
)


def preview(
    channel: str, content: Mapping[str, Json], facts: Facts, footer: Footer | None
) -> Mapping[str, Mapping[str, Json]]:
    """Preview by part: what would leave and the paths that led nowhere, or why it cannot."""
    parts = contents.preview(channel, content, facts)
    if footer is None:
        return parts
    shown = {
        name: part["rendered"]
        for name, part in parts.items()
        if name in ("html", "text") and "rendered" in part
    }
    try:
        closed = added(channel, shown, footer)
    except PartError as error:
        return {**parts, error.part: {"error": error.message}}
    return {**parts, **{name: {**parts[name], "rendered": closed[name]} for name in shown}}


def is_added(channel: str, content: Mapping[str, Json]) -> bool:
    """Return whether the author of marketing content has left the way out to the footer."""
    if channel == "sms" and _asks_for_stop(content):
        return False
    return channel in ("email", "sms") and not contents.reads_a_link(channel, content)


# --- mail -----------------------------------------------------------------------------------------

Lacking: TypeAlias = frozenset[Literal["link", "address"]]
COMPLETE: Lacking = frozenset()
EMPTY: Lacking = frozenset({"link", "address"})

# Nothing that a style sheet says can hide it: what is important here comes first everywhere.
_SHOWN = "display:{}!important;visibility:visible!important;opacity:1!important"
_BLOCK = (
    f'<div style="{_SHOWN.format("block")};margin:24px 0 0;padding:16px 0;border-top:1px solid'
    " #cccccc;font-family:sans-serif;font-size:12px!important;line-height:1.5!important;"
    'color:#555555!important;text-align:center">{lines}</div>'
)
_LINK = (
    f'<a href="{{url}}" style="{_SHOWN.format("inline")};font-size:12px!important;'
    'color:#555555!important;text-decoration:underline">Unsubscribe</a>'
)
_BODY = re.compile(r"<body(?:\s[^<>]*+)?>", re.IGNORECASE)
_END_OF_BODY = re.compile(r"</body\s*+>", re.IGNORECASE)
_DOCTYPE = re.compile(r"\s*+(?:<!doctype[^<>]*+>)?", re.IGNORECASE)


def _html(markup: str, footer: Footer) -> tuple[str, str | None]:
    """The document, with what it does not show of the footer where that can be seen: before the
    end of the body, else at the end, else, below something that is never closed, at the top. And
    the same with its style sheets in the elements, if it was judged by that."""
    effort.yield_beyond(LONGEST_HTML, len(markup))
    lacking, written = _lacking(markup, footer)
    if not lacking:
        return markup, written
    lines = [html.escape(line) for line in _sender(footer, lacking)]
    if "link" in lacking:
        lines.append(_LINK.format(url=html.escape(footer.url)))
    block = _BLOCK.format(lines="<br>".join(lines))
    ends = [match.start() for match in _END_OF_BODY.finditer(markup)][-1:]
    begins = _BODY.search(markup) or _DOCTYPE.match(markup)
    for at in (*ends, len(markup), begins.end() if begins else 0):
        closed = markup[:at] + block + markup[at:]
        still_lacking, written = _lacking(closed, footer, unjudged=True)
        if not still_lacking:
            return closed, written
    raise PartError("html", HIDDEN)


HIDDEN = (
    "The unsubscribe link or the postal address cannot be seen wherever it stands in this HTML: the"
    " whole of it is hidden, or within a comment or an element that is never closed."
)


def _lacking(markup: str, footer: Footer, *, unjudged: bool = False) -> tuple[Lacking, str | None]:
    """The parts of the footer that cannot be seen, and the document with its style sheets in the
    elements, if that was tried; `unjudged`: of a document for which that is too much, by what its
    style sheets say. Otherwise such a one lacks everything."""
    unseen = _unseen(markup, footer)
    weight = weighed(markup)
    if weight == 0 or unseen == EMPTY:
        return unseen, None
    if weight is None:
        return (unseen if unjudged else EMPTY), None
    effort.yield_beyond(MOST_INLINED, weight)
    storable = replace_unstorable(markup)
    written = _inlined(storable)
    if written is storable:  # it could not be done after all
        return (unseen if unjudged else EMPTY), written
    return unseen | _unseen(written, footer), written


def _unseen(markup: str, footer: Footer) -> Lacking:
    return _judged(shows_link(markup, footer.url), words(markup), footer)


def _judged(shows_link: bool, text: str, footer: Footer) -> Lacking:
    """The address counts however its lines are broken and punctuated."""
    lacking = COMPLETE if shows_link else EMPTY - {"address"}
    address = _letters(footer.postal_address or "")
    return lacking if address in _letters(text) else lacking | (EMPTY - {"link"})


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).casefold()


def _sender(footer: Footer, lacking: Lacking) -> list[str]:
    address = footer.postal_address if "address" in lacking else None
    return [line for line in (footer.name, *(address or "").splitlines()) if line]


_GOES_ON = r"[.,;:!?)\]'\"]*[\w~/?#@$&*+=%-]"  # RFC 3986 §2; punctuation may end a sentence


def _has(text: str, url: str) -> bool:
    """Return whether the URL is there as a whole. With more before or behind it, it leads
    elsewhere."""
    return re.search(rf"(?<![\w~/?#@$&*+=%.-]){re.escape(url)}(?!{_GOES_ON})", text) is not None


# --- text messages --------------------------------------------------------------------------------

STOP_LINE = "Reply STOP to opt out"
# What carriers know as the instruction: "Reply STOP", or "STOP to end", and then perhaps what ends;
# a sentence in which somebody is to stop is none.
_ENDING = r"(?:opt[ -]?out|end|stop|quit|cancel|unsub(?:scribe)?)"
_QUOTED = r"[\"'“‘*]?STOP[\"'”’*]?"
_STOP = re.compile(
    rf"\b(?:reply|text|send|answer|respond|txt)(?:ing)?:?\s+(?:back\s+|with\s+)?{_QUOTED}"
    rf"(?=\s*(?:[.,;!)]|\Z|\n|(?:to|2)\s*{_ENDING}\b))"
    rf"|(?:\A|[.,;:!?(\n])\s{{0,3}}{_QUOTED}\s*(?:to|2|=)\s*{_ENDING}\b",
    re.IGNORECASE,
)


def _asks_for_stop(content: Mapping[str, Json]) -> bool:
    return _STOP.search(str(content.get("text", ""))) is not None


def _closed(text: str, line: str) -> str:
    return f"{text.rstrip()}\n{line}".lstrip("\n")
