"""What demos say: a line per thing that happened, a line in motion, and tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from threading import Lock
from time import monotonic

from rich.console import Console
from rich.markup import escape
from rich.table import Table

EVERY = 10.0
"""Seconds between two lines about how far things are, where no line can be in motion."""
NUMBERS = (int, float, Decimal)


class Teller:
    """Prints lines with the seconds since the start; several threads may."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = monotonic()
        self._said_at = monotonic()
        self._printing = Lock()
        self._status = console.status("", refresh_per_second=4)

    @contextmanager
    def in_motion(self) -> Iterator[None]:
        """Show on a terminal that something is going on."""
        with self._status:
            yield

    def tell(self, what: str, *details: str, style: str = "") -> None:
        """A line with the time; details stand below it."""
        with self._printing:
            self._said_at = monotonic()
            self._print(what, style)
            for detail in details:
                self._console.print(
                    f"          [dim]{escape(detail)}[/]", highlight=False, soft_wrap=True
                )

    def progress(self, what: str) -> None:
        """How far things are: the line in motion, or now and then a line of its own."""
        if self._console.is_terminal:
            self._status.update(f"{self._passed()}  {escape(what)}")
        elif monotonic() - self._said_at > EVERY:
            self.tell(what, style="dim")

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        right: Collection[str] = (),
    ) -> None:
        """A title and a table; numbers, and the columns that are asked for, stand to the right."""
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
        self._console.print(f"[dim]{self._passed()}[/]  {text}", highlight=False, soft_wrap=True)

    def _passed(self) -> str:
        return f"{monotonic() - self._started:6.1f} s"
