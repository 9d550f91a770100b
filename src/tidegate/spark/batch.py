"""A batch: rows as Parquet files below a deployment's root folder."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one run in named files, whose paths start at the deployment's root folder."""

    files: tuple[str, ...]
    rows: int
    bytes: int = 0
