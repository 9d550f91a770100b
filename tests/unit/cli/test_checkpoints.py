"""The lines about checkpoints in the report of a run."""

from __future__ import annotations

from tidegate.cli.checkpoints import checkpoint_lines
from tidegate.runtime.ingestion.folder_run import CheckpointReport


def test_a_run_without_checkpoints_has_no_lines() -> None:
    assert checkpoint_lines([]) == []


def test_each_retained_checkpoint_has_a_line() -> None:
    taken = [
        CheckpointReport(3, "committed", 0.5, True),
        CheckpointReport(4, "aborted", 1.0, False),
    ]
    assert [line.split() for line in checkpoint_lines(taken)] == [
        ["checkpoints"],
        ["1", "to", "2", "are", "no", "longer", "retained"],
        ["3", "committed", "0.50", "s", "published"],
        ["4", "aborted", "1.00", "s", "not", "published"],
    ]
