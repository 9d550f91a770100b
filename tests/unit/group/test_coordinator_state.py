"""The state of a coordinator, with frames instead of connections."""

from __future__ import annotations

import gc
from collections import defaultdict

from tidegate.group.coordinator.coordinator_state import CoordinatorState
from tidegate.group.coordinator.member_table import MemberEntry, instance_of
from tidegate.group.coordinator.round import Identity
from tidegate.group.protocol.wire import (
    BarrierCompletion,
    BarrierRequest,
    ChannelKind,
    Frame,
    MemberInfo,
)
from tidegate.group.status import Failure, Member, Require, Timeouts

BOOT = bytes(16)


class SentFrames:
    """The last frame of each type to each member."""

    def __init__(self) -> None:
        self.last: dict[Identity, dict[type[Frame], Frame]] = defaultdict(dict)

    def __call__(self, identity: Identity, _: ChannelKind, frame: Frame) -> None:
        self.last[identity][type(frame)] = frame


def join(group: CoordinatorState, name: str) -> Identity:
    entry = MemberEntry(Member(name, instance_of(name), BOOT, "north", 7), last_seen_at=0.0)
    group.join(entry, 0.0)
    return entry.identity


def call(group: CoordinatorState, identity: Identity, barrier: str) -> None:
    group.receive(identity, BarrierRequest(1, barrier, Require.NOTHING), 0.0)


def test_members_that_come_and_go_during_a_round_do_not_accumulate() -> None:
    group = CoordinatorState(lambda *_: None, Timeouts())
    first, _ = join(group, "a"), join(group, "b")
    call(group, first, "noon")
    gc.collect()
    before = count_abouts()

    for number in range(1000):
        group.remove_member(join(group, f"guest {number}"), Failure.PEER_LOST, 0.0)

    gc.collect()
    assert count_abouts() - before < 10


def test_a_lost_member_is_named_by_each_of_its_rounds() -> None:
    sent = SentFrames()
    group = CoordinatorState(sent, Timeouts())
    first, lost = join(group, "a"), join(group, "b")
    call(group, first, "noon")
    call(group, first, "night")

    group.remove_member(lost, Failure.PEER_LOST, 0.0)

    about, completion = sent.last[first][MemberInfo], sent.last[first][BarrierCompletion]
    assert isinstance(about, MemberInfo)
    assert about.name == "b"
    assert isinstance(completion, BarrierCompletion)
    assert completion.rendezvous.offender == lost.instance


def count_abouts() -> int:
    return sum(isinstance(it, MemberInfo) for it in gc.get_objects())
