"""The operations of one client on a served pipeline. Every call may block.

Runs have the client's own names here; runs of other clients are not visible. Errors use the
client's names too: its run, and the chunk number instead of the spooled file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4, uuid5

import msgspec

from tidegate.checkpoint import CheckpointState
from tidegate.errors import (
    IdempotencyConflict,
    NoSpace,
    NothingToCancel,
    ResultsNotReady,
    RunTimeout,
    TidegateError,
    UnknownRun,
    UnknownSink,
    UnknownSource,
)
from tidegate.http.auth.tokens import beginning_of, stored_name
from tidegate.http.formats import ResultFormat
from tidegate.runtime.monitor.diagnosis import WaitReason, reasons, why
from tidegate.spark.results.csv_result import csv_bytes
from tidegate.spark.results.result_streams import arrow_stream, parquet_stream
from tidegate.store import RunFacts, RunInfo, RunState, overview, results_of, run_facts
from tidegate.store.checkpoints.checkpoints import Checkpoint, checkpoints_of
from tidegate.store.runs.chunks import check_number
from tidegate.store.runs.results import reload_run
from tidegate.store.runs.status import (
    DeliveredChunk,
    SourceStatus,
    StageStatus,
    delivered_chunks,
    stages,
)

if TYPE_CHECKING:
    from tidegate.checkpoint import Checkpoints
    from tidegate.dataflow import Batch
    from tidegate.http.requests import CheckpointSelector, TakeCheckpoint
    from tidegate.runtime.deployment import Deployment
    from tidegate.runtime.service import PipelineFrontend
    from tidegate.store import Connection, RunSummary

REQUESTS = UUID("6f8a2a1e-6c0b-4f0e-9d55-0f3f5e0c7a11")
"""UUID namespace in which idempotency keys become request ids of `RunService.begin_once`."""
PIECE = 1 << 20
"""Bytes per read of a file."""


@dataclass(frozen=True, slots=True)
class PipelineInfo:
    """The served pipeline: its sources, its sinks and the limits for chunks."""

    pipeline: str
    sources: list[str]
    sinks: Mapping[str, list[str]]
    """The columns of each sink."""
    most_chunk_bytes: int


@dataclass(frozen=True, slots=True)
class RunStateReply:
    """The state of a run: cheap to read, for polling."""

    run: RunInfo
    has_this_plan: bool
    """Whether the run was begun with the served plan."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The progress of a run."""

    run: RunInfo
    sources: tuple[SourceStatus, ...]
    stages: list[StageStatus]
    results: dict[str, int]
    """Rows of each sink, once published."""


@dataclass(frozen=True, slots=True)
class RunDiagnosis:
    """Why a run is not complete, and the facts behind that."""

    why: str
    reasons: tuple[WaitReason, ...]
    facts: RunFacts


@dataclass(frozen=True, slots=True)
class SourceChunks:
    """The delivered chunks of a source, from some number on."""

    source: str
    delivered: int
    declared: int | None
    is_ended: bool
    chunks: list[DeliveredChunk]


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """One checkpoint of a run."""

    number: int
    manifest: Mapping[str, Any]
    results: dict[str, int]
    """Rows of each sink."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one point in time, from which its events are derived."""

    run: RunInfo
    why: str
    stages: list[StageStatus]
    results: dict[str, int]
    checkpoints: tuple[Checkpoint, ...] = ()
    """The retained checkpoints that are published, the oldest first."""


