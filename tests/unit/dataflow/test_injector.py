"""The injector: a published barrier is injected once, the latest wins, ids are not assigned."""

from __future__ import annotations

import logging
import sys
import tracemalloc
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.waiting import wait_until
from tidegate.dataflow import BarrierInjector, Bell, CheckpointBarrier, InjectBarrier
from tidegate.errors import InvalidCheckpointBarrier


class Clock:
    """A clock that the test sets; it counts its readings."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now


class Coordinator:
    """Counts requests, and publishes the next number when the test wants it."""

    def __init__(self) -> None:
        self.requests = 0

    def request(self) -> None:
        self.requests += 1


def periodic(clock: Clock, coordinator: Coordinator, look_every: int = 1) -> BarrierInjector:
    return BarrierInjector("sales", coordinator.request, 10.0, clock, look_every)


# ── requested by a coordinator ──


def test_nothing_is_injected_until_a_coordinator_requests_it() -> None:
    injector = BarrierInjector("sales")
    assert [injector.poll_barrier() for _ in range(20_000)] == [None] * 20_000
    assert injector.barriers_injected == 0


def test_what_a_coordinator_publishes_is_injected_once() -> None:
    injector = BarrierInjector("sales")
    injector.handle().inject(1, 5, unaligned=True)
    assert injector.poll_barrier() == CheckpointBarrier.unaligned(1, 5)
    assert injector.poll_barrier() is None
    assert injector.barriers_injected == 1


def test_what_is_pending_can_be_seen_until_it_is_polled() -> None:
    injector = BarrierInjector("sales")
    seen = [injector.has_pending]
    injector.handle().inject(1, 1)
    seen.append(injector.has_pending)
    injector.poll_barrier()
    seen.append(injector.has_pending)
    assert seen == [False, True, False]


def test_a_command_from_elsewhere_is_obeyed() -> None:
    injector = BarrierInjector("sales")
    command = InjectBarrier.unpack(InjectBarrier(9, 2, is_unaligned=True).pack())
    assert command is not None
    injector.handle().obey(command)
    assert injector.poll_barrier() == CheckpointBarrier.unaligned(9, 2)


def test_the_latest_of_several_wins() -> None:
    injector = BarrierInjector("sales")
    one, other = injector.handle(), injector.handle()
    one.inject(1, 1)
    other.inject(2, 2)
    one.inject(3, 3)
    assert injector.poll_barrier() == CheckpointBarrier(3, 3)
    assert injector.poll_barrier() is None
    assert injector.barriers_injected == 1


def test_a_number_that_comes_again_is_ignored_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    injector = BarrierInjector("sales")
    handle = injector.handle()
    handle.inject(4, 1)
    injector.poll_barrier()
    with caplog.at_level(logging.WARNING):
        handle.inject(4, 1)
        assert injector.poll_barrier() is None
    assert (injector.duplicates, injector.barriers_injected) == (1, 1)
    assert "'sales'" in caplog.text
    assert "checkpoint 4" in caplog.text


def test_a_number_that_goes_back_is_ignored_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    injector = BarrierInjector("sales")
    handle = injector.handle()
    handle.inject(4, 1)
    injector.poll_barrier()
    with caplog.at_level(logging.WARNING):
        handle.inject(3, 2)
        assert injector.poll_barrier() is None
    assert (injector.regressions, injector.duplicates, injector.barriers_injected) == (1, 0, 1)
    assert "checkpoint 3" in caplog.text


def test_an_epoch_that_does_not_follow_is_accepted_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    injector = BarrierInjector("sales")
    handle = injector.handle()
    taken = []
    with caplog.at_level(logging.WARNING):
        for id, epoch in [(1, 40), (2, 41), (3, 43), (4, 44), (5, 2), (6, 3)]:
            handle.inject(id, epoch)
            taken.append(injector.poll_barrier())
    assert [barrier.epoch for barrier in taken if barrier] == [40, 41, 43, 44, 2, 3]
    assert injector.epoch_mismatches == len(caplog.records) == 2


def test_a_barrier_that_is_none_is_refused_to_the_coordinator_and_changes_nothing() -> None:
    injector = BarrierInjector("sales")
    handle = injector.handle()
    handle.inject(1, 1)
    for id, epoch in [(0, 1), (2**64, 1), (2, 2**48)]:
        with pytest.raises(InvalidCheckpointBarrier):
            handle.inject(id, epoch)
    assert injector.poll_barrier() == CheckpointBarrier(1, 1)


def test_the_largest_numbers_are_injected_as_they_are() -> None:
    injector = BarrierInjector("sales")
    injector.handle().inject(2**64 - 1, 2**48 - 1)
    assert injector.poll_barrier() == CheckpointBarrier(2**64 - 1, 2**48 - 1)


@given(st.lists(st.integers(1, 12) | st.none(), max_size=40))
def test_injected_numbers_only_grow_and_everything_taken_is_accounted_for(
    script: list[int | None],
) -> None:
    """None is a poll. Whatever is published in between, each poll sees the latest or nothing."""
    injector = BarrierInjector("sales")
    handle = injector.handle()
    out: list[int] = []
    polls_with_news, latest = 0, None
    for step in [*script, None]:
        if step is not None:
            handle.inject(step, step)
            latest = step
            continue
        barrier = injector.poll_barrier()
        polls_with_news += latest is not None
        if barrier is not None:
            assert barrier.checkpoint_id == latest
            out.append(barrier.checkpoint_id)
        latest = None
    assert out == sorted(set(out))
    ignored = injector.duplicates + injector.regressions
    assert (injector.barriers_injected, len(out) + ignored) == (len(out), polls_with_news)


# ── asking when one is due ──


def test_a_periodic_injector_requests_when_its_interval_has_passed_and_assigns_no_id() -> None:
    clock, coordinator = Clock(), Coordinator()
    injector = periodic(clock, coordinator)
    clock.now += 10.0
    assert injector.poll_barrier() is None
    assert (coordinator.requests, injector.requests, injector.barriers_injected) == (1, 1, 0)


def test_a_periodic_injector_does_not_ask_early() -> None:
    clock, coordinator = Clock(), Coordinator()
    injector = periodic(clock, coordinator)
    clock.now += 9.99
    for _ in range(10):
        injector.poll_barrier()
    assert coordinator.requests == 0


def test_a_published_barrier_comes_before_a_request() -> None:
    clock, coordinator = Clock(), Coordinator()
    injector = periodic(clock, coordinator)
    injector.handle().inject(1, 1)
    clock.now += 10.0
    assert injector.poll_barrier() == CheckpointBarrier(1, 1)
    assert coordinator.requests == 0


def test_a_barrier_begins_the_interval_anew() -> None:
    clock, coordinator = Clock(), Coordinator()
    injector = periodic(clock, coordinator)
    clock.now += 9.0
    injector.handle().inject(1, 1)
    injector.poll_barrier()
    injector.poll_barrier()
    clock.now += 9.0
    injector.poll_barrier()
    assert coordinator.requests == 0
    clock.now += 1.0
    injector.poll_barrier()
    assert coordinator.requests == 1


def test_a_question_without_an_answer_is_repeated_after_the_interval() -> None:
    clock, coordinator = Clock(), Coordinator()
    injector = periodic(clock, coordinator)
    for _ in range(3):
        clock.now += 10.0
        for _ in range(5):
            injector.poll_barrier()
    assert coordinator.requests == 3


def test_epochs_of_periodic_barriers_grow_as_the_coordinator_counts() -> None:
    clock, coordinator = Clock(), Coordinator()
    injector = periodic(clock, coordinator)
    handle = injector.handle()
    taken = []
    for _ in range(12):
        clock.now += 5.0
        if (barrier := injector.poll_barrier()) is not None:
            taken.append(barrier.epoch)
        elif coordinator.requests > len(taken):
            handle.inject(coordinator.requests, coordinator.requests)
    assert taken == [1, 2, 3]
    assert injector.epoch_mismatches == 0


def test_two_periodic_sources_get_the_numbers_of_one_head() -> None:
    clock = Clock()
    numbers = iter(range(1, 100))

    def begin() -> None:
        number = next(numbers)
        for handle in handles:
            handle.inject(number, number)

    sources = [BarrierInjector(name, begin, 10.0, clock, look_every=1) for name in ("a", "b")]
    handles = [source.handle() for source in sources]
    clock.now += 10.0
    first = [source.poll_barrier() for source in sources]
    second = [source.poll_barrier() for source in sources]
    assert (first, second) == ([None, CheckpointBarrier(1, 1)], [CheckpointBarrier(1, 1), None])


def test_the_clock_is_looked_at_once_in_many_turns() -> None:
    clock, coordinator = Clock(), Coordinator()
    injector = periodic(clock, coordinator, look_every=32)
    at_first = clock.looks
    for _ in range(320):
        injector.poll_barrier()
    assert clock.looks - at_first == 10


def test_a_question_is_late_by_a_bounded_number_of_turns() -> None:
    clock, coordinator = Clock(), Coordinator()
    injector = periodic(clock, coordinator, look_every=32)
    clock.now += 10.0
    for _ in range(32):
        injector.poll_barrier()
    assert coordinator.requests == 1


@pytest.mark.parametrize(("interval", "look_every"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_an_interval_or_a_pace_that_is_none_is_refused(interval: float, look_every: int) -> None:
    with pytest.raises(ValueError, match="sales"):
        BarrierInjector("sales", interval=interval, look_every=look_every)


# ── what the loop pays ──


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer allocates memory as well")
def test_polling_in_vain_leaves_nothing_on_the_heap() -> None:
    injector = BarrierInjector("sales", request=lambda: None)
    poll = injector.poll_barrier
    for _ in range(1_000):
        poll()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(20_000):
            poll()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    kept_per_poll = (after - before) / 20_000
    assert kept_per_poll < 0.5, "other threads of this process may use a little"
    assert peak - before < 20_000


# ── two threads ──


def test_publishing_wakes_a_loop_that_sleeps() -> None:
    bell = Bell()
    injector = BarrierInjector("sales", bell=bell)
    taken: list[CheckpointBarrier | None] = []

    def loop() -> None:
        bell.sleep_unless(lambda: injector.has_pending, 30)
        taken.append(injector.poll_barrier())

    sleeper = Thread(target=loop, daemon=True)
    sleeper.start()
    injector.handle().inject(1, 1)
    sleeper.join(20)
    assert taken == [CheckpointBarrier(1, 1)]


def test_barriers_are_never_a_mix_of_two_commands_however_fast_they_come() -> None:
    """One thread publishes and one polls, until both have had their turn many times."""
    injector = BarrierInjector("sales")
    seen: list[CheckpointBarrier] = []
    published = polls = 0
    done = False

    def publish() -> None:
        nonlocal published
        handle = injector.handle()
        while not done:
            published += 1
            handle.inject(published, published * 3, unaligned=published % 2 == 1)

    def poll() -> None:
        nonlocal polls
        while not done:
            polls += 1
            if (barrier := injector.poll_barrier()) is not None:
                seen.append(barrier)

    threads = [Thread(target=work, daemon=True) for work in (publish, poll)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(seen) >= 20 and published > 1_000 and polls > 1_000)
    done = True
    for thread in threads:
        thread.join(30)
    ids = [barrier.checkpoint_id for barrier in seen]
    assert ids == sorted(set(ids))
    assert all(
        (barrier.epoch, barrier.is_unaligned)
        == (barrier.checkpoint_id * 3, barrier.checkpoint_id % 2 == 1)
        for barrier in seen
    )
    last = injector.poll_barrier()
    assert (last or seen[-1]).checkpoint_id == published, "the last one is never lost"
