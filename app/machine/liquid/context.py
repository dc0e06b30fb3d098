"""One render: lookups of ours, and the budget that everything draws on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from sys import getsizeof
from time import monotonic, thread_time
from typing import TextIO, cast

from liquid import BoundTemplate, RenderContext, Token
from liquid.builtin.tags.for_tag import ForLoop
from liquid.builtin.tags.tablerow_tag import TableRow
from liquid.undefined import UNDEFINED
from liquid.utils import ReadOnlyChainMap

from app.machine import effort
from app.machine.liquid.limits import ITERATIONS, OUTPUT, SECONDS, bounded, limit
from app.machine.liquid.values import Nothing, as_segment, followed
from app.machine.path import MISSING, Path
from app.machine.program import Facts


class Context(RenderContext):
    """One render: our lookups, and the budget that lookups, loops, filters and writes draw on."""

    __slots__ = (
        *("budget", "deadline", "exhausted", "seconds"),
        *("held", "iterations", "missing", "unresolved", "written"),
    )

    def __init__(self, template: BoundTemplate, facts: Facts) -> None:
        super().__init__(template, globals=facts)
        self.scope = ReadOnlyChainMap(self.locals, self.globals)  # without the library's own clock
        self.budget = budget = effort.current()
        if budget is None or budget.seconds > SECONDS:
            self.seconds = SECONDS
            self.deadline = monotonic() + SECONDS
            self.exhausted = thread_time() + SECONDS
        if budget is not None and (budget.seconds <= SECONDS or budget.deadline < self.deadline):
            self.seconds = budget.seconds
            self.deadline, self.exhausted = budget.deadline, budget.exhausted
        self.iterations = self.written = self.held = 0
        self.unresolved: list[Path] = []
        self.missing: dict[Path, None] = {}

    def spend(self) -> None:
        # The wall's clock is cheap to ask; that the machine stood still is no template's fault.
        if monotonic() > self.deadline and thread_time() > self.exhausted:
            if self.budget is not None and self.budget.yields:
                raise effort.Exceeded
            raise limit(f"rendering takes more than {self.seconds:g} seconds")

    def get(
        self,
        path: list[object],
        *,
        token: Token | None,  # noqa: ARG002 - the library's
        default: object = UNDEFINED,  # noqa: ARG002 - the library's
    ) -> object:
        self.spend()
        value = self.scope.get(cast("str", path[0]), MISSING)
        for segment in path[1:]:
            value = followed(value, segment)
        if value is MISSING:
            value = Nothing(Path(tuple(map(as_segment, path))))
        if type(value) is Nothing:  # also one that was assigned
            self.unresolved.append(value.path)
        return value

    def filter(self, name: str, token: Token | None) -> Callable[..., object]:
        function, budget = super().filter(name, token), self.budget

        def spending(*arguments: object, **named: object) -> object:
            self.spend()
            if budget is not None and arguments:
                budget.refuse_large(arguments[0])
            return bounded(function(*arguments, **named))

        return spending

    @contextmanager
    def loop(
        self, namespace: Mapping[str, object], forloop: ForLoop | TableRow
    ) -> Iterator[RenderContext]:
        forloop.it = self._counted(forloop.it)
        with super().loop(namespace, forloop) as context:
            yield context

    def _counted(self, items: Iterator[object]) -> Iterator[object]:
        for item in items:
            self.spend()
            self.iterations += 1
            if self.iterations > ITERATIONS:
                raise limit(f"loops run more than {ITERATIONS} times in all")
            yield item

    def assign(self, key: str, val: object) -> None:
        self.spend()
        self.held += getsizeof(val) - getsizeof(self.locals.get(key))
        if self.held > OUTPUT:
            raise limit(f"variables hold more than {OUTPUT} bytes")
        self.locals[key] = val

    def get_buffer(self, buf: TextIO | None = None) -> StringIO:  # noqa: ARG002 - the library's
        return Buffer(self)


class Buffer(StringIO):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def write(self, text: str) -> int:
        self.context.spend()
        self.context.written += (
            len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        )
        if self.context.written > OUTPUT:
            raise limit(f"the output is longer than {OUTPUT} bytes")
        return super().write(text)
