"""Figures for Prometheus: counted in every process, shown by any of them (app/store/counters.py
adds up).

A scrape reaches one web process by chance, and workers listen to nobody. So each process adds what
it counted to the database every few seconds, and a sum never falls when a process ends. What stands
in the database anyway is not counted but looked up, at each scrape.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3_600.0)
INFINITE = "+Inf"


@dataclass(frozen=True, slots=True)
class Family:
    """`labels` are the names that every figure of it carries."""

    kind: Literal["counter", "histogram", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


FAMILIES: Mapping[str, Family] = {
    "tidings_requests": Family("counter", "Responses, by status class.", ("status",)),
    "tidings_refusals": Family("counter", "Error responses, by code.", ("code",)),
    "tidings_webhooks_accepted": Family("counter", "Events answered with 202."),
    "tidings_runs_ended": Family("counter", "Ended runs, by status.", ("status",)),
    "tidings_message_outcomes": Family(
        "counter",
        "Recorded outcomes of messages: final ones, retries (QUEUED), later reports.",
        ("channel", "status"),
    ),
    "tidings_events_ended": Family(
        "counter", "Outbound events that ended, accepted by their endpoint or not.", ("status",)
    ),
    "tidings_inbound_flagged": Family(
        "counter", "Incoming messages without a keyword that may be opt-outs.", ("channel",)
    ),
    "tidings_compute_jobs": Family(
        "counter", "Jobs for the compute process, by outcome.", ("outcome",)
    ),
    "tidings_compute_processes_started": Family("counter", "Compute processes started."),
    "tidings_compute_seconds": Family(
        "histogram", "Time from the submission of a job for the compute process to its end."
    ),
    "tidings_acceptance_to_first_step_seconds": Family(
        "histogram", "Time from the acceptance of an event to the first step of its run."
    ),
    "tidings_acceptance_to_sent_seconds": Family(
        "histogram",
        "Time from the creation of a message until a provider accepted it.",
        ("channel",),
    ),
    "tidings_due": Family("gauge", "Rows that are due and unclaimed.", ("kind",)),
    "tidings_oldest_due_seconds": Family("gauge", "How late the oldest due row is.", ("kind",)),
    "tidings_deliveries_unknown": Family(
        "gauge", "Messages with an unknown outcome, until somebody resolves them."
    ),
    "tidings_work_given_up": Family(
        "gauge",
        "Segments, dates and schedules whose work ended its worker every time, until their"
        " workspaces begin it anew.",
    ),
    "tidings_providers_waited_for": Family(
        "gauge", "Workspaces whose circuit breaker for a provider is open.", ("channel", "code")
    ),
    "tidings_database_connections": Family(
        "gauge", "Database connections of the process that answers, by state.", ("state",)
    ),
    "tidings_connections": Family(
        "gauge",
        "Open connections of the process that answers, by what they wait for: a request's head or"
        " body, an answer (work), its reader (write, close), or nothing (idle).",
        ("phase",),
    ),
    "tidings_body_bytes": Family(
        "gauge", "Bytes of request bodies that the process that answers holds."
    ),
    "tidings_bodies_refused": Family(
        "counter", "Request bodies refused because too many were held at once."
    ),
    "tidings_connections_closed": Family(
        "counter",
        "Closed connections: by the client, after an answer, after a timeout, for others (capacity,"
        " share), at the end of the process (stop), or at once (refused).",
        ("cause",),
    ),
}


class Metrics:
    """The counts of one process that are not yet added up."""

    def __init__(self) -> None:
        self._counted: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._gauges: dict[tuple[str, str], float] = {}  # of this process, never added up

    def set(self, name: str, value: float, **labels: str) -> None:
        self._gauges[name, _written(name, **labels)] = value

    def gauges(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        for (name, written), value in self._gauges.items():
            yield name, json.loads(written), value

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        self._counted[name, _written(name, **labels)] += amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Count a time in a histogram: the bucket that it falls in, and the sum."""
        at = bisect_left(SECONDS, seconds)
        bound = str(SECONDS[at]) if at < len(SECONDS) else INFINITE
        self._counted[f"{name}_bucket", _written(name, **labels, le=bound)] += 1
        self._counted[f"{name}_sum", _written(name, **labels)] += max(seconds, 0.0)

    def take(self) -> dict[tuple[str, str], float]:
        """Everything, to be added up; what is counted from now on is for the next time."""
        taken, self._counted = dict(self._counted), defaultdict(float)
        return taken

    def give_back(self, taken: Mapping[tuple[str, str], float]) -> None:
        for key, amount in taken.items():
            self._counted[key] += amount


@lru_cache(1_024)
def _written(name: str, **labels: str) -> str:
    known = (*FAMILIES[name].labels, "le")
    if not set(labels) <= set(known):
        raise ValueError(f"{name} has no label among {sorted(labels)}")
    return json.dumps({label: labels[label] for label in known if label in labels})


# --- as Prometheus reads it ---------------------------------------------------------------------

Figures = Iterable[tuple[str, str, float]]  # name, labels as JSON, value


def exposition(figures: Figures, gauges: Iterable[tuple[str, Mapping[str, str], float]]) -> bytes:
    """The text format, version 0.0.4: every family, those that nothing was counted of too."""
    registry = CollectorRegistry()
    registry.register(_Collected([*_families(figures), *_gauges(gauges)]))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _families(figures: Figures) -> Iterator[Metric]:
    by_name: defaultdict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    for name, written, value in figures:
        by_name[name].append((json.loads(written), value))
    for name, family in FAMILIES.items():
        if family.kind == "counter":
            counter = CounterMetricFamily(name, family.help, labels=family.labels)
            nothing: list[tuple[dict[str, str], float]] = [] if family.labels else [({}, 0.0)]
            for given, value in by_name[name] or nothing:
                counter.add_metric([given[label] for label in family.labels], value)
            yield counter
        elif family.kind == "histogram":
            histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
            for given, total in by_name[f"{name}_sum"]:
                counted = {
                    bucket["le"]: value
                    for bucket, value in by_name[f"{name}_bucket"]
                    if given.items() <= bucket.items()
                }
                running, shown = 0.0, []
                for bound in (*map(str, SECONDS), INFINITE):
                    running += counted.get(bound, 0.0)
                    shown.append((bound, running))
                histogram.add_metric([given[label] for label in family.labels], shown, total)
            yield histogram


def _gauges(gauges: Iterable[tuple[str, Mapping[str, str], float]]) -> Iterator[Metric]:
    by_name = {
        name: GaugeMetricFamily(name, family.help, labels=family.labels)
        for name, family in FAMILIES.items()
        if family.kind == "gauge"
    }
    for name, labels, value in gauges:
        by_name[name].add_metric([labels[label] for label in FAMILIES[name].labels], value)
    return iter(by_name.values())
