"""The monitor's decision: never too early, always when complete, and a reason in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.completion import Fault, Producer, Release, ShardFacts, Wait, decide


@st.composite
def complete(draw: st.DrawFn) -> ShardFacts:
    """A shard whose producers have all declared, and all of it was processed."""
    counts = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    producers = tuple(Producer(f"p{index}", count) for index, count in enumerate(counts))
    processed = {
        f"p{index}": frozenset(range(1, count + 1))
        for index, count in enumerate(counts)
        if count or draw(st.booleans())
    }
    return ShardFacts(producers, processed)


@given(complete())
def test_it_releases_when_everything_declared_was_processed(facts: ShardFacts) -> None:
    assert decide(facts) == Release()


@given(complete(), st.data())
def test_it_never_releases_with_an_undeclared_producer(
    facts: ShardFacts, data: st.DataObject
) -> None:
    silent = data.draw(st.sampled_from(facts.producers)).name
    producers = tuple(Producer(p.name) if p.name == silent else p for p in facts.producers)
    assert decide(ShardFacts(producers, facts.processed)) == Wait((silent,))


@given(complete(), st.data())
def test_it_never_releases_with_a_missing_message_and_names_it(
    facts: ShardFacts, data: st.DataObject
) -> None:
    lost = {
        producer.name: data.draw(st.sets(st.integers(1, producer.declared)))
        for producer in facts.producers
        if producer.declared
    }
    processed = {name: ids - lost.get(name, set()) for name, ids in facts.processed.items()}
    missing = {name: tuple(sorted(ids)) for name, ids in lost.items() if ids}
    verdict = decide(ShardFacts(facts.producers, processed))
    assert verdict == (Wait((), missing) if missing else Release())


@given(complete(), st.data())
def test_more_than_declared_is_a_fault_that_names_the_messages(
    facts: ShardFacts, data: st.DataObject
) -> None:
    runs_to_fail = data.draw(st.sampled_from(facts.producers))
    extra = (runs_to_fail.declared or 0) + data.draw(st.integers(1, 5))
    processed = {
        **facts.processed,
        runs_to_fail.name: facts.processed.get(runs_to_fail.name, frozenset()) | {extra},
    }
    assert decide(ShardFacts(facts.producers, processed)) == Fault({runs_to_fail.name: (extra,)})


@given(complete(), st.integers(1, 9))
def test_a_message_of_a_stranger_is_a_fault(facts: ShardFacts, number: int) -> None:
    processed = {**facts.processed, "stranger": frozenset({number})}
    assert decide(ShardFacts(facts.producers, processed)) == Fault({"stranger": (number,)})


def test_a_surplus_does_not_make_up_for_a_missing_message() -> None:
    facts = ShardFacts((Producer("p", 3),), {"p": frozenset({1, 2, 4})})
    assert decide(facts) == Fault({"p": (4,)})


def test_complete_so_far_is_not_complete() -> None:
    facts = ShardFacts(
        (Producer("p"), Producer("q", 1)), {"p": frozenset({1}), "q": frozenset({1})}
    )
    assert decide(facts) == Wait(("p",))


def test_a_shard_without_producers_is_not_released() -> None:
    assert decide(ShardFacts((), {})) == Wait(())


def test_a_shard_with_zero_work_is_released_once_all_producers_declared_it() -> None:
    assert decide(ShardFacts((Producer("p", 0), Producer("q", 0)), {})) == Release()
