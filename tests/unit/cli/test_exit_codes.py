"""Exit codes: 0 done, 1 failed, 2 usage, 3 timed out."""

from __future__ import annotations

import pytest
import typer

from tidegate.cli.output.error_output import reported_errors
from tidegate.errors import (
    CheckpointPending,
    RunFailed,
    RunOverdue,
    RunTimeout,
    TidegateError,
    UnknownDemo,
    UnknownSink,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RunFailed(run="march", cause="a bad row"), 1),
        (UnknownSink("best", "bulk"), 1),
        (UnknownDemo("tea", "coffee"), 2),
        (RunTimeout("march", 5.0), 3),
        (RunOverdue(run="march", cause="the deadline has passed"), 3),
        (CheckpointPending("march", 1, 5.0), 3),
    ],
    ids=lambda it: type(it).__name__,
)
def test_an_error_ends_the_command_with_its_exit_code(error: TidegateError, code: int) -> None:
    with pytest.raises(typer.Exit) as ended, reported_errors(as_json=False):
        raise error
    assert ended.value.exit_code == code


def test_without_an_error_the_command_goes_on() -> None:
    with reported_errors(as_json=False):
        pass
