"""Live pipelines on real threads: barriers, runs, failures, closing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from time import monotonic, sleep

import pytest

from tests.waiting import wait_until
from tidegate.dataflow import (
    WHOLE_PIPELINE,
    Barrier,
    BarrierKind,
    Carrier,
    Event,
    Instant,
    Watermark,
)
from tidegate.errors import (
    BadWiring,
    BarrierTimeout,
    BarrierWithdrawn,
    ChannelTimeout,
    NotForSending,
    NotRunning,
    ProcessorFailed,
    RunEnded,
    RunExists,
    UnknownRun,
    UnknownSource,
)
from tidegate.plan.bounds import ALIGNMENT_TIMEOUT
from tidegate.runtime import (
    BarrierProcessor,
    CloseReport,
    HowClosed,
    Link,
    LivePipeline,
    Operator,
    Outcome,
    PipelineState,
    Processor,
    ProcessorState,
    ReceiptState,
    Step,
    edges_into,
)

SYNC = BarrierKind.SYNC_TEST
LINKS = [
    Link("source", "left"),
    Link("source", "right"),
    Link("left", "barrier"),
    Link("right", "barrier"),
    Link("barrier", "end"),
]
LONG = 30.0


class Seen(Operator):
    """Remembers what arrived, in order: payloads and the values of barrier kinds."""

    def __init__(self, name: str = "end") -> None:
        super().__init__(name)
        self.all: list[object] = []

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        self.all.append(event.payload)
        return (event,)

    def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
        self.all.append(barrier.kind.value)
        return ()


class Gated(Operator):
    """Handles nothing until the test opens the gate."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.gate = Flag()
        self.entered = Flag()

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        self.entered.set()
        assert self.gate.wait(LONG)
        return (event,)

    def open_when(self, condition: Callable[[], bool], after: float) -> Thread:
        """Open the gate from another thread, so that the test itself can be in a close.

        `after` is for bounds to pass, which takes time; it is no synchronisation.
        """

        def wait_and_open() -> None:
            wait_until(condition)
            sleep(after)
            self.gate.set()

        opener = Thread(target=wait_and_open)
        opener.start()
        return opener


class Failing(Operator):
    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        raise ZeroDivisionError("no items")


@contextmanager
def diamond(
    left: Operator | None = None,
    right: Operator | None = None,
    end: Operator | None = None,
    capacity: int = 16,
) -> Iterator[LivePipeline]:
    processors: list[Processor] = [
        Operator("source"),
        left or Operator("left"),
        right or Operator("right"),
        BarrierProcessor("barrier", edges_into(LINKS, "barrier")),
        end or Operator("end"),
    ]
    live = LivePipeline("diamond", processors, LINKS, capacity=capacity)
    live.begin("march")
    live.begin("april")
    try:
        yield live
    finally:
        live.quick_close()


def send_numbers(live: LivePipeline, source: str, count: int, timeout: float = LONG) -> None:
    for number in range(count):
        live.send(source, number, "march", timeout=timeout)


def late_names(live: LivePipeline) -> list[str]:
    return [p.name for p in live.processors if p.state is ProcessorState.RUNNING]


# ── data and barriers ──


def test_a_barrier_arrives_once_between_the_events_before_and_after_it() -> None:
    seen = Seen()
    with diamond(end=seen) as live:
        live.send("source", "before", "march")
        live.send_barrier(SYNC, Carrier.DATA, "march").wait()
        live.send("source", "after", "march")
        live.end("march").wait()
    assert seen.all == ["before", "before", "sync_test", "after", "after", "end_of_run"]


def test_a_barrier_on_the_control_channel_does_not_wait_behind_the_data() -> None:
    gated, seen = Gated("left"), Seen()
    with diamond(left=gated, end=seen) as live:
        live.send("source", "first", "march")
        assert gated.entered.wait(LONG)
        live.send("source", "second", "march")
        receipt = live.send_barrier(SYNC, Carrier.CONTROL, "march")
        gated.gate.set()
        receipt.wait()
        live.end("march").wait()
    # On the left the second event waited when the barrier came, and went after it.
    assert seen.all.index("sync_test") < len(seen.all) - 1 - seen.all[::-1].index("second")


