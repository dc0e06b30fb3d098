"""Explains which dates, times of a schedule, entries and exits started no run, and which runs
started late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from app.database.db import Handle
from app.definitions import findings
from app.machine import compare, document
from app.machine.fields import parse_duration
from app.runs.explanations import Explained, Explanation
from app.store import explaining, missed_occasions, segments, watches
from app.store.definitions import Definition
from app.store.explaining import ExplainedRun
from app.store.missed_occasions import MissReason, MissSource

TIMED = ("date", "schedule")
LONGEST_OCCASION = 100  # bytes of the trigger of a run that an occasion started
UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
WHAT: Mapping[MissSource, str] = {
    "date": "The contact's date came at {at}",
    "schedule": "A time of the schedule came at {at}",
    "segment_entered": "The contact entered the segment at {at}",
    "segment_left": "The contact left the segment at {at}",
}
WHY: Mapping[MissReason, tuple[Explanation, str]] = {
    "inactive": (
        Explanation.MISSED_INACTIVE,
        " while the flow was not active, so it started no run",
    ),
    "stopped": (
        Explanation.MISSED_INACTIVE,
        ", and before its run was started the flow was paused, or its trigger changed",
    ),
    "filling": (
        Explanation.MISSED_FILLING,
        " while the segment was being filled, so it started no run",
    ),
    "restored": (
        Explanation.MISSED_RESTORED,
        ", and a backup was restored since, which does not say whether it started its run, so it"
        " starts none",
    ),
    "late": (
        Explanation.MISSED_LATE,
        ", and was looked at later than the flow's trigger allows, so it starts no run any more",
    ),
}


def spelled(length: timedelta) -> str:
    """Write a length in whole units, such as 1 hour 30 minutes."""
    rest = int(length.total_seconds())
    parts = []
    for unit, seconds in UNITS:
        count, rest = divmod(rest, seconds)
        if count:
            parts.append(f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s")
    return " ".join(parts) or "0 seconds"


async def missed(
    db: Handle, *, workspace_id: str, definition_id: str, contact_id: str, since: datetime
) -> list[Explained]:
    """The occasions of the contact after that time which started no run."""
    found = []
    for one in await missed_occasions.of_contact(
        db,
        workspace_id=workspace_id,
        definition_id=definition_id,
        contact_id=contact_id,
        since=since,
    ):
        code, why = WHY[one.reason]
        later = ", nor did a later one up to {until}" if one.until > one.at else ""
        sentence = f"{WHAT[one.source]}{why}{later}."
        detail = sentence.format(at=document.text(one.at), until=document.text(one.until))
        found.append(Explained(one.at, code, definition_id, detail))
    return found


async def given_up(db: Handle, workspace_id: str, definition: Definition) -> str | None:
    """Explain that nobody does the work which would start the ACTIVE definition's runs."""
    trigger = definition.trigger_config
    if trigger["source"] in TIMED and await watches.is_given_up(
        db, workspace_id=workspace_id, definition_id=definition.id
    ):
        what = f"The work on the flow's {trigger['source']}"
        return f"{what} was given up, so it starts no runs until it is paused and activated again."
    id = trigger["segmentId"] if trigger["source"] in findings.OF_SEGMENTS else ""
    segment = await segments.by_id(db, workspace_id=workspace_id, id=id) if id else None
    if segment is None or segment.reason_code is None:
        return None
    what = f"The work on the segment {segment.name} was given up"
    return f"{what}, so it may start no runs until the segment's filter is saved again."


async def started_late(
    db: Handle, workspace_id: str, timed: Sequence[ExplainedRun]
) -> list[Explained]:
    """Explain the runs that an occasion started late. A replay of one, or a run that somebody
    started with the same data, was not late itself."""
    if not timed:
        return []
    bodies = await explaining.short_bodies(
        db, workspace_id=workspace_id, run_ids=[run.id for run in timed], longest=LONGEST_OCCASION
    )
    found = []
    for run in timed:
        trigger = document.parse(bodies[run.id]) if run.id in bodies else None
        if isinstance(trigger, dict) and "delayedBy" in trigger:
            at = compare.time(trigger.get("at"))
            delay = parse_duration(str(trigger["delayedBy"]))
            if at and delay and abs(run.created_at - at - delay) <= timedelta(seconds=1):
                detail = f"The run started {spelled(delay)} late: its time was {document.text(at)}."
                found.append(Explained(run.created_at, Explanation.STARTED_LATE, run.id, detail))
    return found
