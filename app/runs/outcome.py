"""The outcome of one step's effects, whether they are applied to the database or simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from app.errors import Problem
from app.machine.program import Event, Finish, Json, Record
from app.machine.reasons import SENTENCES, Reason

Waiting = TypeVar("Waiting")


@dataclass(slots=True)
class StepOutcome(Generic[Waiting]):
    """The consequence for the run. `waiting` is what it waits for, in the form that the runner or
    the simulation keeps."""

    record: Record | None
    waiting: Waiting | None = None
    answer: Event | None = None
    finish: Finish | None = None

    def note(self, code: Reason, detail: str | None = None) -> None:
        """Add to the step's record why it did not do the obvious thing."""
        if self.record is not None:
            self.record = replace(self.record, code=code, detail=detail or SENTENCES[code])

    def note_refusal(self, problem: Problem) -> None:
        """A value that a contact may not have is recorded in the step; it does not stop the run."""
        detail = " ".join(error.message for error in problem.errors) or problem.detail
        self.note(Reason.CHANGE_REFUSED, detail)

    def add_output(self, **output: Json) -> None:
        """Add to the output of the step's record."""
        if self.record is not None:
            self.record = replace(self.record, output={**(self.record.output or {}), **output})
