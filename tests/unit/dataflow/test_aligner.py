"""The rules of alignment, one by one. Random interleavings are in `test_aligner_properties`."""

from __future__ import annotations

import pytest

from tidegate.dataflow import (
    Aligner,
    Barrier,
    BarrierKind,
    Edge,
    Event,
    InstantKind,
    StreamMessage,
    Watermark,
)
from tidegate.errors import (
    AlignmentError,
    BarrierOverlap,
    BarrierRegressed,
    DuplicateBarrier,
    InputClosed,
    NoUpstreams,
    TwoEnds,
    UnknownUpstream,
)

RUN = "march"
A, B, C = Edge(0, "a"), Edge(1, "b"), Edge(2, "c")


def sync(id: int) -> Barrier:
    return BarrierKind.SYNC_TEST.with_id(id, RUN)


def end(id: int = 99) -> Barrier:
    return BarrierKind.END_OF_RUN.with_id(id, RUN)


def event(payload: object) -> Event[object]:
    return Event(payload, RUN)


def feed(aligner: Aligner, *deliveries: tuple[Edge, StreamMessage]) -> list[StreamMessage]:
    return [
        released.message
        for edge, message in deliveries
        for released in aligner.accept(edge, message)
    ]


def aligner(*edges: Edge) -> Aligner:
    return Aligner(edges or (A, B), RUN)


# ── completing ──


@pytest.mark.parametrize("kind", [kind for kind in BarrierKind if kind.value != "end_of_run"])
def test_a_barrier_is_held_until_the_last_upstream_and_forwarded_once(kind: BarrierKind) -> None:
    barrier = kind.with_id(1, RUN)
    both = aligner()
    assert feed(both, (A, barrier)) == []
    assert feed(both, (B, barrier)) == [barrier]
    assert both.pending is None


def test_one_expected_upstream_passes_through() -> None:
    assert feed(aligner(A), (A, sync(1)), (A, sync(2))) == [sync(1), sync(2)]


def test_everything_that_is_no_barrier_passes_through() -> None:
    instant = InstantKind.CANCEL.with_id(1, RUN)
    assert feed(aligner(), (A, event(1)), (B, instant)) == [event(1), instant]


def test_an_instant_passes_at_once_even_behind_a_pending_barrier() -> None:
    quick = InstantKind.QUICK_END.with_id(2)
    assert feed(aligner(), (A, sync(1)), (A, quick)) == [quick]


def test_pending_names_the_edges_that_delivered_in_order_and_those_missing() -> None:
    three = aligner(A, B, C)
    feed(three, (C, sync(1)), (A, sync(1)))
    assert three.pending is not None
    assert (three.pending.barrier, three.pending.arrived) == (sync(1), (C, A))
    assert three.pending.missing == (B,)


# ── what a barrier separates ──


def test_what_follows_a_delivered_barrier_waits_and_goes_after_it() -> None:
    both = aligner()
    assert feed(both, (A, sync(1)), (A, event("after")), (B, event("before"))) == [event("before")]
    assert feed(both, (B, sync(1))) == [sync(1), event("after")]


def test_held_watermarks_wait_behind_held_events() -> None:
    both = aligner()
    assert feed(both, (A, Watermark(5, RUN)), (B, Watermark(5, RUN))) == [Watermark(5, RUN)]
    assert feed(both, (A, sync(1)), (A, event("late")), (A, Watermark(9, RUN))) == []
    assert feed(both, (B, Watermark(8, RUN))) == []
    assert feed(both, (B, sync(1))) == [sync(1), event("late"), Watermark(8, RUN)]


def test_room_is_how_much_more_is_held_of_an_upstream() -> None:
    small = Aligner((A, B), RUN, hold=2)
    feed(small, (A, sync(1)), (A, event(1)))
    assert (small.space(A), small.space(B)) == (1, 2)
    feed(small, (A, event(2)))
    assert small.space(A) == 0
    feed(small, (B, sync(1)))
    assert small.space(A) == 2


# ── messages that break the rules ──


