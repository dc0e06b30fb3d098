"""Work that costs hardly more for many than for one: collect → run → hand out.

Nobody waits for company. A question that finds nothing under way is taken up at once, with whatever
else came in the same turn of the loop; what comes while batches are under way shares the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar, cast

from app.errors import Unavailable
from app.runtime import tasks

log = logging.getLogger(__name__)

CLOSING_SECONDS = 2.0  # for what is still under way when the process ends
TURNS = 4  # from a readable socket to a question: reader, parser, application, handler
ALONE_TOGETHER = 8  # members of a failed batch that are tried again at the same time

NOT_BEGUN = "The database does not answer. Nothing was changed; send it again."

Context = TypeVar("Context")
Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Generic[Context, Question, Answer]):
    """What is done for many at once: `work` answers each question, in order; an exception among
    the answers is raised to the one who asked. When it raises itself, every question is asked
    again alone, so that one that breaks the work hurts nobody else; but not when nothing was heard
    of the database: then whoever stands in line is sent away as well, rather than wait as long."""

    work: Callable[[Context, Sequence[Question]], Awaitable[Sequence[Answer | Exception]]]
    most: int = 64  # questions of a batch
    weigh: Callable[[Question], int] = lambda _: 0  # in bytes
    heaviest: int = 4 * 1024 * 1024  # a batch's sum of weights, unless one question exceeds it
    abreast: int = 1  # batches under way at a time
    backlog: int = 1_000  # of what nobody waits for


async def gathered() -> None:
    """Once what this turn of the loop has in hand is through: the requests of a burst come together
    then, while one that is alone has waited some microseconds."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Batches:
    """All batches of one process; to be used from one event loop."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Kind[Any, Any, Any], int], _Line[Any, Any, Any]] = {}

    async def ask(
        self, kind: Kind[Context, Question, Answer], context: Context, question: Question
    ) -> Answer:
        """Cancelling who waits here cancels no batch."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._line(kind, context).put(question, answer)
        return await answer

    def tell(
        self, kind: Kind[Context, Question, Answer], context: Context, question: Question
    ) -> bool:
        """Nobody waits for it. False when too much of that is waiting already."""
        line = self._line(kind, context)
        if line.is_full:
            return False
        line.put(question, None)
        return True

    async def close(self) -> None:
        """What was asked or told is still done, for as long as an ending process may take."""
        tasks = [task for line in self._lines.values() for task in line.tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_SECONDS)

    def _line(
        self, kind: Kind[Context, Question, Answer], context: Context
    ) -> _Line[Context, Question, Answer]:
        key = (kind, id(context))  # which lives as long as its line
        if key not in self._lines:
            self._lines[key] = _Line(kind, context)
        return cast("_Line[Context, Question, Answer]", self._lines[key])


class _Line(Generic[Context, Question, Answer]):
    """Who waits for one kind of work."""

    def __init__(self, kind: Kind[Context, Question, Answer], context: Context) -> None:
        self._kind = kind
        self._context = context
        self._waiting: deque[tuple[Question, asyncio.Future[Answer] | None]] = deque()
        self._weight = 0
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        kind = self._kind
        return len(self._waiting) >= kind.backlog or self._weight >= 4 * kind.heaviest

    def put(self, question: Question, answer: asyncio.Future[Answer] | None) -> None:
        self._waiting.append((question, answer))
        self._weight += self._kind.weigh(question)
        if len(self.tasks) < self._kind.abreast:
            task = tasks.spawn_detached(self._work_off())
            self.tasks.add(task)

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                await gathered()
                if not self._waiting:
                    return  # who works beside us has taken it all
                questions, askers = zip(*self._take(), strict=True)
                for asker, answer in zip(askers, await self._answers(questions), strict=True):
                    _hand_out(asker, answer)
        finally:
            self.tasks.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    def _take(self) -> list[tuple[Question, asyncio.Future[Answer] | None]]:
        """The oldest, as many as may go together."""
        number, weight = 0, 0
        for question, _ in islice(self._waiting, self._kind.most):
            weight += self._kind.weigh(question)
            if number and weight > self._kind.heaviest:
                weight -= self._kind.weigh(question)
                break
            number += 1
        self._weight -= weight
        return [self._waiting.popleft() for _ in range(number)]

    async def _answers(self, questions: Sequence[Question]) -> Sequence[Answer | Exception]:
        try:
            return await self._kind.work(self._context, questions)
        except Exception as error:  # noqa: BLE001  handed to who asked
            if isinstance(error, Unavailable) and error.unanswered:
                self._send_away()
                return [error for _ in questions]
            if len(questions) == 1:
                return [error]
            log.info("a batch failed, each is tried alone: %r", error)
            return await self._alone(questions)

    def _send_away(self) -> None:
        waiting, self._weight = self._waiting, 0
        self._waiting = deque()
        for question, asker in waiting:
            if asker is None:
                self._waiting.append((question, asker))  # who may as well stay
                self._weight += self._kind.weigh(question)
            else:
                _hand_out(asker, Unavailable(NOT_BEGUN))

    async def _alone(self, questions: Sequence[Question]) -> Sequence[Answer | Exception]:
        """Given up when nobody of a whole round gets through: then it is not one that hurts."""
        answers: list[Answer | Exception] = []
        for first in range(0, len(questions), ALONE_TOGETHER):
            some = questions[first : first + ALONE_TOGETHER]
            together = await asyncio.gather(*(self._answers([question]) for question in some))
            answers += [answer for [answer] in together]
            if all(isinstance(answer, Unavailable) for answer in answers[first:]):
                return [*answers, *answers[-1:] * (len(questions) - len(answers))]
        return answers


def _hand_out(asker: asyncio.Future[Answer] | None, answer: Answer | Exception) -> None:
    if asker is None:
        if isinstance(answer, Exception):
            log.warning("what nobody waited for was not done: %r", answer)
    elif not asker.done():  # done: they went away
        if isinstance(answer, Exception):
            asker.set_exception(answer)
        else:
            asker.set_result(answer)
