"""A live pipeline: processors on threads, lanes between them, a head and a collecting end.

    with LivePipeline("sales", processors, links) as live:
        live.begin("march")
        live.send("orders", payload, run="march")
        live.end("march").wait()

The first processor that raises fails the pipeline, and its error is kept; everything else then
stops. Every call is bounded, and says who held it up when the bound passes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import Lock
from time import monotonic
from typing import NoReturn, Self

from tidegate.dataflow import (
    WHOLE_PIPELINE,
    Barrier,
    BarrierKind,
    Carrier,
    Event,
    InstantKind,
    Watermark,
)
from tidegate.dataflow.channel import DEFAULT_CAPACITY
from tidegate.errors import (
    BarrierTimeout,
    ChannelClosed,
    NotForSending,
    NotRunning,
    ProcessorFailed,
    TooManySignals,
    listed,
)
from tidegate.plan.bounds import ALIGNMENT_SECONDS
from tidegate.runtime.in_memory.head import Head
from tidegate.runtime.in_memory.memory import MemoryLanes
from tidegate.runtime.in_memory.receipts import Holdup, Ledger, Receipt
from tidegate.runtime.in_memory.states import (
    TRANSITIONS,
    CloseReport,
    HowClosed,
    PipelineState,
    ProcessorState,
    ProcessorStatus,
)
from tidegate.runtime.in_memory.threads import ProcessorThread
from tidegate.runtime.task.task_loop import Processor, StepLoop
from tidegate.runtime.wiring import Link, Wiring

log = logging.getLogger(__name__)

BARRIER_BOUND = ALIGNMENT_SECONDS
SEND_BOUND = 60.0
GRACEFUL_BOUND = 30.0
QUICK_BOUND = 5.0
HURRY_SLICE = 0.05
"""How long a graceful close waits at a time before it looks whether it is hurried."""


ENDINGS: Mapping[BarrierKind, str] = {
    BarrierKind.GRACEFUL_END: "graceful_close()",
    BarrierKind.END_OF_RUN: "end(run)",
}
"""Kinds that only their own call may send."""


class LivePipeline:
    """Runs processors that are linked to a graph; see the module's example."""

    def __init__(
        self,
        name: str,
        processors: Sequence[Processor],
        links: Sequence[Link],
        sources: Mapping[str, Sequence[Sequence[str]]] | None = None,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        self.name = name
        self._state = PipelineState.RUNNING
        self._error: ProcessorFailed | None = None
        self._report: CloseReport | None = None
        self._hurry: float | None = None
        self._changing = Lock()
        self._closing = Lock()
        self._sending = Lock()
        self._while_running = _WhileRunning(self)
        self._wiring = Wiring([each.name for each in processors], links, sources, capacity)
        self._head = Head(self._wiring.inlets)
        self._ledger = Ledger(self._wiring.upstreams, on_timeout=self._withdraw)
        self._workers = [self._hire(processor) for processor in processors]
        for worker in self._workers:
            worker.thread.start()

    def _hire(self, processor: Processor) -> ProcessorThread:
        wiring, name = self._wiring, processor.name
        lanes = MemoryLanes(wiring.inputs[name], wiring.outputs[name], wiring.bells[name])
        loop = StepLoop(processor, lanes, self._on_forwarded)
        return ProcessorThread(processor, loop, self.name, self._fail)

    # ── data and signals ──

    def begin(self, run: str) -> None:
        """Open a run. Its name can be used again once its END was collected."""
        with self._while_running:
            self._head.begin(run)

    def send(
        self,
        source: str,
        payload: object,
        run: str,
        shard: int | None = None,
        timeout: float = SEND_BOUND,
    ) -> None:
        """Put one batch of a run into a source; waits for room at most `timeout` seconds.

        A source with several shards gives the batch to `shard`, or to the next in turn.
        """
        with self._while_running:
            self._head.send(source, Event(payload, run, shard), timeout)

    def send_watermark(self, source: str, time: int, run: str, timeout: float = SEND_BOUND) -> None:
        """Promise that no event of the run at or before `time` follows in this source."""
        with self._while_running:
            self._head.send(source, Watermark(time, run), timeout)

    def send_barrier(
        self,
        kind: BarrierKind,
        via: Carrier,
        run: str = WHOLE_PIPELINE,
        timeout: float = BARRIER_BOUND,
    ) -> Receipt:
        """Send a barrier on one channel; the receipt tells when the collecting end saw it.

        Barriers of one run and channel go one after another: this waits for the one before,
        within the same bound. A barrier whose bound passes is withdrawn, so data flows on.
        """
        if kind in ENDINGS:
            raise NotForSending(kind=kind.value, instead=ENDINGS[kind])
        with self._while_running:
            return self._send_barrier(kind, via, run, timeout)

    def end(self, run: str, source: str | None = None, timeout: float | None = None) -> Receipt:
        """End a run in one source or in all; the receipt tells when END was collected.

        The bound, if any, is that of the first call for the run; when it passes the receipt
        fails with the names of those who hold the run up, and the run goes on.
        """
        with self._while_running:
            return self._head.end(run, source, lambda end: self._ledger.open(end, timeout))

    def cancel(self, run: str, timeout: float | None = None) -> Receipt:
        """Drop a run wherever it is; the receipt tells when nothing of it is left."""
        with self._while_running, self._sending:
            receipt = self._head.cancel(run, lambda end: self._ledger.open(end, timeout))
            self._ledger.withdraw_pending(f"run {run!r} was cancelled", run, Carrier.DATA)
            return receipt

    def _send_barrier(
        self,
        kind: BarrierKind,
        via: Carrier,
        run: str,
        timeout: float,
        patience: float | None = None,
    ) -> Receipt:
        """Send when the barrier before has settled, within `patience` or else the bound."""
        deadline = monotonic() + (timeout if patience is None else patience)
        while True:
            with self._sending:
                previous = self._ledger.pending(run, via)
                if previous is None:
                    return self._head.send_barrier(
                        kind, run, via, lambda barrier: self._ledger.open(barrier, timeout, via)
                    )
            if not previous.settled_within(deadline - monotonic()):
                raise self._held_up(previous, timeout)

    def _held_up(self, previous: Receipt, timeout: float) -> BarrierTimeout:
        holdup = self._ledger.holdup(previous)
        return BarrierTimeout(str(previous.barrier), timeout, holdup.missing, holdup.held_by)

    # ── closing ──

    def graceful_close(self, timeout: float = GRACEFUL_BOUND) -> CloseReport:
        """Let everything that was accepted run through, then stop; quickly after `timeout`."""
        with self._closing:
            if self._report is not None:
                return self._report
            started = monotonic()
            late = self._try_graceful(timeout)
            if not late:
                return self._conclude(HowClosed.GRACEFUL, (), started)
            if self._hurry is None:
                log.warning("no graceful close in %.3g s because of %s", timeout, listed(late))
            self._stop_quickly(QUICK_BOUND if self._hurry is None else self._hurry)
            return self._conclude(HowClosed.QUICK, late, started)

    def quick_close(self, timeout: float = QUICK_BOUND) -> CloseReport:
        """Stop at once; what is on its way is dropped and counted.

        A graceful close that is under way in another thread gives in and becomes this one.
        """
        self._hurry = timeout
        with self._closing:
            if self._report is not None:
                return self._report
            started = monotonic()
            self._move(PipelineState.CLOSING)
            self._stop_quickly(timeout)
            return self._conclude(HowClosed.QUICK, self._alive(), started)

    def _try_graceful(self, timeout: float) -> tuple[str, ...]:
        """Who is late; nobody when it worked out, or when a failure stopped it all before."""
        deadline = monotonic() + timeout
        receipt = None
        if self._move(PipelineState.CLOSING):
            try:
                receipt = self._send_graceful_end(deadline, timeout)
            except BarrierTimeout as stuck:
                return stuck.held_by or self._alive()
            except (ChannelClosed, TooManySignals) as closed:
                log.warning("the graceful end cannot be sent: %s", closed)
        self._join(deadline, unless_hurried=True)
        alive = self._alive()
        held_by = self._ledger.holdup(receipt).held_by if receipt is not None else ()
        return (held_by or alive) if alive else ()

    def _send_graceful_end(self, deadline: float, timeout: float) -> Receipt:
        """Behind an earlier barrier for everything, if one is pending; in slices, see `_join`."""
        while True:
            try:
                return self._send_barrier(
                    BarrierKind.GRACEFUL_END, Carrier.DATA, WHOLE_PIPELINE, timeout, HURRY_SLICE
                )
            except BarrierTimeout:
                if self._hurry is not None or monotonic() >= deadline:
                    raise

    def _stop_quickly(self, timeout: float) -> None:
        """Half of the bound for the signal to travel, half for those it could not reach."""
        try:
            self._head.send_instant(InstantKind.QUICK_END)
        except (ChannelClosed, TooManySignals):
            self._wiring.close()
        self._join(monotonic() + timeout / 2)
        self._wiring.close()
        self._join(monotonic() + timeout / 2)

    def _conclude(self, how: HowClosed, late: tuple[str, ...], started: float) -> CloseReport:
        self._move(PipelineState.CLOSED)
        self._wiring.close()
        self._ledger.withdraw_all(f"pipeline {self.name!r} was closed", None)
        self._ledger.stop()
        how = HowClosed.FAILED if self._error is not None else how
        unread = sum(lane.data.depth for lane in self._wiring.lanes)
        discarded = unread + sum(worker.loop.discarded for worker in self._workers)
        if self.open_runs:
            log.warning("closed before the end of these runs: %s", listed(self.open_runs))
        seconds = monotonic() - started
        self._report = CloseReport(how, late, discarded, self.open_runs, seconds)
        return self._report

    def _join(self, deadline: float, *, unless_hurried: bool = False) -> None:
        """Wait for the processors; in slices where a quick close may want the wait to end."""
        for worker in self._workers:
            while worker.thread.is_alive() and (remaining := deadline - monotonic()) > 0:
                if unless_hurried and self._hurry is not None:
                    return
                worker.thread.join(min(remaining, HURRY_SLICE) if unless_hurried else remaining)

    def _alive(self) -> tuple[str, ...]:
        running = ProcessorState.RUNNING
        return tuple(worker.name for worker in self._workers if worker.state is running)

    # ── what it is like ──

    @property
    def state(self) -> PipelineState:
        """Running, closing, closed or failed."""
        return self._state

    @property
    def error(self) -> ProcessorFailed | None:
        """The first failure; its `__cause__` is what the processor raised."""
        return self._error

    @property
    def open_runs(self) -> tuple[str, ...]:
        """The runs that have begun and whose END was not collected."""
        return self._head.open_runs

    @property
    def processors(self) -> tuple[ProcessorStatus, ...]:
        """Every processor's state and the depth of its inputs."""
        return tuple(self._status(worker) for worker in self._workers)

    def holdup(self, receipt: Receipt) -> Holdup:
        """Who keeps a barrier from the collecting end at this moment."""
        return self._ledger.holdup(receipt)

    def wait_stopped(self, timeout: float) -> bool:
        """Wait until no processor runs any more; whether that is so."""
        self._join(monotonic() + timeout)
        return not self._alive()

    def _status(self, worker: ProcessorThread) -> ProcessorStatus:
        channels = [lane.data for lane in self._wiring.inputs[worker.name]]
        depth = sum(channel.depth for channel in channels)
        peak = max((channel.peak_depth for channel in channels), default=0)
        return ProcessorStatus(worker.name, worker.state, depth, peak)

    # ── what processors report ──

    def _on_forwarded(self, processor: str, barrier: Barrier) -> None:
        self._ledger.note_passed(processor, barrier)
        if processor != self._wiring.end:
            return
        if barrier.is_end:
            self._forget(barrier.run)
        self._ledger.collect(barrier)

    def _forget(self, run: str) -> None:
        try:
            self._head.forget(run)
        except (ChannelClosed, TooManySignals):
            log.warning("the name of run %r stays in use; the pipeline is stuck or gone", run)

    def _withdraw(self, barrier: Barrier) -> None:
        """A barrier's bound has passed: release what it holds. An END is never withdrawn."""
        if barrier.is_end or barrier.is_terminal:
            return
        try:
            self._head.abort(barrier)
        except (ChannelClosed, TooManySignals):
            log.warning("%s could not be withdrawn; the pipeline is stuck or gone", barrier)

    def _fail(self, processor: str, error: BaseException) -> None:
        if not isinstance(error, ProcessorFailed):
            failure = ProcessorFailed(processor, "no message", f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            error = failure
        with self._changing:
            if self._error is not None or not self._may(PipelineState.FAILED):
                log.error("after the first failure: %s", error)
                return
            self._error, self._state = error, PipelineState.FAILED
        self._wiring.close()
        self._ledger.withdraw_all(str(error), error)

    def _may(self, state: PipelineState) -> bool:
        return state in TRANSITIONS[self._state]

    def _move(self, state: PipelineState) -> bool:
        with self._changing:
            if not self._may(state):
                return False
            self._state = state
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close gracefully and raise the failure there was; quickly when the block raised."""
        if kind is not None:
            self.quick_close()
            return
        self.graceful_close()
        if self._error is not None:
            raise self._error


class _WhileRunning:
    """Refuses a call unless the pipeline runs, from the call's beginning to its end."""

    __slots__ = ("_live",)

    def __init__(self, live: LivePipeline) -> None:
        self._live = live

    def __enter__(self) -> None:
        if self._live.state is not PipelineState.RUNNING:
            self._refuse(self._live.error)

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if isinstance(error, ChannelClosed):
            self._refuse(self._live.error or error)

    def _refuse(self, cause: BaseException | None) -> NoReturn:
        live = self._live
        because = "" if live.error is None else str(live.error)
        raise NotRunning(live.name, live.state.value, because) from cause
