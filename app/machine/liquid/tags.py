"""The tags that templates may use, and the library bound to ours."""

from __future__ import annotations

from typing import Final, TextIO, cast

from liquid import Environment, RenderContext, TokenStream, escape
from liquid import token as tokens
from liquid.ast import Node
from liquid.builtin.content import Literal
from liquid.builtin.expressions import FilteredExpression
from liquid.builtin.expressions.primitive import RangeLiteral
from liquid.builtin.illegal import Illegal
from liquid.builtin.output import Output, OutputNode
from liquid.builtin.tags.assign_tag import AssignTag
from liquid.builtin.tags.capture_tag import CaptureTag
from liquid.builtin.tags.case_tag import CaseTag
from liquid.builtin.tags.for_tag import BreakTag, ContinueTag, ForNode, ForTag
from liquid.builtin.tags.if_tag import IfTag
from liquid.builtin.tags.unless_tag import UnlessTag
from liquid.parser import get_parser
from liquid.tag import Tag

from app.machine.liquid.context import Context
from app.machine.liquid.filters import FILTERS
from app.machine.liquid.limits import ITERATIONS, limit
from app.machine.liquid.source import Count, Stream, markup
from app.machine.liquid.values import words


class Print(OutputNode):
    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        ours = cast("Context", context)
        ours.unresolved.clear()  # what conditions looked for in vain was not printed
        printed = words(self.expression.evaluate(ours))
        ours.missing.update(dict.fromkeys(ours.unresolved))
        return buffer.write(escape(printed) if ours.autoescape else printed)


class PlainOutput(Output):
    node_class = Print

    def parse(self, stream: TokenStream) -> OutputNode:
        token = stream.eat(tokens.TOKEN_OUTPUT)
        inner = stream.into_inner(tag=token, eat=False)
        return self.node_class(token, FilteredExpression.parse(self.env, inner))


class For(ForTag):
    def parse(self, stream: TokenStream) -> Node:
        node = super().parse(stream)
        if isinstance(node, ForNode) and isinstance(node.expression.iterable, RangeLiteral):
            loop = node.expression.iterable
            node.expression.iterable = Range(loop.token, loop.start, loop.stop)
        return node


class Range(RangeLiteral):
    """A range short enough that reversing or skipping into it costs nothing."""

    def evaluate(self, context: RenderContext) -> range:
        numbers = super().evaluate(context)
        if numbers.stop - numbers.start > ITERATIONS:
            raise limit(f"a range has at most {ITERATIONS} numbers")
        return numbers


TAGS: Final[tuple[type[Tag], ...]] = (
    *(Literal, PlainOutput, Illegal, IfTag, UnlessTag, CaseTag),
    *(For, BreakTag, ContinueTag, AssignTag, CaptureTag),
)


class Nodes(list[Node]):
    """A parsed template, and of how many tokens it was made: what it takes to keep it."""

    tokens: int


class Liquid(Environment):
    def setup_tags_and_filters(self, *, extra: bool = False) -> None:  # noqa: ARG002 - the library's
        for tag in TAGS:
            self.add_tag(tag)
        self.filters.update(FILTERS)

    def _parse(self, source: str) -> list[Node]:
        count = Count()
        stream = Stream(markup(source), source, len(source), count)
        nodes = Nodes(get_parser(self).parse(stream))
        nodes.tokens = count.tokens
        return nodes


LIQUID: Final = {html: Liquid(autoescape=html) for html in (False, True)}
