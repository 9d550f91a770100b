"""Runs a pipeline from a folder of files to a folder of results, in one process.

    DATA/<source>/*.csv|*.parquet|…  ──▶  OUT/<sink>.csv

Every file is a chunk; a file that cannot be one, by its name, is refused before any delivery.
Results are written when the run is complete. A complete run with the same chunks is not computed
again; only its results are written again.

`send` and `wait` also work with a remote server; see `tidegate.http`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidegate.errors import (
    NoSourceFolder,
    RunEnded,
    RunTimeout,
    UnexpectedFiles,
    counted,
    listed,
)
from tidegate.faults import crash_point
from tidegate.plan import plan_hash
from tidegate.runtime.daemon_pool import DaemonPool
from tidegate.runtime.ingestion.result_files import ResultFile, write_all
from tidegate.runtime.service import serve
from tidegate.spark import digest, write_csv
from tidegate.store import RunState

if TYPE_CHECKING:
    from tidegate.checkpoint import Checkpoints
    from tidegate.pipeline import Pipeline
    from tidegate.runtime.deployment import Deployment
    from tidegate.runtime.service import PipelineService
    from tidegate.spark import Session
    from tidegate.store import RunFacts, RunInfo
    from tidegate.store.checkpoints.checkpoints import Checkpoint

COMPRESSED = (".csv.gz", ".csv.bz2")
ENDINGS = (".csv", *COMPRESSED, ".parquet", ".arrow", ".feather", ".ipc")
"""Endings of chunks, in any case; those of compressed files in lower case only."""
IGNORED = ("_*", ".*", "*~", "~$*", "#*#", "*.crc")
"""Files left by Spark, editors and systems; ignored unless they end as a chunk does."""
HIDDEN = (".*", "~$*")
"""Never a chunk, whatever its ending."""
DELIVERIES = 2
"""Chunks that are checked and copied concurrently."""
EVERY = 5.0

Chunks = Mapping[str, Sequence[Path]]
T_co = TypeVar("T_co", covariant=True)


class RunClient(Protocol[T_co]):
    """Accepts runs: a `RunService` in this process or an `HttpRunClient`; see the former."""

    def find(self, run: str) -> RunInfo | None: ...

    def begin(
        self, run: str, *, deadline: float | None = None, checkpoints: Checkpoints | None = None
    ) -> RunInfo: ...

    def deliver(self, run: str, source: str, number: int, file: str) -> bool: ...

    def end(self, run: str, source: str, chunks: int) -> None: ...

    def wait(self, run: str, timeout: float) -> T_co: ...

    def facts(self, run: str) -> RunFacts: ...

    def has_this_plan(self, run: RunInfo) -> bool: ...

    def digests(self, run: RunInfo) -> Mapping[str, Sequence[str]]: ...


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run."""

    name: str = "run"
    shards: int | None = None
    deadline: float | None = None
    checkpoints: Checkpoints | None = None


class ProgressListener:
    """Receives the progress of a run; the base class ignores it."""

    every: float = EVERY
    """Seconds between two reports about an open run."""

    def report(self, what: str) -> None:
        """Report an event."""

    def sent(self, chunks: int, of: int) -> None:
        """Report the number of delivered chunks."""

    def show(self, facts: RunFacts) -> None:
        """Report the status of the run."""

    def report_wait(self, what: str) -> None:
        """Report that something takes longer than usual."""

    @contextmanager
    def during(self, what: Callable[[], str]) -> Iterator[None]:
        """Report the progress of the block periodically."""
        yield


@dataclass(frozen=True, slots=True)
class StageReport:
    """The work of one stage, over all its shards."""

    stage: str
    jobs: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint that a run has taken and retained."""

    number: int
    state: str
    seconds: float
    is_published: bool
    """Whether sinks show it; else it is for restoring only."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Input, output and time of a run."""

    pipeline: str
    run: str
    plan: str
    chunks: Mapping[str, int]
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    stages: tuple[StageReport, ...]
    seconds: float
    checkpoints: tuple[CheckpointReport, ...] = ()


