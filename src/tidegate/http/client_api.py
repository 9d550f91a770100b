"""An account: all that one client can ask of a served pipeline. Every call may wait.

Runs have the client's own names here, and those of others do not exist. Errors name things as the
client knows them too: its run, and its chunk instead of the file in which that was spooled.
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
from tidegate.runtime.monitor.diagnosis import Reason, reasons, why
from tidegate.spark.results.result_streams import arrow_stream, parquet_stream
from tidegate.store import Run, RunFacts, RunState, overview, results_of, run_facts
from tidegate.store.checkpoints.checkpoints import Checkpoint, checkpoints_of
from tidegate.store.runs.chunks import check_number
from tidegate.store.runs.results import look_again
from tidegate.store.runs.status import (
    DeliveredChunk,
    SourceStatus,
    StageStatus,
    delivered_chunks,
    stages,
)

if TYPE_CHECKING:
    from tidegate.checkpoint import Checkpoints
    from tidegate.http.requests import CheckpointSelector, TakeCheckpoint
    from tidegate.runtime.deployment import Deployment
    from tidegate.runtime.service import PipelineFrontend
    from tidegate.spark import Batch
    from tidegate.store import Connection, RunSummary

REQUESTS = UUID("6f8a2a1e-6c0b-4f0e-9d55-0f3f5e0c7a11")
"""The space of names in which the keys of requests become those of `Server.begin`."""
CSV_TIMES = 4
"""How much larger than its files a result may become as CSV, for which there has to be space."""
PIECE = 1 << 20
"""Bytes of a file that are read at a time."""


@dataclass(frozen=True, slots=True)
class PipelineInfo:
    """The pipeline that is served, for who is about to use it."""

    pipeline: str
    sources: list[str]
    sinks: Mapping[str, list[str]]
    """The columns of each."""
    most_chunk_bytes: int


@dataclass(frozen=True, slots=True)
class RunStateReply:
    """What has become of a run, for who asks often."""

    run: Run
    has_this_plan: bool
    """Whether it was begun with the plan that is served."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How far a run has come."""

    run: Run
    sources: tuple[SourceStatus, ...]
    stages: list[StageStatus]
    results: dict[str, int]
    """Rows of each sink, once they are published."""


@dataclass(frozen=True, slots=True)
class RunDiagnosis:
    """Why a run is not done, and all that is known of it."""

    why: str
    reasons: tuple[Reason, ...]
    facts: RunFacts


@dataclass(frozen=True, slots=True)
class SourceChunks:
    """What is there of a source, from some number on."""

    source: str
    delivered: int
    declared: int | None
    is_ended: bool
    chunks: list[DeliveredChunk]


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """One cut of a run."""

    number: int
    manifest: Mapping[str, Any]
    results: dict[str, int]
    """Rows of each sink."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment, as its followers hear of it."""

    run: Run
    why: str
    stages: list[StageStatus]
    results: dict[str, int]
    checkpoints: tuple[Checkpoint, ...] = ()
    """Those that sinks show and that are remembered, the oldest first."""


