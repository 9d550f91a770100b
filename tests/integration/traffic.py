"""Traffic for stress tests: clients that send a run, and a collecting end that remembers it all.

Every event says which number it has at its source and which barrier its client had sent last.
So the collecting end can tell, lane by lane, whether something was lost, repeated or overtaken,
and whether an event stands on the wrong side of a cut.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from random import Random
from threading import Thread
from time import monotonic, sleep
from typing import NamedTuple

from tidegate.dataflow import Barrier, BarrierKind, Carrier, Event
from tidegate.errors import BarrierTimeout, RunEnded, UnknownRun
from tidegate.runtime import (
    BarrierProcessor,
    HowClosed,
    LivePipeline,
    Operator,
    Processor,
    ProcessorState,
    Receipt,
    ReceiptState,
)

LONG = 60.0
Path = tuple[tuple[str, int], ...]


class Mark(NamedTuple):
    """What an event carries."""

    client: str
    source: str
    number: int
    after: int
    """The id of the last barrier its client had sent on the data channel, 0 for none."""
    path: Path = ()


class Collector(Operator):
    """The collecting end. Data barriers are SYNC_TEST, control barriers CHECKPOINT."""

    def __init__(self, name: str = "end") -> None:
        super().__init__(name)
        self.count = 0
        self.ended: Counter[str] = Counter()
        self.arrived: dict[tuple[str, str, Path], int] = defaultdict(int)
        self.out_of_order: list[Mark] = []
        self.sides: dict[str, set[tuple[int, int]]] = defaultdict(set)
        """For each client: which barrier its events came after, and which one was seen last."""
        self._last_seen: dict[str, int] = defaultdict(int)

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        mark = event.payload
        assert isinstance(mark, Mark)
        lane = (mark.client, mark.source, (*mark.path, (self.name, event.port)))
        if mark.number != self.arrived[lane]:
            self.out_of_order.append(mark)
        self.arrived[lane] += 1
        self.sides[mark.client].add((mark.after, self._last_seen[event.run]))
        self.count += 1
        return ()

    def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
        if barrier.kind is BarrierKind.SYNC_TEST:
            self._last_seen[barrier.run] = barrier.id
        elif barrier.is_end:
            self._last_seen.pop(barrier.run, None)
            self.ended[barrier.run] += 1
        return ()


class Client:
    """Sends one run from a thread of its own: events, barriers on both channels, then END."""

    def __init__(self, live: LivePipeline, run: str, name: str, seed: int) -> None:
        self.run = run
        self.name = name
        self.receipts: list[Receipt] = []
        self.sent: Counter[str] = Counter()
        self.was_cancelled = False
        self._live = live
        self._random = Random(seed)
        self._after = 0
        self._has_sent_all = False
        live.begin(run)

    def start(self, sources: list[str], count: int, every: int, timeout: float = LONG) -> Thread:
        """Send in the background; about one barrier `every` messages, with this bound."""
        thread = Thread(target=self._work, args=(sources, count, every, timeout), daemon=True)
        thread.start()
        return thread

    def send(self, source: str) -> None:
        mark = Mark(self.name, source, self.sent[source], self._after)
        self._live.send(source, mark, self.run, timeout=LONG)
        self.sent[source] += 1

    def cut(self, timeout: float = LONG) -> None:
        """Send a barrier behind the data; what was held up too long was not sent at all."""
        receipt = self._barrier(BarrierKind.SYNC_TEST, Carrier.DATA, timeout)
        if receipt is not None:
            self._after = receipt.barrier.id

    def beat(self, timeout: float = LONG) -> None:
        """Send a barrier beside the data."""
        self._barrier(BarrierKind.CHECKPOINT, Carrier.CONTROL, timeout)

    def end(self, source: str | None = None) -> None:
        self.receipts.append(self._live.end(self.run, source))

    def cancel(self) -> None:
        """Cancel from another thread, at whatever moment that is; return when the run is gone."""
        self.was_cancelled = True
        try:
            self._live.cancel(self.run).wait(LONG)
        except UnknownRun:
            self.was_cancelled = False

    def _barrier(self, kind: BarrierKind, via: Carrier, timeout: float) -> Receipt | None:
        try:
            receipt = self._live.send_barrier(kind, via, self.run, timeout)
        except BarrierTimeout:
            return None
        self.receipts.append(receipt)
        return receipt

    def _work(self, sources: list[str], count: int, every: int, timeout: float) -> None:
        try:
            for _ in range(count):
                self.send(self._random.choice(sources))
                self._maybe_send_barrier(every, timeout)
            self._has_sent_all = True
            for source in self._random.sample(sources, len(sources)):
                self.end(source)
                self._maybe_send_barrier(2, timeout, beats_only=True)
        except (RunEnded, UnknownRun):
            assert self.was_cancelled or self._has_sent_all, (
                f"{self.name} was refused in the middle"
            )

    def _maybe_send_barrier(self, every: int, timeout: float, beats_only: bool = False) -> None:
        chance = self._random.random() * every
        if chance < 1 and not beats_only:
            self.cut(timeout)
        elif chance > every - 0.5:
            self.beat(timeout)

    # ── what must hold ──

    def check(self, collector: Collector, paths: dict[str, list[Path]]) -> None:
        """Nothing lost, repeated or on the wrong side; of a cancelled run only the end may lack."""
        withdrawn = {r.barrier.id for r in self.receipts if r.state is ReceiptState.FAILED}
        assert all(receipt.state is not ReceiptState.OPEN for receipt in self.receipts)
        self._check_counts(collector, paths)
        self._check_sides(collector, withdrawn)

    def _check_counts(self, collector: Collector, paths: dict[str, list[Path]]) -> None:
        for source, sent in self.sent.items():
            for path in paths[source]:
                arrived = collector.arrived[self.name, source, path]
                assert arrived == sent or (self.was_cancelled and arrived < sent), (source, path)

    def _check_sides(self, collector: Collector, withdrawn: set[int]) -> None:
        cuts = {r.barrier.id for r in self.receipts if r.barrier.kind is BarrierKind.SYNC_TEST}
        for after, seen in collector.sides[self.name]:
            assert seen <= after, f"{self.name}: an event after #{after} came behind #{seen}"
            overtaken = {cut for cut in cuts - withdrawn if seen < cut <= after}
            assert not overtaken, f"{self.name}: an event after #{after} overtook {overtaken}"


def close_and_check(live: LivePipeline, processors: Iterable[Processor]) -> None:
    """Close gracefully; nobody is late, nothing is dropped, nothing is left behind."""
    assert live.error is None
    assert live.open_runs == ()
    report = live.graceful_close(LONG)
    assert (report.how, report.late, report.discarded) == (HowClosed.GRACEFUL, (), 0)
    assert {status.state for status in live.processors} == {ProcessorState.ENDED}
    for node in processors:
        if isinstance(node, BarrierProcessor):
            assert (node.open_runs, node.pending) == ((), ())


def join_all(threads: Iterable[Thread]) -> None:
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive(), "a client is stuck"


def wait_until_sent(client: Client, count: int) -> None:
    deadline = monotonic() + LONG
    while client.sent.total() < count:
        assert monotonic() < deadline, f"{client.name} has not sent {count} within {LONG:g} s"
        sleep(0.001)
