"""A mail's style sheets written into its elements, for the readers that drop <style>.

The HTML may hold what a stranger sent, and the library recurses into it and multiplies declarations
by elements: a document that could cost much is left as it is. Nothing is fetched from anywhere.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice

from css_inline import CSSInliner, InlineError

log = logging.getLogger(__name__)

LONGEST = 512 * 1_024  # characters; readers cut a mail off long before
MOST_TAGS = 2_000  # counted wherever they stand, so that no nesting is deeper
MOST_WORK = 3_000_000  # tags times characters of style sheets
MOST_REOPENED = 10_000_000  # of weight, where elements may be opened anew: 0.14 seconds

_TAG = re.compile(r"<[a-zA-Z]")
_STYLE = re.compile(r"<style(?=[\s/>]).*?(?:</style(?=[\s/>])|\Z)", re.IGNORECASE | re.DOTALL)

# What cannot stand in an element, such as @media and :hover, stays where it is.
_INLINER = CSSInliner(
    keep_style_tags=True,
    remove_inlined_selectors=True,
    keep_link_tags=True,
    load_remote_stylesheets=False,
)


def inlined(markup: str) -> str:
    """The same document when it has no style sheet, or is too large for this, or would become so:
    a tag that is never ended may be opened anew in each element that follows."""
    if not weighed(markup, roughly=True):
        return markup
    try:
        made = _INLINER.inline(markup)
    except InlineError:
        log.warning("style sheets not inlined", exc_info=True)
        return markup
    return made if len(made) <= LONGEST else markup


def weighed(markup: str, *, roughly: bool = False) -> int | None:
    """The cost of inlining, before it is done: 0 without a style sheet, None for a document that is
    left as it is, for it would cost too much. 100,000 take one to three milliseconds where each
    rule is about each element, and a tenth of that in a newsletter. A tag that ends nothing costs,
    too: some make an element. `roughly`: at most so much, whatever is ended.

    It is asked on the loop for each mail, so what takes a while comes last."""
    styles = sum(len(found[0]) for found in _STYLE.finditer(markup))
    if not styles:
        return 0
    tags = sum(1 for _ in islice(_TAG.finditer(markup), MOST_TAGS + 1))
    if len(markup) > LONGEST or tags > MOST_TAGS or tags * styles > MOST_WORK:
        return None
    reopened = _Reopened(len(_OPENING.findall(markup)), len(markup))
    if not roughly or _weight(markup, styles, reopened) > MOST_REOPENED:
        reopened = _reopened(markup)
    weight = _weight(markup, styles, reopened)
    return None if reopened.count and weight > MOST_REOPENED else weight


# --- elements that are opened anew ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reopened:
    """Number of elements that may be opened anew in each that follows, and their tags' length."""

    count: int
    characters: int


def _weight(markup: str, styles: int, reopened: _Reopened) -> int:
    return markup.count("<") * (styles * (1 + reopened.count) + reopened.characters // 8)


# WHATWG HTML §13.2.4.3: where the element around such a one ends before it, it is opened anew.
_FORMATTING = frozenset({
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
})  # fmt: skip
_IN_LINE = _FORMATTING | {"span", "sub", "sup"}  # within which nothing ends the one around
_VOID = frozenset({"br", "img", "wbr"})
_ALIKE = 3  # so many with the same attributes are opened anew, and one <a>
_OPENING = re.compile(rf"<(?:{'|'.join(sorted(_FORMATTING))})(?=[\s/>])", re.IGNORECASE | re.ASCII)
# Text and a whole tag, where no reader of HTML can take it for anything else if it begins as one:
# quotes stand behind an equals sign alone, and nothing within looks like another tag.
_TOKEN = re.compile(
    r"""[^<]*+(?P<tag><(?P<end>/?)(?P<name>[a-z]++)(?=[\ \t\n\f\r/>])
        (?:[\ \t\n\f\r/]*+[^\ \t\n\f\r/>="'<]++(?:[\ \t\n\f\r]*+=[\ \t\n\f\r]*+
            (?:"[^"<]*+"|'[^'<]*+'|[^\ \t\n\f\r"'<>][^\ \t\n\f\r<>]*+))?+)*+
        [\ \t\n\f\r/]*+>)""",
    re.IGNORECASE | re.ASCII | re.VERBOSE,
)


def _reopened(markup: str) -> _Reopened:
    """All but those that surely are ended with nothing but text and elements of a line within: what
    stands in a comment or an attribute, or in the wrong order, ends nothing."""
    alike: Counter[str] = Counter()  # by the tag as it is written
    link = count = characters = position = 0
    while opening := _OPENING.search(markup, position):
        open_tags, position = _left_open(markup, opening.start())
        if position == opening.start():  # its own tag cannot be read: it may have all of the rest
            position = opening.end()
            count, characters = count + 1, characters + len(markup) - opening.start()
        for name, tag in open_tags:
            if name == "a":
                link = max(link, len(tag))
            elif name in _FORMATTING and alike[tag] < _ALIKE:
                alike[tag] += 1
                count, characters = count + 1, characters + len(tag)
    return _Reopened(count + (link > 0), min(characters + link, len(markup)))


def _left_open(markup: str, position: int) -> tuple[list[tuple[str, str]], int]:
    """The names and tags of what is open where something else than text and elements of a line
    comes, and where that is; none where all that was opened has been ended."""
    open_tags: list[tuple[str, str]] = []
    while token := _TOKEN.match(markup, position):
        name = token["name"].lower()
        if token["end"]:
            if not open_tags or open_tags[-1][0] != name:
                break
            open_tags.pop()
        elif name in _IN_LINE:
            open_tags.append((name, token["tag"]))
        elif name not in _VOID:
            break
        position = token.end()
        if not open_tags:
            break
    return open_tags, position
