"""HTML to text that reads well: the other half of a mail whose author wrote only the HTML.

One pass, and linear in the input whatever it is: the HTML may hold what a stranger sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.machine.text import unescaped

# A tag, where `>` may stand inside quotes; failing that, anything up to the next angle bracket.
_TAG = re.compile(
    r"""<(/?)([a-zA-Z][a-zA-Z0-9:-]*+)
        ((?:[^<>"']++|"[^<"]*+"|'[^<']*+')*+>|[^<>]*+>)
      | <[!?/][^<>]*+>""",
    re.VERBOSE,
)
_ATTRIBUTE = re.compile(
    r"""(?<![a-zA-Z-])([a-zA-Z-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))"""
)
_SPACES = re.compile(r"[ \t\r\n\f]+")

_UNSEEN = frozenset({"script", "style", "title", "template"})

# What a tag puts between the words around it.
_OPENING = {
    "br": "\n", "hr": "\n\n---\n\n", "li": "\n- ", "ul": "\n", "ol": "\n", "div": "\n", "tr": "\n",
    "td": " ", "th": " ", "p": "\n\n", "table": "\n\n", "blockquote": "\n\n", "pre": "\n\n",
    "h1": "\n\n", "h2": "\n\n", "h3": "\n\n", "h4": "\n\n", "h5": "\n\n", "h6": "\n\n",
}  # fmt: skip
_CLOSING = {
    name: gap for name, gap in _OPENING.items() if name not in {"br", "hr", "li", "td", "th"}
}
_LINKED = ("https://", "http://", "mailto:", "tel:")


def plain_text(markup: str) -> str:
    """The words of an HTML document, in lines and paragraphs; a link's address in brackets."""
    first, *rest = markup.split("<!--")
    shown = first + "".join(part.partition("-->")[2] for part in rest)
    source = _SPACES.sub(" ", shown)
    pieces: list[str] = []
    link: tuple[str, int] | None = None  # (address, where its words begin); links do not nest
    for text, end, name, attributes in _tokens(source):
        pieces.append(text)
        if name == "a":
            if not end:
                link = _attribute(attributes, "href"), len(pieces)
            elif link:
                address, start = link
                words = "".join(pieces[start:]).strip()
                seen = {address, address.partition(":")[2]}
                if address.lower().startswith(_LINKED) and words not in seen:
                    pieces.append(f" ({address})" if words else address)
                link = None
        elif name == "img":
            pieces.append(_attribute(attributes, "alt"))
        else:
            pieces.append((_CLOSING if end else _OPENING).get(name, ""))
    text = unescaped("".join(pieces)).replace("\N{NO-BREAK SPACE}", " ")
    text = re.sub(r" *\n *", "\n", re.sub(r" {2,}", " ", text))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _tokens(source: str) -> Iterator[tuple[str, bool, str, str]]:
    """(the text before the tag, is it an end tag, its name in lower case, its attributes)."""
    position = 0
    unseen = ""
    for tag in _TAG.finditer(source):
        end, name, attributes = tag.groups("")
        name = name.lower()
        if not unseen:
            yield source[position : tag.start()], end == "/", name, attributes
            unseen = name if name in _UNSEEN and not end else ""
        elif end and name == unseen:
            unseen = ""
        position = tag.end()
    if not unseen:
        yield source[position:], False, "", ""


def _attribute(attributes: str, name: str) -> str:
    """The attribute as it stands in the source, with its entities."""
    for found in _ATTRIBUTE.finditer(attributes):
        key, double, single, bare = found.groups("")
        if key.lower() == name:
            return str(double or single or bare).strip()
    return ""
