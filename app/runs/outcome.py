"""What the effects of one step came to, be they carried out in a database or on paper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from app.errors import Problem
from app.machine.program import Event, Finish, Json, Record
from app.machine.reasons import SENTENCES, Reason

Waiting = TypeVar("Waiting")


@dataclass(slots=True)
class Outcome(Generic[Waiting]):
    """`waiting` is what the run waits for, as whoever carried the effects out keeps it."""

    record: Record | None
    waiting: Waiting | None = None
    answer: Event | None = None
    finish: Finish | None = None

    def note(self, code: Reason, detail: str | None = None) -> None:
        """For whoever reads the step: why it did not do the obvious thing."""
        if self.record is not None:
            self.record = replace(self.record, code=code, detail=detail or SENTENCES[code])

    def refused(self, problem: Problem) -> None:
        """A value that the contact may not have is told in the step; it does not stop the run."""
        told = " ".join(error.message for error in problem.errors) or problem.detail
        self.note(Reason.CHANGE_REFUSED, told)

    def tell(self, **output: Json) -> None:
        """Beside what the step itself has put out."""
        if self.record is not None:
            self.record = replace(self.record, output={**(self.record.output or {}), **output})
