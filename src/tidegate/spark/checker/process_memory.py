"""The memory of a process that `RLIMIT_DATA` counts."""

from __future__ import annotations

import os
from pathlib import Path

_DATA = 5
"""The field of `/proc/PID/statm`, in pages."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


def data_bytes(process: int | str = "self") -> int:
    """The bytes that a process has allocated or reserved. Raises `OSError` if it has ended."""
    return int(Path(f"/proc/{process}/statm").read_bytes().split()[_DATA]) * _PAGE
