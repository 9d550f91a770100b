"""The spool: where a chunk is put while it arrives, below the deployment's root.

A chunk is in nobody's way until it is whole: it is delivered from here and removed then, and so is
what was cut off. What a server leaves that was killed is removed by the next one to start, once it
is older than any chunk may take to arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from time import time
from typing import Any
from uuid import uuid4

from tidegate.run.storage import Storage
from tidegate.spark.files import locate
from tidegate.spark.landing import space_on

FOLDER = "uploads"
FORGOTTEN = 86_400.0
"""Seconds after which what is spooled belongs to nobody; far more than an upload may take."""


class Spool:
    """Files on their way in. Writing them waits for the disk."""

    def __init__(self, root: str) -> None:
        self._system, self._base = locate(root.rstrip("/"))
        self._is_local = "://" not in root and not root.startswith("file:")
        self._root = self._base if self._is_local else root.rstrip("/")

    def tidy(self) -> int:
        """Remove what was left by servers that are gone; how many files that were."""
        storage = Storage(self._root)
        old = [it.path for it in storage.files(FOLDER) if it.written_at < time() - FORGOTTEN]
        return storage.remove(old)

    def file(self, ending: str) -> Spooled:
        """A new file, whose name ends like this."""
        name = f"{FOLDER}/{uuid4().hex}{ending}"
        with space_on(self._root):
            self._system.create_dir(f"{self._base}/{FOLDER}", recursive=True)
            stream = self._system.open_output_stream(f"{self._base}/{name}", compression=None)
        return Spooled(f"{self._root}/{name}", self._root, self._system, stream)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A local folder for a result on its way out; gone at the end of the block."""
        parent = Path(self._root, FOLDER) if self._is_local else Path(gettempdir())
        parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=parent, ignore_cleanup_errors=True) as folder:
            yield Path(folder)


class Spooled:
    """A file in the spool, open for writing."""

    def __init__(self, path: str, root: str, system: Any, stream: Any) -> None:
        self.path = path
        self._root = root
        self._system = system
        self._stream = stream

    def write(self, piece: bytes) -> None:
        """Append; raises `NoSpace`."""
        with space_on(self._root):
            self._stream.write(piece)

    def close(self) -> None:
        """Nothing more will come; raises `NoSpace`."""
        with space_on(self._root):
            self._stream.close()

    def remove(self) -> None:
        """Nobody needs it any more; harmless when it is gone."""
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError):
            self._system.delete_file(locate(self.path)[1])
