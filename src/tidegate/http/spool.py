"""The spool: where a chunk is put while it arrives, below the deployment's root.

    uploads/<server>/…     chunks that arrive, and results on their way out
    uploads/<server>.lock  held while that server lives

A chunk is in nobody's way until it is whole: it is delivered from here and removed then, and so is
what was cut off. A server that was killed leaves what it was receiving; the next one to start
finds that nobody holds its lock any more and removes it. Where there are no locks, on a file
system that is reached by a URI, it goes when it is older than any chunk may take to arrive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import time
from typing import Any
from uuid import uuid4

from tidegate.permissions import private_folder
from tidegate.runtime.cluster.file_lock import try_lock
from tidegate.runtime.file_storage import FileStorage
from tidegate.spark.ingest.parquet_files import locate
from tidegate.spark.ingest.parquet_writer import space_on

FOLDER = "uploads"
LOCK = ".lock"
FORGOTTEN = 86_400.0
"""Seconds after which what is spooled elsewhere than on a disk belongs to nobody."""


@contextmanager
def open_spool(root: str) -> Iterator[Spool]:
    """A spool for one server until the end of the block; what dead servers have left is removed."""
    if "://" in root or root.startswith("file:"):
        _remove_forgotten(root)
        with TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True) as local:
            yield Spool(root, f"{FOLDER}/{uuid4().hex}", Path(local))
        return
    uploads = Path(root, FOLDER).absolute()
    private_folder(uploads)
    remove_abandoned(uploads)
    with _held(uploads / uuid4().hex) as folder:
        yield Spool(str(uploads.parent), f"{FOLDER}/{folder.name}", folder)


class Spool:
    """Files on their way in and out. Writing them waits for the disk."""

    def __init__(self, root: str, folder: str, local: Path) -> None:
        self._root = root.rstrip("/")
        self._folder = folder
        self._local = local
        self._system, self._base = locate(self._root)

    def file(self, ending: str) -> SpooledFile:
        """A new file, whose name ends like this."""
        name = f"{self._folder}/{uuid4().hex}{ending}"
        with space_on(self._root):
            self._system.create_dir(f"{self._base}/{self._folder}", recursive=True)
            stream = self._system.open_output_stream(f"{self._base}/{name}", compression=None)
        return SpooledFile(f"{self._root}/{name}", self._root, self._system, stream)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A local folder for a result on its way out; gone at the end of the block."""
        with TemporaryDirectory(dir=self._local, ignore_cleanup_errors=True) as folder:
            yield Path(folder)


class SpooledFile:
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


# ── what is left ──


def remove_abandoned(uploads: Path) -> None:
    """Remove the folders of servers that hold their locks no more."""
    for folder in uploads.iterdir():
        if folder.is_dir() and (lock := try_lock(_lock_of(folder))) is not None:
            rmtree(folder, ignore_errors=True)
            _lock_of(folder).unlink(missing_ok=True)
            os.close(lock)


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """A folder of our own. It is there only while its lock is held, so nobody takes it for left."""
    lock = try_lock(_lock_of(folder))
    assert lock is not None, "nobody else knows this name"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
        _lock_of(folder).unlink(missing_ok=True)
        os.close(lock)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + LOCK)


def _remove_forgotten(root: str) -> None:
    storage = FileStorage(root)
    storage.remove(it.path for it in storage.files(FOLDER) if it.written_at < time() - FORGOTTEN)
