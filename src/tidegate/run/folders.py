"""A whole run from a folder of files to a folder of results, in one process.

    DATA/<source>/*.csv|*.parquet  ──▶  OUT/<sink>.csv

Every file is a chunk. Results are written when the run is complete, and not before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.errors import NoSourceFolder, listed
from tidegate.plan import plan_hash
from tidegate.run.workshop import SparkWorkshop
from tidegate.spark import write_csv

if TYPE_CHECKING:
    from tidegate.pipeline import Pipeline
    from tidegate.run.live import LivePipeline
    from tidegate.run.receipts import Receipt
    from tidegate.spark import Session

CHUNKS = ("*.csv", "*.csv.gz", "*.csv.bz2", "*.parquet")
EVERY = 5.0
"""Seconds between two words about a run that is not complete."""

Chunks = Mapping[str, Sequence[Path]]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is wanted: its name, on how many shards, and how long it may take to its end."""

    name: str = "run"
    shards: int | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class StageReport:
    """What one stage did, over all its shards."""

    stage: str
    jobs: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """What went in, what came out, and where the time went."""

    pipeline: str
    run: str
    plan: str
    chunks: Mapping[str, int]
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    stages: tuple[StageReport, ...]
    seconds: float


def chunks_in(data: Path, pipeline: Pipeline) -> dict[str, list[Path]]:
    """The files of every source; a folder may be empty, but it has to be there."""
    missing = [source for source in pipeline.sources if not (data / source).is_dir()]
    if missing:
        raise NoSourceFolder(folder=str(data), sources=listed(missing))
    return {source: _files(data / source) for source in pipeline.sources}


def _files(folder: Path) -> list[Path]:
    return sorted({file for pattern in CHUNKS for file in folder.glob(pattern) if file.is_file()})


def run_folder(
    pipeline: Pipeline,
    chunks: Chunks,
    out: Path,
    session: Session,
    wanted: RunOptions,
    tell: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """Deliver the chunks, wait until the run is complete, write the results, report.

    Raises the failure of the pipeline, or `BarrierTimeout` with the names of those who hold the
    run up when it is not complete within its deadline.
    """
    run = wanted.name
    started = monotonic()
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        workshop = SparkWorkshop(pipeline, session, folder, wanted.shards)
        tell(f"Spark has checked the plan: {sum(1 for _ in workshop.plan.stages)} stages")
        with workshop.start() as live:
            rows_in = _deliver(live, workshop, chunks, run)
            tell(f"{sum(map(len, chunks.values()))} chunks are delivered, END follows them")
            _wait(live, live.end(run, timeout=wanted.deadline), tell)
        published = workshop.results.published[run]
        for sink, batches in published.items():
            write_csv(session, batches, workshop.schema_of(sink), out / f"{sink}.csv")
        return RunReport(
            pipeline=pipeline.name,
            run=run,
            plan=plan_hash(workshop.plan),
            chunks={source: len(files) for source, files in chunks.items()},
            rows_in=rows_in,
            rows_out={sink: sum(batch.rows for batch in its) for sink, its in published.items()},
            stages=_stage_reports(workshop),
            seconds=monotonic() - started,
        )


def _deliver(
    live: LivePipeline, workshop: SparkWorkshop, chunks: Chunks, run: str
) -> dict[str, int]:
    """Send every file; how many rows each source has. All are looked at before one is sent."""
    batches = {source: [workshop.chunk(source, it) for it in f] for source, f in chunks.items()}
    live.begin(run)
    for source, delivered in batches.items():
        for batch in delivered:
            live.send(source, batch, run)
    return {source: sum(batch.rows for batch in its) for source, its in batches.items()}


def _wait(live: LivePipeline, end: Receipt, tell: Callable[[str], None]) -> None:
    while not end.settled_within(EVERY):
        tell(f"working at {listed(live.holdup(end).held_by)}")
    if live.error is not None:
        raise live.error
    end.wait()
    tell("complete: every source is closed and everything was processed")


def _stage_reports(workshop: SparkWorkshop) -> tuple[StageReport, ...]:
    reports = []
    for stage, tasks in workshop.tasks.items():
        jobs = sum(task.work.jobs for task in tasks)
        rows = sum(task.work.rows for task in tasks)
        seconds = sum(task.work.seconds for task in tasks)
        reports.append(StageReport(stage, jobs, rows, round(seconds, 3)))
    return tuple(reports)
