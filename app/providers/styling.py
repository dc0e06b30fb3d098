"""A mail's style sheets written into its elements, for the readers that drop <style>.

The HTML may hold what a stranger sent, and the library recurses into it and multiplies declarations
by elements: a document that could cost much is left as it is. Nothing is fetched from anywhere.
"""

from __future__ import annotations

import logging
import re

from css_inline import CSSInliner, InlineError

log = logging.getLogger(__name__)

LONGEST = 512 * 1_024  # characters; readers cut a mail off long before
MOST_TAGS = 2_000  # counted wherever they stand, so that no nesting is deeper
MOST_WORK = 3_000_000  # tags times characters of style sheets
FEW_TAGS = 50  # that cost no more than that, whatever they are

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
    if not _STYLE.search(markup) or is_too_large(markup):
        return markup
    try:
        made = _INLINER.inline(markup)
    except InlineError:
        log.warning("style sheets not inlined", exc_info=True)
        return markup
    return made if len(made) <= LONGEST else markup


def is_too_large(markup: str) -> bool:
    """Whether its style sheets, if it has any, would cost too much to be written into elements."""
    styles = _styles(markup)
    tags = sum(1 for _ in _TAG.finditer(markup)) if styles else 0
    too_long = styles > 0 and len(markup) > LONGEST
    return too_long or tags > MOST_TAGS or tags * styles > MOST_WORK


def work(markup: str) -> int:
    """The cost of inlining: 100,000 in about a millisecond. A tag that ends nothing costs, too:
    some make an element. And one that is never ended, such as <b>, may be opened anew in each
    element that follows: then there are as many as the square of the tags."""
    tags = markup.count("<")
    return int(_styles(markup) * tags * max(1.0, tags / FEW_TAGS) ** 2)


def _styles(markup: str) -> int:
    """The characters of its style sheets."""
    return sum(len(found[0]) for found in _STYLE.finditer(markup))
