"""The payloads of events: rows as Parquet files below a deployment's root folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one run in named files, whose paths start at the deployment's root folder."""

    files: tuple[str, ...]
    rows: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class SinkResult:
    """Rows of a sink; all results of a run together are what the sink publishes."""

    sink: str
    batch: Batch


Payload: TypeAlias = Batch | SinkResult
