"""What a coordinator keeps in mind, with words instead of connections."""

from __future__ import annotations

import gc
from collections import defaultdict

from tidegate.group.coordinator_state import CoordinatorState
from tidegate.group.member_table import Entry, instance_of
from tidegate.group.round import Identity
from tidegate.group.status import Failure, Member, Require, Timeouts
from tidegate.group.wire import About, BarrierCompletion, BarrierRequest, ChannelKind, Frame

BOOT = bytes(16)


class Told:
    """The last words of each kind to each member."""

    def __init__(self) -> None:
        self.last: dict[Identity, dict[type[Frame], Frame]] = defaultdict(dict)

    def __call__(self, who: Identity, _: ChannelKind, frame: Frame) -> None:
        self.last[who][type(frame)] = frame


def join(group: CoordinatorState, name: str) -> Identity:
    entry = Entry(Member(name, instance_of(name), BOOT, "north", 7), heard_at=0.0)
    group.join(entry, 0.0)
    return entry.identity


def call(group: CoordinatorState, who: Identity, barrier: str) -> None:
    group.receive(who, BarrierRequest(1, barrier, Require.NOTHING), 0.0)


def test_those_who_come_and_go_while_a_round_is_open_are_not_kept_in_mind() -> None:
    group = CoordinatorState(lambda *_: None, Timeouts())
    first, _ = join(group, "a"), join(group, "b")
    call(group, first, "noon")
    gc.collect()
    before = count_abouts()

    for number in range(1000):
        group.part(join(group, f"guest {number}"), Failure.PEER_LOST, 0.0)

    gc.collect()
    assert count_abouts() - before < 10


def test_who_was_lost_is_named_by_every_round_that_it_was_in() -> None:
    told = Told()
    group = CoordinatorState(told, Timeouts())
    first, lost = join(group, "a"), join(group, "b")
    call(group, first, "noon")
    call(group, first, "night")

    group.part(lost, Failure.PEER_LOST, 0.0)

    about, completion = told.last[first][About], told.last[first][BarrierCompletion]
    assert isinstance(about, About)
    assert about.name == "b"
    assert isinstance(completion, BarrierCompletion)
    assert completion.rendezvous.offender == lost.instance


def count_abouts() -> int:
    return sum(isinstance(it, About) for it in gc.get_objects())
