"""A server elsewhere, for who delivers a folder to it as to a `Server` in the same process."""

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
from tidegate.store import Run, RunFacts, RunState
from tidegate.store.checkpoints.checkpoints import Checkpoint

if TYPE_CHECKING:
    from tidegate.checkpoint import Checkpoints
    from tidegate.http.client.http_client import HttpClient

PAGE = 1000
"""Chunks that are asked for at a time."""
UNREADABLE = "UnreadableAnswer"
LOOK = 0.5
"""Seconds between two looks at a run that is not complete."""


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
class _Taken:
    number: int


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    checkpoints: list[Checkpoint]


class HttpRunClient:
    """The runs of one client on a server elsewhere; see `Server` for what each call does.

    Calls are repeated while the server does not answer. Chunks that are there are not sent again.
    """

    def __init__(self, calls: HttpClient, served: PipelineInfo) -> None:
        self._calls = calls
        self.served = served
        self._there: dict[tuple[str, str], dict[int, str]] = {}
        """What was there of each source of a run when this was first asked."""
        self._looking = Lock()

    # ── runs ──

    def find(self, run: str) -> Run | None:
        """The run that has this name now or had it last."""
        try:
            return self._state(run).run
        except UnknownRun:
            return None

    def is_open(self, run: str) -> bool:
        """Whether there is such a run that is not closed; no if nobody can tell."""
        try:
            return self._state(run).run.state is RunState.OPEN
        except TidegateError:
            return False

    def begin(
        self, run: str, *, deadline: float | None = None, checkpoints: Checkpoints | None = None
    ) -> Run:
        """Open a run; repeated until it is known to be open, and opened once."""
        asked = {"run": run, "deadline": deadline, "checkpoints": msgspec.to_builtins(checkpoints)}
        answer = self._calls.json("POST", self._path(), asked, key=uuid4().hex)
        return _read(answer, Run)

    def has_this_plan(self, run: Run) -> bool:
        """Whether a run was begun with the plan that is served."""
        return self._state(run.name).has_this_plan

    def digests(self, run: Run) -> dict[str, list[str]]:
        """Of the chunks that are there, by their numbers."""
        return {it: [*dict(self._ask(run.name, it)).values()] for it in self.served.sources}

    def facts(self, run: str) -> RunFacts:
        """How far a run has come."""
        return self._explained(run).facts

    # ── data ──

    def deliver(self, run: str, source: str, number: int, file: str) -> bool:
        """Send a chunk unless it is there; False when it was."""
        if self._is_there(run, source, number, file):
            return False
        size = _size(source, file)
        if size > self.served.most_chunk_bytes:
            raise ChunkTooLarge(source, number, self.served.most_chunk_bytes)
        path = self._path(run, "sources", source, "chunks", str(number))
        with _named(file):
            answer = self._calls.send(f"{path}?format={_format(file)}", Path(file), size)
        return _read(answer, _Delivered).is_new

    def end(self, run: str, source: str, chunks: int) -> None:
        """Say how many chunks a source has."""
        self._calls.json("POST", self._path(run, "sources", source, "end"), {"chunks": chunks})

    # ── outcomes ──

    def wait(self, run: str, timeout: float) -> dict[str, int]:
        """The rows of every sink of a complete run, or what became of it.

        What it waits for is logged every 30 seconds.
        """
        deadline, report = monotonic() + timeout, WaitReport(self._why)
        while (now := self._state(run).run).state is RunState.OPEN:
            left = deadline - monotonic()
            if left <= 0:
                raise RunTimeout(run, timeout)
            report.look(now)
            sleep(min(LOOK, left))
        raise_if_unsuccessful(now)
        answer = self._calls.json("GET", self._path(run, "results"))
        results = _read(answer, _Results).results
        check_results(self._calls.url, self.served, results)
        return results

    def rows_at(self, run: str, checkpoint: str) -> dict[str, int]:
        """The rows of every sink at a checkpoint, a number or "latest"."""
        path = f"{self._path(run, 'results')}?checkpoint={quote(checkpoint, safe='')}"
        results = _read(self._calls.json("GET", path), _Results).results
        check_results(self._calls.url, self.served, results)
        return results

    def fetch(self, run: str, sink: str, query: str, take: Callable[[Iterator[bytes]], T]) -> T:
        """Read a result piece by piece, in the format that the query names."""
        return self._calls.fetch(f"{self._path(run, 'results', sink)}?{query}", take)

    def delivered(self, run: str, source: str) -> Iterator[tuple[int, str]]:
        """Number and SHA-256 of each delivered chunk, in the order of numbers."""
        return self._ask(run, source)

    def cancel(self, run: str) -> bool:
        """Cancel a run; False if it was closed before."""
        try:
            self._calls.json("POST", self._path(run, "cancel"), {})
        except NothingToCancel:
            return False
        return True

    def check(self) -> None:
        """Raise if nobody is at work there."""
        self._calls.json("GET", "/health")

    def write(
        self,
        run: str,
        sink: str,
        file: Path,
        checkpoint: int | None = None,
        received: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Fetch a result as CSV, at the end or at a cut; the file appears whole or not at all.

        `received` is called with the bytes of it that have come so far.
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
            self._calls.fetch(path, take)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)

    # ── cuts ──

    def take_checkpoint(self, run: str, *, unaligned: bool = False) -> int:
        """Begin a checkpoint, after the one that is under way; its number."""
        asked = {"unaligned": unaligned}
        answer = self._calls.json("POST", self._path(run, "checkpoints"), asked)
        return _read(answer, _Taken).number

    def checkpoints(self, run: str) -> list[Checkpoint]:
        """How those went that are remembered."""
        answer = self._calls.json("GET", self._path(run, "checkpoints"))
        return _read(answer, _Checkpoints).checkpoints

    def checkpoint(self, run: str, number: int | None = None) -> CheckpointManifest:
        """A cut, by default the latest."""
        asked = LATEST if number is None else str(number)
        return _read(
            self._calls.json("GET", self._path(run, "checkpoints", asked)), CheckpointManifest
        )

    def taken(self, run: str, number: int, timeout: float) -> Checkpoint:
        """Wait until a checkpoint is committed; raises `CheckpointAborted`, `CheckpointPending`."""
        deadline = monotonic() + timeout
        while True:
            found = next((it for it in self.checkpoints(run) if it.number == number), None)
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

    def restore(self, run: str, number: int | None = None) -> Run:
        """Begin a run again at a cut, by default the latest; to do so twice is harmless."""
        path, asked = self._path(run, "restore"), {"checkpoint": number}
        answer = self._calls.json("POST", path, asked, silence=WORK)
        return _read(answer, Run)

    # ── how ──

    def _why(self, run: Run) -> str:
        return self._explained(run.name).why

    def _explained(self, run: str) -> RunDiagnosis:
        answer = self._calls.json("GET", self._path(run, "why"))
        return _read(answer, RunDiagnosis)

    def _state(self, run: str) -> RunStateReply:
        answer = self._calls.json("GET", self._path(run, "state"))
        return _read(answer, RunStateReply)

    def _path(self, *parts: str) -> str:
        every = ("pipelines", self.served.pipeline, "runs", *parts)
        return "".join(f"/{quote(part, safe='')}" for part in every)

    def _is_there(self, run: str, source: str, number: int, file: str) -> bool:
        """Whether this very chunk was delivered; raises `ChunkConflict` if another one was."""
        with self._looking:
            if (run, source) not in self._there:
                self._there[run, source] = dict(self._ask(run, source))
        known = self._there[run, source].get(number)
        if known is None:
            return False
        sha256 = _digest(source, file)
        if sha256 != known:
            raise ChunkConflict(run, source, number, sha256, known)
        return True

    def _ask(self, run: str, source: str) -> Iterator[tuple[int, str]]:
        """Numbers and digests of what is there, page by page."""
        after = 0
        while True:
            path = f"{self._path(run, 'sources', source)}?after={after}&limit={PAGE}"
            page = _read(self._calls.json("GET", path), SourceChunks).chunks
            yield from ((chunk.number, chunk.sha256) for chunk in page)
            if len(page) < PAGE:
                return
            after = page[-1].number


def http_run_client(calls: HttpClient, pipeline: Callable[[str], str]) -> HttpRunClient:
    """The server behind these calls, if it serves the pipeline that is meant.

    `pipeline` answers the name of that, given the name of the one that is served. Raises
    `UntrustedName` for names that could lead to files elsewhere.
    """
    answer = _read(calls.json("GET", "/pipelines"), _Pipelines)
    if len(answer.pipelines) != 1:
        raise RefusedByServer(UNREADABLE, f"the server serves {len(answer.pipelines)} pipelines")
    (served,) = answer.pipelines
    check_served(calls.url, served)
    wanted = pipeline(served.pipeline)
    if served.pipeline != wanted:
        raise OtherPipeline(calls.url, wanted, served.pipeline)
    return HttpRunClient(calls, served)


def _read(answer: bytes, kind: type[T]) -> T:
    """What a server answers; raises `RefusedByServer` for what no server of this version does."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        says = f"the server's answer cannot be understood: {error}"
        raise RefusedByServer(UNREADABLE, says) from error


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
def _named(file: str) -> Iterator[None]:
    """The server knows a chunk by its number; who sent it knows the file."""
    try:
        yield
    except TidegateError as error:
        if hasattr(error, "file"):
            error.file = file
        raise
