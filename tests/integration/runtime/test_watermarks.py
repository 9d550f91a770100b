"""Watermarks on their way from the sources to the collecting end; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.integration.runtime.disk import DiskBench
from tests.integration.runtime.names import Bench, Hub
from tests.integration.runtime.shop import ask
from tests.integration.runtime.test_checkpoint_graphs import (
    COLUMNS,
    Adversary,
    bench,
    checkpoint,
    pipeline,
    random_pipeline,
    totals,
)
from tidegate.runtime.task import stage_state, task_channels
from tidegate.runtime.task.result_collector import ResultCollector
from tidegate.store import channels_of, last_watermarks, run_facts
from tidegate.store.runs import retention

EVERYTHING = 2**62


@pytest.fixture(scope="module", autouse=True)
def hasty() -> Iterator[None]:
    """Narrow stages wait for no more than there is, and states are condensed again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_channels, "ready_at", lambda *_: 0.0)
        patch.setattr(stage_state, "MANY", 2)
        yield


def seen(it: Bench) -> int | None:
    """Up to when the collecting end has seen everything."""
    collector = it.tasks[it.plan.root.id].processor
    assert isinstance(collector, ResultCollector)
    return collector.watermark(it.run.key)


def arrived(it: Bench) -> int | None:
    """The last watermark on the channels into the collecting end, be it read or not."""
    task = it.plan.root.id
    channels = it.database.transact(lambda c: channels_of(c, it.run, task))
    positions = {channel.id: EVERYTHING for channel in channels}
    found = it.database.transact(lambda c: last_watermarks(c, positions))
    return max(found.values(), default=None)


def of_sources(it: Bench) -> dict[str, int | None]:
    """What the sources of a run say, as status shows it."""
    facts = it.database.transact(lambda c: run_facts(c, it.run))
    return {source.name: source.watermark for source in facts.sources}


def at_checkpoint(it: Bench, number: int) -> dict[str, int | None]:
    """The watermarks of the sources at a checkpoint."""
    sources = it.checkpoints.read(it.run.name, number).manifest["sources"]
    return {name: its.get("watermark") for name, its in sources.items()}


def filtered() -> tg.Pipeline:
    declared = pipeline(2)
    declared.source("a", COLUMNS).filter("v > 0").sink("all")
    return declared


def two_totals() -> tg.Pipeline:
    declared = pipeline(2)
    a, b = declared.source("a", COLUMNS), declared.source("b", COLUMNS)
    totals(a).join(totals(b), on="k").sink("both")
    return declared


def test_a_watermark_follows_its_chunk_over_every_shard_and_never_goes_back(hub: Hub) -> None:
    it = bench(hub, filtered())
    for watermark, expected in [(None, None), (5, 5), (3, 5), (None, 5), (9, 9)]:
        it.deliver("a", watermark=watermark)
        it.settle()
        assert seen(it) == expected
        assert of_sources(it) == {"a": expected}
    assert it.finish() == it.expected()


def test_a_stateful_stage_lets_a_watermark_go_with_its_answer(hub: Hub) -> None:
    it = bench(hub, two_totals())
    it.deliver("a", watermark=7)
    it.deliver("b", watermark=5)
    it.settle()
    assert seen(it) is None
    number = checkpoint(it)
    assert seen(it) == 5
    it.deliver("b", watermark=9)
    assert at_checkpoint(it, number) == {"a": 7, "b": 5}
    assert at_checkpoint(it, checkpoint(it)) == {"a": 7, "b": 9}
    assert seen(it) == 7
    assert it.finish() == it.expected()


def test_an_unpublished_checkpoint_forwards_no_watermark_and_loses_none(hub: Hub) -> None:
    """Not even when all tasks die behind it."""
    it = bench(hub, two_totals())
    it.deliver("a", watermark=7)
    it.deliver("b", watermark=5)
    number = it.trigger(unpublished=True)
    it.settle()
    assert number in it.restorable
    assert seen(it) is None
    for task in it.tasks:
        it.kill(task)
    checkpoint(it)
    assert seen(it) == 5


def test_a_source_that_has_said_nothing_holds_the_others_back_until_it_ends(hub: Hub) -> None:
    it = bench(hub, two_totals())
    it.deliver("a", watermark=7)
    it.deliver("b")
    number = checkpoint(it)
    assert seen(it) is None
    assert at_checkpoint(it, number) == {"a": 7, "b": None}
    it.end("b")
    it.settle()
    checkpoint(it)
    assert seen(it) == 7


def test_the_list_of_checkpoints_has_the_least_watermark_of_the_open_sources(hub: Hub) -> None:
    it = bench(hub, two_totals())
    it.deliver("a", watermark=7)
    checkpoint(it)
    it.deliver("b", watermark=5)
    checkpoint(it)
    it.end("b")
    it.settle()
    checkpoint(it)
    assert [each.up_to for each in it.checkpoints.all(it.run.name)] == [7, 5, 7]


