"""The barrier node: one aligner per run and channel, everything else passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tidegate.dataflow import (
    Barrier,
    BarrierKind,
    Carrier,
    Edge,
    Event,
    Instant,
    InstantKind,
    StreamMessage,
    Watermark,
)
from tidegate.errors import (
    AlignmentError,
    BarrierOverlap,
    InputClosed,
    ProcessorFailed,
    UnfinishedAlignment,
)
from tidegate.runtime.task.processors import BarrierProcessor
from tidegate.runtime.task.task_loop import Outcome, Step

A, B = Edge(0, "a"), Edge(1, "b")
E = TypeVar("E", bound=AlignmentError)


def node(hold: int = 100) -> BarrierProcessor:
    return BarrierProcessor("b1", (A, B), hold)


def give(
    processor: BarrierProcessor, edge: Edge, *messages: StreamMessage, via: Carrier = Carrier.DATA
) -> Outcome:
    return processor.handle(Step(via, edge, messages))


def sync(id: int, run: str = "march") -> Barrier:
    return BarrierKind.SYNC_TEST.with_id(id, run)


def event(payload: object, run: str = "march", port: int = 0) -> Event[object]:
    return Event(payload, run, port=port)


def abort(id: int, target: int, run: str = "march") -> Instant:
    return InstantKind.ABORT.with_id(id, run, target)


@contextmanager
def refused(kind: type[E]) -> Iterator[list[E]]:
    """A step fails, and the cause is of this kind; the list holds it afterwards."""
    causes: list[E] = []
    with pytest.raises(ProcessorFailed) as failed:
        yield causes
    cause = failed.value.__cause__
    assert isinstance(cause, kind)
    causes.append(cause)


def test_a_barrier_on_one_channel_never_completes_on_the_other() -> None:
    processor = node()
    assert give(processor, A, sync(1), via=Carrier.DATA) == Outcome()
    assert give(processor, B, sync(1), via=Carrier.CONTROL) == Outcome()
    assert len(processor.pending) == 2
    assert give(processor, B, sync(1), via=Carrier.DATA) == Outcome(data=[sync(1)])
    assert give(processor, A, sync(1), via=Carrier.CONTROL) == Outcome(control=[sync(1)])


def test_runs_align_independently_of_each_other() -> None:
    processor = node()
    give(processor, A, sync(1, "march"))
    give(processor, A, sync(2, "april"), event("x", "may"))
    assert give(processor, B, sync(2, "april")).data == [sync(2, "april")]
    assert [pending.barrier for pending in processor.pending] == [sync(1, "march")]


def test_a_barrier_of_one_run_holds_no_other_run() -> None:
    processor = node()
    out = give(processor, A, sync(1, "march"), event("held"), event("free", "april"))
    assert out.data == [event("free", "april")]


def test_a_barrier_for_the_whole_pipeline_holds_every_run() -> None:
    processor = node()
    whole = BarrierKind.SYNC_TEST.with_id(1)
    assert give(processor, A, whole, event("x"), sync(2), event("y", "april")).data == []
    assert give(processor, B, whole).data == [whole, event("x"), event("y", "april")]
    assert [pending.barrier for pending in processor.pending] == [sync(2)]


def test_a_join_can_tell_left_from_right_also_for_held_events() -> None:
    processor = node()
    give(processor, B, event("first"), sync(1), event("held"))
    assert give(processor, B, event("also held")).data == []
    out = give(processor, A, event("left"), sync(1))
    assert out.data == [
        event("left", port=0),
        sync(1),
        event("held", port=1),
        event("also held", port=1),
    ]


def test_room_shrinks_with_what_is_held_of_that_upstream_alone() -> None:
    processor = node(hold=3)
    give(processor, A, sync(1), event(1), event(2))
    assert (processor.room(A), processor.room(B)) == (1, 3)


def test_what_is_held_is_counted_over_all_runs() -> None:
    processor = node()
    give(processor, A, sync(1), event(1), sync(2, "april"), event(2, "april"))
    give(processor, B, BarrierKind.SYNC_TEST.with_id(3), event(3))
    assert processor.holding == 3


def test_an_instant_passes_once_however_many_upstreams_bring_it() -> None:
    processor = node()
    cancel = InstantKind.CANCEL.with_id(4, "march")
    assert give(processor, A, cancel, via=Carrier.CONTROL).control == [cancel]
    assert give(processor, B, cancel, via=Carrier.CONTROL).control == []


def test_a_terminal_is_forwarded_when_all_upstreams_delivered_it() -> None:
    processor = node()
    stop = BarrierKind.GRACEFUL_END.with_id(3)
    assert give(processor, A, stop).terminal is None
    outcome = give(processor, B, event("last"), stop)
    assert outcome.data == [event("last", port=1), stop]
    assert outcome.terminal == stop


def test_nothing_follows_a_terminal_on_its_channel() -> None:
    processor = node()
    give(processor, A, BarrierKind.GRACEFUL_END.with_id(3))
    with refused(InputClosed) as causes:
        give(processor, A, event("first too late"), event("too late"))
    assert causes[0].closed_by == str(BarrierKind.GRACEFUL_END.with_id(3))


def test_a_terminal_that_would_leave_held_messages_behind_is_an_error() -> None:
    processor = node()
    stop = BarrierKind.GRACEFUL_END.with_id(3)
    give(processor, A, sync(1), event("held"), stop)
    with refused(UnfinishedAlignment) as causes:
        give(processor, B, stop)
    assert (causes[0].pending, causes[0].missing) == (str(sync(1)), str(B))


def test_an_abort_on_the_control_channel_frees_held_data_on_the_data_channel() -> None:
    processor = node()
    give(processor, A, sync(1), event("held"))
    outcome = give(processor, B, abort(2, target=1), via=Carrier.CONTROL)
    assert outcome == Outcome(data=[event("held")], control=[abort(2, target=1)])
    assert give(processor, B, sync(1), event("next")).data == [event("next", port=1)]


def test_an_abort_for_the_whole_pipeline_leads_what_it_frees_through_the_runs() -> None:
    processor = node()
    give(processor, A, BarrierKind.SYNC_TEST.with_id(1), event("x"), sync(2), event("behind 2"))
    outcome = give(processor, A, abort(3, target=1, run=""), via=Carrier.CONTROL)
    assert outcome.data == [event("x")]
    assert give(processor, B, sync(2)).data == [sync(2), event("behind 2")]


def test_a_cancelled_run_leaves_nothing_behind_once_its_ends_have_come() -> None:
    processor = node()
    end = BarrierKind.END_OF_RUN.with_id(9, "march")
    give(processor, A, sync(1), event("held"))
    give(processor, A, InstantKind.CANCEL.with_id(2, "march"), via=Carrier.CONTROL)
    assert processor.pending == ()
    assert give(processor, A, end).data == []
    assert give(processor, B, end).data == [end]


def test_a_run_name_can_be_used_again_after_its_end() -> None:
    processor = node()
    for id in (1, 3):
        end = BarrierKind.END_OF_RUN.with_id(id + 1, "march")
        give(processor, A, event(id), sync(id), end)
        assert give(processor, B, sync(id), end).data == [sync(id), end]


def test_an_overlap_is_refused_with_its_two_barriers_and_names_the_message_that_did_it() -> None:
    processor = node()
    give(processor, A, sync(1))
    with pytest.raises(ProcessorFailed) as failed:
        give(processor, B, event("innocent"), sync(2))
    assert failed.value.message == str(sync(2))
    assert isinstance(failed.value.__cause__, BarrierOverlap)


def test_watermarks_of_different_runs_do_not_meet() -> None:
    processor = node()
    give(processor, A, Watermark(5, "march"), Watermark(1, "april"))
    assert give(processor, B, Watermark(4, "march")).data == [Watermark(4, "march")]


def test_a_cancel_leaves_a_pending_barrier_of_the_control_channel_to_complete() -> None:
    processor = node()
    cancel = InstantKind.CANCEL.with_id(2, "march")
    give(processor, A, sync(1), via=Carrier.CONTROL)
    give(processor, A, cancel, via=Carrier.CONTROL)
    assert give(processor, B, sync(1), via=Carrier.CONTROL).control == [sync(1)]
    give(processor, A, sync(3), via=Carrier.CONTROL)
    assert give(processor, B, cancel, sync(3), via=Carrier.CONTROL).control == [sync(3)]


def test_a_forgotten_run_leaves_nothing_behind_that_a_late_abort_had_opened() -> None:
    processor = node()
    end = BarrierKind.END_OF_RUN.with_id(9, "march")
    give(processor, A, sync(1), end)
    give(processor, B, sync(1), end)
    give(processor, A, abort(10, target=1), via=Carrier.CONTROL)
    give(processor, A, InstantKind.FORGET.with_id(11, "march"), via=Carrier.CONTROL)
    assert processor.open_runs == ()
