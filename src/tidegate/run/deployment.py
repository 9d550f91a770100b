"""A deployment: a folder and a database, everything of a pipeline that outlives its processes.

FOLDER/postgres   the embedded server, unless another database is given
FOLDER/data       chunks and batches; may be elsewhere, where all workers and Spark reach it
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ
from pathlib import Path

from tidegate.errors import UnusableFolder
from tidegate.store import Database, open_database


@dataclass(frozen=True)
class Deployment:
    """Where things are: the database, and the root of all files."""

    database: Database
    root: str


@contextmanager
def open_deployment(
    folder: Path, database: str | None = None, data: str | None = None
) -> Iterator[Deployment]:
    """The deployment in a folder. `database` is a URL, `data` a path or URI for its files."""
    folder = folder.absolute()
    root = data or str(folder / "data")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if "://" not in root:
            Path(root).mkdir(parents=True, exist_ok=True)
    except OSError as refusal:
        raise UnusableFolder(str(folder), str(refusal)) from refusal
    with open_database(database, folder, environ) as opened:
        yield Deployment(opened, root)
