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
class StoredFile:
    """A file, relative to the root, and when it was written, in seconds since 1970."""

    path: str
    written_at: float
    bytes: int


class FileStorage:
    """Looks at files below a root and removes them. What is not there is no error."""

    def __init__(self, root: str) -> None:
        self._url = root.rstrip("/")
        self._system, self._root = locate(self._url)

    def files(self, folder: str) -> list[StoredFile]:
        """All files below a folder."""
        return [self._stored(it) for it in self._infos(folder) if it.is_file]

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""
        return [it.base_name for it in self._infos(folder, recursive=False) if not it.is_file]

    def checksum(self, files: Sequence[str]) -> list[FileChecksum]:
        """The size and SHA-256 of each file; `FileNotFoundError` where one is gone."""
        return [self._checksum(file) for file in files]

    def find(self, file: str) -> FileChecksum | None:
        """A file as it is now; None when it is gone."""
        try:
            return self._checksum(file)
        except FileNotFoundError:
            return None

    def _checksum(self, file: str) -> FileChecksum:
        return FileChecksum(file, *size_and_digest(f"{self._url}/{file}"))

    def remove(self, files: Iterable[str]) -> int:
        """Remove files; how many there were. Their folders stay, for others may write to them."""
        return sum(map(self._remove, files))

    def clear(self, files: Iterable[str]) -> int:
        """Remove files, and the folders that have become empty by it; how many files there were."""
        gone = list(files)
        removed = self.remove(gone)
        folders = {str(folder) for file in gone for folder in PurePosixPath(file).parents}
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
        """Deepest first. The first level, which somebody may be about to write to, stays.

        Only the system can tell, at the moment of removing it, whether a folder is empty: what
        lands in it at the last moment stays. Elsewhere than on a local disk there is no such way.
        """
        for folder in sorted(folders, key=lambda it: -it.count("/")):
            if "/" in folder:
                with suppress(OSError):
                    Path(self._root, folder).rmdir()

    def _infos(self, folder: str, *, recursive: bool = True) -> list[Any]:
        selector = arrow_fs.FileSelector(
            f"{self._root}/{folder}", recursive=recursive, allow_not_found=True
        )
        return list(self._system.get_file_info(selector))

    def _stored(self, info: Any) -> StoredFile:
        inside = info.path[len(self._root) :].lstrip("/")
        return StoredFile(inside, (info.mtime_ns or 0) / 1e9, info.size or 0)
