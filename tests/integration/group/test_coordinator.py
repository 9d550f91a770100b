"""A coordinator that stops, is killed, freezes or is restarted: no caller hangs."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import pytest

from tests.integration.group.processes import Cluster, Raised, all_at
from tests.waiting import wait_until
from tidegate.group import INBOUND, OUTBOUND, PROCESSING

STOPPED = {"coordinator stop"}


def test_a_coordinator_that_stops_completes_every_open_round_before_it_goes(
    any_group: Cluster,
) -> None:
    a, b, _ = any_group.join("a", "b", "c")
    calls = [a.barrier("noon", INBOUND), b.barrier("noon"), a.barrier("night", PROCESSING)]
    any_group.coordinator.wait_arrived("noon", "a", "b")
    any_group.coordinator.wait_arrived("night", "a")

    any_group.coordinator.do("close")

    assert {call.outcome().rendezvous.failure for call in calls} == STOPPED
    assert calls[0].outcome().states == ("failed", "failed", "not requested", "not requested")


def test_a_stop_fails_only_the_phases_that_were_not_over(group: Cluster) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    calls = [peer.barrier("noon", OUTBOUND | PROCESSING) for peer in (a, b)]
    group.coordinator.wait_acknowledged("noon", "outbound", 2)

    group.coordinator.do("close")

    for call in calls:
        outcome = call.outcome()
        assert outcome.states == ("satisfied", "not requested", "satisfied", "failed")
        assert outcome.processing.failure == "coordinator stop"


def test_a_coordinator_that_is_killed_fails_every_open_round_as_its_stop(
    any_group: Cluster,
) -> None:
    a, b, _ = any_group.join("a", "b", "c")
    calls = [a.barrier("noon", INBOUND), b.barrier("noon")]
    any_group.coordinator.wait_arrived("noon", "a", "b")

    any_group.coordinator.kill()
    killed = monotonic()

    assert {call.outcome().rendezvous.failure for call in calls} == STOPPED
    assert monotonic() - killed < 5


@pytest.mark.parametrize("end", ["close", "kill"])
def test_members_rejoin_a_restarted_coordinator(any_group: Cluster, end: str) -> None:
    peers = any_group.join("a", "b", "c")
    any_group.coordinator.do("close") if end == "close" else any_group.coordinator.kill()

    any_group.restart_coordinator(*peers)

    assert all(it.is_satisfied for it in all_at(peers, "noon", INBOUND | PROCESSING))


def test_a_barrier_that_is_called_without_a_coordinator_waits_for_it(group: Cluster) -> None:
    (a,) = group.join("a")
    group.coordinator.kill()
    wait_until(lambda: not a.do("is_connected"))

    call = a.barrier("noon")
    group.start_coordinator()

    assert call.outcome().is_satisfied


def test_a_barrier_without_a_coordinator_fails_at_its_bound(group: Cluster) -> None:
    (a,) = group.join("a")
    group.coordinator.kill()
    wait_until(lambda: not a.do("is_connected"))

    outcome = a.barrier("noon", INBOUND, timeout=0.3).outcome()

    assert outcome.states == ("failed", "failed", "not requested", "not requested")
    assert outcome.rendezvous.failure == "coordinator stop"
    with pytest.raises(Raised, match="CoordinatorUnreachable"):
        a.do("publish", topic="note")


def test_timeouts_that_no_coordinator_has_confirmed_are_not_agreed_on(group: Cluster) -> None:
    (a,) = group.join("a")
    group.coordinator.freeze()
    configuring = a.begin("configure", rendezvous=0.2)

    group.coordinator.kill()

    with pytest.raises(Raised, match="CoordinatorUnreachable"):
        configuring.answer()


def test_a_reconnecting_process_can_leave(group: Cluster) -> None:
    (a,) = group.join("a")
    group.coordinator.kill()
    wait_until(lambda: not a.do("is_connected"))

    assert a.do("drain") is False
    wait_until(lambda: a.do("threads") == [])
    group.start_coordinator()
    (b,) = group.join("b")

    assert b.do("members") == ["b"]


def test_a_process_that_leaves_while_it_rejoins_is_not_a_member_afterwards(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(heartbeat=0.1, silence=0.5)
    a, b = group.join("a", "b")
    group.coordinator.freeze()
    wait_until(lambda: not a.do("is_connected"))

    a.do("close")
    group.coordinator.thaw()

    wait_until(lambda: a.do("threads") == [])
    wait_until(lambda: b.do("members") == ["b"])
    assert b.barrier("noon").outcome().is_satisfied


def test_a_short_freeze_of_the_coordinator_loses_no_member(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(heartbeat=0.2, silence=20)
    a, b = group.join("a", "b")
    call = a.barrier("noon")
    group.coordinator.wait_arrived("noon", "a")

    group.coordinator.freeze()
    theirs = b.barrier("noon")
    assert not theirs.is_done
    group.coordinator.thaw()

    assert call.outcome().is_satisfied
    assert theirs.outcome().is_satisfied
    assert group.coordinator.count_events("member.removed") == 0


def test_members_disconnect_from_a_frozen_coordinator_and_rejoin_when_it_resumes(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(heartbeat=0.2, silence=1.0)
    a, b = group.join("a", "b")
    call = a.barrier("noon")
    group.coordinator.wait_arrived("noon", "a")

    group.coordinator.freeze()
    outcome = call.outcome()
    wait_until(lambda: not (a.do("is_connected") or b.do("is_connected")))
    group.coordinator.thaw()

    assert outcome.rendezvous.failure == "coordinator stop"
    group.meet(a, b)
    assert all(it.is_satisfied for it in all_at([a, b], "night"))


def test_a_process_waits_for_a_coordinator_that_is_not_there_yet(group: Cluster) -> None:
    group.coordinator.kill()
    a = group.peer("a")
    joining = a.begin("join", timeout=20.0)
    group.start_coordinator()

    joining.answer()
    a.do("wait_for", names=["a"])


def test_waiting_for_a_coordinator_is_bounded(group: Cluster) -> None:
    group.coordinator.kill()

    with pytest.raises(Raised, match="CoordinatorUnreachable"):
        group.peer("a").do("join", timeout=0.3)


def test_two_coordinators_do_not_share_an_address(any_group: Cluster) -> None:
    (a,) = any_group.join("a")

    with pytest.raises((EOFError, BrokenPipeError)):  # it has ended before or after it was asked
        any_group.start_another_coordinator()
    assert a.barrier("noon").outcome().is_satisfied


def test_a_coordinator_without_descriptors_waits_and_serves_its_members(group: Cluster) -> None:
    a, b = group.join("a", "b")
    group.coordinator.do("lack_descriptors", lack=True)
    c = group.peer("c")
    joining = c.begin("join", timeout=20.0)
    shut = group.coordinator.wait_event("listener.paused")
    before = group.coordinator.do("seconds_of_work")

    assert all(it.is_satisfied for it in all_at([a, b], "noon", INBOUND | PROCESSING))
    assert a.barrier("night", timeout=1.5).outcome().seconds >= 1.5
    worked = group.coordinator.do("seconds_of_work") - before

    assert worked < 0.5
    assert "open files" in shut.facts["why"]
    assert group.coordinator.count_events("listener.paused") == 1
    assert not joining.is_done
    group.coordinator.do("lack_descriptors", lack=False)
    joining.answer()
    group.coordinator.wait_event("listener.resumed")
    group.meet(a, b, c)
    assert all(it.is_satisfied for it in all_at([a, b, c], "dawn"))


def test_a_coordinator_that_fails_completes_its_rounds_and_reports_the_error(
    any_group: Cluster,
) -> None:
    a, b = any_group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")
    alone = a.barrier("dawn", INBOUND)
    calls = [peer.barrier("noon", OUTBOUND | PROCESSING) for peer in (a, b)]
    any_group.coordinator.wait_arrived("dawn", "a")
    any_group.coordinator.wait_acknowledged("noon", "outbound", 2)
    any_group.coordinator.do("check")

    any_group.coordinator.do("have_a_fault")

    assert alone.outcome().rendezvous.failure == "coordinator stop"
    for call in calls:
        outcome = call.outcome()
        assert outcome.states == ("satisfied", "not requested", "satisfied", "failed")
        assert outcome.processing.failure == "coordinator stop"
    with pytest.raises(Raised, match=r"CoordinatorBroken: .*ZeroDivisionError\('one too many'\)"):
        any_group.coordinator.do("check")
    any_group.coordinator.wait_event("coordinator.broken", address=any_group.address)
    b.do("release", gate="held")
    any_group.restart_coordinator(a, b)
    assert all(it.is_satisfied for it in all_at([a, b], "night"))


def test_a_coordinator_that_was_closed_is_not_broken(group: Cluster) -> None:
    group.coordinator.do("close")

    group.coordinator.do("check")
