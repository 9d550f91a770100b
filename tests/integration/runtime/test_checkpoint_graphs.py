"""Cuts of pipelines of many shapes, in whatever order things happen; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.integration.runtime.disk import DiskBench
from tests.integration.runtime.names import Hub, Shown
from tidegate.pipeline.stream import Stream
from tidegate.plan import physical_plan
from tidegate.runtime.task import stage_state, task_channels

COLUMNS = "k bigint, v bigint"
_names = count(1)


@pytest.fixture(scope="module", autouse=True)
def hasty() -> Iterator[None]:
    """Narrow stages wait for no more than there is, and states are condensed again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_channels, "ready_at", lambda *_: 0.0)
        patch.setattr(stage_state, "MANY", 2)
        patch.setattr(stage_state, "ENOUGH", 3)
        yield


def pipeline(shards: int = 2) -> tg.Pipeline:
    return tg.Pipeline(f"graph-{next(_names)}", shards=shards)


def totals(stream: Stream) -> Stream:
    return stream.aggregate(by="k", v="sum(v)")


def bench(hub: Hub, declared: tg.Pipeline) -> DiskBench:
    return DiskBench(*hub, physical_plan(declared))


def checkpoint(bench: DiskBench, *, without: Collection[str] = ()) -> int:
    """Take a cut, while at first some tasks are asleep: it shows what it has to."""
    number = bench.trigger()
    assert number is not None
    bench.settle(without=without)
    bench.settle()
    assert number in bench.committed
    assert bench.shown(number) == bench.expected(number)
    return number


def test_a_union_shows_what_has_ended_beside_what_goes_on(hub: Hub) -> None:
    """One side has given its last answer, the other one gives an answer for this cut only."""
    declared = pipeline(1)
    a, b = declared.source("a", COLUMNS), declared.source("b", COLUMNS)
    totals(a).union(totals(b)).filter("v > 0").sink("all")
    it = bench(hub, declared)
    it.deliver("a")
    it.deliver("b")
    it.end("a")
    checkpoint(it, without={"s5"})
    it.deliver("b")
    checkpoint(it)
    assert it.finish() == it.expected()


def test_a_union_shows_rows_that_stay_beside_answers_for_one_cut(hub: Hub) -> None:
    declared = pipeline(1)
    a, b = declared.source("a", COLUMNS), declared.source("b", COLUMNS)
    totals(a).union(b).filter("v > 0").sink("all")
    it = bench(hub, declared)
    for _ in range(2):
        it.deliver("a")
        it.deliver("b")
        checkpoint(it, without={"s4"})
    assert it.finish() == it.expected()


def test_answers_for_a_checkpoint_that_was_given_up_do_not_hide_the_last_ones(hub: Hub) -> None:
    declared = pipeline(1)
    a, b = declared.source("a", COLUMNS), declared.source("b", COLUMNS)
    totals(a).union(totals(b)).filter("v > 0").sink("all")
    it = bench(hub, declared)
    it.deliver("a")
    it.deliver("b")
    number = it.trigger()
    assert number is not None
    it.settle(without={"s3", "s5"})
    assert it.abort(number)
    for source in ("a", "b"):
        it.end(source)
    it.settle(without={"s5"})
    assert it.finish() == it.expected()


def test_a_checkpoint_that_is_given_up_half_way_does_not_hold_the_end_back(hub: Hub) -> None:
    """One shard has passed its barrier on, the other one has not and will not."""
    declared = pipeline(2)
    a, b = declared.source("a", COLUMNS), declared.source("b", COLUMNS)
    totals(a.union(b)).sink("all")
    it = bench(hub, declared)
    it.deliver("a")
    it.deliver("b")
    number = it.trigger()
    assert number is not None
    it.settle(without={"b3/1"})
    assert it.abort(number)
    it.settle()
    assert it.finish() == it.expected()


def test_a_run_is_restored_twice_to_ever_earlier_cuts(hub: Hub) -> None:
    """What had ended at the later cut had not at the earlier one."""
    declared = pipeline()
    a, b = declared.source("a", COLUMNS), declared.source("b", COLUMNS)
    totals(a).join(totals(b), on="k").sink("both")
    it = bench(hub, declared)
    it.deliver("a")
    it.deliver("b")
    first = checkpoint(it)
    it.deliver("a")
    it.end("a")
    it.deliver("b")
    second = checkpoint(it)
    it.deliver("b")
    it.restore(second)
    assert it.shown(first) == it.expected(first)
    it.settle()
    it.restore(first)
    it.deliver("b")
    checkpoint(it)
    assert it.finish() == it.expected()


