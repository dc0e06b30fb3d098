"""A definition tried for a given contact: what is needed of the database was looked up before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from app.machine import check
from app.machine.program import Json, Program
from app.simulation import cases, scenes, simulation, traces
from app.simulation.scenes import Given
from app.simulation.simulation import Scenario
from app.simulation.traces import Trace


@dataclass(frozen=True, slots=True)
class Setting:
    """Where it is tried; see Scenario."""

    workspace: Mapping[str, Json]
    definition_id: str
    version: int
    sender: Mapping[str, str]
    templates: Mapping[str, Mapping[str, Json]]
    channels: Sequence[str]
    startable: Collection[str]


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
        **scenes.of(given, program, trigger, setting.workspace["country"]),
    )
    return simulation.simulate(scenario)


def expected(
    given: Given,
    trigger: Mapping[str, Json],
    compiled: check.Compiled,
    setting: Setting,
    trace: Trace,
) -> dict[str, Json]:
    """What a case notes of it."""
    found = cases.found(trigger, compiled, setting.templates, given.trigger)
    return {"findings": cases.noted(found), **traces.normal(trace)}