class ClientApi:
    """One client of a served pipeline."""

    def __init__(self, service: PipelineFrontend, place: Deployment, client: str) -> None:
        self._service = service
        self._server = service.server
        self._database = place.database
        self._root = place.root
        self._reserve = place.reserve
        self.client = client

    # ── runs ──

    def runs(self, limit: int) -> list[RunSummary]:
        """The client's latest runs."""
        pipeline, beginning = self._service.task_graph.name, beginning_of(self.client)
        found = self._database.transact(lambda c: overview(c, pipeline, limit, beginning))
        return [replace(it, run=self._own(it.run)) for it in found]

    def begin(
        self,
        run: str,
        request: str | None = None,
        *,
        warn_after: float | None = None,
        deadline: float | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> Run:
        """Begin a run; a request repeated with its key gets the run that it has begun.

        Raises `IdempotencyConflict` if the request of this key asked for something else.
        """
        stored, key = stored_name(self.client, run), self._request(request)
        body = _digest_of(run, warn_after, deadline, checkpoints)
        wanted = partial(self._server.begin_once, stored, key, checkpoints=checkpoints, body=body)
        with self._told(run), self._own_names():
            return self._own(wanted(warn_after=warn_after, deadline=deadline))

    def status(self, run: str) -> RunStatus:
        """How far a run is."""
        with self._told(run):
            found = self._known(run)
            facts, results = self._database.transact(lambda c: _looked(c, found))
            return RunStatus(self._own(facts.run), facts.sources, stages(facts), results)

    def state(self, run: str) -> RunStateReply:
        """What has become of a run."""
        with self._told(run):
            found = self._known(run)
            return RunStateReply(self._own(found), self._server.has_this_plan(found))

    def explain(self, run: str) -> RunDiagnosis:
        """Why a run is not done."""
        with self._told(run):
            facts = self._server.facts(stored_name(self.client, run))
            own = replace(facts, run=self._own(facts.run))
            return RunDiagnosis(why(own), reasons(own), own)

    def cancel(self, run: str) -> Run:
        """Give a run up."""
        with self._told(run):
            found = self._known(run)
            if not self._server.cancel(found.name):
                raise NothingToCancel(run=run, how=found.state.value)
            return self._own(self._known(run))

    # ── data ──

    def check_source(self, run: str, source: str, number: int = 1) -> None:
        """Refuse what cannot be delivered before anybody sends it."""
        with self._told(run):
            self._known(run)
            self._refuse_unknown(source)
            check_number(source, number, least=1)

    def deliver(self, run: str, source: str, number: int, file: str) -> bool:
        """Take a chunk that was spooled; False when it was there."""
        with self._told(run, file, f"chunk {number} of {source}"):
            return self._server.deliver(stored_name(self.client, run), source, number, file)

    def chunks(self, run: str, source: str, after: int, limit: int) -> SourceChunks:
        """What is there of a source."""
        with self._told(run):
            found = self._known(run)
            self._refuse_unknown(source)

            def look(connection: Connection) -> SourceChunks:
                its = next(it for it in run_facts(connection, found).sources if it.name == source)
                there = delivered_chunks(connection, found, source, after, limit)
                is_ended = its.ended_at is not None
                return SourceChunks(source, its.delivered, its.declared, is_ended, there)

            return self._database.transact(look)

    def end(self, run: str, source: str, chunks: int | None) -> None:
        """Say how many chunks a source has; None for those it has."""
        with self._told(run):
            self._server.end(stored_name(self.client, run), source, chunks)

    # ── cuts ──

    def take_checkpoint(self, run: str, asked: TakeCheckpoint) -> int:
        """Begin a checkpoint now; its number."""
        with self._told(run):
            stored = stored_name(self.client, run)
            return self._server.checkpoints.begin(stored, unaligned=asked.unaligned)

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """Those that are remembered."""
        with self._told(run):
            return self._server.checkpoints.all(stored_name(self.client, run))

    def checkpoint(self, run: str, number: int | None) -> CheckpointManifest:
        """A cut, by default the latest."""
        with self._told(run):
            found = self._server.checkpoints.read(stored_name(self.client, run), number)
            return CheckpointManifest(found.number, found.manifest, rows_of(found.results))

    def restore(self, run: str, number: int | None) -> Run:
        """Begin a run again at a cut, by default the latest."""
        with self._told(run):
            return self._own(self._server.restore(stored_name(self.client, run), number))

    # ── outcomes ──

    def follow(self, run: str, id: int | None) -> Run:
        """The run to follow: the one with this number if the name ever was its, else the latest."""
        with self._told(run):
            latest = self._known(run)
            if id is None or id == latest.id:
                return latest
            asked = self._database.transact(lambda c: look_again(c, replace(latest, id=id)))
            is_same = asked is not None and (asked.pipeline, asked.name) == (
                latest.pipeline,
                latest.name,
            )
            return asked if asked is not None and is_same else latest

    def view(self, run: Run) -> RunView:
        """This very run as it is now; raises if it is open and nobody here can complete it."""
        facts, results = self._database.transact(lambda c: _looked(c, run))
        if facts.run.state is RunState.OPEN:
            self._service.check()
        own = replace(facts, run=self._own(facts.run))
        known = self._database.transact(lambda c: checkpoints_of(c, run))
        return RunView(own.run, why(own), stages(own), results, tuple(filter(_is_shown, known)))

    def results(self, run: str, of: CheckpointSelector | None = None) -> Mapping[str, list[Batch]]:
        """The batches of every sink; raises what became of a run that has none."""
        with self._told(run):
            if of is not None:
                return self._server.checkpoints.read(
                    stored_name(self.client, run), of.number
                ).results
            try:
                return self._server.wait(stored_name(self.client, run), timeout=0)
            except RunTimeout:
                raise ResultsNotReady(run) from None

    def result(
        self,
        run: str,
        sink: str,
        wanted: ResultFormat,
        folder: Path,
        of: CheckpointSelector | None = None,
    ) -> Iterator[bytes]:
        """The result of a sink, piece by piece; a CSV is made in the folder first."""
        published = self.results(run, of)
        if sink not in published:
            raise UnknownSink(sink, ", ".join(published))
        schema, batches = self._service.schema_of(sink), published[sink]
        if wanted is ResultFormat.PARQUET:
            return parquet_stream(self._root, batches, schema)
        if wanted is ResultFormat.ARROW:
            return arrow_stream(self._root, batches, schema)
        self._reserve.check(CSV_TIMES * sum(batch.bytes for batch in batches))
        file = folder / f"{sink}.csv"
        self._server.write_csv(batches, schema, file)
        return _pieces(file)

    # ── how ──

    def _request(self, key: str | None) -> UUID:
        """The id of a request: unique to client and key; without a key, to the request."""
        if key is None:
            return uuid4()
        return uuid5(REQUESTS, f"{self._service.task_graph.name}\n{self.client}\n{key}")

    @contextmanager
    def _own_names(self) -> Iterator[None]:
        """Let a conflict name the run of the first request as the client does."""
        try:
            yield
        except IdempotencyConflict as conflict:
            conflict.run = conflict.run.removeprefix(beginning_of(self.client))
            raise

    def _known(self, run: str) -> Run:
        return self._server.known(stored_name(self.client, run))

    def _own(self, run: Run) -> Run:
        return replace(run, name=run.name.removeprefix(beginning_of(self.client)))

    def _refuse_unknown(self, source: str) -> None:
        known = self._service.task_graph.sources
        if source not in known:
            raise UnknownSource(source=source, known=", ".join(known))

    @contextmanager
    def _told(self, run: str, file: str | None = None, chunk: str = "") -> Iterator[None]:
        """Let errors speak of what the client knows."""
        try:
            yield
        except TidegateError as error:
            _rename(
                error, {beginning_of(self.client) + run: run, **({file: chunk} if file else {})}
            )
            if isinstance(error, NoSpace):
                error.where = "the server's disk"
            raise


def _digest_of(*asked: object) -> str:
    return sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()


def rows_of(results: Mapping[str, Sequence[Batch]]) -> dict[str, int]:
    """How many rows each sink has."""
    return {sink: sum(batch.rows for batch in its) for sink, its in results.items()}


def _is_shown(it: Checkpoint) -> bool:
    return it.state is CheckpointState.COMMITTED and it.is_published


def _looked(connection: Connection, run: Run) -> tuple[RunFacts, dict[str, int]]:
    now = look_again(connection, run)
    if now is None:
        raise UnknownRun(run=run.name)
    results = results_of(connection, now) if now.state is RunState.ENDED else {}
    return run_facts(connection, now), {sink: it.rows for sink, it in results.items()}


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