@pytest.mark.parametrize("declare", [filtered, two_totals])
def test_a_restarted_result_collector_restores_its_watermark(
    hub: Hub, declare: Callable[[], tg.Pipeline]
) -> None:
    it = bench(hub, declare())
    for source in it.delivered:
        it.deliver(source, watermark=5)
    checkpoint(it)
    for task in it.tasks:
        it.kill(task)
    it.deliver("a", watermark=4)
    checkpoint(it)
    assert seen(it) == 5


def test_a_restored_run_has_the_watermarks_of_its_checkpoint_and_of_later_messages(
    hub: Hub,
) -> None:
    it = bench(hub, two_totals())
    it.deliver("a", watermark=7)
    it.deliver("b", watermark=5)
    number = checkpoint(it)
    it.deliver("b", watermark=9)
    it.deliver("b", watermark=8)
    it.settle()
    it.restore(number)
    assert of_sources(it) == {"a": 7, "b": 9}
    assert at_checkpoint(it, number) == {"a": 7, "b": 5}
    assert seen(it) is None
    checkpoint(it)
    assert seen(it) == 7
    it.deliver("a", watermark=8)
    assert at_checkpoint(it, checkpoint(it)) == {"a": 8, "b": 9}
    assert seen(it) == 8
    assert it.finish() == it.expected()


def test_a_run_restored_to_a_checkpoint_without_later_messages_has_its_watermark(hub: Hub) -> None:
    it = bench(hub, filtered())
    it.deliver("a", watermark=7)
    it.restore(checkpoint(it))
    it.settle()
    assert seen(it) == 7


def test_a_watermark_that_does_not_move_keeps_no_messages_and_is_not_forgotten(hub: Hub) -> None:
    """Its source is far ahead, or idle; messages behind it are removed as ever."""
    it = bench(hub, filtered())
    it.deliver("a", watermark=7)
    for _ in range(5):
        it.deliver("a", watermark=3)
    checkpoint(it)
    assert it.database.transact(lambda c: retention.prune(c, it.run, 0.0))
    facts = it.database.transact(lambda c: run_facts(c, it.run))
    joined = "tidegate.message JOIN tidegate.channel ON channel.id = channel_id"
    waiting = ask(it.database, f"SELECT count(*) FROM {joined} WHERE run_id = %s", it.run.id)
    assert waiting == [(0,)]
    assert all(channel.sent and not channel.lost for channel in facts.channels)
    for task in it.tasks:
        it.kill(task)
    it.deliver("a", watermark=5)
    checkpoint(it)
    assert seen(it) == 7


# ── whatever happens, in whatever order ──


class Clockmaker(Adversary):
    """Also delivers watermarks, and checks that none is exceeded."""

    def __init__(self, bench: DiskBench, chance: Random) -> None:
        super().__init__(bench, chance)
        self.watermarks: dict[str, int] = {}
        self._last: dict[int, int] = {}
        """By incarnation."""

    def act(self) -> None:
        """And drops what is not needed any more."""
        super().act()
        if self._chance.random() < 0.1:
            self._bench.database.transact(lambda c: retention.prune(c, self._bench.run, 0.0))

    def check(self) -> None:
        """What has arrived is never more than follows from what was delivered, and never less."""
        time = arrived(self._bench)
        if time is not None:
            assert self.bound is not None
            assert time <= self.bound
            assert time >= self._last.get(self._bench.run.id, time)
            self._last[self._bench.run.id] = time

    @property
    def goes_on(self) -> bool:
        """Whether some source has not ended."""
        return bool(self._sources)

    @property
    def bound(self) -> int | None:
        """The least watermark of the open sources; without open ones the greatest of all."""
        if not self._sources:
            return max(self.watermarks.values(), default=None)
        times = [self.watermarks.get(source) for source in self._sources]
        return None if None in times else min(time for time in times if time is not None)

    def _deliver(self) -> None:
        if self._sources:
            source = self._chance.choice(self._sources)
            time = self._chance.choice((None, self._chance.randint(0, 1000)))
            self._bench.deliver(source, self._chance.randint(0, 3), time)
            if time is not None:
                self.watermarks[source] = max(time, self.watermarks.get(source, time))


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_the_collecting_end_never_knows_more_than_was_said_and_in_the_end_all_of_it(
    hub: Hub, seed: int
) -> None:
    chance = Random(seed)
    it = bench(hub, random_pipeline(chance))
    clockmaker = Clockmaker(it, chance)
    for _ in range(60):
        clockmaker.act()
        clockmaker.check()
    it.settle()
    clockmaker.check()
    if clockmaker.goes_on:
        assert it.trigger() is not None
        it.settle()
        clockmaker.check()
        assert seen(it) == clockmaker.bound
        assert {name: time for name, time in of_sources(it).items() if time} == {
            name: time for name, time in clockmaker.watermarks.items() if time
        }
    assert it.finish() == it.expected()
