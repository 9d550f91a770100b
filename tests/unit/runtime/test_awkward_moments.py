"""Signals that meet a run, a sender or a close at an awkward moment, each moment made to happen."""

from __future__ import annotations

from threading import Thread

import pytest

from tests.unit.runtime.test_live import LINKS, LONG, SYNC, Gated, Seen, diamond
from tests.waiting import wait_until
from tidegate.dataflow import Barrier, Bell, Carrier, Channel, Edge
from tidegate.errors import BarrierTimeout, BarrierWithdrawn, NotRunning, TooManySignals
from tidegate.runtime import (
    BarrierProcessor,
    HowClosed,
    Link,
    LivePipeline,
    Operator,
    PipelineState,
    Processor,
    Receipt,
    ReceiptState,
    edges_into,
)
from tidegate.runtime.in_memory.head import Head, SourceInlet
from tidegate.runtime.in_memory.memory import Lane

JOIN_LINKS = [Link("sales", "barrier"), Link("items", "barrier"), Link("barrier", "end")]


def wait_until_passed(receipt: Receipt, *processors: str) -> None:
    wait_until(lambda: receipt.passed.issuperset(processors))


def join(items: Operator, end: Operator) -> LivePipeline:
    node = BarrierProcessor("barrier", edges_into(JOIN_LINKS, "barrier"))
    live = LivePipeline("join", [Operator("sales"), items, node, end], JOIN_LINKS)
    live.begin("march")
    return live


# ── sending while the pipeline closes ──


def test_data_that_waits_for_room_is_refused_once_a_graceful_close_has_begun() -> None:
    gated, seen = Gated("left"), Seen()
    accepted: list[int] = []
    refused: list[str] = []

    def send_until_refused() -> None:
        try:
            for number in range(3_000):
                live.send("source", number, "march")
                accepted.append(number)
        except NotRunning as error:
            refused.append(error.state)

    with diamond(left=gated, end=seen, capacity=1) as live:
        sender = Thread(target=send_until_refused)
        sender.start()
        sender.join(0.2)
        opener = gated.open_when(lambda: live.state is PipelineState.CLOSING, after=0.2)
        report = live.graceful_close(LONG)
        sender.join(LONG)
        opener.join(LONG)
    assert (report.how, report.discarded) == (HowClosed.GRACEFUL, 0)
    assert len(refused) == 1
    assert sorted(str(payload) for payload in seen.all[:-1]) == sorted(map(str, accepted * 2))


def test_the_end_of_a_run_is_refused_once_a_graceful_close_has_begun() -> None:
    gated = Gated("left")
    with diamond(left=gated) as live:
        live.send("source", 1, "march")
        assert gated.entered.wait(LONG)
        closer = Thread(target=live.graceful_close, args=(LONG,))
        closer.start()
        wait_until(lambda: live.state.value == "closing")
        with pytest.raises(NotRunning):
            live.end("march")
        gated.gate.set()
        closer.join(LONG)


# ── a run is cancelled after its END was sent ──


def test_a_run_cancelled_behind_its_end_leaves_its_name_free_for_the_next() -> None:
    gated, seen = Gated("end"), Seen("seen")
    links = [*LINKS[:-1], Link("barrier", "end"), Link("end", "seen")]
    node = BarrierProcessor("barrier", edges_into(links, "barrier"))
    processors: list[Processor] = [*map(Operator, ("source", "left", "right")), node, gated, seen]
    with LivePipeline("behind", processors, links) as live:
        live.begin("march")
        live.send("source", "first life", "march")
        wait_until_passed(live.end("march"), "source", "left", "right", "barrier")
        gone = live.cancel("march")
        wait_until_passed(live.send_barrier(SYNC, Carrier.CONTROL), "barrier")
        gated.gate.set()
        gone.wait()
        live.begin("march")
        live.send("source", "second life", "march")
        live.end("march").wait()
        assert node.open_runs == ()
    assert seen.all.count("second life") == 2


def test_a_source_that_had_ended_before_its_run_was_cancelled_takes_the_next_run() -> None:
    seen = Seen()
    with join(Operator("items"), seen) as live:
        wait_until_passed(live.end("march", "items"), "items")
        live.cancel("march").wait()
        live.begin("march")
        live.send("items", "second life", "march")
        live.end("march").wait()
    assert "second life" in seen.all


def test_a_cancel_that_finds_no_room_changes_nothing() -> None:
    lane = Lane(Edge(0, "head"), Channel("data", 1, reserve=1), Channel("control", 1))
    head = Head([SourceInlet("source", [[lane]], Bell())])

    def announce(barrier: Barrier) -> Receipt:
        return Receipt(barrier, None)

    for run in ("march", "april", "may"):
        head.begin(run)
    head.end("april", None, announce)
    head.end("may", None, announce)
    with pytest.raises(TooManySignals):
        head.cancel("march", announce)
    assert lane.control.depth == 0


# ── barriers of a run that goes ──


def test_a_cancelled_run_keeps_its_barriers_on_the_control_channel() -> None:
    gated = Gated("left")
    with diamond(left=gated) as live:
        live.send("source", 1, "april")
        assert gated.entered.wait(LONG)
        control = live.send_barrier(SYNC, Carrier.CONTROL, "march")
        data = live.send_barrier(SYNC, Carrier.DATA, "march")
        gone = live.cancel("march")
        with pytest.raises(BarrierWithdrawn):
            data.wait()
        assert control.state is ReceiptState.OPEN
        gated.gate.set()
        control.wait()
        gone.wait()


def test_a_barrier_waits_for_one_of_the_run_that_had_its_name_before() -> None:
    gated, seen = Gated("items"), Seen()
    with join(gated, seen) as live:
        live.begin("april")
        wait_until_passed(live.end("march", "items"), "items")
        live.send("items", "gate", "april")
        assert gated.entered.wait(LONG)
        first = live.send_barrier(SYNC, Carrier.CONTROL, "march")
        live.end("march", "sales").wait()
        live.begin("march")
        with pytest.raises(BarrierTimeout):
            live.send_barrier(SYNC, Carrier.CONTROL, "march", timeout=0.2)
        gated.gate.set()
        live.send_barrier(SYNC, Carrier.CONTROL, "march").wait()
        assert first.state is ReceiptState.COLLECTED
        assert live.error is None


def test_a_barrier_withdrawn_behind_the_end_of_its_run_leaves_nothing_in_the_barrier_node() -> None:
    gated = Gated("end")
    node = BarrierProcessor("barrier", edges_into(LINKS, "barrier"))
    processors: list[Processor] = [*map(Operator, ("source", "left", "right")), node, gated]
    with LivePipeline("late", processors, LINKS) as live:
        live.begin("march")
        live.send("source", 1, "march")
        late = live.send_barrier(SYNC, Carrier.DATA, "march", timeout=0.2)
        end = live.end("march")
        wait_until_passed(end, "barrier")
        assert late.settled_within(LONG)
        gated.gate.set()
        end.wait()
        live.send_barrier(SYNC, Carrier.CONTROL).wait()
        assert node.open_runs == ()
