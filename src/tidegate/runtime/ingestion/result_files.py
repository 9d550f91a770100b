"""Writing the results of a run to files: two at a time, with progress reports.

One core orders all rows of a result before the first one is written; a second result uses another
core meanwhile.
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
"""Results that are written at the same time; a server gives one client as many."""


class Progress(Enum):
    """How far a result is."""

    WAITING = "waits"
    AT_WORK = "is at work"
    WRITTEN = "is written"


@dataclass
class ResultFile:
    """One result on its way to its file."""

    sink: str
    rows: int
    bytes: int = 0
    """Bytes received so far, where that is known."""
    progress: Progress = Progress.WAITING

    def received(self, so_far: int) -> None:
        """Note how many bytes were received so far."""
        self.bytes = so_far

    def __str__(self) -> str:
        rows = counted(self.rows, "row")
        if self.progress is Progress.WRITTEN:
            return f"{self.sink}: {rows} written"
        if not self.bytes:
            return f"{self.sink}: ordering {rows}"
        return f"{self.sink}: {self.bytes / 1e6:,.1f} MB of {rows} received"


def write_all(
    report: ProgressListener, rows: Mapping[str, int], write: Callable[[ResultFile], None]
) -> None:
    """Call `write` for the file of every sink, given the rows of each; raises what it raises."""
    files = [ResultFile(sink, number) for sink, number in rows.items()]

    def work(file: ResultFile) -> ResultFile:
        file.progress = Progress.AT_WORK
        write(file)
        file.progress = Progress.WRITTEN
        return file

    with report.during(lambda: under_way(files)), DaemonPool(AT_ONCE, "tidegate-write") as pool:
        for written in [pool.submit(work, file) for file in files]:
            report.report(str(written.result()))


def under_way(files: Sequence[ResultFile]) -> str:
    """Those at work, and how many come after them.

    >>> at_work = ResultFile("best", 2, 1_500_000, Progress.AT_WORK)
    >>> under_way([at_work, ResultFile("rest", 1)])
    'best: 1.5 MB of 2 rows received; 1 more'
    """
    now = [str(file) for file in files if file.progress is Progress.AT_WORK]
    waiting = sum(file.progress is Progress.WAITING for file in files)
    return "; ".join([*now, *([f"{waiting} more"] if waiting else [])])
