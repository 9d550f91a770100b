"""The input gate: one aligner per run, everything else passes."""

from __future__ import annotations

import pytest

from tidegate.dataflow import (
    Barrier,
    BarrierKind,
    Edge,
    Event,
    StreamMessage,
    Watermark,
)
from tidegate.errors import BarrierOverlap, ProcessorFailed
from tidegate.runtime.task.input_gate import InputGate
from tidegate.runtime.task.processor import StepInput, StepOutput
from tidegate.store import WithdrawnCheckpoints

A, B = Edge(0, "a"), Edge(1, "b")


def node() -> InputGate:
    return InputGate("b1", (A, B))


def give(processor: InputGate, edge: Edge, *messages: StreamMessage) -> StepOutput:
    return processor.process(StepInput(edge, messages))


def sync(id: int, run: str = "march") -> Barrier:
    return BarrierKind.SYNC_TEST.with_id(id, run)


def event(payload: object, run: str = "march", port: int = 0) -> Event[object]:
    return Event(payload, run, port=port)


def test_runs_align_independently_of_each_other() -> None:
    processor = node()
    give(processor, A, sync(1, "march"))
    give(processor, A, sync(2, "april"), event("x", "may"))
    assert give(processor, B, sync(2, "april")).messages == [sync(2, "april")]
    assert [pending.barrier for pending in processor.pending] == [sync(1, "march")]


def test_a_barrier_of_one_run_holds_no_other_run() -> None:
    processor = node()
    out = give(processor, A, sync(1, "march"), event("held"), event("free", "april"))
    assert out.messages == [event("free", "april")]


def test_events_carry_the_port_that_they_arrived_by_also_when_held() -> None:
    processor = node()
    give(processor, B, event("first"), sync(1), event("held"))
    assert give(processor, B, event("also held")).messages == []
    out = give(processor, A, event("left"), sync(1))
    assert out.messages == [
        event("left", port=0),
        sync(1),
        event("held", port=1),
        event("also held", port=1),
    ]


def test_a_run_name_can_be_used_again_after_its_end() -> None:
    processor = node()
    for id in (1, 3):
        end = BarrierKind.END_OF_RUN.with_id(id + 1, "march")
        give(processor, A, event(id), sync(id), end)
        assert give(processor, B, sync(id), end).messages == [sync(id), end]


def test_an_overlap_is_refused_with_its_two_barriers_and_names_the_message_that_did_it() -> None:
    processor = node()
    give(processor, A, sync(1))
    with pytest.raises(ProcessorFailed) as failed:
        give(processor, B, event("innocent"), sync(2))
    assert failed.value.elements == str(sync(2))
    assert isinstance(failed.value.__cause__, BarrierOverlap)


def test_watermarks_of_different_runs_do_not_meet() -> None:
    processor = node()
    give(processor, A, Watermark(5, "march"), Watermark(1, "april"))
    assert give(processor, B, Watermark(4, "march")).messages == [Watermark(4, "march")]


def test_a_closed_run_leaves_nothing_behind() -> None:
    processor = node()
    give(processor, A, sync(1))
    assert processor.is_blocked(A, "march")
    processor.forget("march")
    assert processor.pending == ()
    assert not processor.is_blocked(A, "march")


def test_a_withdrawn_barrier_blocks_no_channel_and_its_late_copies_are_ignored() -> None:
    processor = node()
    give(processor, A, sync(1))
    processor.withdraw("march", WithdrawnCheckpoints(also=frozenset({1})))
    assert not processor.is_blocked(A, "march")
    assert give(processor, B, sync(1), event("next")).messages == [event("next", port=1)]
