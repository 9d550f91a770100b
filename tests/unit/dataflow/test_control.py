"""Kinds become signals by an id, and only `is_terminal` decides stopping."""

from __future__ import annotations

from threading import Thread

import pytest

from tidegate.dataflow import Barrier, BarrierKind, Instant, InstantKind, SignalIds
from tidegate.errors import InvalidSignalId


@pytest.mark.parametrize("kind", BarrierKind)
def test_a_barrier_kind_becomes_a_barrier_through_one_call(kind: BarrierKind) -> None:
    assert kind.with_id(7, run="march") == Barrier(7, kind, "march")


@pytest.mark.parametrize("kind", InstantKind)
def test_an_instant_kind_becomes_an_instant_through_one_call(kind: InstantKind) -> None:
    assert kind.with_id(7, run="march") == Instant(7, kind, "march")


def test_only_the_two_ends_of_a_pipeline_are_terminal() -> None:
    signals = [kind.with_id(1) for kind in (*BarrierKind, *InstantKind)]
    terminal = [signal.kind for signal in signals if signal.is_terminal]
    assert terminal == [BarrierKind.GRACEFUL_END, InstantKind.QUICK_END]


@pytest.mark.parametrize("id", [0, -1])
def test_ids_that_the_head_never_gives_are_refused(id: int) -> None:
    with pytest.raises(InvalidSignalId) as refused:
        BarrierKind.SYNC_TEST.with_id(id)
    assert refused.value.id == id


def test_the_same_barrier_on_two_channels_may_declare_different_counts() -> None:
    end = BarrierKind.END_OF_RUN.with_id(3, run="march")
    assert end.counting(5).is_copy_of(end.counting(0))
    assert not end.is_copy_of(BarrierKind.SYNC_TEST.with_id(3, run="march"))


def test_signals_are_shown_with_kind_id_and_run() -> None:
    assert str(BarrierKind.SYNC_TEST.with_id(7, run="march")) == "sync_test #7 of run 'march'"
    assert str(BarrierKind.GRACEFUL_END.with_id(8)) == "graceful_end #8"
    assert str(InstantKind.ABORT.with_id(9, target=7)) == "abort #9 of barrier #7"


def test_ids_are_strictly_increasing_however_many_threads_take_them() -> None:
    ids = SignalIds()
    taken: list[list[int]] = [[] for _ in range(4)]

    def take(mine: list[int]) -> None:
        mine.extend(ids.take() for _ in range(5_000))

    threads = [Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(id for mine in taken for id in mine) == list(range(1, 20_001))
    assert all(mine == sorted(mine) for mine in taken)
