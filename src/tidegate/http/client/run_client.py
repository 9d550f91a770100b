"""The runs of a server elsewhere, with the interface of a `RunService` in the same process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from tidegate.checkpoint import CheckpointState
from tidegate.errors import (
    CheckpointAborted,
    CheckpointPending,
    ChunkConflict,
    ChunkTooLarge,
    NoSuchChunk,
    NothingToCancel,
    OtherPipeline,
    RefusedByServer,
    RunTimeout,
    TidegateError,
    UnknownCheckpoint,
    UnknownFormat,
    UnknownRun,
)
from tidegate.http.client.http_client import WORK
from tidegate.http.client.trust import check_results, check_served
from tidegate.http.client_api import (
    CheckpointManifest,
    PipelineInfo,
    RunDiagnosis,
    RunStateReply,
    SourceChunks,
)
from tidegate.http.formats import format_of_file
from tidegate.http.requests import LATEST
from tidegate.runtime.ingestion.run_state import raise_if_unsuccessful
from tidegate.runtime.ingestion.wait_report import WaitReport
from tidegate.spark import digest
from tidegate.spark.ingest.parquet_writer import space_on
from tidegate.store import RunFacts, RunInfo, RunState
from tidegate.store.checkpoints.checkpoints import Checkpoint

if TYPE_CHECKING:
    from tidegate.checkpoint import Checkpoints
    from tidegate.http.client.http_client import HttpClient

PAGE = 1000
"""Chunks per page of a listing."""
UNREADABLE = "UnreadableAnswer"
LOOK = 0.5
"""Seconds between two polls of a run that is not complete."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Pipelines:
    pipelines: list[PipelineInfo]


@dataclass(frozen=True, slots=True)
class _Delivered:
    is_new: bool


@dataclass(frozen=True, slots=True)
class _Results:
    results: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Triggered:
    number: int


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    checkpoints: list[Checkpoint]


