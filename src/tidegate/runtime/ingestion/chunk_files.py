"""The files that a path or glob given to `put` names."""

from __future__ import annotations

from glob import glob, has_magic
from os import PathLike, fspath
from pathlib import Path

from tidegate.errors import NoMatchingFile, OneFileExpected


def files_matching(source: str, given: str | PathLike[str], *, several: bool) -> list[str]:
    """Files in the order of their names. A folder stands for the files in it.

    With `several` False the path has to name one file, since it gets one chunk number. A URI is
    passed on as it is.
    """
    pattern = fspath(given)
    if "://" in pattern:
        return [pattern]
    found = [pattern]
    if Path(pattern).is_dir():
        found = [str(it) for it in Path(pattern).iterdir() if it.is_file() and _is_visible(it)]
    elif has_magic(pattern) and not Path(pattern).exists():
        matching = glob(pattern, recursive=True)  # noqa: PTH207  a pattern may be absolute
        found = [it for it in matching if Path(it).is_file()]
    if not found or not all(Path(it).is_file() for it in found):
        raise NoMatchingFile(source, pattern)
    if len(found) > 1 and not several:
        raise OneFileExpected(source, pattern, len(found))
    return sorted(found)


def _is_visible(file: Path) -> bool:
    return not file.name.startswith((".", "_"))
