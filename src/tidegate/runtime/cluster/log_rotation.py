"""Rotation of a log that another process is appending to: copied aside, then emptied.

The writer keeps its open file, which has to be in append mode. Lines that are written between the
copy and the emptying are lost, which is accepted to bound the size of the log.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Rotation:
    """How large a log may be, and how many older ones are kept beside it."""

    bytes: int
    files: int

    def apply(self, log: Path) -> bool:
        """Rotate a log that is too large; whether it was. A full disk only empties it."""
        with suppress(FileNotFoundError):
            if 0 < self.bytes <= log.stat().st_size:
                with suppress(OSError):
                    self._keep(log)
                with log.open("r+b") as opened:
                    opened.truncate(0)
                return True
        return False

    def _keep(self, log: Path) -> None:
        for number in range(self.files - 1, 0, -1):
            with suppress(FileNotFoundError):
                _older(log, number).replace(_older(log, number + 1))
        if self.files:
            shutil.copyfile(log, _older(log, 1))


def _older(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")
