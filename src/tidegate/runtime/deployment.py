"""A deployment: a database and a folder, all that outlives the processes of a pipeline.

    FOLDER/postgres   the embedded server, unless another database is given
    FOLDER/data       chunks and batches; may be elsewhere, where all workers and Spark reach it

    with tg.connect("deployment") as deployment:
        with deployment.serve(pipeline) as service:
            run = service.start("march")

Only the user who runs it can read the folder; see `tidegate.permissions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike, environ, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import DataFolderNotGiven, UnusableFolder
from tidegate.flows.client import flow_run, start_flow
from tidegate.permissions import private_folder
from tidegate.settings import Settings
from tidegate.spark import engine_session
from tidegate.spark.ingest.disk_space import DiskReserve
from tidegate.spark.session.sessions import DEFAULT_MASTER
from tidegate.store import Database, open_database, overview
from tidegate.store.core.database import VARIABLE, describe

if TYPE_CHECKING:
    from tidegate.flows import Flow, FlowRun, FlowWorker
    from tidegate.pipeline import Pipeline
    from tidegate.runtime.service import PipelineFrontend
    from tidegate.spark import Session
    from tidegate.store import RunSummary


@dataclass(frozen=True, repr=False)
class Deployment:
    """Where things are: the database, and the root of all files."""

    database: Database
    root: str
    settings: Settings = field(default_factory=Settings)
    folders: tuple[str, ...] = ()
    """Other folders that need free space, such as that of the embedded server."""

    def __repr__(self) -> str:
        return f"<deployment with files in {self.root}>"

    @contextmanager
    def serve(
        self,
        pipeline: Pipeline,
        session: Session | None = None,
        *,
        master: str = DEFAULT_MASTER,
        shards: int | None = None,
        worker: bool = True,
    ) -> Iterator[PipelineFrontend]:
        """Serve a pipeline in this process until the end of the block: Spark, worker, monitor.

        Spark is that of the given or the active session, whose settings stay as they are; without
        any, a session is started on `master`. With `worker=False` this process takes chunks and
        watches runs; processes of `tidegate worker` execute the stages.
        """
        from tidegate.runtime.service import serve, serve_frontend

        with ExitStack() as opened:
            used = opened.enter_context(engine_session(session, master))
            begin = serve if worker else serve_frontend
            yield opened.enter_context(begin(self, pipeline, used, shards))

    def runs(self, pipeline: str | None = None) -> list[RunSummary]:
        """All runs that are remembered, of one pipeline or of all."""
        found = self.database.transact(overview)
        return [it for it in found if pipeline in {None, it.run.pipeline}]

    def start_flow(
        self,
        flow: Flow,
        input: Any = None,  # noqa: A002  the word of the flow's steps
        *,
        key: str | None = None,
    ) -> FlowRun:
        """Start a run of a flow; a call with the same `key` returns the same run."""
        return start_flow(self.database, flow, input, key)

    def flow_run(self, run: int | str, flow: Flow | None = None) -> FlowRun:
        """The handle of a run of a flow that was started before, by its number or key."""
        return flow_run(self.database, run, flow)

    def flow_worker(self, *flows: Flow, **options: Any) -> AbstractContextManager[FlowWorker]:
        """Execute tasks of these flows in this process until the end of the block.

        `threads` is how many tasks run at a time.
        """
        # flows.worker stands above runtime: steps may run pipelines.
        module = import_module("tidegate.flows.worker.worker")
        worker: AbstractContextManager[FlowWorker] = module.flow_worker(
            self.database, *flows, root=self.root, **options
        )
        return worker

    @property
    def reserve(self) -> DiskReserve:
        """The free space that is kept where its files and its database are."""
        return DiskReserve((self.root, *self.folders), self.settings.disk_reserve_bytes)


@contextmanager
def open_deployment(
    folder: Path, database: str | None = None, data: str | None = None
) -> Iterator[Deployment]:
    """The deployment in a folder. `database` is a URL, `data` a path or URI for its files.

    Settings are those of the environment. Raises `InvalidSetting`, `UnusableFolder`.
    """
    settings = Settings.from_environment(environ)
    folder = folder.absolute()
    root = data or str(folder / "data")
    try:
        private_folder(folder)
        if data is None:
            private_folder(Path(root))
        elif "://" not in root:
            Path(root).mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as refusal:
        raise UnusableFolder(str(folder), str(refusal)) from refusal
    with open_database(database, folder, environ) as opened:
        embedded = () if database or environ.get(VARIABLE) else (str(folder / "postgres"),)
        yield Deployment(opened, root, settings, embedded)


def connect(
    target: str | PathLike[str],
    *,
    database: str | None = None,
    data: str | PathLike[str] | None = None,
    **server: Any,
) -> AbstractContextManager[Any]:
    """Open a deployment until the end of the block: a folder, a PostgreSQL URL, or a server's URL.

    A folder has an embedded PostgreSQL, unless `database` names another one; `data` is where its
    files are kept, by default in the folder. A PostgreSQL URL needs `data`. An HTTP URL gives an
    `HttpService`, whose `start` and `run` return the same `Run` handles; it takes `token` and
    `allow_plain_http`.
    """
    text = fspath(target)
    if text.startswith(("http://", "https://")):
        # http stands above runtime: it serves what runtime runs.
        opened: AbstractContextManager[Any] = import_module(
            "tidegate.http.client.http_service"
        ).http_service(text, **server)
        return opened
    if server:
        raise TypeError(f"{', '.join(server)}: only for the URL of a server")
    if "://" not in text:
        return open_deployment(Path(text), database, None if data is None else fspath(data))
    if data is None:
        raise DataFolderNotGiven(describe(text))
    folder = fspath(data)
    return open_deployment(Path(folder) if "://" not in folder else Path.cwd(), text, folder)