class Instants(Operator):
    """Remembers by which channel each instant came."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.came: list[tuple[str, Carrier]] = []

    def handle(self, step: Step) -> Outcome:
        instants = [message for message in step.messages if isinstance(message, Instant)]
        self.came += [(instant.kind.value, step.carrier) for instant in instants]
        return super().handle(step)


def test_instants_travel_on_the_control_channel_and_end_every_processor() -> None:
    instants, gated = Instants("right"), Gated("left")
    processors: list[Processor] = [
        Operator("source"),
        gated,
        instants,
        BarrierProcessor("barrier", edges_into(LINKS, "barrier")),
        Operator("end"),
    ]
    live = LivePipeline("instants", processors, LINKS)
    live.begin("march")
    live.send("source", 1, "march")
    assert gated.entered.wait(LONG)
    live.send_barrier(SYNC, Carrier.DATA, "march", timeout=0.05).settled_within(LONG)
    live.cancel("march")
    gated.gate.set()
    live.quick_close(timeout=2 * LONG)
    control = [(kind, Carrier.CONTROL) for kind in ("abort", "cancel", "quick_end")]
    assert [each for each in instants.came if each[0] != "forget"] == control
    assert {p.state for p in live.processors} == {ProcessorState.ENDED}


@pytest.mark.parametrize("via", Carrier)
def test_a_barrier_travels_on_the_channel_it_was_sent_on_and_on_no_other(via: Carrier) -> None:
    class Noting(Operator):
        seen: list[Carrier]

        def handle(self, step: Step) -> Outcome:
            self.seen.append(step.carrier)
            return super().handle(step)

    noting = Noting("left")
    noting.seen = []
    with diamond(left=noting) as live:
        live.send_barrier(SYNC, via, "march").wait()
        live.end("march").wait()
    assert noting.seen == [via, Carrier.DATA, Carrier.CONTROL]  # the barrier, END, the quick end


def test_watermarks_reach_the_end_as_the_minimum_of_all_sources() -> None:
    class Clock(Operator):
        times: list[int]

        def handle(self, step: Step) -> Outcome:
            self.times += [m.time for m in step.messages if isinstance(m, Watermark)]
            return super().handle(step)

    links = [Link("a", "barrier"), Link("b", "barrier"), Link("barrier", "end")]
    node = BarrierProcessor("barrier", edges_into(links, "barrier"))
    clock = Clock("end")
    clock.times = []
    with LivePipeline("clock", [Operator("a"), Operator("b"), node, clock], links) as live:
        live.begin("march")
        live.send_watermark("a", 10, "march")
        live.send_watermark("b", 4, "march")
        live.send_barrier(SYNC, Carrier.DATA, "march").wait()
        live.end("march", "b")
        live.send_barrier(SYNC, Carrier.DATA, "march").wait()
        live.end("march", "a").wait()
    assert clock.times == [4, 10]


def test_ids_come_from_one_counter_for_both_channels() -> None:
    with diamond() as live:
        receipts = [
            live.send_barrier(SYNC, Carrier.DATA, "march"),
            live.send_barrier(SYNC, Carrier.CONTROL, "march"),
            live.send_barrier(SYNC, Carrier.DATA, "april"),
        ]
        assert [receipt.barrier.id for receipt in receipts] == [1, 2, 3]


def test_the_receipt_names_the_upstreams_that_did_not_deliver_in_time() -> None:
    gated = Gated("left")
    with diamond(left=gated) as live:
        live.send("source", 1, "march")
        receipt = live.send_barrier(SYNC, Carrier.DATA, "march", timeout=0.2)
        with pytest.raises(BarrierTimeout) as late:
            receipt.wait()
        assert (late.value.missing, late.value.held_by) == (("left",), ("left",))
        gated.gate.set()


def test_the_bound_of_a_barrier_is_the_one_that_explain_shows() -> None:
    with diamond() as live:
        assert live.send_barrier(SYNC, Carrier.DATA).seconds == ALIGNMENT_TIMEOUT.seconds


def test_a_barrier_whose_bound_passes_is_withdrawn_and_the_next_one_completes() -> None:
    gated, seen = Gated("left"), Seen()
    with diamond(left=gated, end=seen) as live:
        live.send("source", "first", "march")
        late = live.send_barrier(SYNC, Carrier.DATA, "march", timeout=0.2)
        assert late.settled_within(LONG)
        live.send("source", "second", "march")
        gated.gate.set()
        live.send_barrier(BarrierKind.CHECKPOINT, Carrier.DATA, "march").wait()
        live.end("march").wait()
    assert late.state is ReceiptState.FAILED
    # Withdrawing may come too late to stop a copy; that changes nothing for anybody.
    rest = [each for each in seen.all if each != "sync_test"]
    assert sorted(str(payload) for payload in rest[:4]) == ["first"] * 2 + ["second"] * 2
    assert rest[4:] == ["checkpoint", "end_of_run"]


def test_barriers_of_one_run_go_one_after_another_however_fast_they_are_sent() -> None:
    seen = Seen()
    with diamond(end=seen) as live:
        receipts = [live.send_barrier(SYNC, Carrier.DATA, "march") for _ in range(200)]
        receipts[-1].wait()
    assert seen.all[:200] == ["sync_test"] * 200


def test_a_receipt_that_nobody_waits_for_is_resolved_all_the_same() -> None:
    with diamond() as live:
        receipts = [live.send_barrier(SYNC, Carrier.DATA, "march") for _ in range(2)]
        live.end("march").wait()
        assert [receipt.state for receipt in receipts] == [ReceiptState.COLLECTED] * 2


def test_events_wait_for_room_and_say_so_when_the_bound_passes() -> None:
    gated = Gated("left")
    with diamond(left=gated, capacity=1) as live:
        with pytest.raises(ChannelTimeout):
            send_numbers(live, "source", 3_000, timeout=0.2)
        gated.gate.set()


@pytest.mark.parametrize("scope", ["march", WHOLE_PIPELINE])
def test_a_held_upstream_gets_backpressure_and_then_everything_arrives(scope: str) -> None:
    gated, seen = Gated("left"), Seen()
    links = [
        Link("a", "left"),
        Link("left", "barrier"),
        Link("b", "barrier"),
        Link("barrier", "end"),
    ]
    node = BarrierProcessor("barrier", edges_into(links, "barrier"), hold=4)
    live = LivePipeline(
        "held", [Operator("a"), gated, Operator("b"), node, seen], links, capacity=4
    )
    live.begin("march")
    live.send("a", "late", "march")
    receipt = live.send_barrier(SYNC, Carrier.DATA, scope)
    sender = Thread(target=send_numbers, args=(live, "b", 500))
    sender.start()
    wait_until(lambda: node.holding == 4)
    wait_until(lambda: all(p.depth for p in live.processors if p.name in {"b", "barrier"}))
    assert sender.is_alive()
    assert node.holding == 4
    gated.gate.set()
    receipt.wait()
    sender.join(LONG)
    live.end("march").wait()
    live.graceful_close()
    assert seen.all == ["late", "sync_test", *range(500), "end_of_run", "graceful_end"]


# ── runs ──


def test_runs_end_independently_and_each_is_collected() -> None:
    seen = Seen()
    with diamond(end=seen) as live:
        live.send("source", 1, "march")
        april = live.end("april")
        april.wait()
        live.end("march").wait()
    assert [each for each in seen.all if each == 1] == [1, 1]
    assert seen.all.count("end_of_run") == 2
    assert seen.all[-1] == "end_of_run"


def test_sources_of_a_run_may_end_at_different_times_under_one_id() -> None:
    links = [Link("sales", "barrier"), Link("items", "barrier"), Link("barrier", "end")]
    node = BarrierProcessor("barrier", edges_into(links, "barrier"))
    seen = Seen()
    processors: list[Processor] = [Operator("sales"), Operator("items"), node, seen]
    with LivePipeline("join", processors, links) as live:
        live.begin("march")
        first = live.end("march", "items")
        live.send("sales", "sold", "march")
        live.send_barrier(SYNC, Carrier.DATA, "march").wait()
        assert first.state is ReceiptState.OPEN
        assert live.end("march", "sales") is first
        first.wait()
    assert seen.all == ["sold", "sync_test", "end_of_run", "graceful_end"]


def test_data_after_the_end_of_its_run_is_refused() -> None:
    gated = Gated("left")
    with diamond(left=gated) as live:
        live.send("source", 1, "march")
        live.end("march")
        with pytest.raises(RunEnded) as refused:
            live.send("source", 2, "march")
        assert (refused.value.run, refused.value.how) == ("march", "ended")
        gated.gate.set()


def test_data_that_waits_for_room_is_refused_when_its_run_ends_meanwhile() -> None:
    gated = Gated("left")
    refused: list[str] = []
    with diamond(left=gated, capacity=1) as live:

        def send_until_refused() -> None:
            try:
                send_numbers(live, "source", 3_000)
            except RunEnded as error:
                refused.append(error.how)

        sender = Thread(target=send_until_refused)
        sender.start()
        sender.join(0.2)
        receipt = live.end("march")
        gated.gate.set()
        receipt.wait()
        sender.join(LONG)
    assert refused == ["ended"]
    assert live.error is None


@pytest.mark.parametrize("name", ["", "march"])
def test_a_run_cannot_begin_without_a_name_or_under_one_that_is_open(name: str) -> None:
    with diamond() as live, pytest.raises(RunExists):
        live.begin(name)


def test_a_run_that_is_gone_takes_nothing_more_until_its_name_is_begun_anew() -> None:
    with diamond() as live:
        live.end("march").wait()
        calls: list[Callable[[], object]] = [
            lambda: live.send("source", 1, "march"),
            lambda: live.end("march"),
            lambda: live.cancel("march"),
            lambda: live.send_barrier(SYNC, Carrier.DATA, "march"),
            lambda: live.send_barrier(SYNC, Carrier.CONTROL, "march"),
        ]
        for call in calls:
            with pytest.raises(UnknownRun):
                call()
        live.begin("march")
        live.end("march").wait()


def test_an_unknown_source_is_refused_by_name() -> None:
    with diamond() as live, pytest.raises(UnknownSource) as refused:
        live.send("sauce", 1, "march")
    assert (refused.value.source, refused.value.known) == ("sauce", "source")


def test_a_cancelled_run_is_dropped_and_its_name_can_be_used_again() -> None:
    gated, seen = Gated("left"), Seen()
    with diamond(left=gated, end=seen) as live:
        live.send("source", "dropped", "march")
        sync = live.send_barrier(SYNC, Carrier.DATA, "march")
        gone = live.cancel("march")
        with pytest.raises(BarrierWithdrawn):
            sync.wait()
        gated.gate.set()
        gone.wait()
        live.begin("march")
        live.send("source", "second life", "march")
        live.end("march").wait()
    assert seen.all[-3:] == ["second life", "second life", "end_of_run"]
    assert "sync_test" not in seen.all


def test_a_thousand_runs_leave_nothing_behind_in_the_barrier_node() -> None:
    node = BarrierProcessor("barrier", edges_into(LINKS, "barrier"))
    processors: list[Processor] = [
        Operator("source"),
        Operator("left"),
        Operator("right"),
        node,
        Operator("end"),
    ]
    with LivePipeline("many", processors, LINKS) as live:
        receipts = []
        for number in range(1_000):
            live.begin(f"run{number}")
            live.send("source", number, f"run{number}")
            receipts.append(live.end(f"run{number}"))
        for receipt in receipts:
            receipt.wait()
        assert node.open_runs == ()
        assert live.open_runs == ()


# ── failing ──


def test_a_processor_that_raises_fails_the_pipeline_and_the_rest_stops_in_time() -> None:
    with diamond(left=Failing("left")) as live:
        live.send("source", "bad", "march")
        assert live.wait_stopped(LONG)
        assert live.state is PipelineState.FAILED
        assert isinstance(live.error, ProcessorFailed)
        assert live.error.processor == "left"
        assert live.error.message == str(Event("bad", "march"))
        assert isinstance(live.error.__cause__, ZeroDivisionError)
        assert late_names(live) == []


def test_a_failed_pipeline_refuses_everything_and_keeps_the_first_cause() -> None:
    with diamond(left=Failing("left")) as live:
        live.send("source", 1, "march")
        assert live.wait_stopped(LONG)
        calls: list[Callable[[], object]] = [
            lambda: live.begin("may"),
            lambda: live.send("source", 2, "march"),
            lambda: live.send_barrier(SYNC, Carrier.DATA),
            lambda: live.end("march"),
            lambda: live.cancel("march"),
        ]
        for call in calls:
            with pytest.raises(NotRunning) as refused:
                call()
            assert refused.value.__cause__ is live.error
        assert live.graceful_close().how is HowClosed.FAILED
        assert live.state is PipelineState.FAILED


def test_the_first_of_two_failures_is_kept() -> None:
    begun = Flag()

    class FailsSecond(Operator):
        live: LivePipeline

        def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
            begun.set()
            wait_until(lambda: self.live.state is PipelineState.FAILED)
            raise KeyError("second")

    class FailsFirst(Operator):
        def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
            assert begun.wait(LONG)
            raise ZeroDivisionError("first")

    second = FailsSecond("left")
    with diamond(left=second, right=FailsFirst("right")) as live:
        second.live = live
        live.send("source", 1, "march")
        assert live.wait_stopped(LONG)
        assert live.error is not None
        assert live.error.processor == "right"
        assert {p.name for p in live.processors if p.state is ProcessorState.FAILED} == {
            "left",
            "right",
        }


def test_a_failure_names_its_message_also_when_that_cannot_be_shown() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise TypeError("no")

    with diamond(left=Failing("left")) as live:
        live.send("source", Shy(), "march")
        assert live.wait_stopped(LONG)
        assert live.error is not None
        assert "a Shy that cannot be shown" in live.error.message
        assert isinstance(live.error.__cause__, ZeroDivisionError)


def test_a_processor_that_exits_has_failed_on_its_message() -> None:
    class Exiting(Operator):
        def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
            raise SystemExit(3)

    with diamond(left=Exiting("left")) as live:
        live.send("source", "last words", "march")
        assert live.wait_stopped(LONG)
        assert live.error is not None
        assert live.error.message == str(Event("last words", "march"))


def test_a_block_around_a_pipeline_that_failed_raises_the_failure() -> None:
    processors: list[Processor] = [Failing("only")]

    def use() -> None:
        with LivePipeline("fails", processors, []) as live:
            live.begin("march")
            live.send("only", 1, "march")
            assert live.wait_stopped(LONG)

    with pytest.raises(ProcessorFailed):
        use()


def test_a_failure_fails_the_open_receipts_with_its_cause() -> None:
    gated = Gated("left")
    with diamond(left=gated, end=Failing("end")) as live:
        receipt = live.send_barrier(SYNC, Carrier.DATA, "march")
        receipt.settled_within(LONG)
        live.send("source", 1, "march")
        pending = live.end("march")
        gated.gate.set()
        with pytest.raises(BarrierWithdrawn) as failed:
            pending.wait(LONG)
        assert failed.value.__cause__ is live.error


def test_a_protocol_error_fails_the_pipeline_and_names_the_barrier_node() -> None:
    class Repeating(Operator):
        def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
            return ()

        def _follow(self, message: object) -> Iterable[object]:  # type: ignore[override]
            return (message, message)

    with diamond(left=Repeating("left")) as live:
        live.send_barrier(SYNC, Carrier.DATA, "march")
        assert live.wait_stopped(LONG)
        assert live.error is not None
        assert live.error.processor == "barrier"
        assert live.error.message == "sync_test #1 of run 'march'"
        assert "second time" in live.error.reason


# ── closing ──


def test_a_graceful_close_lets_everything_through_and_says_so() -> None:
    seen = Seen()
    with diamond(end=seen) as live:
        for number in range(100):
            live.send("source", number, "march")
        report = live.graceful_close()
    assert (report.how, report.late, report.discarded) == (HowClosed.GRACEFUL, (), 0)
    assert len(seen.all) == 201
    assert live.state is PipelineState.CLOSED
    assert {p.state for p in live.processors} == {ProcessorState.ENDED}


def test_stateful_processors_flush_before_a_graceful_end() -> None:
    class Keeping(Operator):
        kept = 0

        def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
            self.kept += 1
            return ()

        def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
            return (Event(("flushed", self.kept), "march"),)

    seen = Seen()
    with diamond(left=Keeping("left"), end=seen) as live:
        for number in range(10):
            live.send("source", number, "march")
        live.graceful_close()
    assert seen.all[-1] == "graceful_end"
    assert ("flushed", 10) in seen.all


def test_a_graceful_close_that_exceeds_its_bound_becomes_a_quick_one_and_names_the_late() -> None:
    gated = Gated("left")
    with diamond(left=gated) as live:
        live.send("source", 1, "march")
        opener = gated.open_when(lambda: live.state is PipelineState.CLOSING, after=0.6)
        report = live.graceful_close(timeout=0.2)
        opener.join(LONG)
    assert (report.how, report.late) == (HowClosed.QUICK, ("left",))
    assert live.state is PipelineState.CLOSED
    assert late_names(live) == []


def test_a_graceful_close_behind_a_stuck_barrier_names_who_is_stuck_and_nobody_else() -> None:
    gated = Gated("left")
    with diamond(left=gated) as live:
        live.send("source", 1, "march")
        assert gated.entered.wait(LONG)
        live.send_barrier(SYNC, Carrier.DATA)
        opener = gated.open_when(lambda: live.state is PipelineState.CLOSING, after=0.4)
        report = live.graceful_close(timeout=0.2)
        opener.join(LONG)
    assert (report.how, report.late) == (HowClosed.QUICK, ("left",))


def test_a_quick_close_does_not_wait_for_a_graceful_one_that_is_under_way() -> None:
    gated = Gated("left")
    reports: list[CloseReport] = []
    with diamond(left=gated) as live:
        live.send("source", 1, "march")
        assert gated.entered.wait(LONG)
        slow = Thread(target=lambda: reports.append(live.graceful_close(timeout=LONG)))
        slow.start()
        wait_until(lambda: live.state is PipelineState.CLOSING)
        started = monotonic()
        report = live.quick_close(timeout=0.4)
        assert monotonic() - started < LONG / 5
        slow.join(LONG)
        gated.gate.set()
    assert reports == [report]
    assert report.how is HowClosed.QUICK


def test_a_close_names_the_runs_that_were_not_finished() -> None:
    with diamond() as live:
        live.send("source", 1, "march")
        live.end("april").wait()
        report = live.graceful_close()
    assert (report.how, report.unfinished) == (HowClosed.GRACEFUL, ("march",))


def test_a_quick_close_drops_what_is_on_its_way_and_counts_it() -> None:
    gated = Gated("left")
    with diamond(left=gated) as live:
        for number in range(10):
            live.send("source", number, "march")
        assert gated.entered.wait(LONG)
        opener = gated.open_when(lambda: live.state is PipelineState.CLOSING, after=0.3)
        report = live.quick_close(timeout=10)
        opener.join(LONG)
    assert report.how is HowClosed.QUICK
    assert report.discarded > 0


def test_a_quick_close_counts_what_a_barrier_node_holds() -> None:
    gated = Gated("left")
    links = [
        Link("a", "left"),
        Link("left", "barrier"),
        Link("b", "barrier"),
        Link("barrier", "end"),
    ]
    node = BarrierProcessor("barrier", edges_into(links, "barrier"))
    processors: list[Processor] = [Operator("a"), gated, Operator("b"), node, Operator("end")]
    with LivePipeline("held", processors, links) as live:
        live.begin("march")
        live.send("a", "in hand", "march")
        assert gated.entered.wait(LONG)
        live.send_barrier(SYNC, Carrier.DATA, "march")
        live.send("b", "held", "march")
        wait_until(lambda: node.holding == 1)
        opener = gated.open_when(lambda: live.state is PipelineState.CLOSING, after=0.3)
        report = live.quick_close(timeout=10)
        opener.join(LONG)
    assert report.how is HowClosed.QUICK
    assert report.discarded >= 1


@pytest.mark.parametrize("kind", [BarrierKind.GRACEFUL_END, BarrierKind.END_OF_RUN])
def test_what_ends_something_is_not_sent_as_a_plain_barrier(kind: BarrierKind) -> None:
    with diamond() as live, pytest.raises(NotForSending) as refused:
        live.send_barrier(kind, Carrier.DATA, "march")
    assert refused.value.kind == kind.value


def test_a_quick_close_stays_in_its_bound_although_a_processor_hangs() -> None:
    gated = Gated("left")
    with diamond(left=gated) as live:
        live.send("source", 1, "march")
        assert gated.entered.wait(LONG)
        started = monotonic()
        report = live.quick_close(timeout=0.4)
        assert monotonic() - started < 3
        assert report.late == ("left",)
        assert late_names(live) == ["left"]
        gated.gate.set()


def test_closing_again_reports_the_same() -> None:
    with diamond() as live:
        report = live.graceful_close()
        assert live.quick_close() is report
        assert live.graceful_close() is report


def test_a_closed_pipeline_takes_nothing_more() -> None:
    with diamond() as live:
        live.graceful_close()
        with pytest.raises(NotRunning) as refused:
            live.send("source", 1, "march")
    assert refused.value.state == "closed"


def test_a_block_that_raises_closes_quickly() -> None:
    with pytest.raises(KeyError), diamond() as live, live:
        raise KeyError("oops")
    assert live.state is PipelineState.CLOSED


def test_peak_depth_of_every_processor_is_visible() -> None:
    with diamond() as live:
        for number in range(50):
            live.send("source", number, "march")
        live.end("march").wait()
        depths = {p.name: p.peak_depth for p in live.processors}
    assert 1 <= depths["source"] <= 16
    assert all(depth >= 1 for depth in depths.values())


# ── wiring ──


def test_two_collecting_ends_are_refused() -> None:
    with pytest.raises(BadWiring):
        LivePipeline("two", [Operator("a"), Operator("b")], [])


def test_a_cycle_is_refused() -> None:
    links = [Link("a", "b"), Link("b", "c"), Link("c", "b"), Link("b", "d")]
    with pytest.raises(BadWiring) as refused:
        LivePipeline("loop", [Operator(name) for name in "abcd"], links)
    assert "cycle" in refused.value.reason


def test_a_link_to_nobody_is_refused() -> None:
    with pytest.raises(BadWiring):
        LivePipeline("nobody", [Operator("a")], [Link("a", "ghost")])
