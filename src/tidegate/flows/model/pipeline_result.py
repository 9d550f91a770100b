"""What a step gets from a run of a pipeline that it has waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Released:
    """The results of a run of a pipeline, all of them complete.

    They stay where they are for as long as the deployment keeps closed runs.
    """

    pipeline: str
    run: str
    """The name of the run, as `tidegate status` shows it."""
    rows: dict[str, int]
    """How many rows each sink has."""
    files: dict[str, list[str]]
    """The Parquet files of each sink, for any reader of these; none where there are no rows."""
