"""Members that leave on purpose finish their open rounds and block no others."""

from __future__ import annotations

import pytest

from tests.integration.group.processes import Cluster, Raised, all_at
from tests.waiting import wait_until
from tidegate.group import INBOUND, PROCESSING


def test_a_member_that_drains_before_it_arrives_downgrades_the_rendezvous_at_once(
    any_group: Cluster,
) -> None:
    a, b, c = any_group.join("a", "b", "c")
    calls = [a.barrier("noon", INBOUND), b.barrier("noon")]
    any_group.coordinator.wait_arrived("noon", "a", "b")

    assert c.do("drain") is True

    for call in calls:
        outcome = call.outcome()
        assert outcome.seconds < 10
        assert outcome.rendezvous.state == "downgraded"
        assert (outcome.rendezvous.failure, outcome.rendezvous.offender) == ("peer draining", "c")
        assert f"peer draining by c (pid {c.pid} on " in outcome.text
    assert calls[0].outcome().inbound.state == "satisfied"


def test_a_member_that_drains_after_it_arrived_finishes_the_round(group: Cluster) -> None:
    a, b = group.join("a", "b")
    first = b.barrier("noon")
    group.coordinator.wait_arrived("noon", "b")
    draining = b.begin("drain")
    group.coordinator.wait_event("member.draining", member="b")

    assert not draining.is_done
    assert a.barrier("noon").outcome().is_satisfied
    assert first.outcome().is_satisfied
    assert draining.answer() is True