def chunks_in(data: Path, pipeline: Pipeline) -> dict[str, list[Path]]:
    """The files of every source; its folder has to exist and may be empty.

    Raises `NoSourceFolder`, or `UnexpectedFiles` for files that may be meant as chunks.
    """
    return chunks_of(data, pipeline.sources)


def chunks_of(data: Path, sources: Iterable[str]) -> dict[str, list[Path]]:
    """As `chunks_in`, by the names of the sources."""
    names = list(sources)
    missing = [source for source in names if not (data / source).is_dir()]
    if missing:
        raise NoSourceFolder(folder=str(data), sources=listed(missing))
    return {source: _files(source, data / source) for source in names}


def _files(source: str, folder: Path) -> list[Path]:
    found = sorted(file for file in folder.iterdir() if not _is_like(file.name, HIDDEN))
    chunks = [file for file in found if _is_chunk(file)]
    unexpected = [file for file in found if file not in chunks and not _is_like(file.name, IGNORED)]
    if unexpected:
        names = listed([str(file) for file in unexpected])
        raise UnexpectedFiles(source, names, ", ".join(ENDINGS))
    return chunks


def _is_chunk(file: Path) -> bool:
    """By its name. A folder is not a chunk, since the chunks in it would be missed."""
    name = file.name.lower()
    is_known = name.endswith(ENDINGS) and not file.is_dir()
    return is_known and (file.suffix == file.suffix.lower() or not name.endswith(COMPRESSED))


