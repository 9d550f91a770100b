"""Runs on a server, by the handles that runs in this process have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyarrow import ipc, parquet

from tidegate.errors import ChunkConflict, FilesOnServer, UnknownRun
from tidegate.http.client.http_client import HttpClient
from tidegate.http.client.run_client import HttpRunClient, http_run_client
from tidegate.runtime.ingestion.chunk_files import files_matching
from tidegate.runtime.results import Result, Results
from tidegate.runtime.run import CHECKPOINT_SECONDS, Run, checkpoint_number
from tidegate.spark import as_frame, collect_frame, rows_from_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.checkpoint import Checkpoints
    from tidegate.spark import Rows, Session
    from tidegate.store import RunFacts
    from tidegate.store.checkpoints.checkpoints import Checkpoint

FOREVER = float("inf")


class HttpService:
    """The pipeline that a server serves; see `PipelineService`."""

    def __init__(self, client: HttpRunClient) -> None:
        self.client = client

    @property
    def pipeline(self) -> str:
        """The name of the pipeline."""
        return self.client.served.pipeline

    def start(
        self, run: str, *, deadline: float | None = None, checkpoints: Checkpoints | None = None
    ) -> Run:
        """Start a run under a name that no open run of this client has."""
        self.client.begin(run, deadline=deadline, checkpoints=checkpoints)
        return HttpRun(run, self.client)

    def run(self, name: str) -> Run:
        """The handle of a run that was started before; raises `UnknownRun`."""
        if self.client.find(name) is None:
            raise UnknownRun(name)
        return HttpRun(name, self.client)


@contextmanager
def http_service(
    url: str, token: str | None = None, *, allow_plain_http: bool = False
) -> Iterator[HttpService]:
    """The service behind an address. Connections are per request: nothing is left to close."""
    client = HttpClient(url, token, allow_plain_http=allow_plain_http)
    yield HttpService(http_run_client(client, lambda served: served))


class HttpRun(Run):
    """A run on a server."""

    def __init__(self, name: str, client: HttpRunClient) -> None:
        super().__init__(name)
        self._client = client

    def put(self, source: str, data: object, *, chunk: int | None = None) -> list[int]:
        """Deliver chunks and return their numbers; see `Run.put`. Frames are sent as Parquet."""
        if isinstance(data, str | PathLike):
            files = files_matching(source, fspath(data), several=chunk is None)
            return [self._put(source, file, chunk) for file in files]
        with TemporaryDirectory(prefix="tidegate-put-") as folder:
            file = Path(folder, "chunk.parquet")
            parquet.write_table(collect_frame(as_frame(source, data)), file)
            return [self._put(source, str(file), chunk)]

    def _put(self, source: str, file: str, chunk: int | None) -> int:
        if chunk is not None:
            self._client.deliver(self.name, source, chunk, file)
            return chunk
        while True:
            with suppress(ChunkConflict):  # another client took the number meanwhile
                number = self._last(source) + 1
                self._client.deliver(self.name, source, number, file)
                return number

    def _last(self, source: str) -> int:
        return max((number for number, _ in self._client.delivered(self.name, source)), default=0)

    def end(self, source: str | None = None, chunks: int | None = None) -> None:
        """Declare that a source is complete; see `Run.end`."""
        for name in [source] if source is not None else self._client.served.sources:
            self._client.end(self.name, name, self._last(name) if chunks is None else chunks)

    def result(
        self, timeout: float | None = None, *, checkpoint: Checkpoint | int | str | None = None
    ) -> Results:
        """The results of all sinks; see `Run.result`."""
        number = checkpoint_number(checkpoint)
        if number is None:
            rows = self._client.wait(self.name, FOREVER if timeout is None else timeout)
        else:
            rows = self._client.rows_at(self.name, str(number))
        return Results(
            {sink: HttpResult(self._client, self.name, sink, rows[sink], number) for sink in rows}
        )

    def status(self) -> RunFacts:
        """Progress of each source and stage."""
        return self._client.facts(self.name)

    def checkpoint(
        self, timeout: float = CHECKPOINT_SECONDS, *, unaligned: bool = False
    ) -> Checkpoint:
        """Take a checkpoint and wait until it is committed."""
        number = self._client.take_checkpoint(self.name, unaligned=unaligned)
        return self._client.taken(self.name, number, timeout)

    def checkpoints(self) -> list[Checkpoint]:
        """The retained checkpoints, the oldest first."""
        return self._client.checkpoints(self.name)

    def restore(self, checkpoint: int | None = None) -> None:
        """Restart the run from a checkpoint, by default the latest."""
        self._client.restore(self.name, checkpoint)

    def cancel(self) -> bool:
        """Cancel the run; False if it was closed before."""
        return self._client.cancel(self.name)


class HttpResult(Result):
    """The rows of one sink, fetched from the server as an Arrow stream when they are read."""

    def __init__(
        self,
        client: HttpRunClient,
        run: str,
        sink: str,
        rows: int,
        checkpoint: int | str | None = None,
    ) -> None:
        self._client = client
        self._run = run
        self._sink = sink
        self._checkpoint = checkpoint
        self.rows = rows

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self.to_arrow().schema

    @property
    def files(self) -> tuple[str, ...]:
        """The files are on the server: raises `FilesOnServer`."""
        raise FilesOnServer(self._sink)

    def to_df(self, session: Session | None = None) -> Rows:
        """A Spark DataFrame of the fetched rows."""
        return rows_from_arrow(session, self.to_arrow())

    def to_arrow(self) -> pa.Table:
        """An Arrow table. All rows are in memory."""
        query = "format=arrow"
        if self._checkpoint is not None:
            query += f"&checkpoint={quote(str(self._checkpoint))}"
        fetched = self._client.fetch(self._run, self._sink, query, b"".join)
        return ipc.open_stream(BytesIO(fetched)).read_all()
