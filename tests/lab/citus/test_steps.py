"""The steps of `make -C lab citus`: one that fails holds up no other, and the end tells of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import lab.citus.__main__ as steps
from lab.citus import report
from lab.citus.__main__ import Done, Step
from lab.citus.report import Figure
from tests import servers


def test_a_step_that_fails_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(servers, "citus_binaries", lambda: tmp_path)
    monkeypatch.setattr(
        steps,
        "STEPS",
        {"bad": Step("json.tool /nowhere", 1), "good": Step("json.tool --help", 1)},
    )
    keep = tmp_path / "kept"
    assert steps.main(["bad", "good"], keep) == 1
    out = capfd.readouterr().out
    assert "=== good: after" in out
    assert "did not end well: bad" in out
    bad, good = keep.read_text().splitlines()
    assert "ended with" in bad
    assert "ended with" not in good
    assert steps.main(["good"], None) == 0


@pytest.mark.parametrize("required", [False, True])
def test_without_citus_nothing_is_done_and_that_fails_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], required: bool
) -> None:
    monkeypatch.setattr(servers, "citus_binaries", lambda: None)
    monkeypatch.setenv("REQUIRE_CITUS", "1" if required else "")
    assert steps.main(["costs"], None) == required
    assert capsys.readouterr().out.strip() == servers.NO_CITUS


def test_a_row_says_what_was_seen_with_which_command_and_on_what(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(steps, "STEPS", {"one": Step("lab.one 5", 1)})
    ledger = tmp_path / "ledger"
    monkeypatch.setenv(report.LEDGER, str(ledger))
    report.show("a claim", "1.0 | 2.0", "PostgreSQL 15")
    assert report.read(ledger) == [Figure("a claim", "1.0 | 2.0", "PostgreSQL 15")]
    done = Done("one", report.read(ledger), 60.0, 0)
    assert steps.table([done])[2:] == [
        "| a claim (`python -m lab.one 5`; PostgreSQL 15) | 1.0 \\| 2.0 |"
    ]
