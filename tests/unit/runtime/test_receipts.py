"""Who holds a barrier up, by plain values; receipts that settle once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidegate.dataflow import Barrier, BarrierKind, Carrier
from tidegate.errors import BarrierTimeout, BarrierWithdrawn
from tidegate.runtime.in_memory.receipts import Holdup, Ledger, Receipt, ReceiptState, find_holdup

CHAIN = {"source": (), "slow": ("source",), "after": ("slow",), "other": ("source",)}
GRAPH = {**CHAIN, "barrier": ("after", "other"), "end": ("barrier",)}
SYNC = BarrierKind.SYNC_TEST.with_id(1, "march")


@contextmanager
def ledger() -> Iterator[tuple[Ledger, list[Barrier]]]:
    late: list[Barrier] = []
    kept = Ledger(GRAPH, late.append)
    try:
        yield kept, late
    finally:
        kept.stop()


def test_the_missing_upstream_and_the_one_that_really_holds_are_both_named() -> None:
    assert find_holdup(GRAPH, {"source", "other"}) == Holdup(("after",), ("slow",))


def test_in_a_chain_the_one_that_holds_is_also_the_one_that_owes() -> None:
    assert find_holdup(GRAPH, set(GRAPH) - {"end"}) == Holdup(("end",), ("end",))


def test_a_source_that_never_forwarded_holds_everything() -> None:
    assert find_holdup(GRAPH, set()).held_by == ("source",)


def test_a_receipt_settles_once_and_late_outcomes_change_nothing() -> None:
    receipt = Receipt(SYNC, 60)
    assert receipt.settle(BarrierWithdrawn(barrier="x", reason="y"))
    assert not receipt.settle(None)
    assert receipt.state is ReceiptState.FAILED
    with pytest.raises(BarrierWithdrawn):
        receipt.wait()


def test_a_receipt_fails_at_its_bound_although_nobody_waits_for_it() -> None:
    with ledger() as (kept, late):
        receipt = kept.open(SYNC, 0.05)
        assert receipt.settled_within(30)
        assert isinstance(receipt.error, BarrierTimeout)
        assert receipt.error.held_by == ("source",)
        kept.collect(SYNC)
        assert receipt.state is ReceiptState.FAILED
    assert late == [SYNC]


def test_half_of_the_bound_gives_a_warning_that_names_the_offender(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), ledger() as (kept, _):
        kept.open(SYNC, 0.1).settled_within(30)
    assert "sync_test #1 of run 'march' has waited" in caplog.text
    assert "held up at source" in caplog.text


def test_a_collected_barrier_resolves_its_receipt_before_the_bound() -> None:
    with ledger() as (kept, late):
        receipt = kept.open(SYNC, 60)
        kept.collect(SYNC)
        receipt.wait()
        assert receipt.state is ReceiptState.COLLECTED
    assert late == []


def test_withdrawing_what_is_pending_leaves_other_runs_channels_and_the_end_open() -> None:
    with ledger() as (kept, _):
        sync = kept.open(SYNC, 60)
        others = [
            kept.open(BarrierKind.END_OF_RUN.with_id(2, "march"), None),
            kept.open(BarrierKind.SYNC_TEST.with_id(3, "april"), 60),
            kept.open(BarrierKind.SYNC_TEST.with_id(4, "march"), 60, Carrier.CONTROL),
        ]
        kept.withdraw_pending("cancelled", "march", Carrier.DATA)
        assert sync.state is ReceiptState.FAILED
        assert {receipt.state for receipt in others} == {ReceiptState.OPEN}


def test_a_caller_that_gives_up_early_leaves_the_receipt_as_it_is() -> None:
    with ledger() as (kept, _):
        receipt = kept.open(SYNC, 60)
        with pytest.raises(TimeoutError):
            receipt.wait(timeout=0.01)
        assert receipt.state is ReceiptState.OPEN