def test_the_same_upstream_twice_is_an_error_and_never_completes_a_barrier() -> None:
    both = aligner()
    feed(both, (A, sync(1)))
    with pytest.raises(DuplicateBarrier) as refused:
        feed(both, (A, sync(1)))
    assert (refused.value.upstream, refused.value.barrier) == (str(A), str(sync(1)))
    assert both.pending is not None
    assert both.pending.missing == (B,)
    assert feed(both, (B, sync(1))) == [sync(1)]


def test_the_same_upstream_twice_is_an_error_also_after_the_barrier_completed() -> None:
    both = aligner()
    feed(both, (A, sync(1)), (B, sync(1)))
    with pytest.raises(DuplicateBarrier):
        feed(both, (A, sync(1)))


@pytest.mark.parametrize("upstream", [A, B])
def test_a_different_barrier_while_one_is_pending_names_the_upstream_and_both_barriers(
    upstream: Edge,
) -> None:
    both = aligner()
    feed(both, (A, sync(1)))
    with pytest.raises(BarrierOverlap) as refused:
        feed(both, (upstream, sync(2)))
    assert refused.value.upstream == str(upstream)
    assert (refused.value.barrier, refused.value.pending) == (str(sync(2)), str(sync(1)))
    assert refused.value.missing == str(B)


def test_the_same_id_with_another_kind_is_a_different_barrier() -> None:
    both = aligner()
    feed(both, (A, sync(1)))
    with pytest.raises(BarrierOverlap):
        feed(both, (B, BarrierKind.CHECKPOINT.with_id(1, RUN)))


def test_an_id_that_goes_backwards_names_the_upstream_and_both_barriers() -> None:
    both = aligner()
    feed(both, (A, sync(5)), (B, sync(5)))
    with pytest.raises(BarrierRegressed) as refused:
        feed(both, (B, sync(4)))
    assert refused.value.upstream == str(B)
    assert (refused.value.barrier, refused.value.last) == (str(sync(4)), str(sync(5)))


def test_an_upstream_that_goes_back_behind_the_pending_barrier_is_refused() -> None:
    both = aligner()
    feed(both, (A, sync(5)))
    with pytest.raises(BarrierRegressed):
        feed(both, (A, sync(4)))


def test_a_stranger_is_refused_by_name() -> None:
    with pytest.raises(UnknownUpstream) as refused:
        feed(aligner(), (C, sync(1)))
    assert refused.value.upstream == str(C)
    with pytest.raises(UnknownUpstream):
        feed(aligner(), (Edge(0, "impostor"), sync(1)))


def test_no_expected_upstreams_is_an_error_at_once() -> None:
    with pytest.raises(NoUpstreams):
        Aligner((), RUN)


@pytest.mark.parametrize("wrong", [(A, sync(1)), (B, sync(9)), (C, event(0)), (A, sync(2))])
def test_a_refused_message_leaves_the_aligner_as_it_was(wrong: tuple[Edge, StreamMessage]) -> None:
    both = aligner()
    feed(both, (A, sync(1)), (A, event("after")))
    with pytest.raises(AlignmentError):
        feed(both, wrong)
    assert feed(both, (B, sync(1))) == [sync(1), event("after")]


def test_a_child_that_is_listed_twice_has_two_edges() -> None:
    left, right = Edge(0, "sales"), Edge(1, "sales")
    selfjoin = aligner(left, right)
    assert feed(selfjoin, (left, sync(1))) == []
    assert feed(selfjoin, (right, sync(1))) == [sync(1)]


# ── END ──


def test_end_goes_forward_when_all_channels_are_closed_and_only_once() -> None:
    both = aligner()
    assert feed(both, (A, end())) == []
    assert not both.is_ended
    assert feed(both, (B, event(1)), (B, end())) == [event(1), end()]
    assert both.is_ended


def test_end_does_not_occupy_the_pending_place() -> None:
    both = aligner()
    feed(both, (A, end()))
    assert both.pending is None
    assert feed(both, (B, sync(100))) == [sync(100)]


def test_a_barrier_aligns_over_the_channels_that_are_still_open() -> None:
    three = aligner(A, B, C)
    feed(three, (A, end()))
    assert feed(three, (B, sync(1))) == []
    assert feed(three, (C, sync(1))) == [sync(1)]


def test_closing_the_last_channel_that_owed_a_barrier_completes_it() -> None:
    both = aligner()
    feed(both, (A, sync(1)), (A, event("after")))
    assert feed(both, (B, end())) == [sync(1), event("after")]


