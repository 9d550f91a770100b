"""The members of a group, and how far the messages to and from each have come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from tidegate.group.round import Identity, Round
from tidegate.group.status import Member
from tidegate.group.wire import About


def instance_of(name: str) -> int:
    """The number that stands for a name on the wire; never 0.

    >>> instance_of("joiner") == instance_of("joiner") != instance_of("filter")
    True
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") or 1


@dataclass(frozen=True, slots=True)
class Missed:
    """A settled round, and those whom its verdict names, for members that come too late to it."""

    round: Round
    offenders: tuple[About, ...]


@dataclass(slots=True)
class Entry:
    """What the coordinator knows of one member."""

    member: Member
    heard_at: float
    sent: int = 0
    """Messages that it has sent to others."""
    leading: int = 0
    """Messages that were sent to it."""
    is_draining: bool = False
    last_phase: str = "has joined"
    calls: int = 0
    """Barrier calls that are not answered."""
    missed: dict[str, Missed] = field(default_factory=dict)
    """By barrier, the last round that was settled without it, while nobody has told it."""
    identity: Identity = field(init=False)
    """The member in its present life."""

    def __post_init__(self) -> None:
        self.identity = Identity(self.member.instance, self.member.boot)

    def seen(self, now: float) -> Member:
        """As it is to be shown to others."""
        return replace(
            self.member,
            is_draining=self.is_draining,
            last_phase=self.last_phase,
            silent=max(0.0, now - self.heard_at),
        )


class MemberTable:
    """Who is here, by instance; a younger life of the same instance takes the place of the old."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Somebody has joined."""
        self._entries[entry.member.instance] = entry

    def get(self, who: Identity) -> Entry | None:
        """This member in this life, if it is here."""
        entry = self._entries.get(who.instance)
        return entry if entry is not None and entry.member.boot == who.boot else None

    def by_instance(self, instance: int) -> Entry | None:
        """This member in whatever life."""
        return self._entries.get(instance)

    def remove(self, who: Identity) -> Entry | None:
        """Somebody has gone."""
        return self._entries.pop(who.instance) if self.get(who) else None