def _is_like(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def run_folder(
    pipeline: Pipeline,
    chunks: Chunks,
    out: Path,
    session: Session,
    deployment: Deployment,
    options: RunOptions,
    progress: ProgressListener | None = None,
) -> RunReport:
    """Deliver the chunks, wait until the run is complete, write the results, report.

    An open run of this name is continued: delivered chunks are recognised. Of a complete run with
    this plan and these chunks only the results are written: an earlier process may have been killed
    before it had written all of them. For other chunks, or after a failed or cancelled run, the
    name is reused.

    Raises the error of a chunk, or `RunFailed` with the first cause; after the deadline this names
    what is missing.
    """
    started = monotonic()
    progress = progress or ProgressListener()
    with serve(deployment, pipeline, session, options.shards) as service:
        plan = service.checked.plan
        progress.report(f"Spark has checked the plan: {counted(len(tuple(plan.stages)), 'stage')}")
        server = service.server
        send(server, chunks, options, progress)
        published = wait(server, options.name, progress, service.check)
        rows_out = {
            sink: sum(batch.rows for batch in batches) for sink, batches in published.items()
        }

        def write(file: ResultFile) -> None:
            sink = file.sink
            batches, schema = published[sink], service.schema_of(sink)
            write_csv(session, deployment.root, batches, schema, out / f"{sink}.csv")

        crash_point("results.before_write")
        write_all(progress, rows_out, write)
        crash_point("results.after_write")
        return RunReport(
            pipeline=pipeline.name,
            run=options.name,
            plan=plan_hash(plan),
            chunks=_numbers(chunks),
            rows_in=server.rows_in(options.name),
            rows_out=rows_out,
            stages=_stage_reports(service),
            seconds=monotonic() - started,
            checkpoints=checkpoint_reports(server.checkpoints.all(options.name)),
        )


def checkpoint_reports(checkpoints: Iterable[Checkpoint]) -> tuple[CheckpointReport, ...]:
    """The checkpoints of a run, for its report."""
    return tuple(
        CheckpointReport(it.number, it.state.value, round(it.seconds, 3), it.is_published)
        for it in checkpoints
    )


def send(
    server: RunClient[object], chunks: Chunks, options: RunOptions, progress: ProgressListener
) -> None:
    """Deliver missing chunks and end the sources, unless a complete run had exactly these."""
    last = server.find(options.name)
    if last is not None and last.state is not RunState.OPEN:
        change = _change(server, last, chunks)
        if change is None:
            progress.report("these chunks were processed before; the results are written again")
            return
        progress.report(f"starting run {options.name!r} again (the last one of this name {change})")
    if last is None or last.state is not RunState.OPEN:
        server.begin(options.name, deadline=options.deadline, checkpoints=options.checkpoints)
    deliver_all(server, chunks, options.name, progress)


def wait(
    server: RunClient[T_co],
    run: str,
    progress: ProgressListener,
    check: Callable[[], None],
    timeout: float | None = None,
) -> T_co:
    """Wait for the results of a run, and report its progress periodically.

    `check` raises if the run cannot be completed any more.
    """
    deadline = inf if timeout is None else monotonic() + timeout
    while True:
        try:
            published = server.wait(
                run, timeout=min(progress.every, max(0, deadline - monotonic()))
            )
        except RunTimeout:
            check()
            progress.show(server.facts(run))
            if monotonic() >= deadline:
                raise RunTimeout(run, timeout or 0.0) from None
        else:
            progress.report("complete: every source has ended and everything was processed")
            return published


def _change(server: RunClient[object], last: RunInfo, chunks: Chunks) -> str | None:
    """Why the results of a closed run cannot be used; None if it had exactly these chunks."""
    if last.state is not RunState.ENDED:
        return "has failed" if last.state is RunState.FAILED else "was cancelled"
    if not server.has_this_plan(last):
        return "had another plan"
    return None if _are_delivered(chunks, server.digests(last)) else "had other data"


def _are_delivered(chunks: Chunks, delivered: Mapping[str, Sequence[str]]) -> bool:
    """Whether exactly these files have these digests; the numbers are compared first."""
    if _numbers(chunks) != _numbers(delivered):
        return False
    return all(
        _has(file, sha256)
        for source, files in chunks.items()
        for file, sha256 in zip(files, delivered[source], strict=True)
    )


def _numbers(chunks: Mapping[str, Sequence[object]]) -> dict[str, int]:
    return {source: len(files) for source, files in chunks.items()}


def _has(file: Path, sha256: str) -> bool:
    """Whether a file has this digest; a missing file is reported by its delivery."""
    try:
        return digest(str(file)) == sha256
    except FileNotFoundError:
        return False


def deliver_all(
    server: RunClient[object], chunks: Chunks, run: str, progress: ProgressListener
) -> None:
    """Deliver to an open run; if it is closed meanwhile, waiting for it reports how it ended."""
    for source in (source for source, files in chunks.items() if not files):
        progress.report(f"{source}: no chunks")
    with suppress(RunEnded):
        _deliver(server, chunks, run, progress)
    number = sum(_numbers(chunks).values())
    progress.report(f"{counted(number, 'chunk')} delivered, END follows")


def _deliver(
    server: RunClient[object], chunks: Chunks, run: str, progress: ProgressListener
) -> None:
    """Deliver files, a few concurrently; a source ends as soon as its last one is delivered."""
    delivered, of = count(1), sum(_numbers(chunks).values())
    with DaemonPool(DELIVERIES, "tidegate-deliver") as pool:
        closing = []
        for source, files in chunks.items():
            sent = [
                pool.submit(server.deliver, run, source, number, str(file))
                for number, file in enumerate(files, 1)
            ]
            closing.append((source, sent))
        for source, sent in closing:
            for each in sent:
                each.result()
                progress.sent(next(delivered), of)
            server.end(run, source, len(sent))


def _stage_reports(service: PipelineService) -> tuple[StageReport, ...]:
    return tuple(
        StageReport(stage, totals.jobs, totals.rows, round(totals.seconds, 3))
        for stage, totals in service.factory.totals.items()
        if totals.jobs
    )