class HttpRunClient:
    """The runs of one client on a server elsewhere; `RunService` documents each call.

    Calls are retried while the server does not respond. Delivered chunks are not sent again.
    """

    def __init__(self, http: HttpClient, served: PipelineInfo) -> None:
        self._http = http
        self.served = served
        self._delivered: dict[tuple[str, str], dict[int, str]] = {}
        """Digests of the chunks of each source of a run that were delivered before."""
        self._listing = Lock()

    # ── runs ──

    def find(self, run: str) -> RunInfo | None:
        """The latest run with this name."""
        try:
            return self._state(run).run
        except UnknownRun:
            return None

    def is_open(self, run: str) -> bool:
        """Whether the run exists and is open; False if the server cannot answer."""
        try:
            return self._state(run).run.state is RunState.OPEN
        except TidegateError:
            return False

    def begin(
        self, run: str, *, deadline: float | None = None, checkpoints: Checkpoints | None = None
    ) -> RunInfo:
        """Begin a run; the request is retried with one key, so the run is begun once."""
        body = {"run": run, "deadline": deadline, "checkpoints": msgspec.to_builtins(checkpoints)}
        answer = self._http.json("POST", self._path(), body, key=uuid4().hex)
        return _read(answer, RunInfo)

    def has_this_plan(self, run: RunInfo) -> bool:
        """Whether a run was begun with the served plan."""
        return self._state(run.name).has_this_plan

    def digests(self, run: RunInfo) -> dict[str, list[str]]:
        """Digests of the delivered chunks of each source, by number."""
        return {
            source: [*dict(self.delivered(run.name, source)).values()]
            for source in self.served.sources
        }

    def facts(self, run: str) -> RunFacts:
        """The progress of a run."""
        return self._diagnosis(run).facts

    # ── data ──

    def deliver(self, run: str, source: str, number: int, file: str) -> bool:
        """Send a chunk unless it was delivered before; False if it was."""
        if self._is_delivered(run, source, number, file):
            return False
        size = _size(source, file)
        if size > self.served.most_chunk_bytes:
            raise ChunkTooLarge(source, number, self.served.most_chunk_bytes)
        path = self._path(run, "sources", source, "chunks", str(number))
        with _errors_name(file):
            answer = self._http.send(f"{path}?format={_format(file)}", Path(file), size)
        return _read(answer, _Delivered).is_new

    def end(self, run: str, source: str, chunks: int) -> None:
        """End a source with this number of chunks."""
        self._http.json("POST", self._path(run, "sources", source, "end"), {"chunks": chunks})

    # ── results ──

    def wait(self, run: str, timeout: float) -> dict[str, int]:
        """The rows of every sink of a complete run; raises the outcome of any other.

        The reason for waiting is logged every 30 seconds.
        """
        deadline, report = monotonic() + timeout, WaitReport(self._why)
        while (now := self._state(run).run).state is RunState.OPEN:
            left = deadline - monotonic()
            if left <= 0:
                raise RunTimeout(run, timeout)
            report.update(now)
            sleep(min(LOOK, left))
        raise_if_unsuccessful(now)
        answer = self._http.json("GET", self._path(run, "results"))
        results = _read(answer, _Results).results
        check_results(self._http.url, self.served, results)
        return results

    def rows_at(self, run: str, checkpoint: str) -> dict[str, int]:
        """The rows of every sink at a checkpoint, a number or "latest"."""
        path = f"{self._path(run, 'results')}?checkpoint={quote(checkpoint, safe='')}"
        results = _read(self._http.json("GET", path), _Results).results
        check_results(self._http.url, self.served, results)
        return results

    def fetch(self, run: str, sink: str, query: str, take: Callable[[Iterator[bytes]], T]) -> T:
        """Read a result piece by piece, in the format that the query names."""
        return self._http.fetch(f"{self._path(run, 'results', sink)}?{query}", take)

    def cancel(self, run: str) -> bool:
        """Cancel a run; False if it was closed before."""
        try:
            self._http.json("POST", self._path(run, "cancel"), {})
        except NothingToCancel:
            return False
        return True

    def check(self) -> None:
        """Raise if the server cannot do its work."""
        self._http.json("GET", "/health")

    def write(
        self,
        run: str,
        sink: str,
        file: Path,
        checkpoint: int | None = None,
        received: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Fetch a final or checkpoint result as CSV; the file appears whole or not at all.

        `received` is called with the bytes received so far.
        """
        path = f"{self._path(run, 'results', sink)}?format=csv"
        path += "" if checkpoint is None else f"&checkpoint={checkpoint}"
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}.{uuid4().hex}")

        def take(pieces: Iterator[bytes]) -> None:
            with space_on(str(file.parent)), unfinished.open("wb") as opened:
                for piece in pieces:
                    opened.write(piece)
                    received(opened.tell())

        try:
            self._http.fetch(path, take)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)

    # ── checkpoints ──

    def take_checkpoint(self, run: str, *, unaligned: bool = False) -> int:
        """Trigger a checkpoint, after the pending one; returns its number."""
        body = {"unaligned": unaligned}
        answer = self._http.json("POST", self._path(run, "checkpoints"), body)
        return _read(answer, _Triggered).number

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """The retained checkpoints of a run."""
        answer = self._http.json("GET", self._path(run, "checkpoints"))
        return _read(answer, _Checkpoints).checkpoints

    def checkpoint(self, run: str, number: int | None = None) -> CheckpointManifest:
        """A checkpoint, by default the latest."""
        path = self._path(run, "checkpoints", LATEST if number is None else str(number))
        return _read(self._http.json("GET", path), CheckpointManifest)

    def taken(self, run: str, number: int, timeout: float) -> Checkpoint:
        """Wait until a checkpoint is committed; raises `CheckpointAborted`, `CheckpointPending`."""
        deadline = monotonic() + timeout
        while True:
            found = next((taken for taken in self.checkpoints(run) if taken.number == number), None)
            if found is None:
                raise UnknownCheckpoint(run, f"checkpoint {number}", "none of that number")
            if found.state is CheckpointState.ABORTED:
                reason, offender = found.reason or "", found.offender or "unknown"
                raise CheckpointAborted(run, number, reason, offender)
            if found.state is CheckpointState.COMMITTED:
                return found
            if monotonic() >= deadline:
                raise CheckpointPending(run, number, timeout)
            sleep(LOOK)

    def restore(self, run: str, number: int | None = None) -> RunInfo:
        """Restore a run from a checkpoint, by default the latest; idempotent."""
        path, body = self._path(run, "restore"), {"checkpoint": number}
        answer = self._http.json("POST", path, body, silence=WORK)
        return _read(answer, RunInfo)

    # ── requests ──

    def _why(self, run: RunInfo) -> str:
        return self._diagnosis(run.name).why

    def _diagnosis(self, run: str) -> RunDiagnosis:
        answer = self._http.json("GET", self._path(run, "why"))
        return _read(answer, RunDiagnosis)

    def _state(self, run: str) -> RunStateReply:
        answer = self._http.json("GET", self._path(run, "state"))
        return _read(answer, RunStateReply)

    def _path(self, *parts: str) -> str:
        every = ("pipelines", self.served.pipeline, "runs", *parts)
        return "".join(f"/{quote(part, safe='')}" for part in every)

    def _is_delivered(self, run: str, source: str, number: int, file: str) -> bool:
        """Whether this chunk was delivered; raises `ChunkConflict` if its content differs."""
        with self._listing:
            if (run, source) not in self._delivered:
                self._delivered[run, source] = dict(self.delivered(run, source))
        known = self._delivered[run, source].get(number)
        if known is None:
            return False
        sha256 = _digest(source, file)
        if sha256 != known:
            raise ChunkConflict(run, source, number, sha256, known)
        return True

    def delivered(self, run: str, source: str) -> Iterator[tuple[int, str]]:
        """Number and SHA-256 of each delivered chunk, in the order of numbers."""
        after = 0
        while True:
            path = f"{self._path(run, 'sources', source)}?after={after}&limit={PAGE}"
            page = _read(self._http.json("GET", path), SourceChunks).chunks
            yield from ((chunk.number, chunk.sha256) for chunk in page)
            if len(page) < PAGE:
                return
            after = page[-1].number


def http_run_client(http: HttpClient, pipeline: Callable[[str], str]) -> HttpRunClient:
    """The runs of the server; raises `OtherPipeline` unless it serves the expected pipeline.

    `pipeline` returns the expected name, given the served one. Raises `UntrustedName` for names
    that could lead to files elsewhere.
    """
    answer = _read(http.json("GET", "/pipelines"), _Pipelines)
    if len(answer.pipelines) != 1:
        raise RefusedByServer(UNREADABLE, f"the server serves {len(answer.pipelines)} pipelines")
    (served,) = answer.pipelines
    check_served(http.url, served)
    expected = pipeline(served.pipeline)
    if served.pipeline != expected:
        raise OtherPipeline(http.url, expected, served.pipeline)
    return HttpRunClient(http, served)


def _read(answer: bytes, kind: type[T]) -> T:
    """The decoded response; raises `RefusedByServer` if no server of this version sends it."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the server's response cannot be decoded: {error}"
        raise RefusedByServer(UNREADABLE, message) from error


def _format(file: str) -> str:
    found = format_of_file(file)
    if found is None:
        raise UnknownFormat(file)
    return found


def _size(source: str, file: str) -> int:
    try:
        return Path(file).stat().st_size
    except FileNotFoundError:
        raise NoSuchChunk(source=source, file=file) from None


def _digest(source: str, file: str) -> str:
    try:
        return digest(file)
    except FileNotFoundError:
        raise NoSuchChunk(source=source, file=file) from None


@contextmanager
def _errors_name(file: str) -> Iterator[None]:
    """Raise errors with the file in place of the chunk number that the server knows."""
    try:
        yield
    except TidegateError as error:
        if hasattr(error, "file"):
            error.file = file
        raise
