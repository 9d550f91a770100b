"""Accepts the runs of a pipeline: clients begin runs, deliver chunks, end sources, read results.

    server.begin("march")
    server.deliver("march", "sales", 1, "sales-1.csv")
    server.end("march", "sales", chunks=1)
    server.wait("march")

Any number of clients and processes may do so concurrently, and each call may be repeated: a chunk
that was delivered before is recognised by its number and content. A chunk is checked and copied
before anything is recorded, so a bad one leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from tidegate.dataflow import Batch
from tidegate.errors import (
    ChunkConflict,
    NoSuchChunk,
    RunError,
    RunTimeout,
    UnknownRun,
    UnknownSource,
)
from tidegate.faults import crash_point
from tidegate.plan import plan_hash
from tidegate.runtime.checkpoints.client import CheckpointClient
from tidegate.runtime.checkpoints.restore import restore
from tidegate.runtime.counters import Counters
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.ingestion.barrier_injection import BarrierInjection
from tidegate.runtime.ingestion.chunk_files import files_matching
from tidegate.runtime.ingestion.followed_sources import FollowedSources
from tidegate.runtime.ingestion.run_state import raise_if_unsuccessful
from tidegate.runtime.ingestion.stream_ingestion import FollowedStream, StreamDelivery, follow
from tidegate.runtime.ingestion.wait_report import WaitReport
from tidegate.runtime.monitor.diagnosis import why_not_done
from tidegate.runtime.task_graph import HEAD, channel_names
from tidegate.spark import (
    CheckerPool,
    as_frame,
    copy_frame,
    digest,
    frame_digest,
    ingest,
    reported_end,
    watermark,
    write_csv,
)
from tidegate.store import (
    ChannelName,
    Chunk,
    RunInfo,
    RunState,
    begin_batch,
    begin_run,
    close_run,
    end_source,
    find_chunk,
    find_run,
    next_number,
    plan_of,
    record_chunk,
    results_of,
    rows_in,
    run_facts,
    run_topic,
)
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.checkpoints import restore as restore_store
from tidegate.store.runs.results import reload_run
from tidegate.store.runs.status import delivered_chunks

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.checkpoint import Checkpoints
    from tidegate.pipeline import Pipeline
    from tidegate.runtime.deployment import Deployment
    from tidegate.runtime.task_graph import TaskGraph
    from tidegate.spark import Rows, Schema, Session
    from tidegate.store import Connection, Notifications, RunFacts


class RunService:
    """Accepts the runs of one pipeline. `session` is called only when a chunk needs Spark."""

    def __init__(
        self,
        deployment: Deployment,
        pipeline: Pipeline,
        task_graph: TaskGraph,
        session: Callable[[], Session],
        notifications: Notifications,
        checkers: CheckerPool | None = None,
    ) -> None:
        """`checkers` read chunks; by default the service has a pool of its own."""
        self._deployment = deployment
        self._database = deployment.database
        self._root = deployment.root
        self._pipeline = pipeline
        self._task_graph = task_graph
        self._session = session
        self._notifications = notifications
        self._storage = FileStorage(deployment.root)
        self._checkers = CheckerPool(deployment.settings) if checkers is None else checkers
        self._plan = plan_hash(task_graph.plan)
        self.injection = BarrierInjection(self._database, pipeline.name, notifications, self._ends)
        self.checkpoints = CheckpointClient(
            self._database, task_graph.plan, notifications, self.known, self.injection.inject_due
        )
        self._followed = FollowedSources(deployment.settings.stream_end_seconds)
        self.counters = Counters()

    # ── runs ──

    def begin(
        self,
        run: str,
        *,
        warn_after: float | None = None,
        deadline: float | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> RunInfo:
        """Open a run under a name that no open run has. The bounds are seconds from now."""
        return self.begin_once(
            run, uuid4(), warn_after=warn_after, deadline=deadline, checkpoints=checkpoints
        )

    def begin_once(
        self,
        run: str,
        request: UUID,
        *,
        warn_after: float | None = None,
        deadline: float | None = None,
        checkpoints: Checkpoints | None = None,
        body: str | None = None,
    ) -> RunInfo:
        """As `begin`; a repeated request returns the run of the first one.

        `body` is a digest of the request's content; raises `IdempotencyConflict` if it differs.
        """
        open_run = partial(self.begin_in, warn_after=warn_after, deadline=deadline, body=body)

        def begin_and_checkpoint(connection: Connection) -> RunInfo:
            begun = open_run(connection, run, request)
            if checkpoints is not None:
                checkpoint_store.set_checkpoints(connection, begun, checkpoints)
            return begun

        begun = self._database.transact(begin_and_checkpoint)
        self.counters.count("runs begun")
        return begun

    def begin_in(
        self,
        connection: Connection,
        run: str,
        request: UUID,
        *,
        warn_after: float | None = None,
        deadline: float | None = None,
        body: str | None = None,
    ) -> RunInfo:
        """As `begin_once`, as part of a transaction."""
        return begin_run(
            connection,
            self._pipeline.name,
            run,
            channel_names(self._task_graph.edges, self._scan_tasks()),
            sources=tuple(self._pipeline.sources),
            plan=self._plan,
            warn_after=warn_after,
            deadline=deadline,
            request=request,
            body=body,
        )

    def restore(self, run: str, number: int | None = None) -> RunInfo:
        """Restart a run from a checkpoint, by default the latest."""
        known = self.known(run)
        return restore(self._deployment, self._task_graph, known, number, is_served=True)

    def find(self, run: str) -> RunInfo | None:
        """The latest run of this name."""
        return self._database.transact(lambda c: find_run(c, self._pipeline.name, run))

    def cancel(self, run: str) -> bool:
        """Cancel a run; False if it was closed before."""
        found = self.known(run)
        return self._database.transact(lambda c: close_run(c, found, RunState.CANCELLED))

    # ── data ──

    def deliver(self, run: str, source: str, number: int, file: str) -> bool:
        """Check, copy and record a chunk; False if it was delivered before.

        Raises errors of the chunk (`BadValue` with line and column, `MissingColumns`,
        `UnreadableChunk`, …) or of its delivery (`ChunkConflict`, `SourceEnded`, `RunEnded`,
        `SpaceReserved`).
        """

        def copy(root: str, beginning: str) -> Batch:
            check = self._checkers.check
            return ingest(self._session, self._pipeline, source, file, root, beginning, check)

        self._readers(source)
        return self._deliver(run, source, number, _digest(source, file), copy)

    def put(self, run: str, source: str, data: object, chunk: int | None = None) -> list[int]:
        """Deliver a path or glob, a DataFrame, an Arrow table or a pandas frame; chunk numbers.

        Each file is a chunk. Without a number, each chunk gets the next free one. Raises what
        `deliver` raises, `NoMatchingFile`, `OneFileExpected`, `UnsupportedData`.
        """
        self._readers(source)
        if isinstance(data, str | PathLike):
            files = files_matching(source, data, several=chunk is None)
            return [self._put_file(run, source, file, chunk) for file in files]
        frame = as_frame(source, data)

        def copy(root: str, beginning: str) -> Batch:
            return copy_frame(self._pipeline, source, frame, root, beginning)

        return [self._put(run, source, frame_digest(frame, chunk), chunk, copy)]

    def _put_file(self, run: str, source: str, file: str, chunk: int | None) -> int:
        def copy(root: str, beginning: str) -> Batch:
            check = self._checkers.check
            return ingest(self._session, self._pipeline, source, file, root, beginning, check)

        return self._put(run, source, _digest(source, file), chunk, copy)

    def _put(
        self,
        run: str,
        source: str,
        sha256: str,
        chunk: int | None,
        copy: Callable[[str, str], Batch],
    ) -> int:
        if chunk is not None:
            self._deliver(run, source, chunk, sha256, copy)
            return chunk
        found = self.known(run)
        while True:
            number = self._database.transact(lambda c: next_number(c, found, source))
            with suppress(ChunkConflict):  # another client took the number meanwhile
                if self._deliver(run, source, number, sha256, copy):
                    return number

    def follow(
        self,
        run: str,
        source: str,
        rows: Rows,
        *,
        checkpoint: str,
        every: float | None = None,
    ) -> FollowedStream:
        """Deliver the micro-batches of a Spark stream as chunks; see `stream_ingestion`.

        `checkpoint` is Spark's checkpoint location: the same for every start of this stream, and
        not that of another one. With `every`, in seconds, the stream is followed; without, what it
        has now is delivered.
        """
        self._readers(source)
        self.known(run)
        delivery = StreamDelivery(self._begin_batch, self._deliver, self.end)
        fields = self._pipeline.sources[source].schema
        stream = follow(run, source, fields, rows, delivery, checkpoint=checkpoint, every=every)
        return self._followed.add(stream)

    def _begin_batch(self, run: str, source: str, number: int) -> None:
        found = self.known(run)
        self._database.transact(lambda c: begin_batch(c, found, source, number))

    def _deliver(
        self, run: str, source: str, number: int, sha256: str, copy: Callable[[str, str], Batch]
    ) -> bool:
        """Record what `copy` writes below a root, unless it was delivered before."""
        found = self.known(run)
        readers = self._readers(source)
        if self._is_repeated(found, source, number, sha256):
            return False
        self._deployment.reserve.check()
        shard = (number - 1) % len(readers[0])
        with reported_end(self._session):
            batch = copy(self._root, self._beginning(found, source, number, shard))
        time = watermark(self._root, batch.files, self._pipeline.sources[source].event_time)
        checksums = tuple(self._storage.checksum(batch.files))
        content = (batch.rows, batch.bytes, batch.files, shard, time, checksums)
        chunk = Chunk(source, number, sha256, *content)
        channels = [ChannelName(HEAD, tasks[shard]) for tasks in readers]
        is_new = self._record(found, chunk, channels)
        self.injection.after_chunk(found, source)
        return is_new

    def end(self, run: str, source: str | None = None, chunks: int | None = None) -> None:
        """End a source that has so many chunks, by default those delivered; or all sources.

        A streaming source first waits for its batch in progress: see `followed_sources`.
        """
        found = self.known(run)
        for name in [source] if source is not None else self._pipeline.sources:
            self._readers(name)
            self._followed.end(run, name, partial(self._end, found, name, chunks))

    # ── outcomes ──

    def wait(self, run: str, timeout: float | None = None) -> dict[str, list[Batch]]:
        """Wait until a run is closed: its results, or `RunFailed`, `RunCancelled`, `RunTimeout`.

        This is the run that has the name now, also if the name is reused; if the run is restored,
        its next incarnation. The reason for the wait is logged every `wait_report_seconds`.
        """
        found = self.known(run)
        every = self._deployment.settings.wait_report_seconds
        report = WaitReport(partial(why_not_done, self._database), every)

        def look() -> RunInfo | None:
            current = self._current(found)
            if current.state is not RunState.OPEN:
                return current
            report.update(current)
            return None

        topic = run_topic(self._pipeline.name)
        closed = self._notifications.wait_until(topic, look, timeout)
        if closed is None:
            raise RunTimeout(run=found.name, seconds=timeout or 0.0)
        raise_if_unsuccessful(closed)
        return self._results(closed)

    def results(self, run: str) -> dict[str, list[Batch]]:
        """For every sink of a complete run its batches, relative to the deployment's files."""
        return self._results(self.known(run))

    def rows_in(self, run: str) -> dict[str, int]:
        """How many rows each source has delivered."""
        found = self.known(run)
        return self._database.transact(lambda c: rows_in(c, found))

    def write_csv(self, batches: Sequence[Batch], schema: Schema, path: Path) -> None:
        """Write a result to a local file, with the bytes that `tidegate run` writes."""
        write_csv(self._session(), self._root, batches, schema, path)

    # ── status ──

    def facts(self, run: str) -> RunFacts:
        """The status of a run."""
        found = self.known(run)
        return self._database.transact(lambda connection: run_facts(connection, found))

    def has_this_plan(self, run: RunInfo) -> bool:
        """Whether a run has the plan that is served here."""
        return self._database.transact(lambda c: plan_of(c, run)) == self._plan

    def digests(self, run: RunInfo) -> dict[str, list[str]]:
        """By source: the SHA-256 of every chunk of a run, in the order of their numbers."""
        return {source: [*self._digests(run, source)] for source in self._pipeline.sources}

    # ── internals ──

    def _digests(self, run: RunInfo, source: str) -> Iterator[str]:
        look = partial(delivered_chunks, run=run, source=source)
        after = 0
        while found := self._database.transact(partial(look, after=after)):
            yield from (chunk.sha256 for chunk in found)
            after = found[-1].number

    def known(self, run: str) -> RunInfo:
        """As `find`, or `UnknownRun`."""
        found = self.find(run)
        if found is None:
            raise UnknownRun(run=run)
        return found

    def _readers(self, source: str) -> Sequence[Sequence[str]]:
        readers = self._task_graph.sources.get(source)
        if readers is None:
            raise UnknownSource(source=source, known=", ".join(self._task_graph.sources))
        return readers

    def _scan_tasks(self) -> list[str]:
        every = (tasks for readers in self._task_graph.sources.values() for tasks in readers)
        return [task for tasks in every for task in tasks]

    def _is_repeated(self, run: RunInfo, source: str, number: int, sha256: str) -> bool:
        """Check before copying; recording checks again under a lock."""
        if run.state not in {RunState.OPEN, RunState.ENDED}:
            return False
        known = self._database.transact(lambda c: find_chunk(c, run, source, number))
        if known is not None and known.sha256 != sha256:
            raise ChunkConflict(run.name, source, number, sha256, known.sha256)
        return known is not None

    def _beginning(self, run: RunInfo, source: str, number: int, shard: int) -> str:
        """A unique prefix for the paths of a chunk's files."""
        crash_point("chunk.before_write")
        return f"chunks/run={run.id}/to={shard}/{source}/{number}-{uuid4().hex[:12]}"

    def _record(self, run: RunInfo, chunk: Chunk, channels: Sequence[ChannelName]) -> bool:
        """Record a chunk; if it is refused, its files are removed.

        After any other error, such as a connection lost during the commit, the chunk may be
        recorded: its files are kept, and the sweeper removes them if they are orphans.
        """
        crash_point("chunk.after_write")
        ends = self._ends(chunk.source)
        try:
            is_new = self._database.transact(lambda c: record_chunk(c, run, chunk, channels, ends))
        except RunError:
            self._storage.remove(chunk.files)
            raise
        crash_point("chunk.after_commit")
        if is_new:
            self.counters.count("chunks taken")
        elif not self._is_ours(run, chunk):
            self._storage.remove(chunk.files)
            return False
        return True

    def _is_ours(self, run: RunInfo, chunk: Chunk) -> bool:
        """Whether the recorded chunk has these files: then the commit was repeated."""
        known = self._database.transact(lambda c: find_chunk(c, run, chunk.source, chunk.number))
        return known is not None and known.files == chunk.files

    def _end(self, run: RunInfo, source: str, chunks: int | None) -> None:
        ends = self._ends(source)
        self._database.transact(lambda c: end_source(c, run, source, chunks, ends))

    def _ends(self, source: str) -> list[ChannelName]:
        return [ChannelName(HEAD, task) for tasks in self._readers(source) for task in tasks]

    def _current(self, run: RunInfo) -> RunInfo:
        """The present state of a run, also if its name is reused; or of its next incarnation."""
        found = self._database.transact(lambda c: reload_run(c, run))
        if found is None:
            raise UnknownRun(run=run.key)
        if found.state is not RunState.CANCELLED:
            return found
        return self._database.transact(lambda c: restore_store.successor_of(c, run)) or found

    def _results(self, run: RunInfo) -> dict[str, list[Batch]]:
        results = self._database.transact(lambda c: results_of(c, run))
        return {sink: result.batches for sink, result in results.items()}


def _digest(source: str, file: str) -> str:
    try:
        return digest(file)
    except FileNotFoundError:
        raise NoSuchChunk(source=source, file=file) from None
