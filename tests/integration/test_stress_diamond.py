"""Several hundred thousand messages through a diamond on real threads, with barriers throughout."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Event as Flag

import pytest

from tests.integration.traffic import (
    LONG,
    Client,
    Collector,
    Mark,
    Path,
    close_and_check,
    join_all,
    wait_until_sent,
)
from tidegate.dataflow import BarrierKind, Carrier, Event
from tidegate.errors import BarrierTimeout
from tidegate.runtime import (
    BarrierProcessor,
    Link,
    LivePipeline,
    Operator,
    Processor,
    ReceiptState,
    edges_into,
)

LINKS = [
    Link("source", "left"),
    Link("source", "right"),
    Link("left", "barrier"),
    Link("right", "barrier"),
    Link("barrier", "end"),
]
PATHS: dict[str, list[Path]] = {"source": [(("end", 0),), (("end", 1),)]}
RUNS = ("january", "february", "march")
MESSAGES = 50_000
CUT_EVERY = 300


class Stalling(Operator):
    """Passes everything on, but waits at the mark of a certain client until it is let go."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.let_go = Flag()

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        mark = event.payload
        if isinstance(mark, Mark) and mark.client == "staller":
            assert self.let_go.wait(LONG)
        return (event,)


@pytest.mark.timeout(180)
def test_three_hundred_thousand_messages_keep_their_counts_order_and_cuts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without the idle loop's second look, a lost wake-up hangs instead of costing a second.
    monkeypatch.setattr("tidegate.runtime.task.task_loop.IDLE_NET", LONG)
    stalling, collector = Stalling("left"), Collector()
    processors: list[Processor] = [
        Operator("source"),
        stalling,
        Operator("right"),
        BarrierProcessor("barrier", edges_into(LINKS, "barrier"), hold=32),
        collector,
    ]
    live = LivePipeline("stress", processors, LINKS, capacity=16)
    clients = [Client(live, run, run, seed) for seed, run in enumerate(RUNS)]
    dropped = Client(live, "dropped", "dropped", seed=9)
    staller = Client(live, "staller", "staller", seed=10)

    threads = [client.start(["source"], MESSAGES, CUT_EVERY) for client in clients]
    threads.append(dropped.start(["source"], MESSAGES, CUT_EVERY))
    wait_until_sent(dropped, 2_000)
    dropped.cancel()
    wait_until_sent(clients[0], MESSAGES // 3)
    stall_one_barrier(staller, stalling)
    wait_until_sent(clients[0], MESSAGES // 2)
    whole = [live.send_barrier(kind, via) for kind, via in WHOLE_PIPELINE_BARRIERS]
    join_all(threads)
    staller.end()

    everybody = [*clients, dropped, staller]
    for receipt in (receipt for client in everybody for receipt in client.receipts):
        assert receipt.settled_within(LONG)
    assert [receipt.state for receipt in whole] == [ReceiptState.COLLECTED] * len(whole)
    close_and_check(live, processors)
    for client in everybody:
        client.check(collector, PATHS)
    assert dropped.was_cancelled
    assert collector.out_of_order == []
    assert collector.ended == dict.fromkeys([*RUNS, "dropped", "staller"], 1)
    assert collector.count >= 300_000
    assert sum(len(collector.sides[run]) for run in RUNS) > 300, "hardly any event saw a cut"


WHOLE_PIPELINE_BARRIERS = [
    (BarrierKind.CHECKPOINT, Carrier.DATA),
    (BarrierKind.CHECKPOINT, Carrier.CONTROL),
] * 10


def stall_one_barrier(staller: Client, stalling: Stalling) -> None:
    """While everything else presses on, hold one barrier up until its bound passes."""
    staller.send("source")
    staller.cut(timeout=0.2)
    late = staller.receipts[-1]
    assert late.settled_within(LONG)
    assert isinstance(late.error, BarrierTimeout)
    stalling.let_go.set()
    staller.send("source")
    staller.cut()
