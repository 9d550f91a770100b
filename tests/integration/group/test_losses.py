"""Members that are killed, freeze or are restarted are named in bounded time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic

import pytest

from tests.integration.group.channels import admitted, trickling
from tests.integration.group.processes import Cluster, Raised, all_at
from tests.waiting import wait_until
from tidegate.group import INBOUND, OUTBOUND, PROCESSING

SOON = 5.0
"""Seconds within which a member that was killed is named: long before silence would tell."""
FREEZABLE = {"heartbeat": 0.2, "silence": 2.5}


def test_a_member_that_is_killed_before_it_arrives_is_named_to_every_caller_soon(
    any_group: Cluster,
) -> None:
    a, b, c = any_group.join("a", "b", "c")
    calls = [a.barrier("noon", INBOUND), b.barrier("noon", OUTBOUND)]
    any_group.coordinator.wait_arrived("noon", "a", "b")

    c.kill()
    killed = monotonic()
    outcomes = [call.outcome() for call in calls]

    assert monotonic() - killed < SOON
    assert outcomes[0].states == ("failed", "failed", "not requested", "not requested")
    assert outcomes[1].states == ("failed", "not requested", "failed", "not requested")
    for outcome in outcomes:
        assert (outcome.rendezvous.failure, outcome.rendezvous.offender) == ("peer lost", "c")
        assert f"peer lost by c (pid {c.pid} on " in outcome.text


def test_a_member_that_is_killed_while_it_owes_fails_only_what_it_owed(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    a.do("send", to="c", topic="gate", payload="held")
    c.wait_inside("held")
    calls = [peer.barrier("noon", INBOUND | OUTBOUND | PROCESSING) for peer in (a, b)]
    c.barrier("noon")
    group.coordinator.wait_arrived("noon", "a", "b", "c")
    group.coordinator.wait_acknowledged("noon", "outbound", 3)

    c.kill()
    outcomes = [call.outcome() for call in calls]

    for outcome in outcomes:
        assert outcome.states == ("satisfied", "satisfied", "satisfied", "failed")
        assert (outcome.processing.failure, outcome.processing.offender) == ("peer lost", "c")


def test_remaining_members_meet_without_a_killed_one(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    c.kill()
    wait_until(lambda: a.do("members") == ["a", "b"])

    assert all(it.is_satisfied for it in all_at([a, b], "noon", INBOUND | PROCESSING))


def test_the_same_member_twice_in_one_round_is_refused_and_the_round_goes_on(
    group: Cluster,
) -> None:
    a, b = group.join("a", "b")
    first = a.barrier("noon")
    group.coordinator.wait_arrived("noon", "a")

    with pytest.raises(Raised, match=r"BarrierRefused: 'a' .* already arrived"):
        a.barrier("noon").answer()
    assert not first.is_done
    assert b.barrier("noon").outcome().is_satisfied
    assert first.outcome().is_satisfied


def test_a_member_that_joins_after_a_round_has_begun_is_refused_and_the_round_goes_on(
    group: Cluster,
) -> None:
    a, b = group.join("a", "b")
    first = a.barrier("noon")
    group.coordinator.wait_arrived("noon", "a")
    (late,) = group.join("late")

    with pytest.raises(Raised, match=r"BarrierRefused: 'late' .* joined after the round"):
        late.barrier("noon").answer()
    assert b.barrier("noon").outcome().is_satisfied
    assert first.outcome().is_satisfied
    group.meet(a, b, late)
    assert all(it.is_satisfied for it in all_at([a, b, late], "noon"))


def test_a_member_restarted_during_a_round_fails_it_as_lost(any_group: Cluster) -> None:
    a, old = any_group.join("a", "b")
    call = a.barrier("noon")
    any_group.coordinator.wait_arrived("noon", "a")

    (new,) = any_group.join("b")

    outcome = call.outcome()
    assert (outcome.rendezvous.failure, outcome.rendezvous.offender) == ("peer lost", "b")
    assert f"pid {old.pid}" in outcome.text
    with pytest.raises(Raised, match="MemberReplaced"):
        old.barrier("noon").answer()
    any_group.meet(a, new)
    assert all(it.is_satisfied for it in all_at([a, new], "noon"))


def test_a_caller_that_is_replaced_while_it_waits_gets_member_replaced(group: Cluster) -> None:
    a, old = group.join("a", "b")
    waiting = old.barrier("noon")
    group.coordinator.wait_arrived("noon", "b")

    (new,) = group.join("b")

    with pytest.raises(Raised, match="MemberReplaced"):
        waiting.answer()
    with pytest.raises(Raised, match="MemberReplaced"):
        old.do("publish", topic="note")
    group.meet(a, new)
    assert all(it.is_satisfied for it in all_at([a, new], "noon"))


def test_a_member_that_is_replaced_while_it_sends_stays_replaced(
    any_group: Cluster,
) -> None:
    a, old = any_group.join("a", "b")
    for _ in range(3):
        commands = old.begin("publish_until_refused", topic="other")
        (new,) = any_group.join("b")
        with pytest.raises(Raised, match="MemberReplaced"):
            commands.answer()
        any_group.meet(a, new)
        assert all(it.is_satisfied for it in all_at([a, new], "noon"))
        old = new


def test_late_frames_of_an_ended_session_change_nothing(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, old = group.join("a", "b")
    group.coordinator.freeze()
    late = old.barrier("noon", PROCESSING)
    old.do("publish", topic="note", payload="late")
    (new,) = [group.peer("b")]
    joining = new.begin("join")
    group.coordinator.thaw()
    joining.answer()
    group.meet(a, new)

    with pytest.raises(Raised, match="MemberReplaced"):
        late.answer()
    outcomes = all_at([a, new], "night", INBOUND | PROCESSING)
    assert all(it.is_satisfied for it in outcomes)
    assert outcomes[0].inbound.sequence == len(a.do("received"))


def test_a_frozen_member_is_lost_within_its_bound_and_rejoins_by_itself(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b, c = group.join("a", "b", "c")
    calls = [a.barrier("noon"), b.barrier("noon")]
    group.coordinator.wait_arrived("noon", "a", "b")

    c.freeze()
    frozen = monotonic()
    outcomes = [call.outcome() for call in calls]

    assert monotonic() - frozen < FREEZABLE["silence"] + SOON
    for outcome in outcomes:
        assert (outcome.rendezvous.failure, outcome.rendezvous.offender) == ("peer lost", "c")
    c.thaw()
    wait_until(lambda: a.do("members") == ["a", "b", "c"])
    group.meet(a, b, c)
    assert all(it.is_satisfied for it in all_at([a, b, c], "night", INBOUND | PROCESSING))


def test_a_member_that_freezes_in_a_barrier_gets_peer_lost(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b = group.join("a", "b")
    waiting = b.barrier("noon")
    group.coordinator.wait_arrived("noon", "b")

    b.freeze()
    group.coordinator.wait_event("member.removed", member="b")
    b.thaw()

    assert waiting.outcome().rendezvous.failure == "peer lost"
    group.meet(a, b)
    assert all(it.is_satisfied for it in all_at([a, b], "noon"))


def test_a_short_freeze_costs_nothing(group: Cluster) -> None:
    a, b = group.join("a", "b")
    call = a.barrier("noon")
    group.coordinator.wait_arrived("noon", "a")
    b.freeze()
    b.thaw()

    assert b.barrier("noon").outcome().is_satisfied
    assert call.outcome().is_satisfied
    assert group.coordinator.count_events("member.removed") == 0


def test_a_resumed_process_does_not_replace_its_successor(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, old = group.join("a", "b")
    old.freeze()
    group.coordinator.wait_event("member.removed", member="b")
    (new,) = group.join("b")
    group.meet(a, new)

    old.thaw()

    def is_replaced() -> bool:
        try:
            old.do("publish", topic="note")
        except Raised as raised:
            return raised.kind == "MemberReplaced"
        return False

    wait_until(is_replaced)
    assert all(it.is_satisfied for it in all_at([a, new], "noon"))


def test_a_frozen_member_with_a_backlog_blocks_senders_until_it_is_lost(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b, c = group.join("a", "b", "c")
    c.freeze()

    a.do("publish_bytes", topic="other", size=1 << 20, times=40)

    held = group.coordinator.wait_event("messages.paused")
    assert held.facts["waiting_for"][0].startswith(f"c (pid {c.pid} on ")
    group.coordinator.wait_event("messages.resumed")
    assert group.coordinator.count_events("member.removed", member="c") == 1
    assert all(it.is_satisfied for it in all_at([a, b], "noon", INBOUND | OUTBOUND))


def test_a_running_member_that_reads_nothing_is_lost_when_it_blocks_all_senders(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b, c = group.join("a", "b", "c")
    a.do("send", to="c", topic="gate", payload="held")
    c.wait_inside("held")

    a.do("publish", topic="other", times=10_000)
    a.do("publish_bytes", topic="other", size=1 << 20, times=40)

    group.coordinator.wait_event("messages.paused")
    group.coordinator.wait_event("member.removed", member="c")
    group.coordinator.wait_event("messages.resumed")
    c.do("release", gate="held")
    group.meet(a, b, c)
    assert all(it.is_satisfied for it in all_at([a, b, c], "noon", INBOUND | PROCESSING))


def test_a_member_that_reads_too_slowly_is_lost_and_the_others_go_on(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b = group.join("a", "b")
    with admitted(group, "slow") as channels, trickling(channels):
        a.do("wait_for", names=["slow"])
        b.do("wait_for", names=["slow"])
        calls = [a.barrier("noon"), b.barrier("noon")]
        group.coordinator.wait_arrived("noon", "a", "b")
        a.do("publish_bytes", topic="note", size=1 << 20, times=64)
        for call in calls:
            lost = call.outcome().rendezvous
            assert (lost.failure, lost.offender) == ("peer lost", "slow")

    late = group.coordinator.wait_event("member.too_slow", channel="messages")
    assert late.facts["member"].startswith("slow (pid 7 on nowhere;")
    assert 4 << 20 <= late.facts["backlog"] <= 16 << 20
    assert all(it.is_satisfied for it in all_at([a, b], "night", INBOUND | OUTBOUND))
    b.wait_for_counts({"a": 64})


def test_a_removed_member_gets_the_reason_and_rejoins(paced: Callable[..., Cluster]) -> None:
    group = paced(**FREEZABLE)
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    waiting = b.barrier("noon")
    group.coordinator.wait_arrived("noon", "b")

    a.do("publish_bytes", topic="other", size=1 << 20, times=110)

    assert waiting.outcome().rendezvous.failure == "peer lost"
    b.wait_event("group.lost", why="too slow")
    b.do("release", gate="held")
    group.meet(a, b)
    assert all(it.is_satisfied for it in all_at([a, b], "night", INBOUND | PROCESSING))


def test_a_handler_of_an_earlier_session_may_fence_in_the_next(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate then fence", payload="noon")
    b.wait_inside("noon")
    group.coordinator.kill()
    group.restart_coordinator(a, b)
    a.do("send", to="b", topic="note", payload="of the next life")

    b.do("release", gate="noon")

    assert a.barrier("noon", INBOUND | PROCESSING).outcome().is_satisfied
    wait_until(lambda: [it["processing"]["state"] for it in b.do("outcomes")] == ["satisfied"])


def test_a_handler_that_outlasts_its_session_is_logged_while_it_blocks_the_next(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    group.coordinator.kill()
    group.restart_coordinator(a, b)

    held = b.wait_event("handlers.blocked", topic="gate", sender="a")
    a.do("send", to="b", topic="note", payload="of the next life")

    assert held.facts["seconds"] >= FREEZABLE["silence"]
    assert datetime.fromisoformat(held.facts["since"]) < datetime.now(UTC)
    b.do("release", gate="held")
    b.wait_event("handlers.unblocked", topic="gate", sender="a")
    assert all(it.is_satisfied for it in all_at([a, b], "noon", INBOUND | PROCESSING))
    assert [payload for _, _, payload in b.do("received")] == ["held", "of the next life"]


def test_a_fence_names_the_member_that_still_handles_messages_of_its_earlier_session(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    group.coordinator.kill()
    group.restart_coordinator(a, b)

    outcomes = all_at([a, b], "noon", INBOUND | PROCESSING, {"processing": 0.3})

    for outcome in outcomes:
        assert outcome.states == ("satisfied", "satisfied", "not requested", "failed")
        assert (outcome.processing.failure, outcome.processing.offender) == ("timeout", "b")
    assert b.do("drain", timeout=0.2) is False
    b.do("release", gate="held")


def test_sessions_behind_a_handler_that_never_returns_do_not_accumulate(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    before = b.do("threads")

    for _ in range(3):
        group.coordinator.kill()
        group.restart_coordinator(a, b)

    wait_until(lambda: b.do("threads") == before)
    b.do("release", gate="held")


def test_a_handler_that_blocks_the_messages_behind_it_is_logged(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(**FREEZABLE)
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    a.do("publish", topic="note", times=7)

    b.wait_event("handlers.blocked", topic="gate", sender="a", waiting=7)

    b.do("release", gate="held")


def test_a_round_that_names_an_earlier_boot_does_not_remove_the_next(group: Cluster) -> None:
    a, b, old = group.join("a", "b", "c")
    a.do("publish", topic="gate", payload="held")
    b.wait_inside("held")
    calls = [a.barrier("noon", PROCESSING), b.barrier("noon"), old.barrier("noon")]
    group.coordinator.wait_arrived("noon", "a", "b", "c")
    old.kill()
    group.coordinator.wait_event("member.removed", member="c")
    (new,) = group.join("c")
    group.meet(a, b, new)

    b.do("release", gate="held")

    outcome = calls[0].outcome()
    assert (outcome.processing.failure, outcome.processing.offender) == ("peer lost", "c")
    assert f"pid {old.pid}" in outcome.text
    assert a.do("members") == ["a", "b", "c"]
    assert all(it.is_satisfied for it in all_at([a, b, new], "night"))
