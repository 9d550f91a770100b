"""A condition that repeats does not fill a log."""

from __future__ import annotations

import logging

from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.processes.log_throttle import ALIKE, KNOWN, OncePerSecond, Repeats


class Log:
    """A logger whose clock a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        handler.addFilter(OncePerSecond(lambda: self.now))
        self.logger = logging.Logger("test")  # noqa: LOG001  not known to others
        self.logger.addHandler(handler)


def test_the_same_line_is_logged_once_in_a_second_and_counted() -> None:
    log = Log()
    for _ in range(1000):
        log.logger.error("out of %s", "descriptors")
    log.now = 1.0
    log.logger.error("out of %s", "descriptors")
    assert log.lines == ["out of descriptors", "out of descriptors (999 more like this)"]


def test_lines_that_name_different_things_are_logged_up_to_a_bound() -> None:
    log = Log()
    for number in range(100):
        log.logger.warning("task %d has failed", number)
    log.logger.warning("something else")
    assert log.lines[:-1] == [f"task {number} has failed" for number in range(ALIKE)]
    assert log.lines[-1] == "something else"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 0.6))))
def test_no_line_passes_twice_in_a_second_and_none_is_lost_from_the_count(
    lines: list[tuple[str, float]],
) -> None:
    repeats, now = Repeats(), 0.0
    passed: dict[str, float] = {}
    seen, told = 0, 0
    for key, pause in lines:
        now += pause
        held = repeats.note(key, now)
        if held is not None:
            assert key not in passed or now - passed[key] >= 1.0
            passed[key] = now
            told += held + 1
        seen += 1
    left = [held for _, _, held in repeats._seen.values()]  # noqa: SLF001  what is to be told yet
    assert told + sum(left) == seen


def test_only_so_many_conditions_are_remembered() -> None:
    repeats = Repeats()
    for number in range(3 * KNOWN):
        assert repeats.note(number, 0.0) == 0
    assert len(repeats._seen) == KNOWN  # noqa: SLF001
