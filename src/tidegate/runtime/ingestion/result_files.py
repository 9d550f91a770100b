"""Writes the results of a run to files: two concurrently, with progress reports.

One core sorts all rows of a result before the first one is written; a second result uses another
core at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tidegate.errors import counted
from tidegate.runtime.daemon_pool import DaemonPool

if TYPE_CHECKING:
    from tidegate.runtime.ingestion.folder_run import ProgressListener

AT_ONCE = 2
"""Results that are written concurrently; a server gives one client as many."""


class WriteState(Enum):
    """The state of a result file."""

    WAITING = "waiting"
    RUNNING = "running"
    WRITTEN = "written"


@dataclass
class ResultFile:
    """A result and the progress of its file."""

    sink: str
    rows: int
    bytes: int = 0
    """Bytes received so far, where that is known."""
    state: WriteState = WriteState.WAITING

    def received(self, so_far: int) -> None:
        """Note how many bytes were received so far."""
        self.bytes = so_far

    def __str__(self) -> str:
        rows = counted(self.rows, "row")
        if self.state is WriteState.WRITTEN:
            return f"{self.sink}: {rows} written"
        if not self.bytes:
            return f"{self.sink}: ordering {rows}"
        return f"{self.sink}: {self.bytes / 1e6:,.1f} MB of {rows} received"


def write_all(
    listener: ProgressListener, rows: Mapping[str, int], write: Callable[[ResultFile], None]
) -> None:
    """Call `write` for the file of every sink; `rows` are their numbers of rows."""
    files = [ResultFile(sink, number) for sink, number in rows.items()]

    def work(file: ResultFile) -> ResultFile:
        file.state = WriteState.RUNNING
        write(file)
        file.state = WriteState.WRITTEN
        return file

    with listener.during(lambda: under_way(files)), DaemonPool(AT_ONCE, "tidegate-write") as pool:
        for written in [pool.submit(work, file) for file in files]:
            listener.report(str(written.result()))


def under_way(files: Sequence[ResultFile]) -> str:
    """The files that are being written, and the number of waiting ones.

    >>> running = ResultFile("best", 2, 1_500_000, WriteState.RUNNING)
    >>> under_way([running, ResultFile("rest", 1)])
    'best: 1.5 MB of 2 rows received; 1 more'
    """
    now = [str(file) for file in files if file.state is WriteState.RUNNING]
    waiting = sum(file.state is WriteState.WAITING for file in files)
    return "; ".join([*now, *([f"{waiting} more"] if waiting else [])])
