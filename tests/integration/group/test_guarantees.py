"""The guarantees of a barrier between processes without faults."""

from __future__ import annotations

import pytest

from tests.integration.group.processes import Cluster, all_at
from tidegate.group import INBOUND, NO_SEQUENCE, OUTBOUND, PROCESSING

NAMES = ("a", "b", "c", "d")
PHASES = ("rendezvous", "inbound", "outbound", "processing")


def test_all_callers_of_a_rendezvous_get_the_same_outcome(any_group: Cluster) -> None:
    peers = any_group.join(*NAMES)

    outcomes = all_at(peers, "noon")

    assert {outcome.states for outcome in outcomes} == {
        ("satisfied", "not requested", "not requested", "not requested")
    }
    assert {outcome.text for outcome in outcomes} == {"barrier 'noon' is satisfied: rendezvous"}


def test_no_caller_passes_a_rendezvous_before_the_last_arrival(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    early = [a.barrier("noon"), b.barrier("noon")]
    group.coordinator.wait_arrived("noon", "a", "b")

    assert not any(call.is_done for call in early)
    assert c.barrier("noon").outcome().is_satisfied
    assert all(call.outcome().is_satisfied for call in early)


def test_each_caller_gets_the_guarantees_it_requires_and_no_others(any_group: Cluster) -> None:
    a, b, c, d = any_group.join(*NAMES)
    a.do("publish", topic="note", payload="from a", times=3)
    b.do("publish", topic="note", payload="from b", times=2)
    c.do("send", to="d", topic="note", payload="from c")

    calls = [
        a.barrier("noon", 0),
        b.barrier("noon", INBOUND),
        c.barrier("noon", OUTBOUND),
        d.barrier("noon", INBOUND | PROCESSING),
    ]
    nothing, inbound, outbound, processing = [call.outcome() for call in calls]

    no, yes = "not requested", "satisfied"
    assert nothing.states == (yes, no, no, no)
    assert inbound.states == (yes, yes, no, no)
    assert outbound.states == (yes, no, yes, no)
    assert processing.states == (yes, yes, no, yes)
    assert [it.require for it in (nothing, inbound, outbound, processing)] == [0, 1, 2, 5]


def test_sequences_are_positions_in_the_streams_of_messages(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    a.do("publish", topic="note", times=3)
    b.do("send", to="c", topic="note")

    outcomes = all_at([a, b, c], "noon", INBOUND | OUTBOUND | PROCESSING)

    assert [it.inbound.sequence for it in outcomes] == [0, 3, 4]
    assert [it.rendezvous.sequence for it in outcomes] == [0, 3, 4]
    assert [it.outbound.sequence for it in outcomes] == [3, 1, 0]
    assert [it.processing.sequence for it in outcomes] == [0, 3, 4]
    assert [it.sequence for it in outcomes] == [0, 3, 4]


def test_the_event_of_a_settled_round_has_its_states_and_stream_positions(
    group: Cluster,
) -> None:
    a, b, c = group.join("a", "b", "c")
    a.do("publish", topic="note", times=3)
    b.do("send", to="c", topic="note")

    calls = [a.barrier("noon"), b.barrier("noon", INBOUND), c.barrier("noon", PROCESSING)]
    outcomes = [call.outcome() for call in calls]

    settled = group.coordinator.wait_event("barrier.settled", barrier="noon")
    assert settled.facts == {
        "barrier": "noon",
        "round": 1,
        "rendezvous": "satisfied",
        "inbound": "satisfied",
        "outbound": "not requested",
        "processing": "satisfied",
        "failures": {},
        "offenders": [],
        "sequences": {"a": 0, "b": 3, "c": 4},
    }
    assert [it.sequence for it in outcomes] == [0, 3, 4]
    assert group.coordinator.count_events("barrier.settled", barrier="noon") == 1


def test_the_event_of_a_failed_round_names_phases_and_offenders(group: Cluster) -> None:
    a, b = group.join("a", "b")
    b.do("publish", topic="note", times=2)
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")

    all_at([a, b], "noon", OUTBOUND | PROCESSING, {"processing": 0.2})

    settled = group.coordinator.wait_event("barrier.settled", barrier="noon").facts
    assert [settled[phase] for phase in PHASES] == [
        "satisfied",
        "not requested",
        "satisfied",
        "failed",
    ]
    assert settled["failures"] == {"processing": "timeout"}
    (offender,) = settled["offenders"]
    assert offender.startswith(f"b (pid {b.pid} on ")
    assert settled["sequences"] == {"a": 2, "b": 1}
    b.do("release", gate="held")


def test_what_was_not_requested_has_no_sequence(group: Cluster) -> None:
    (a,) = group.join("a")

    outcome = a.barrier("noon", 0).outcome()

    assert {it.sequence for it in (outcome.inbound, outcome.outbound, outcome.processing)} == {
        NO_SEQUENCE
    }


def test_everything_published_before_a_delivery_fence_has_arrived_when_it_returns(
    any_group: Cluster,
) -> None:
    peers = any_group.join(*NAMES)
    rounds, each = 5, 500

    storms = [peer.begin("storm", rounds=rounds, each=each, require=INBOUND) for peer in peers]
    marks = [[it["inbound"]["sequence"] for it in storm.answer()] for storm in storms]
    for peer in peers:
        peer.do("close")  # takes nothing more in; what has arrived is still handled

    assert marks == [[3 * each * (number + 1) for number in range(rounds)]] * len(peers)
    for peer in peers:
        expected = {name: rounds * each for name in NAMES if name != peer.name}
        peer.wait_for_counts(expected)
        assert peer.do("are_in_order")


def test_everything_published_before_a_processing_fence_is_handled_when_it_returns(
    group: Cluster,
) -> None:
    peers = group.join(*NAMES)
    rounds, each = 10, 200

    storms = [
        peer.begin("storm", rounds=rounds, each=each, require=INBOUND | PROCESSING)
        for peer in peers
    ]

    for peer, storm in zip(peers, storms, strict=True):
        others = [name for name in NAMES if name != peer.name]
        for number, outcome in enumerate(storm.answer()):
            least = each * (number + 1)
            assert all(outcome["handled"][other] >= least for other in others)
        assert peer.do("counts") == dict.fromkeys(others, rounds * each)


def test_a_processing_fence_waits_for_the_slow_handlers_of_all_members(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    a.do("send", to="b", topic="gate", payload="b")
    a.do("send", to="c", topic="slow", payload="0.3")
    b.wait_inside("b")
    calls = [peer.barrier("noon", INBOUND | PROCESSING) for peer in (a, b, c)]
    group.coordinator.wait_arrived("noon", "a", "b", "c")

    assert not any(call.is_done for call in calls)
    b.do("release", gate="b")

    assert all(call.outcome().is_satisfied for call in calls)
    assert b.do("received") == [["a", "gate", "b"]]
    assert c.do("received") == [["a", "slow", "0.3"]]


def test_a_delivery_fence_does_not_wait_for_handlers(group: Cluster) -> None:
    a, b = group.join("a", "b")
    a.do("publish", topic="gate", payload="b")
    b.wait_inside("b")

    assert all(it.is_satisfied for it in all_at([a, b], "noon", INBOUND | OUTBOUND))
    b.do("release", gate="b")


def test_an_outbound_barrier_ends_when_all_others_have_what_its_caller_sent(
    group: Cluster,
) -> None:
    a, b, c = group.join("a", "b", "c")
    a.do("publish", topic="note", times=2_000)

    calls = [a.barrier("noon", OUTBOUND), b.barrier("noon"), c.barrier("noon")]
    outcome = calls[0].outcome()
    for peer in (b, c):
        peer.do("close")
        peer.wait_for_counts({"a": 2_000})

    assert outcome.outbound.state == "satisfied"
    assert outcome.outbound.sequence == 2_000


def test_a_handler_may_wait_in_a_processing_fence_itself(group: Cluster) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="fence", payload="noon")
    b.wait_inside("fence")

    assert a.barrier("noon", INBOUND | PROCESSING).outcome().is_satisfied
    b.wait_for_counts({"a": 1})
    assert [it["processing"]["state"] for it in b.do("outcomes")] == ["satisfied"]


def test_two_handlers_of_one_process_in_fences_do_not_wait_for_each_other(
    group: Cluster,
) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="fence", payload="noon")
    a.do("send", to="b", topic="fence", payload="night")

    calls = [a.barrier(name, INBOUND | PROCESSING) for name in ("night", "noon")]

    assert all(call.outcome().is_satisfied for call in calls)
    b.wait_for_counts({"a": 2})
    assert {it["processing"]["state"] for it in b.do("outcomes")} == {"satisfied"}


def test_two_hundred_rounds_in_quick_succession_by_eight_processes(any_group: Cluster) -> None:
    peers = any_group.join(*"abcdefgh")

    running = [peer.begin("rounds", name="round", count=200) for peer in peers]

    for pending in running:
        assert {it["rendezvous"]["state"] for it in pending.answer()} == {"satisfied"}


@pytest.mark.parametrize("topic", ["slow", "exit"])
def test_a_failed_handler_counts_as_finished_and_the_next_ones_run(
    group: Cluster, topic: str
) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic=topic, payload="not a number")
    a.do("send", to="b", topic="note", payload="behind it")

    assert all(it.is_satisfied for it in all_at([a, b], "noon", INBOUND | PROCESSING))
    assert b.do("received") == [["a", "note", "behind it"]]
