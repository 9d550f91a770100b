"""Watching a run of a flow: a picture in motion on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegate.cli.error_output import printable
from tidegate.cli.flow.frames import frame, items_told, standing_told
from tidegate.cli.flow.render import happening, not_taken, on_one_line, signal_awaited
from tidegate.errors import counted

if TYPE_CHECKING:
    from tidegate.flows.client import FlowRun
    from tidegate.flows.inspect import RunInspection
    from tidegate.flows.model.gates import Standing
    from tidegate.store.flows.runs import FlowRunInfo

GLANCE = 0.25
"""Seconds between two pictures at least."""
COUNT_EVERY = 10.0
"""Seconds between two lines about items and gates."""
RECENT = 5.0
"""Seconds; what happened longer ago than that is not told again."""


class Picture:
    """Drawn over and over in the same place."""

    def __init__(self, run: FlowRun, live: Live, console: Console) -> None:
        from tidegate.flows.inspect import RateMeter

        self._run = run
        self._live = live
        self._console = console
        self._pace = RateMeter()
        self._drawn_at = 0.0

    def look(self, run: FlowRunInfo) -> None:
        """Draw the run, unless that was done a moment ago; when it is over, in any case."""
        if run.closed_at is None and monotonic() - self._drawn_at < GLANCE:
            return
        sight = self._run.inspect()
        self._pace.add(sight)
        lines = frame(sight, self._pace, self._console.width)
        self._live.update(Group(*(Text(line, no_wrap=True) for line in lines)), refresh=True)
        self._drawn_at = monotonic()


class Lines:
    """A line for each thing that happened, and now and then how far it is.

    Each begins with the seconds since the run was begun, by the clock of the database.
    """

    def __init__(self, run: FlowRun, console: Console) -> None:
        from tidegate.flows.inspect import RateMeter

        self._run = run
        self._console = console
        self._seen: int | None = None
        self._begun_at = 0.0
        self._counted_at = monotonic()
        self._pace = RateMeter()
        self._told: dict[str, str] = {}

    def look(self, run: FlowRunInfo) -> None:
        """Tell what has happened since the last look."""
        after = self._pass_over() if self._seen is None else self._seen
        self._seen = after
        for event in self._run.events(after):
            self._seen = event.id
            self._say(happening(event), (event.at - run.begun_at).total_seconds())
        if run.closed_at is None and monotonic() - self._counted_at >= COUNT_EVERY:
            self._counted_at = monotonic()
            sight = self._run.inspect()
            self._pace.add(sight)
            self._count(sight)

    def _pass_over(self) -> int:
        """Tell in one line what happened before somebody looked; answers where to go on."""
        from tidegate.store.flows.events import earlier_events

        past = self._run.database.transact(lambda c: earlier_events(c, self._run.id, RECENT))
        self._begun_at = monotonic() - past.age
        if past.events:
            told = counted(past.events, "event")
            self._say(f"{told} before; `tidegate flow events {self._run.id}` lists them")
            self._counted_at -= COUNT_EVERY  # how far it is may be told at once
        return past.last

    def _count(self, sight: RunInspection) -> None:
        for step in sight.steps:
            if step.generating is not None:
                told = items_told(step, self._pace.rate(lambda it, of=step.name: it.done(of)))  # type: ignore[misc]
                self._say_news(step.name, told, f"{step.name}: {told}")
            for wait in sight.wait_of(step.name):
                if wait.standing is not None:
                    self._tell_standing(step.name, wait.standing)
        for name in sight.signals:
            self._say_news(f"{name}: signal", "awaited", f"{name} {signal_awaited(sight, name)}")
        for name, seconds in sight.not_taken.items():
            minutes = str(int(seconds // 60))
            self._say_news(f"{name}: worker", minutes, f"{name} {not_taken(sight, name)}")

    def _tell_standing(self, step: str, standing: Standing) -> None:
        """How far a gate is, and once in a minute that it does not move."""
        minutes = int((standing.age or 0) // 60) if standing.behind else 0
        told = f"{step} waits: {standing_told(standing, None)}"
        self._say_news(f"{step}/{standing.condition.key}", f"{standing.distance}/{minutes}", told)

    def _say_news(self, of: str, news: str, what: str) -> None:
        if self._told.get(of) != news:
            self._told[of] = news
            self._say(what)

    def _say(self, what: str, at: float | None = None) -> None:
        seconds = monotonic() - self._begun_at if at is None else at
        line = f"{seconds:6.1f} s  {printable(on_one_line(what))}"
        self._console.print(line, soft_wrap=True, markup=False)


@contextmanager
def watching(
    run: FlowRun, *, quiet: bool, console: Console | None = None
) -> Iterator[Callable[[FlowRunInfo], None] | None]:
    """What is called with a run whenever it may have moved; it suits where stderr goes."""
    if quiet:
        yield None
        return
    shown = console or Console(stderr=True, highlight=False)
    if not shown.is_terminal:
        yield Lines(run, shown).look
        return
    with Live(Text(""), console=shown, auto_refresh=False, vertical_overflow="crop") as live:
        yield Picture(run, live, shown).look
