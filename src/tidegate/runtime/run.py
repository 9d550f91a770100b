"""The handle of a run: deliver data, wait for results, inspect, checkpoint, cancel.

    run = service.start("march", deadline=600)
    run.put("sales", "sales-1.csv")
    run.end("sales")
    run.result(timeout=600)["best_selling"].to_df()

A handle is a name: any number of them, in any number of processes, may refer to the same run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tidegate.runtime.monitor.diagnosis import why
from tidegate.runtime.results import Results, StoredResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.dataflow import Batch
    from tidegate.runtime.ingestion.stream_ingestion import FollowedStream
    from tidegate.runtime.service import PipelineFrontend
    from tidegate.spark import Rows
    from tidegate.store import RunFacts
    from tidegate.store.checkpoints.checkpoints import Checkpoint

LATEST = "latest"
CHECKPOINT_SECONDS = 300.0
"""How long `checkpoint` waits by default."""


class Run(ABC):
    """One run of a pipeline, served by this process or by a server."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @abstractmethod
    def put(self, source: str, data: object, *, chunk: int | None = None) -> list[int]:
        """Deliver chunks and return their numbers.

        `data` is a path or glob (each file is a chunk), a Spark DataFrame, an Arrow table or
        reader, or a pandas DataFrame. Without `chunk`, each chunk gets the next free number. With
        `chunk`, repeating the call is harmless, and other content under the same number raises
        `ChunkConflict`.
        """

    @abstractmethod
    def end(self, source: str | None = None, chunks: int | None = None) -> None:
        """Declare that a source, by default each source, is complete.

        `chunks` is the number of its chunks; by default the number of those delivered. Chunks that
        are still missing may be delivered afterwards.
        """

    @abstractmethod
    def result(
        self, timeout: float | None = None, *, checkpoint: Checkpoint | int | str | None = None
    ) -> Results:
        """Wait until the run is complete and return the results of all sinks.

        With `checkpoint` (what `checkpoint()` returned, a number, or "latest"), return at once what
        the sinks show there. Raises
        `RunFailed`, `RunCancelled`, `RunTimeout`, `UnknownCheckpoint`.
        """

    @abstractmethod
    def status(self) -> RunFacts:
        """Progress of each source and stage."""

    def why(self) -> str:
        """What the run waits for, which task or source is late, and since when."""
        return why(self.status())

    @abstractmethod
    def checkpoint(
        self, timeout: float = CHECKPOINT_SECONDS, *, unaligned: bool = False
    ) -> Checkpoint:
        """Take a checkpoint and wait until it is committed; `CheckpointAborted` if it fails.

        An unaligned checkpoint does not wait for barriers. A run can be restored to it, but sinks
        do not publish it.
        """

    @abstractmethod
    def checkpoints(self) -> list[Checkpoint]:
        """The retained checkpoints, the oldest first."""

    @abstractmethod
    def restore(self, checkpoint: int | None = None) -> None:
        """Restart the run from a checkpoint, by default the latest."""

    @abstractmethod
    def cancel(self) -> bool:
        """Cancel the run; False if it was closed before."""


class ServedRun(Run):
    """A run of a pipeline that this process serves."""

    def __init__(self, name: str, service: PipelineFrontend, root: str) -> None:
        super().__init__(name)
        self._service = service
        self._server = service.server
        self._root = root

    def put(self, source: str, data: object, *, chunk: int | None = None) -> list[int]:
        """Deliver chunks and return their numbers; see `Run.put`."""
        return self._server.put(self.name, source, data, chunk)

    def follow(
        self, source: str, rows: Rows, *, checkpoint: str, every: float | None = None
    ) -> FollowedStream:
        """Deliver the micro-batches of a streaming DataFrame as chunks.

        `checkpoint` is Spark's checkpoint location of this stream. With `every` seconds the stream
        goes on until `finish` or `stop`; without, it takes what is available and ends.
        """
        return self._server.follow(self.name, source, rows, checkpoint=checkpoint, every=every)

    def end(self, source: str | None = None, chunks: int | None = None) -> None:
        """Declare that a source is complete; see `Run.end`."""
        self._server.end(self.name, source, chunks)

    def result(
        self, timeout: float | None = None, *, checkpoint: Checkpoint | int | str | None = None
    ) -> Results:
        """The results of all sinks; see `Run.result`."""
        wanted = checkpoint_number(checkpoint)
        if wanted is None:
            return self._results(self._server.wait(self.name, timeout))
        number = None if wanted == LATEST else int(wanted)
        return self._results(self._server.checkpoints.read(self.name, number).results)

    def status(self) -> RunFacts:
        """Progress of each source and stage."""
        return self._server.facts(self.name)

    def checkpoint(
        self, timeout: float = CHECKPOINT_SECONDS, *, unaligned: bool = False
    ) -> Checkpoint:
        """Take a checkpoint and wait until it is committed."""
        number = self._server.checkpoints.begin(self.name, unaligned=unaligned)
        return self._server.checkpoints.taken(self.name, number, timeout)

    def checkpoints(self) -> list[Checkpoint]:
        """The retained checkpoints, the oldest first."""
        return self._server.checkpoints.all(self.name)

    def restore(self, checkpoint: int | None = None) -> None:
        """Restart the run from a checkpoint, by default the latest."""
        self._server.restore(self.name, checkpoint)

    def cancel(self) -> bool:
        """Cancel the run; False if it was closed before."""
        return self._server.cancel(self.name)

    def _results(self, batches: Mapping[str, Sequence[Batch]]) -> Results:
        service = self._service
        return Results({
            sink: StoredResult(self._root, its, service.schema_of(sink))
            for sink, its in batches.items()
        })  # fmt: skip


def checkpoint_number(checkpoint: Checkpoint | int | str | None) -> int | str | None:
    """The number of a checkpoint, or "latest", whichever way it was given."""
    if checkpoint is None or isinstance(checkpoint, int | str):
        return checkpoint
    return checkpoint.number