# ── whatever happens, in whatever order ──

OPERATORS: Sequence[Callable[[Stream, Stream], Stream]] = (
    lambda left, _: left.filter("v > 0"),
    lambda left, _: totals(left),
    lambda left, _: left.top(2, by="v desc"),
    lambda left, right: left.union(right),
    lambda left, right: left.join(right, on="k"),
)


def random_pipeline(chance: Random) -> tg.Pipeline:
    """Up to three sources, up to five operators, and a sink wherever nobody reads on."""
    declared = pipeline(chance.choice((1, 2)))
    streams = [declared.source(name, COLUMNS) for name in "abc"[: chance.randint(1, 3)]]
    unread = list(streams)
    for _ in range(chance.randint(1, 5)):
        left, right = chance.choice(unread), chance.choice(streams)
        operator = chance.choice(OPERATORS)
        streams.append(operator(left, right))
        unread = [it for it in (*unread, streams[-1]) if it is not left]
    for number, stream in enumerate(unread):
        stream.sink(f"sink{number}")
    return declared


class Adversary:
    """Does to a bench whatever comes to its mind, and checks what can be seen."""

    def __init__(self, bench: DiskBench, chance: Random) -> None:
        self._bench = bench
        self._chance = chance
        self.seen: dict[int, Shown] = {}
        """What the sinks showed at each cut when it was read first."""

    def act(self) -> None:
        weights = {
            self._step: 12,
            self._deliver: 5,
            self._look: 5,
            self._checkpoint: 3,
            self._settle: 2,
            self._kill: 2,
            self._abort: 0.3,
            self._unalign: 1,
            self._clean: 1,
            self._restore: 0.7,
            self._end: 0.3,
        }
        (act,) = self._chance.choices([*weights], [*weights.values()])
        act()

    def read(self) -> None:
        """Every cut shows what came before its barrier, and always the same."""
        for number in self._bench.committed:
            shown = self._bench.shown(number)
            assert shown == self._bench.expected(number)
            assert self.seen.setdefault(number, shown) == shown

    @property
    def _sources(self) -> list[str]:
        return sorted(self._bench.task_graph.sources.keys() - self._bench.ended)

    def _deliver(self) -> None:
        if self._sources:
            self._bench.deliver(self._chance.choice(self._sources), self._chance.randint(0, 3))

    def _step(self) -> None:
        """A few turns of a few tasks, and perhaps a job."""
        for task in self._chance.choices([*self._bench.tasks], k=8):
            self._bench.tasks[task].turn()
        if self._chance.random() < 0.5:
            self._bench.work()

    def _settle(self) -> None:
        """All but a few go on for a while."""
        asleep = self._chance.sample([*self._bench.tasks], k=self._chance.choice((0, 0, 1, 2)))
        self._bench.settle(without=asleep)

    def _look(self) -> None:
        """A source sees that it owes a barrier, or those who watch see how far it is."""
        if self._sources and self._chance.random() < 0.6:
            self._bench.inject(self._chance.choice(self._sources))
        else:
            self._bench.watch_over()

    def _end(self) -> None:
        if self._sources:
            self._bench.end(self._chance.choice(self._sources))

    def _checkpoint(self) -> None:
        if self._sources:
            self._bench.trigger(unpublished=self._chance.random() < 0.3)

    def _kill(self) -> None:
        for task in self._chance.sample([*self._bench.tasks], k=1):
            self._bench.kill(task)

    def _abort(self) -> None:
        numbers = [it.number for it in self._bench.checkpoints.all(self._bench.run.name)]
        if numbers:
            self._bench.abort(numbers[-1])

    def _unalign(self) -> None:
        numbers = [it.number for it in self._bench.checkpoints.all(self._bench.run.name)]
        if numbers:
            self._bench.unalign(numbers[-1])

    def _clean(self) -> None:
        """Sweep, and perhaps forget old cuts; those are not looked at any more."""
        if self._chance.random() < 0.3:
            self.read()
            self._bench.retire(self._chance.choice((1, 2)))
        self._bench.sweep()

    def _restore(self) -> None:
        self.read()
        if self._bench.restorable:
            self._bench.restore(self._chance.choice(self._bench.restorable))


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_a_cut_is_a_prefix_of_every_source_whatever_happens(hub: Hub, seed: int) -> None:
    """And in the end there is what there would have been had nothing happened."""
    chance = Random(seed)
    it = bench(hub, random_pipeline(chance))
    adversary = Adversary(it, chance)
    for _ in range(70):
        adversary.act()
    adversary.read()
    assert it.finish() == it.expected()
    adversary.read()
