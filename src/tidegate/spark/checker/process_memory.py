"""The memory of a process that `RLIMIT_DATA` counts."""

from __future__ import annotations

import os
from pathlib import Path

_DATA = 5
"""Where it is in `/proc/PID/statm`, in pages."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


def data_bytes(process: int | str = "self") -> int:
    """What a process holds or has reserved, in bytes. Raises `OSError` when it is gone."""
    return int(Path(f"/proc/{process}/statm").read_bytes().split()[_DATA]) * _PAGE
