"""Output of the demos: a line per event, a live status line, and tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from threading import Lock
from time import monotonic

from rich.console import Console
from rich.markup import escape
from rich.table import Table

LINE_INTERVAL = 10.0
"""Seconds between two progress lines where the output is not a terminal."""
NUMBERS = (int, float, Decimal)


class DemoOutput:
    """Prints lines with the seconds since the start; may be used by several threads."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = monotonic()
        self._last_line_at = monotonic()
        self._printing = Lock()
        self._status = console.status("", refresh_per_second=4)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the live status line on a terminal."""
        with self._status:
            yield

    def line(self, what: str, *details: str, style: str = "") -> None:
        """Print a line with the time, and details below it."""
        with self._printing:
            self._last_line_at = monotonic()
            self._print(what, style)
            for detail in details:
                self._console.print(
                    f"          [dim]{escape(detail)}[/]", highlight=False, soft_wrap=True
                )

    def progress(self, what: str) -> None:
        """Show the progress: in the live status line, or from time to time as a line."""
        if self._console.is_terminal:
            self._status.update(f"{self._elapsed()}  {escape(what)}")
        elif monotonic() - self._last_line_at > LINE_INTERVAL:
            self.line(what, style="dim")

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        right: Collection[str] = (),
    ) -> None:
        """Print a table; numbers and the columns in `right` are right-aligned."""
        table = Table()
        for at, column in enumerate(columns):
            is_right = column in right or any(isinstance(row[at], NUMBERS) for row in rows)
            table.add_column(column, justify="right" if is_right else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(str(value) for value in row))
        with self._printing:
            self._console.print(f"\n[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
            self._console.print(table)

    def _print(self, what: str, style: str) -> None:
        text = f"[{style}]{escape(what)}[/]" if style else escape(what)
        self._console.print(f"[dim]{self._elapsed()}[/]  {text}", highlight=False, soft_wrap=True)

    def _elapsed(self) -> str:
        return f"{monotonic() - self._started:6.1f} s"
