"""Timeouts of barrier phases: the offender is named, and in a warning before that."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from tests.integration.group.processes import Cluster, Outcome, Peer, Raised, all_at
from tests.waiting import wait_until
from tidegate.group import INBOUND, OUTBOUND, PROCESSING

SHORT = {"rendezvous": 10.0, "inbound": 10.0, "outbound": 0.3, "processing": 0.3}


def test_a_rendezvous_timeout_names_the_missing_member(any_group: Cluster) -> None:
    a, b, c = any_group.join("a", "b", "c")

    outcomes = all_at([a, b], "noon", INBOUND | PROCESSING, timeout=0.3)

    for outcome in outcomes:
        assert outcome.states == ("failed", "failed", "not requested", "failed")
        assert {outcome.rendezvous.failure, outcome.inbound.failure} == {"timeout"}
        assert outcome.rendezvous.offender == "c"
        assert_names(outcome, c, "has joined")


def test_an_acknowledgement_timeout_names_the_owing_member(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    a.do("send", to="c", topic="gate", payload="held")
    c.wait_inside("held")

    outcomes = all_at([a, b, c], "noon", INBOUND | PROCESSING, timeout=SHORT)

    for outcome in outcomes:
        assert outcome.states == ("satisfied", "satisfied", "not requested", "failed")
        assert (outcome.processing.failure, outcome.processing.offender) == ("timeout", "c")
        assert_names(outcome, c, "arrived at 'noon'")
    c.do("release", gate="held")


def test_a_member_with_a_full_queue_is_named_by_the_outbound_phase(group: Cluster) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    a.do("publish", topic="note", times=10_100)

    calls = [a.barrier("noon", OUTBOUND, SHORT), b.barrier("noon")]
    outcome = calls[0].outcome()

    assert outcome.states == ("satisfied", "not requested", "failed", "not requested")
    assert (outcome.outbound.failure, outcome.outbound.offender) == ("timeout", "b")
    assert calls[1].outcome().is_satisfied
    b.do("release", gate="held")


def test_a_caller_with_a_full_queue_gets_inbound_incomplete(group: Cluster) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    a.do("publish", topic="note", times=10_100)

    theirs = b.barrier("noon", INBOUND, {"inbound": 0.3})
    ours = a.barrier("noon")

    with pytest.raises(Raised, match=r"InboundIncomplete: .* 10101 messages .* only 10001 have"):
        theirs.answer()
    assert ours.outcome().is_satisfied
    b.do("release", gate="held")
    assert all(it.is_satisfied for it in all_at([a, b], "night", INBOUND | OUTBOUND | PROCESSING))
    b.wait_for_counts({"a": 10_101})


def test_a_few_large_messages_fill_the_queue_too(group: Cluster) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    a.do("publish_bytes", topic="note", size=1 << 20, times=66)

    theirs = b.barrier("noon", INBOUND, {"inbound": 0.3})
    assert a.barrier("noon").outcome().is_satisfied

    with pytest.raises(Raised, match=r"InboundIncomplete: .* 67 messages .* only 65 have"):
        theirs.answer()
    b.do("release", gate="held")
    assert all(it.is_satisfied for it in all_at([a, b], "night", INBOUND))


def test_the_shortest_timeout_applies_to_all_callers(group: Cluster) -> None:
    a, b, _ = group.join("a", "b", "c")
    patient = a.barrier("noon", timeout=60.0)
    group.coordinator.wait_arrived("noon", "a")
    hasty = b.barrier("noon", timeout=0.2)

    assert patient.outcome().rendezvous.failure == "timeout"
    assert hasty.outcome().rendezvous.offender == "c"


def test_a_bound_is_honoured_as_given_and_never_before(group: Cluster) -> None:
    a, _ = group.join("a", "b")

    assert 0.4 <= a.barrier("noon", timeout=0.4).outcome().seconds < 10
    assert a.barrier("night", timeout=0).outcome().rendezvous.failure == "timeout"


def test_the_timeouts_of_a_group_can_be_changed_while_it_runs(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    a.do("configure", rendezvous=0.2)

    outcome = b.barrier("noon").outcome()

    assert outcome.rendezvous.failure == "timeout"
    c.do("configure", rendezvous=30.0)
    waiting = [a.barrier("night"), b.barrier("night")]
    group.coordinator.wait_arrived("night", "a", "b")
    assert c.barrier("night").outcome().is_satisfied
    assert all(call.outcome().is_satisfied for call in waiting)


def test_half_of_a_bound_logs_the_members_that_are_waited_for(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    call = a.barrier("noon", timeout=0.4)

    slow = group.coordinator.wait_event("barrier.slow", barrier="noon", phase="rendezvous")

    first, second = sorted(slow.facts["waiting_for"])
    assert first.startswith(f"b (pid {b.pid} on ")
    assert second.startswith(f"c (pid {c.pid} on ")
    assert 0 < slow.facts["remaining"] <= 0.2
    assert call.outcome().rendezvous.failure == "timeout"
    assert group.coordinator.count_events("barrier.slow") == 1


def test_a_slow_phase_that_ends_in_time_was_warned_of_and_is_satisfied(group: Cluster) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    calls = [peer.barrier("noon", PROCESSING, {"processing": 8.0}) for peer in (a, b)]
    group.coordinator.wait_event("barrier.slow", barrier="noon", phase="processing")

    b.do("release", gate="held")

    assert all(call.outcome().is_satisfied for call in calls)


def test_a_late_acknowledgement_changes_nothing_and_the_next_round_is_clean(
    group: Cluster,
) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    late = all_at([a, b], "noon", PROCESSING, SHORT)
    calls = [peer.barrier("noon", PROCESSING) for peer in (a, b)]
    group.coordinator.wait_until(
        lambda: group.coordinator.count_events("barrier.arrived", barrier="noon") == 4
    )

    b.do("release", gate="held")

    assert {it.processing.failure for it in late} == {"timeout"}
    assert all(call.outcome().is_satisfied for call in calls)


def test_a_member_that_arrives_after_its_round_was_settled_gets_the_outcome(
    group: Cluster,
) -> None:
    a, b = group.join("a", "b")
    missed = a.barrier("noon", INBOUND, timeout=0.2).outcome()

    late = b.barrier("noon", INBOUND, timeout=20).outcome()

    assert late.states == missed.states
    assert (late.rendezvous.failure, late.rendezvous.offender) == ("timeout", "b")
    assert late.seconds < 10
    group.coordinator.wait_event("barrier.missed", barrier="noon", member="b")
    assert all(it.is_satisfied for it in all_at([a, b], "noon"))


def test_a_late_member_joins_the_next_round_if_that_is_gathering(group: Cluster) -> None:
    a, b = group.join("a", "b")
    assert a.barrier("noon", timeout=0.2).outcome().rendezvous.failure == "timeout"
    again = a.barrier("noon")
    group.coordinator.wait_until(
        lambda: group.coordinator.count_events("barrier.arrived", member="a") == 2
    )

    assert b.barrier("noon").outcome().is_satisfied
    assert again.outcome().is_satisfied


def test_a_caller_waits_for_the_phases_that_others_require(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(heartbeat=0.1, silence=0.5)
    a, b = group.join("a", "b")
    a.do("configure", rendezvous=0.5, processing=4.0)
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    calls = [a.barrier("noon"), b.barrier("noon", PROCESSING)]
    group.coordinator.wait_event("barrier.slow", barrier="noon", phase="processing")

    b.do("release", gate="held")

    assert all(call.outcome().is_satisfied for call in calls)


def test_a_caller_with_a_short_timeout_waits_for_the_phases_that_others_require(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(heartbeat=0.2, silence=1.0)
    a, b = group.join("a", "b")
    a.do("configure", rendezvous=0.3, inbound=0.3, outbound=0.3, processing=0.3)
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    patient = b.barrier("noon", PROCESSING, {"rendezvous": 20.0, "processing": 8.0})
    group.coordinator.wait_arrived("noon", "b")
    hasty = a.barrier("noon", timeout=0.3)
    group.coordinator.wait_event("barrier.slow", barrier="noon", phase="processing")

    assert not hasty.is_done
    b.do("release", gate="held")

    assert hasty.outcome().states == ("satisfied", *["not requested"] * 3)
    assert patient.outcome().is_satisfied


def test_a_caller_with_missing_messages_does_not_wait_for_a_stopped_coordinator(
    group: Cluster,
) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    a.do("publish", topic="note", times=10_100)
    theirs = b.barrier("noon", INBOUND, {"inbound": 300.0})
    assert a.barrier("noon").outcome().is_satisfied
    group.coordinator.wait_event("barrier.settled", barrier="noon")

    group.coordinator.kill()

    # All that can still come is what the system holds for it, which may be everything.
    wait_until(lambda: theirs.is_done)
    b.do("release", gate="held")


def test_a_requirement_that_does_not_exist_is_refused_at_once(group: Cluster) -> None:
    (a,) = group.join("a")

    with pytest.raises(Raised, match="ValueError"):
        a.barrier("noon", 8).answer()
    assert a.barrier("noon").outcome().is_satisfied


def test_raise_for_status_raises_barrier_failed(group: Cluster) -> None:
    a, b = group.join("a", "b")
    a.do("configure", rendezvous=0.2)

    with pytest.raises(Raised, match=rf"BarrierFailed: .*timeout by b \(pid {b.pid} on "):
        a.do("raise_for_status", name="noon")


def assert_names(outcome: Outcome, who: Peer, last_phase: str) -> None:
    named = f"{who.name} (pid {who.pid} on {socket.gethostname()}; {last_phase}, last heartbeat "
    assert named in outcome.text
    assert outcome.text.endswith(" s before))")
