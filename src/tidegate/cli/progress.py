"""How a run is told while it works: a table in motion on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegate.run.folders import Telling
from tidegate.run.why import why

if TYPE_CHECKING:
    from tidegate.store import RunFacts

WIDTH = 30
GLANCE = 0.5
STARTING = "starting Spark, which takes some seconds"


class Lines(Telling):
    """One line for each thing that happened, with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = monotonic()

    def tell(self, what: str) -> None:
        """A line with the time."""
        self._console.print(self._line(what), soft_wrap=True, markup=False)

    def show(self, facts: RunFacts) -> None:
        """Why it is not done."""
        self.tell(why(facts))

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
        bars = [Text(f"  {stage:<6}{_bar(done, of)} {done:,} of {of:,} messages")
                for stage, (done, of) in stages(facts).items() if of]  # fmt: skip
        self._live.update(Group(Text(self._line(why(facts)), overflow="ellipsis"), *bars))


@contextmanager
def telling(*, quiet: bool) -> Iterator[Telling]:
    """What suits the place where stderr goes."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if not console.is_terminal:
        lines = Lines(console)
        lines.tell(STARTING)
        yield lines
        return
    with Live(Text(STARTING), console=console, transient=True) as live:
        yield InMotion(console, live)


def stages(facts: RunFacts) -> dict[str, tuple[int, int]]:
    """For every stage, over its shards: messages processed, of messages received."""
    found: dict[str, tuple[int, int]] = {}
    for lane in facts.lanes:
        stage = lane.to_task.partition("/")[0]
        done, of = found.get(stage, (0, 0))
        found[stage] = (done + lane.cursor, of + lane.sent)
    return found


def _bar(done: int, of: int) -> str:
    filled = WIDTH * done // of
    return "█" * filled + "░" * (WIDTH - filled)
