"""What a terminal shows while a run works."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

from rich.console import Console
from rich.live import Live

from tidegate.cli.progress import InMotion
from tidegate.store import LaneStatus, Run, RunFacts, RunState

RUN = Run(1, "shop", "march", 1, RunState.OPEN)


def lane(task: str, sent: int, cursor: int) -> LaneStatus:
    return LaneStatus("head", task, 0, sent, None, cursor, None)


def test_a_bar_shows_how_far_the_shards_of_a_stage_are_together() -> None:
    lanes = (lane("s1/0", 3, 3), lane("s1/1", 3, 0), lane("s2", 0, 0))
    facts = RunFacts(RUN, datetime.now(UTC), (), lanes, frozenset(), {})
    console = Console(file=StringIO(), width=120, force_terminal=True)
    with Live(console=console, auto_refresh=False) as live:
        InMotion(console, live).show(facts)
        shown = Console(file=StringIO(), width=120)
        shown.print(live.renderable)
    assert isinstance(shown.file, StringIO)
    _, bar = shown.file.getvalue().rstrip().splitlines()
    assert bar.rstrip().endswith("3 of 6 messages")
    assert bar.count("█") == bar.count("░") == 15