def test_an_end_behind_a_pending_barrier_waits_its_turn_and_is_forwarded_once() -> None:
    both = aligner()
    feed(both, (A, sync(1)), (A, event("after")), (A, end()))
    assert feed(both, (B, end())) == [sync(1), event("after"), end()]


def test_an_end_may_have_a_lower_id_than_barriers_sent_after_it_was_numbered() -> None:
    both = aligner()
    feed(both, (A, end(5)))
    assert feed(both, (B, sync(6)), (B, end(5))) == [sync(6), end(5)]


def test_a_run_has_one_end_id() -> None:
    both = aligner()
    feed(both, (A, end(5)))
    with pytest.raises(TwoEnds) as refused:
        feed(both, (B, end(6)))
    assert (refused.value.end, refused.value.first) == (str(end(6)), str(end(5)))


def test_the_first_end_is_the_runs_also_while_it_is_held() -> None:
    both = aligner()
    feed(both, (A, sync(1)), (A, event("after")), (A, end(5)))
    with pytest.raises(TwoEnds) as refused:
        feed(both, (B, end(6)))
    assert (refused.value.upstream, refused.value.first) == (str(B), str(end(5)))
    assert feed(both, (B, sync(1)), (B, end(5))) == [sync(1), event("after"), end(5)]


@pytest.mark.parametrize("late", [event(1), sync(100), end(), Watermark(1, RUN)])
def test_nothing_follows_an_end_on_its_channel(late: StreamMessage) -> None:
    both = aligner()
    feed(both, (A, end()))
    with pytest.raises(InputClosed) as refused:
        feed(both, (A, late))
    assert (refused.value.upstream, refused.value.closed_by) == (str(A), str(end()))


def test_nothing_follows_an_end_that_is_still_held() -> None:
    both = aligner()
    feed(both, (A, sync(1)), (A, end()))
    with pytest.raises(InputClosed):
        feed(both, (A, event("too late")))


# ── watermarks ──


def test_a_watermark_is_the_minimum_over_the_upstreams_and_never_goes_back() -> None:
    both = aligner()
    assert feed(both, (A, Watermark(5, RUN))) == []
    assert feed(both, (B, Watermark(3, RUN))) == [Watermark(3, RUN)]
    assert feed(both, (B, Watermark(2, RUN))) == []
    assert feed(both, (B, Watermark(9, RUN))) == [Watermark(5, RUN)]


def test_a_closed_upstream_no_longer_holds_the_watermark_back() -> None:
    both = aligner()
    feed(both, (A, Watermark(5, RUN)), (B, Watermark(3, RUN)))
    assert feed(both, (B, end())) == [Watermark(5, RUN)]


# ── abort ──


def test_abort_withdraws_the_pending_barrier_and_drains_what_it_held() -> None:
    both = aligner()
    feed(both, (A, sync(1)), (A, event("held")))
    assert [released.message for released in both.abort(1)] == [event("held")]
    assert both.pending is None


def test_late_copies_of_an_aborted_barrier_count_for_nothing() -> None:
    both = aligner()
    feed(both, (A, sync(1)))
    both.abort(1)
    assert feed(both, (B, sync(1)), (A, sync(2)), (B, sync(2))) == [sync(2)]


def test_an_abort_may_overtake_every_copy_of_its_barrier() -> None:
    both = aligner()
    both.abort(1)
    assert feed(both, (A, sync(1)), (B, sync(1)), (A, event(1))) == [event(1)]


def test_aborting_what_has_completed_changes_nothing() -> None:
    both = aligner()
    feed(both, (A, sync(1)), (B, sync(1)))
    assert both.abort(1) == []


def test_aborting_another_barrier_leaves_the_pending_one_alone() -> None:
    both = aligner()
    feed(both, (A, sync(2)))
    both.abort(3)
    assert feed(both, (B, sync(2))) == [sync(2)]


def test_discarding_forgets_what_is_held_but_counts_the_ends() -> None:
    both = aligner()
    feed(both, (A, sync(1)), (A, event("dropped")), (A, end()))
    assert both.discard() == []
    assert feed(both, (B, sync(1)), (B, end())) == [end()]