def test_new_rounds_do_not_wait_for_a_draining_member(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    held = c.barrier("noon")
    group.coordinator.wait_arrived("noon", "c")
    draining = c.begin("drain")
    group.coordinator.wait_event("member.draining", member="c")

    assert all(it.is_satisfied for it in all_at([a, b], "other"))
    assert all(it.is_satisfied for it in all_at([a, b], "noon"))
    assert held.outcome().is_satisfied
    assert draining.answer() is True


def test_a_draining_member_is_refused_in_new_rounds(group: Cluster) -> None:
    a, b = group.join("a", "b")
    first = b.barrier("noon")
    group.coordinator.wait_arrived("noon", "b")
    draining = b.begin("drain")
    group.coordinator.wait_event("member.draining", member="b")

    with pytest.raises(Raised, match=r"BarrierRefused: .*draining"):
        b.barrier("night").answer()
    a.barrier("noon").answer()
    assert first.outcome().is_satisfied
    assert draining.answer() is True


def test_a_member_that_closes_while_it_owes_an_acknowledgement_is_named_as_draining(
    any_group: Cluster,
) -> None:
    a, b, c = any_group.join("a", "b", "c")
    a.do("send", to="c", topic="gate", payload="held")
    c.wait_inside("held")
    calls = [peer.barrier("noon", INBOUND | PROCESSING) for peer in (a, b)]
    c.barrier("noon")
    any_group.coordinator.wait_arrived("noon", "a", "b", "c")

    c.do("close")

    for call in calls:
        outcome = call.outcome()
        assert outcome.states == ("satisfied", "satisfied", "not requested", "downgraded")
        assert (outcome.processing.failure, outcome.processing.offender) == ("peer draining", "c")


def test_a_caller_that_closes_while_it_waits_gets_left_the_group(group: Cluster) -> None:
    a, b, c = group.join("a", "b", "c")
    calls = [b.barrier("noon"), c.barrier("noon")]
    group.coordinator.wait_arrived("noon", "b", "c")

    c.do("close")

    with pytest.raises(Raised, match="LeftTheGroup"):
        calls[1].answer()
    assert a.barrier("noon").outcome().is_satisfied
    assert calls[0].outcome().is_satisfied


def test_the_name_of_a_member_that_has_left_can_be_used_again(group: Cluster) -> None:
    a, b = group.join("a", "b")
    assert b.do("drain") is True
    wait_until(lambda: a.do("members") == ["a"])

    (other,) = group.join("b")
    group.meet(a, other)

    assert all(it.is_satisfied for it in all_at([a, other], "noon", INBOUND | PROCESSING))


def test_a_process_may_join_again_after_it_has_left(group: Cluster) -> None:
    a, b = group.join("a", "b")
    b.do("drain")
    b.do("join")
    group.meet(a, b)

    assert all(it.is_satisfied for it in all_at([a, b], "noon"))


def test_what_was_published_before_leaving_arrives(any_group: Cluster) -> None:
    a, b, c = any_group.join("a", "b", "c")

    b.do("publish", topic="note", times=3_000)
    b.do("drain")
    c.do("publish", topic="note", times=3_000)
    c.do("close")

    a.wait_for_counts({"b": 3_000, "c": 3_000})


def test_draining_waits_for_handlers_until_its_bound(group: Cluster) -> None:
    a, b = group.join("a", "b")
    a.do("send", to="b", topic="gate", payload="held")
    b.wait_inside("held")

    assert b.do("drain", timeout=0.2) is False
    wait_until(lambda: a.do("members") == ["a"])
    b.do("release", gate="held")


def test_a_handler_may_drain_its_process(group: Cluster) -> None:
    a, b = group.join("a", "b")

    a.do("send", to="b", topic="drain")

    wait_until(lambda: b.do("drained") == [True])
    wait_until(lambda: a.do("members") == ["a"])


def test_leaving_twice_is_leaving_once(group: Cluster) -> None:
    (a,) = group.join("a")
    a.do("close")
    a.do("close")

    with pytest.raises(Raised, match="LeftTheGroup"):
        a.do("publish", topic="note")
    with pytest.raises(Raised, match="LeftTheGroup"):
        a.barrier("noon").answer()


def test_leaving_releases_threads_and_connections(group: Cluster) -> None:
    (a, b) = group.join("a", "b")
    b.do("close")
    wait_until(lambda: b.do("threads") == [])
    before = b.do("descriptors")

    for _ in range(5):
        b.do("join")
        group.meet(a, b)
        all_at([a, b], "noon", INBOUND | PROCESSING)
        b.do("close")

    wait_until(lambda: b.do("threads") == [])
    assert b.do("descriptors") == before


def test_the_coordinator_releases_the_resources_of_its_members(group: Cluster) -> None:
    (a,) = group.join("a")
    before = group.coordinator.do("descriptors")
    others = group.join("b", "c")
    others[0].kill()
    others[1].do("close")

    wait_until(lambda: a.do("members") == ["a"])
    wait_until(lambda: group.coordinator.do("descriptors") == before)


def test_rounds_go_on_while_members_leave(any_group: Cluster) -> None:
    names = "abcdefgh"
    peers = any_group.join(*names)
    running = {peer.name: peer.begin("rounds", name="round", count=200) for peer in peers}
    by_name = {peer.name: peer for peer in peers}
    any_group.coordinator.wait_arrived("round 30", *names)
    by_name["h"].kill()
    any_group.coordinator.wait_arrived("round 60", *names[:6])
    drained = by_name["g"].begin("drain")

    with pytest.raises(Raised, match=r"BarrierRefused|LeftTheGroup"):
        running["g"].answer()
    assert drained.answer() is True
    line = [running[name].answer() for name in names[:6]]
    for number in range(200):
        assert len({str(views(outcomes[number])) for outcomes in line}) == 1
    bad = [it["rendezvous"] for it in line[0] if it["rendezvous"]["state"] != "satisfied"]
    assert {(it["failure"], it["offender"]) for it in bad} <= {
        ("peer lost", "h"),
        ("peer draining", "g"),
    }


def views(outcome: dict[str, dict[str, object]]) -> tuple[object, object, object]:
    rendezvous = outcome["rendezvous"]
    return rendezvous["state"], rendezvous["failure"], rendezvous["offender"]
