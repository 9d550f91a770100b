"""Progress of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegate.cli.output.error_output import printable
from tidegate.errors import counted
from tidegate.runtime.ingestion.folder_run import ProgressListener
from tidegate.runtime.monitor.diagnosis import why
from tidegate.store.runs.status import stages

if TYPE_CHECKING:
    from tidegate.store import RunFacts
    from tidegate.store.runs.status import StageStatus

WIDTH = 30
GLANCE = 0.5
LONGEST = 60.0
"""Longest pause in seconds between two lines about the same wait."""
STARTING = "starting Spark, which takes some seconds"


class ReportInterval:
    """When the next line is due; the pause doubles up to a limit."""

    def __init__(
        self, first: float, longest: float = LONGEST, clock: Callable[[], float] = monotonic
    ) -> None:
        self._pause = first
        self._longest = longest
        self._clock = clock
        self._at = clock() + first

    @property
    def left(self) -> float:
        """Seconds until the next line is due."""
        return max(0.0, self._at - self._clock())

    def is_due(self) -> bool:
        """Whether a line is due now; if so, the next pause begins, twice as long."""
        if self.left > 0:
            return False
        self._at = self._clock() + self._pause
        self._pause = min(2 * self._pause, self._longest)
        return True


class LineReporter(ProgressListener):
    """Prints a line for each event, with the seconds since the start."""

    first = ProgressListener.every
    """Seconds after which a wait is reported."""
    longest = LONGEST

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = monotonic()
        self._counted_at = self._started
        self._interval = self._new_interval()

    def report(self, what: str) -> None:
        """Print a line with the time."""
        self._print(what)

    def sent(self, chunks: int, of: int) -> None:
        """Print periodically how many chunks are delivered."""
        if monotonic() - self._counted_at >= self.every:
            self._counted_at = monotonic()
            self._count(f"{chunks:,} of {counted(of, 'chunk')} delivered")

    def show(self, facts: RunFacts) -> None:
        """Print periodically why the run is not complete."""
        if self._interval.is_due():
            self._print(why(facts))

    def report_wait(self, what: str) -> None:
        """Print a line with the time."""
        self._print(what)

    @contextmanager
    def during(self, what: Callable[[], str]) -> Iterator[None]:
        """Report the progress of the block periodically."""
        over = Event()
        reporting = Thread(target=self._repeat, args=(what, over), daemon=True)
        reporting.start()
        try:
            yield
        finally:
            over.set()
            reporting.join()

    def _repeat(self, what: Callable[[], str], over: Event) -> None:
        interval = self._new_interval()
        while not over.wait(interval.left):
            if interval.is_due():
                self._under_way(what())

    def _new_interval(self) -> ReportInterval:
        return ReportInterval(self.first, self.longest)

    def _under_way(self, what: str) -> None:
        self._print(what)

    def _count(self, what: str) -> None:
        self._print(what)

    def _print(self, what: str) -> None:
        self._console.print(self._line(what), soft_wrap=True, markup=False)

    def _line(self, what: str) -> str:
        return f"{monotonic() - self._started:6.1f} s  {printable(what)}"


class QuietReporter(LineReporter):
    """Prints lines about long waits only, for programs that read the report."""

    first = 10.0

    def report(self, what: str) -> None:
        """Print nothing."""

    def sent(self, chunks: int, of: int) -> None:
        """Print nothing."""


class LiveReporter(LineReporter):
    """Prints lines, and below them a live view of the progress of each stage."""

    every = GLANCE
    first = GLANCE
    longest = GLANCE

    def __init__(self, console: Console, live: Live) -> None:
        super().__init__(console)
        self._live = live

    def show(self, facts: RunFacts) -> None:
        """Draw a bar for every stage that has received messages."""
        bars = [
            Text(f"  {each.stage:<6}{_bar(each)} {each.processed:,} of {each.received:,} messages")
            for each in stages(facts)
            if each.received
        ]
        self._live.update(Group(Text(self._line(why(facts)), overflow="ellipsis"), *bars))

    def _under_way(self, what: str) -> None:
        self._live.update(Text(self._line(what)))

    def _count(self, what: str) -> None:
        self._live.update(Text(self._line(what)))


@contextmanager
def report_progress(*, quiet: bool, first: str = STARTING) -> Iterator[ProgressListener]:
    """The reporter that suits standard error; `first` is reported at once."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield QuietReporter(console)
        return
    if not console.is_terminal:
        lines = LineReporter(console)
        lines.report(first)
        yield lines
        return
    with Live(Text(first), console=console, transient=True) as live:
        yield LiveReporter(console, live)


def _bar(stage: StageStatus) -> str:
    filled = WIDTH * stage.processed // stage.received
    return "█" * filled + "░" * (WIDTH - filled)
