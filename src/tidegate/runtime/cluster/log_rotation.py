"""Rotates a log that another process appends to: copies it, then truncates it.

The writer keeps its open file, which has to be in append mode. Lines written between the copy
and the truncation are lost; this is accepted to bound the size of the log.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Rotation:
    """The largest size of a log, and how many older logs are kept."""

    bytes: int
    files: int

    def apply(self, log: Path) -> bool:
        """Rotate a log if it is too large; whether it was. On a full disk it is only truncated."""
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
