"""Needs of a load, as docs/scaling.md works them out."""

from __future__ import annotations

from lab.calculated import Inputs, needs, row

INPUTS = Inputs(
    wal_event=1_000,
    wal_run=9_000,
    redis_commands=0.5,
    redis_ms=0.02,
    web=400,
    worker=150,
    event_ms=0.1,
    run_ms=2.3,
    citus=3,
    citus_web=1.2,
    room=2_000,
    look_ms=100,
    node_cores=8,
    node_wal=100e6,
)


def test_one_server_is_no_cluster() -> None:
    one = needs(1_000, INPUTS)
    assert (one.web, one.workers, one.database_cores, one.nodes) == (3, 7, 3, 1)
    assert (one.wal, one.connections, one.redis_commands) == (10e6, 50, 500)
    assert (one.looks, one.look_cores) == (0, 0)
    assert round(one.rows / 1e12) == 63


def test_nodes_are_for_cores_or_for_what_is_written_whichever_takes_more() -> None:
    many = needs(100_000, INPUTS)
    assert (many.web, many.workers, many.database_cores, many.nodes) == (300, 667, 720, 90)
    assert many.looks == 667 * 90
    assert row(many).startswith("| 100,000 | 300 | 667 | 720 | 90 | 1,000 MB | 4,835 | 50,000 c")
