"""Watches a flow run: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidegate.cli.flow.frames import frame, render_items, render_standing
from tidegate.cli.flow.render import on_one_line, render_event, signal_awaited, unclaimed
from tidegate.cli.output.error_output import printable
from tidegate.errors import counted

if TYPE_CHECKING:
    from tidegate.flows.client import FlowRun
    from tidegate.flows.inspect import RunInspection
    from tidegate.flows.model.gates import Standing
    from tidegate.store.flows.runs import FlowRunInfo

REDRAW_EVERY = 0.25
"""Seconds between two drawings at least."""
COUNT_EVERY = 10.0
"""Seconds between two lines about items and gates."""
RECENT = 5.0
"""Seconds; older events are only counted."""


class LiveView:
    """Redraws a run in place."""

    def __init__(self, run: FlowRun, live: Live, console: Console) -> None:
        from tidegate.flows.inspect import RateMeter

        self._run = run
        self._live = live
        self._console = console
        self._rates = RateMeter()
        self._drawn_at = 0.0

    def look(self, run: FlowRunInfo) -> None:
        """Draw the run at most every `REDRAW_EVERY` seconds, and once more when it is over."""
        if run.closed_at is None and monotonic() - self._drawn_at < REDRAW_EVERY:
            return
        inspection = self._run.inspect()
        self._rates.add(inspection)
        lines = frame(inspection, self._rates, self._console.width)
        self._live.update(Group(*(Text(line, no_wrap=True) for line in lines)), refresh=True)
        self._drawn_at = monotonic()


class LineView:
    """Prints a line for each event, and periodically the progress.

    Each line begins with the seconds since the start of the run, by the clock of the database.
    """

    def __init__(self, run: FlowRun, console: Console) -> None:
        from tidegate.flows.inspect import RateMeter

        self._run = run
        self._console = console
        self._seen: int | None = None
        self._started_at = 0.0
        self._counted_at = monotonic()
        self._rates = RateMeter()
        self._printed: dict[str, str] = {}

    def look(self, run: FlowRunInfo) -> None:
        """Print the events since the last call."""
        after = self._skip_past() if self._seen is None else self._seen
        self._seen = after
        for event in self._run.events(after):
            self._seen = event.id
            self._print(render_event(event), (event.at - run.begun_at).total_seconds())
        if run.closed_at is None and monotonic() - self._counted_at >= COUNT_EVERY:
            self._counted_at = monotonic()
            inspection = self._run.inspect()
            self._rates.add(inspection)
            self._count(inspection)

    def _skip_past(self) -> int:
        """Summarise earlier events in one line; returns the last of them."""
        from tidegate.store.flows.events import earlier_events

        past = self._run.database.transact(lambda c: earlier_events(c, self._run.id, RECENT))
        self._started_at = monotonic() - past.age
        if past.events:
            events = counted(past.events, "event")
            self._print(f"{events} before; `tidegate flow events {self._run.id}` lists them")
            self._counted_at -= COUNT_EVERY  # so that the progress is printed at once
        return past.last

    def _count(self, inspection: RunInspection) -> None:
        for step in inspection.steps:
            if step.generating is not None:
                items = render_items(step, self._rates.rate(lambda it, of=step.name: it.done(of)))  # type: ignore[misc]
                self._print_change(step.name, items, f"{step.name}: {items}")
            for wait in inspection.wait_of(step.name):
                if wait.standing is not None:
                    self._print_standing(step.name, wait.standing)
        for name in inspection.signals:
            self._print_change(
                f"{name}: signal", "awaited", f"{name} {signal_awaited(inspection, name)}"
            )
        for name, seconds in inspection.unclaimed.items():
            minutes = str(int(seconds // 60))
            self._print_change(f"{name}: worker", minutes, f"{name} {unclaimed(inspection, name)}")

    def _print_standing(self, step: str, standing: Standing) -> None:
        """The progress of a gate, and once a minute that it does not move."""
        minutes = int((standing.age or 0) // 60) if standing.behind else 0
        text = f"{step} waits: {render_standing(standing, None)}"
        self._print_change(
            f"{step}/{standing.condition.key}", f"{standing.distance}/{minutes}", text
        )

    def _print_change(self, subject: str, value: str, text: str) -> None:
        if self._printed.get(subject) != value:
            self._printed[subject] = value
            self._print(text)

    def _print(self, text: str, at: float | None = None) -> None:
        seconds = monotonic() - self._started_at if at is None else at
        line = f"{seconds:6.1f} s  {printable(on_one_line(text))}"
        self._console.print(line, soft_wrap=True, markup=False)


@contextmanager
def watching(
    run: FlowRun, *, quiet: bool, console: Console | None = None
) -> Iterator[Callable[[FlowRunInfo], None] | None]:
    """A callback for `FlowRun.wait` that shows the run on stderr; None if `quiet`."""
    if quiet:
        yield None
        return
    shown = console or Console(stderr=True, highlight=False)
    if not shown.is_terminal:
        yield LineView(run, shown).look
        return
    with Live(Text(""), console=shown, auto_refresh=False, vertical_overflow="crop") as live:
        yield LiveView(run, live, shown).look
