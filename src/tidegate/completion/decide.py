"""Decides whether a shard is released, waits, or fails its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidegate.completion.facts import Producer, ShardFacts

Numbers = Mapping[str, tuple[int, ...]]
"""By producer, numbers of its messages."""


@dataclass(frozen=True, slots=True)
class Release:
    """Everything declared was processed, and no producer can declare more."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Something is missing."""

    undeclared: tuple[str, ...]
    """Producers whose END has not arrived: they may still send."""
    missing: Numbers = field(default_factory=dict)
    """Messages that were declared and not processed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Messages were processed that no producer declared; the run fails."""

    unexpected: Numbers


Verdict = Release | Wait | Fault


def decide(facts: ShardFacts) -> Verdict:
    """The verdict for one shard.

    >>> closed = Producer("s1/0", declared=2)
    >>> decide(ShardFacts((closed,), {"s1/0": frozenset({1})}))
    Wait(undeclared=(), missing={'s1/0': (2,)})
    >>> decide(ShardFacts((closed, Producer("s1/1")), {"s1/0": frozenset({1, 2})}))
    Wait(undeclared=('s1/1',), missing={})
    >>> decide(ShardFacts((closed,), {"s1/0": frozenset({1, 2})}))
    Release()
    """
    unexpected = dict(_unexpected(facts))
    if unexpected:
        return Fault(unexpected)
    undeclared = tuple(each.name for each in facts.producers if each.declared is None)
    missing = dict(_missing(facts))
    if undeclared or missing or not facts.producers:
        return Wait(undeclared, missing)
    return Release()


def _unexpected(facts: ShardFacts) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Messages of unknown producers, and messages beyond what a producer declared."""
    known = {producer.name: producer for producer in facts.producers}
    for name, numbers in sorted(facts.processed.items()):
        producer = known.get(name)
        wrong = tuple(sorted(n for n in numbers if not _may_have_sent(producer, n)))
        if wrong:
            yield name, wrong


def _may_have_sent(producer: Producer | None, number: int) -> bool:
    if producer is None or number < 1:
        return False
    return producer.declared is None or number <= producer.declared


def _missing(facts: ShardFacts) -> Iterator[tuple[str, tuple[int, ...]]]:
    for producer in facts.producers:
        processed = facts.processed.get(producer.name, frozenset())
        if producer.declared is not None and len(processed) < producer.declared:
            declared = range(1, producer.declared + 1)
            yield producer.name, tuple(n for n in declared if n not in processed)
