"""A deployment: a folder and a database, everything of a pipeline that outlives its processes.

FOLDER/postgres   the embedded server, unless another database is given
FOLDER/data       chunks and batches; may be elsewhere, where all workers and Spark reach it

Only the user who runs it can read the folder; see `tidegate.permissions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import environ
from pathlib import Path

from tidegate.errors import UnusableFolder
from tidegate.permissions import private_folder
from tidegate.settings import Settings
from tidegate.spark.ingest.disk_space import DiskReserve
from tidegate.store import Database, open_database
from tidegate.store.core.database import VARIABLE


@dataclass(frozen=True)
class Deployment:
    """Where things are: the database, and the root of all files."""

    database: Database
    root: str
    settings: Settings = field(default_factory=Settings)
    folders: tuple[str, ...] = ()
    """Other folders that need free space, such as that of the embedded server."""

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
