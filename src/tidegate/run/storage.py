"""The files of a deployment, local or on any file system that pyarrow reaches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pyarrow import fs as arrow_fs


@dataclass(frozen=True, slots=True)
class Stored:
    """A file, relative to the root, and when it was written, in seconds since 1970."""

    path: str
    written_at: float
    bytes: int


class Storage:
    """Looks at files below a root and removes them. What is not there is no error."""

    def __init__(self, root: str) -> None:
        if "://" in root or root.startswith("file:"):
            self._system, self._root = arrow_fs.FileSystem.from_uri(root)
        else:
            self._system, self._root = arrow_fs.LocalFileSystem(), root
        self._root = self._root.rstrip("/")

    def files(self, folder: str) -> list[Stored]:
        """All files below a folder."""
        return [self._stored(it) for it in self._infos(folder) if it.is_file]

    def remove(self, files: Iterable[str]) -> int:
        """Remove files, and the folders that have become empty by it; how many there were."""
        removed = 0
        folders: set[str] = set()
        for file in files:
            folders.update(map(str, PurePosixPath(file).parents))
            try:
                self._system.delete_file(f"{self._root}/{file}")
            except FileNotFoundError:
                continue
            removed += 1
        self._remove_empty(folders - {"."})
        return removed

    def _remove_empty(self, folders: set[str]) -> None:
        """Deepest first. The first level, which somebody may be about to write to, stays."""
        for folder in sorted(folders, key=lambda it: -it.count("/")):
            if "/" in folder and not self._infos(folder, recursive=False):
                try:
                    self._system.delete_dir(f"{self._root}/{folder}")
                except (FileNotFoundError, OSError):
                    continue

    def _infos(self, folder: str, *, recursive: bool = True) -> list[Any]:
        selector = arrow_fs.FileSelector(
            f"{self._root}/{folder}", recursive=recursive, allow_not_found=True
        )
        return list(self._system.get_file_info(selector))

    def _stored(self, info: Any) -> Stored:
        inside = info.path[len(self._root) :].lstrip("/")
        return Stored(inside, (info.mtime_ns or 0) / 1e9, info.size or 0)
