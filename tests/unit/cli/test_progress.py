"""What a terminal shows while a run works."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from itertools import count

from rich.console import Console
from rich.live import Live

from tests.waiting import wait_until
from tidegate.cli.output.progress import LineReporter, LiveReporter, QuietReporter, ReportInterval
from tidegate.store import ChannelStatus, RunFacts, RunInfo, RunState

RUN = RunInfo(1, "shop", "march", 1, RunState.OPEN)


def channel(task: str, sent: int, cursor: int) -> ChannelStatus:
    return ChannelStatus("head", task, 0, sent, None, cursor, None)


def test_a_bar_shows_how_far_the_shards_of_a_stage_are_together() -> None:
    channels = (channel("s1/0", 3, 3), channel("s1/1", 3, 0), channel("s2", 0, 0))
    facts = RunFacts(RUN, datetime.now(UTC), (), channels, frozenset(), {})
    console = Console(file=StringIO(), width=120, force_terminal=True)
    with Live(console=console, auto_refresh=False) as live:
        LiveReporter(console, live).show(facts)
        shown = Console(file=StringIO(), width=120)
        shown.print(live.renderable)
    assert isinstance(shown.file, StringIO)
    _, bar = shown.file.getvalue().rstrip().splitlines()
    assert bar.rstrip().endswith("3 of 6 messages")
    assert bar.count("█") == bar.count("░") == 15


FACTS = RunFacts(RUN, datetime.now(UTC), (), (), frozenset(), {})


def printed(of: type[LineReporter]) -> tuple[LineReporter, StringIO]:
    text = StringIO()
    return of(Console(file=text, width=200)), text


def test_a_wait_is_reported_with_growing_pauses() -> None:
    now = 0.0
    interval = ReportInterval(5.0, 60.0, lambda: now)
    due = []
    for second in range(400):
        now = float(second)
        if interval.is_due():
            due.append(second)
    assert due == [5, 10, 20, 40, 80, 140, 200, 260, 320, 380]


def test_a_report_for_programs_is_quiet_but_for_long_waits() -> None:
    quiet, text = printed(QuietReporter)
    quiet.report("Spark has checked the plan")
    quiet.sent(1, 2)
    quiet.show(FACTS)
    assert text.getvalue() == ""
    quiet.report_wait("the server is starting")
    assert "the server is starting" in text.getvalue()


def test_every_kind_of_output_tells_a_wait_that_lasts() -> None:
    class Hasty(QuietReporter):
        first = longest = 0.01

    quiet, text = printed(Hasty)

    def is_told() -> bool:
        quiet.show(FACTS)
        return "run 'march' is open" in text.getvalue()

    wait_until(is_told)


def test_the_progress_of_a_block_is_reported_until_it_ends() -> None:
    class Hasty(LineReporter):
        first = longest = 0.01

    lines, text = printed(Hasty)
    received = count(1)
    with lines.during(lambda: f"{next(received)} MB received"):
        wait_until(lambda: "3 MB received" in text.getvalue())
    told = text.getvalue()
    assert told.index("1 MB") < told.index("2 MB")
    assert text.getvalue() == told


def test_a_line_does_nothing_to_a_terminal_but_appear_on_it() -> None:
    lines, text = printed(LineReporter)
    lines.report("a run \x1b[2J of a hostile server")
    assert "\x1b" not in text.getvalue()