class ClientApi:
    """Acts for one client of a served pipeline."""

    def __init__(self, service: PipelineFrontend, deployment: Deployment, client: str) -> None:
        self._service = service
        self._server = service.server
        self._database = deployment.database
        self._root = deployment.root
        self._reserve = deployment.reserve
        self.client = client

    # ── runs ──

    def runs(self, limit: int) -> list[RunSummary]:
        """The client's latest runs."""
        pipeline, beginning = self._service.task_graph.name, beginning_of(self.client)
        found = self._database.transact(lambda c: overview(c, pipeline, limit, beginning))
        return [replace(summary, run=self._own(summary.run)) for summary in found]

    def begin(
        self,
        run: str,
        request: str | None = None,
        *,
        warn_after: float | None = None,
        deadline: float | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> RunInfo:
        """Begin a run; a repeated request with the same key returns the run that it began.

        Raises `IdempotencyConflict` if the first request with this key had another body.
        """
        stored, key = stored_name(self.client, run), self._request(request)
        body = _digest_of(run, warn_after, deadline, checkpoints)
        begin = partial(self._server.begin_once, stored, key, checkpoints=checkpoints, body=body)
        with self._client_errors(run), self._own_names():
            return self._own(begin(warn_after=warn_after, deadline=deadline))

    def status(self, run: str) -> RunStatus:
        """The progress of a run."""
        with self._client_errors(run):
            found = self._known(run)
            facts, results = self._database.transact(lambda c: _facts_and_rows(c, found))
            return RunStatus(self._own(facts.run), facts.sources, stages(facts), results)

    def state(self, run: str) -> RunStateReply:
        """The state of a run."""
        with self._client_errors(run):
            found = self._known(run)
            return RunStateReply(self._own(found), self._server.has_this_plan(found))

    def explain(self, run: str) -> RunDiagnosis:
        """Why a run is not complete."""
        with self._client_errors(run):
            facts = self._server.facts(stored_name(self.client, run))
            own = replace(facts, run=self._own(facts.run))
            return RunDiagnosis(why(own), reasons(own), own)

    def cancel(self, run: str) -> RunInfo:
        """Cancel a run."""
        with self._client_errors(run):
            found = self._known(run)
            if not self._server.cancel(found.name):
                raise NothingToCancel(run=run, how=found.state.value)
            return self._own(self._known(run))

    # ── data ──

    def check_source(self, run: str, source: str, number: int = 1) -> None:
        """Check the address of a chunk before its body is received."""
        with self._client_errors(run):
            self._known(run)
            self._check_source_name(source)
            check_number(source, number, least=1)

    def deliver(self, run: str, source: str, number: int, file: str) -> bool:
        """Deliver a spooled chunk; False if it was delivered before."""
        with self._client_errors(run, file, f"chunk {number} of {source}"):
            return self._server.deliver(stored_name(self.client, run), source, number, file)

    def chunks(self, run: str, source: str, after: int, limit: int) -> SourceChunks:
        """The delivered chunks of a source."""
        with self._client_errors(run):
            found = self._known(run)
            self._check_source_name(source)

            def read(connection: Connection) -> SourceChunks:
                sources = run_facts(connection, found).sources
                status = next(status for status in sources if status.name == source)
                chunks = delivered_chunks(connection, found, source, after, limit)
                is_ended = status.ended_at is not None
                return SourceChunks(source, status.delivered, status.declared, is_ended, chunks)

            return self._database.transact(read)

    def end(self, run: str, source: str, chunks: int | None) -> None:
        """End a source with this number of chunks; None for those delivered so far."""
        with self._client_errors(run):
            self._server.end(stored_name(self.client, run), source, chunks)

    # ── checkpoints ──

    def take_checkpoint(self, run: str, request: TakeCheckpoint) -> int:
        """Trigger a checkpoint now; returns its number."""
        with self._client_errors(run):
            stored = stored_name(self.client, run)
            return self._server.checkpoints.begin(stored, unaligned=request.unaligned)

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The retained checkpoints of a run."""
        with self._client_errors(run):
            return self._server.checkpoints.all(stored_name(self.client, run))

    def checkpoint(self, run: str, number: int | None) -> CheckpointManifest:
        """A checkpoint, by default the latest."""
        with self._client_errors(run):
            found = self._server.checkpoints.read(stored_name(self.client, run), number)
            return CheckpointManifest(found.number, found.manifest, rows_of(found.results))

    def restore(self, run: str, number: int | None) -> RunInfo:
        """Restore a run from a checkpoint, by default the latest."""
        with self._client_errors(run):
            return self._own(self._server.restore(stored_name(self.client, run), number))

    # ── outcomes ──

    def follow(self, run: str, id: int | None) -> RunInfo:
        """The run to follow: the one with this id if it had this name, else the latest."""
        with self._client_errors(run):
            latest = self._known(run)
            if id is None or id == latest.id:
                return latest
            earlier = self._database.transact(lambda c: reload_run(c, replace(latest, id=id)))
            if earlier is None:
                return latest
            is_same = (earlier.pipeline, earlier.name) == (latest.pipeline, latest.name)
            return earlier if is_same else latest

    def view(self, run: RunInfo) -> RunView:
        """The current view of a run; raises if it is open and the service cannot complete it."""
        facts, results = self._database.transact(lambda c: _facts_and_rows(c, run))
        if facts.run.state is RunState.OPEN:
            self._service.check()
        own = replace(facts, run=self._own(facts.run))
        known = self._database.transact(lambda c: checkpoints_of(c, run))
        return RunView(own.run, why(own), stages(own), results, tuple(filter(_is_published, known)))

    def results(
        self, run: str, checkpoint: CheckpointSelector | None = None
    ) -> Mapping[str, list[Batch]]:
        """The batches of every sink; raises the outcome of a run that has no results."""
        with self._client_errors(run):
            stored = stored_name(self.client, run)
            if checkpoint is not None:
                return self._server.checkpoints.read(stored, checkpoint.number).results
            try:
                return self._server.wait(stored, timeout=0)
            except RunTimeout:
                raise ResultsNotReady(run) from None

    def result(
        self,
        run: str,
        sink: str,
        kind: ResultFormat,
        folder: Path,
        checkpoint: CheckpointSelector | None = None,
    ) -> Iterator[bytes]:
        """The result of a sink, piece by piece; a CSV is first written to the folder."""
        published = self.results(run, checkpoint)
        if sink not in published:
            raise UnknownSink(sink, ", ".join(published))
        schema, batches = self._service.schema_of(sink), published[sink]
        if kind is ResultFormat.PARQUET:
            return parquet_stream(self._root, batches, schema)
        if kind is ResultFormat.ARROW:
            return arrow_stream(self._root, batches, schema)
        for size in csv_bytes(self._root, batches, schema):
            self._reserve.check(size)
        file = folder / f"{sink}.csv"
        self._server.write_csv(batches, schema, file)
        return _pieces(file)

    # ── names ──

    def _request(self, key: str | None) -> UUID:
        """The id of a request: unique to client and key; without a key, to the request."""
        if key is None:
            return uuid4()
        return uuid5(REQUESTS, f"{self._service.task_graph.name}\n{self.client}\n{key}")

    @contextmanager
    def _own_names(self) -> Iterator[None]:
        """Raise conflicts with the client's name for the run of the first request."""
        try:
            yield
        except IdempotencyConflict as conflict:
            conflict.run = conflict.run.removeprefix(beginning_of(self.client))
            raise

    def _known(self, run: str) -> RunInfo:
        return self._server.known(stored_name(self.client, run))

    def _own(self, run: RunInfo) -> RunInfo:
        return replace(run, name=run.name.removeprefix(beginning_of(self.client)))

    def _check_source_name(self, source: str) -> None:
        known = self._service.task_graph.sources
        if source not in known:
            raise UnknownSource(source=source, known=", ".join(known))

    @contextmanager
    def _client_errors(self, run: str, file: str | None = None, chunk: str = "") -> Iterator[None]:
        """Raise errors with the client's names for runs, chunks and the disk."""
        try:
            yield
        except TidegateError as error:
            chunk_names = {file: chunk} if file else {}
            _rename(error, {beginning_of(self.client) + run: run, **chunk_names})
            if isinstance(error, NoSpace):
                error.where = "the server's disk"
            raise


def _digest_of(*body: object) -> str:
    return sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()


def rows_of(results: Mapping[str, Sequence[Batch]]) -> dict[str, int]:
    """The number of rows of each sink."""
    return {sink: sum(batch.rows for batch in batches) for sink, batches in results.items()}


def _is_published(checkpoint: Checkpoint) -> bool:
    return checkpoint.state is CheckpointState.COMMITTED and checkpoint.is_published


def _facts_and_rows(connection: Connection, run: RunInfo) -> tuple[RunFacts, dict[str, int]]:
    now = reload_run(connection, run)
    if now is None:
        raise UnknownRun(run=run.name)
    results = results_of(connection, now) if now.state is RunState.ENDED else {}
    return run_facts(connection, now), {sink: result.rows for sink, result in results.items()}


def _rename(error: TidegateError, names: Mapping[str, str]) -> None:
    for field in fields(error):
        value = getattr(error, field.name)
        if isinstance(value, str):
            for name, own in names.items():
                value = value.replace(name, own)
            setattr(error, field.name, value)


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(PIECE):
            yield piece
