"""How a run is told while it works: a table in motion on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegate.errors import counted
from tidegate.run.folders import Telling
from tidegate.run.why import why
from tidegate.store.status import stages

if TYPE_CHECKING:
    from tidegate.store import RunFacts
    from tidegate.store.status import StageStatus

WIDTH = 30
GLANCE = 0.5
STARTING = "starting Spark, which takes some seconds"


class Lines(Telling):
    """One line for each thing that happened, with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = monotonic()
        self._counted_at = self._started

    def tell(self, what: str) -> None:
        """A line with the time."""
        self._console.print(self._line(what), soft_wrap=True, markup=False)

    def sent(self, chunks: int, of: int) -> None:
        """How many chunks are there, now and then."""
        if monotonic() - self._counted_at >= self.every:
            self._counted_at = monotonic()
            self._count(f"{chunks:,} of {counted(of, 'chunk')} delivered")

    def show(self, facts: RunFacts) -> None:
        """Why it is not done."""
        self.tell(why(facts))

    def _count(self, what: str) -> None:
        self.tell(what)

    def _line(self, what: str) -> str:
        return f"{monotonic() - self._started:6.1f} s  {what}"


class InMotion(Lines):
    """Lines that stay, and under them how far each stage has come."""

    every = GLANCE

    def __init__(self, console: Console, live: Live) -> None:
        super().__init__(console)
        self._live = live

    def show(self, facts: RunFacts) -> None:
        """A bar for every stage that has something to do."""
        bars = [Text(f"  {it.stage:<6}{_bar(it)} {it.processed:,} of {it.received:,} messages")
                for it in stages(facts) if it.received]  # fmt: skip
        self._live.update(Group(Text(self._line(why(facts)), overflow="ellipsis"), *bars))

    def _count(self, what: str) -> None:
        self._live.update(Text(self._line(what)))


@contextmanager
def telling(*, quiet: bool, first: str = STARTING) -> Iterator[Telling]:
    """What suits the place where stderr goes; begins with what takes a while first."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if not console.is_terminal:
        lines = Lines(console)
        lines.tell(first)
        yield lines
        return
    with Live(Text(first), console=console, transient=True) as live:
        yield InMotion(console, live)


def _bar(stage: StageStatus) -> str:
    filled = WIDTH * stage.processed // stage.received
    return "█" * filled + "░" * (WIDTH - filled)
