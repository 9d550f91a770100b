"""Work on daemon threads, and interrupts."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event

import pytest

from tidegate.runtime.daemon_pool import DaemonPool

BOUND = 60.0


def test_what_was_submitted_is_done_before_the_context_is_left() -> None:
    done: list[int] = []
    with DaemonPool(2, "test") as couriers:
        outcomes = [couriers.submit(done.append, number) for number in range(20)]
    assert sorted(done) == [*range(20)]
    assert all(it.done() for it in outcomes)


def test_an_error_is_raised_by_its_result_and_the_other_work_is_done() -> None:
    with DaemonPool(1, "test") as couriers:
        wrong, right = couriers.submit(int, "one"), couriers.submit(int, "1")
    assert isinstance(wrong.exception(), ValueError)
    assert right.result() == 1


def test_an_interrupt_waits_neither_for_the_queue_nor_for_hanging_work() -> None:
    hanging, is_over = Event(), Event()
    given: list[Future[None]] = []

    def hang() -> None:
        hanging.set()
        is_over.wait(BOUND)

    def interrupted() -> None:
        with DaemonPool(1, "test") as couriers:
            given.extend(couriers.submit(hang) for _ in range(2))
            assert hanging.wait(BOUND)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    first, second = given
    assert first.running()
    assert second.cancelled()
    is_over.set()
    first.result(BOUND)
