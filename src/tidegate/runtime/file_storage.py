"""The files of a deployment, local or on any file system that pyarrow reaches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pyarrow import fs as arrow_fs

from tidegate.spark.ingest.parquet_files import locate, size_and_digest
from tidegate.store import FileChecksum


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, relative to the root, and when it was written, in seconds since 1970."""

    path: str
    written_at: float


class FileStorage:
    """Lists, checks and removes files below a root. A missing file is no error."""

    def __init__(self, root: str) -> None:
        self._url = root.rstrip("/")
        self._system, self._root = locate(self._url)

    def files(self, folder: str) -> list[FileEntry]:
        """All files below a folder."""
        return [self._stored(info) for info in self._infos(folder) if info.is_file]

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""
        return [info.base_name for info in self._infos(folder, recursive=False) if not info.is_file]

    def checksum(self, files: Sequence[str]) -> list[FileChecksum]:
        """The size and SHA-256 of each file; `FileNotFoundError` if one is missing."""
        return [self._checksum(file) for file in files]

    def find(self, file: str) -> FileChecksum | None:
        """The size and SHA-256 of a file; None if it is missing."""
        try:
            return self._checksum(file)
        except FileNotFoundError:
            return None

    def _checksum(self, file: str) -> FileChecksum:
        return FileChecksum(file, *size_and_digest(f"{self._url}/{file}"))

    def remove(self, files: Iterable[str]) -> int:
        """Remove files; how many existed. Their folders are kept: others may write to them."""
        return sum(map(self._remove, files))

    def clear(self, files: Iterable[str]) -> int:
        """Remove files and the folders that become empty; how many files existed."""
        paths = list(files)
        removed = self.remove(paths)
        folders = {str(folder) for file in paths for folder in PurePosixPath(file).parents}
        if isinstance(self._system, arrow_fs.LocalFileSystem):
            self._remove_empty(folders)
        return removed

    def _remove(self, file: str) -> bool:
        try:
            self._system.delete_file(f"{self._root}/{file}")
        except FileNotFoundError:
            return False
        return True

    def _remove_empty(self, folders: Iterable[str]) -> None:
        """Deepest first. Folders of the first level are kept: a writer may be about to use them.

        `rmdir` fails atomically on a folder that is not empty, so a file that is written at the
        same time is kept. Only local file systems have such an operation.
        """
        for folder in sorted(folders, key=lambda folder: -folder.count("/")):
            if "/" in folder:
                with suppress(OSError):
                    Path(self._root, folder).rmdir()

    def _infos(self, folder: str, *, recursive: bool = True) -> list[Any]:
        selector = arrow_fs.FileSelector(
            f"{self._root}/{folder}", recursive=recursive, allow_not_found=True
        )
        return list(self._system.get_file_info(selector))

    def _stored(self, info: Any) -> FileEntry:
        inside = info.path[len(self._root) :].lstrip("/")
        return FileEntry(inside, (info.mtime_ns or 0) / 1e9)
