"""The result of a pipeline run for the step that ran it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Released:
    """The complete results of a pipeline run.

    The files are kept as long as the deployment keeps closed runs.
    """

    pipeline: str
    run: str
    """The name of the run, as `tidegate status` shows it."""
    rows: dict[str, int]
    """The number of rows of each sink."""
    files: dict[str, list[str]]
    """The Parquet files of each sink; none if it has no rows."""
