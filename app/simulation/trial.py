"""A definition tried for a given contact: what is needed of the database was looked up before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from app.definitions.case_results import CaseResult
from app.errors import Problem
from app.machine import check, document, effort
from app.machine.program import Json, Program
from app.simulation import cases, expected, scenes, simulation, traces
from app.simulation.gating import Gate
from app.simulation.scenes import Given
from app.simulation.simulation import Scenario
from app.simulation.traces import Trace


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting in which it is tried; see Scenario."""

    workspace: Mapping[str, Json]
    definition_id: str
    version: int
    sender: Mapping[str, str]
    templates: Mapping[str, Mapping[str, Json]]
    channels: Sequence[str]
    startable: Collection[str] | None
    gate: Gate

    def compared(self) -> Json:
        """The trace as JSON, of which the result of cases is kept; a normal trace names no IDs, and
        that of a definition that is being made is another one whenever that is begun anew."""
        return {**asdict(self), "definition_id": None}


def run(given: Given, trigger: Mapping[str, Json], program: Program, setting: Setting) -> Trace:
    """Raises Problem."""
    scenario = Scenario(
        workspace=setting.workspace,
        definition_id=setting.definition_id,
        version=setting.version,
        sender=setting.sender,
        templates=setting.templates,
        channels=setting.channels,
        startable=setting.startable,
        gate=setting.gate,
        **scenes.of(given, program, trigger, setting.workspace["country"]),
    )
    return simulation.simulate(scenario)


def noted(
    given: Given,
    trigger: Mapping[str, Json],
    compiled: check.Compiled,
    setting: Setting,
    trace: Trace,
) -> dict[str, Json]:
    """The summary that a case keeps of it."""
    found = cases.found(trigger, compiled, setting.templates, given.trigger)
    return {"findings": cases.noted(found), **traces.normal(trace)}


MOST_BYTES = 64 * 1024  # of a part that came out differently


@dataclass(frozen=True, slots=True)
class Tried:
    """A case with its JSON, and where it is tried."""

    name: str
    given: str
    expect: str
    setting: Setting

    def compared(self) -> Json:
        return [self.name, self.given, self.expect, self.setting.compared()]


def prove(
    cases: Sequence[Tried],
    trigger: Mapping[str, Json],
    compiled: check.Compiled,
    seconds: float,
) -> list[CaseResult]:
    """The result of each."""
    with effort.limited(seconds):
        return [_proved(one, trigger, compiled) for one in cases]


def sentence(problem: Problem) -> str:
    """The reason why a case cannot be tried."""
    return " ".join([problem.detail, *cases.sentences(problem)])


def _proved(tried: Tried, trigger: Mapping[str, Json], compiled: check.Compiled) -> CaseResult:
    name, wanted = tried.name, document.parse(tried.expect.encode())
    if compiled.program is None or effort.is_exhausted():
        return CaseResult(name, wanted, None, "The cases before it took all the time there is.")
    try:
        case = cases.given(tried.given.encode())
        trace = run(case, trigger, compiled.program, tried.setting)
    except Problem as problem:
        return CaseResult(name, wanted, None, sentence(problem))
    came = traces.normal(trace)
    if "findings" in wanted:
        came = noted(case, trigger, compiled, tried.setting, trace)
    part = expected.part(wanted, document.parse(document.dumps(came)))
    difference = expected.difference(wanted, part)
    is_large = difference is not None and len(document.dumps(part)) > MOST_BYTES
    return CaseResult(name, wanted, None if is_large else part, difference)
