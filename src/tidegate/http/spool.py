"""The spool: files of chunks that are being received, below the deployment's root.

    uploads/<server>/…     chunks being received, and results being sent
    uploads/<server>.lock  locked while that server runs

A chunk is delivered from the spool once it is complete, and its file removed; the file of an
interrupted upload is removed as well. A server that was killed leaves its files; the next server
to start finds the lock released and removes them. On a file system reached by a URI there are no
locks: there files are removed when they are older than any upload may take.
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
"""Seconds after which a spooled file on a file system without locks is removed."""


@contextmanager
def open_spool(root: str) -> Iterator[Spool]:
    """A spool for one server until the end of the block; removes files left by killed servers."""
    if "://" in root or root.startswith("file:"):
        _remove_forgotten(root)
        with TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True) as local:
            yield Spool(root, f"{FOLDER}/{uuid4().hex}", Path(local))
        return
    uploads = Path(root, FOLDER).absolute()
    private_folder(uploads)
    remove_abandoned(uploads)
    with _locked_folder(uploads / uuid4().hex) as folder:
        yield Spool(str(uploads.parent), f"{FOLDER}/{folder.name}", folder)


class Spool:
    """Files of one server's uploads and downloads. Writing blocks on the disk."""

    def __init__(self, root: str, folder: str, local: Path) -> None:
        self._root = root.rstrip("/")
        self._folder = folder
        self._local = local
        self._system, self._base = locate(self._root)

    def file(self, ending: str) -> SpooledFile:
        """A new file with this extension."""
        name = f"{self._folder}/{uuid4().hex}{ending}"
        with space_on(self._root):
            self._system.create_dir(f"{self._base}/{self._folder}", recursive=True)
            stream = self._system.open_output_stream(f"{self._base}/{name}", compression=None)
        return SpooledFile(f"{self._root}/{name}", self._root, self._system, stream)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A local folder for a result being sent; removed at the end of the block."""
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
        """End writing; raises `NoSpace`."""
        with space_on(self._root):
            self._stream.close()

    def remove(self) -> None:
        """Remove the file; idempotent."""
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError):
            self._system.delete_file(locate(self.path)[1])


# ── clean-up ──


def remove_abandoned(uploads: Path) -> None:
    """Remove the folders of servers whose locks are released."""
    for folder in uploads.iterdir():
        if folder.is_dir() and (lock := try_lock(_lock_of(folder))) is not None:
            rmtree(folder, ignore_errors=True)
            _lock_of(folder).unlink(missing_ok=True)
            os.close(lock)


@contextmanager
def _locked_folder(folder: Path) -> Iterator[Path]:
    """A new folder, which exists only while its lock is held: other servers keep it."""
    lock = try_lock(_lock_of(folder))
    assert lock is not None, "the name is unique"
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
    old = (file for file in storage.files(FOLDER) if file.written_at < time() - FORGOTTEN)
    storage.remove(file.path for file in old)
