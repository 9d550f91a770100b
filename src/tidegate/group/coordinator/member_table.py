"""The members of a group, and how far the messages to and from each have come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from tidegate.group.coordinator.round import Identity, Round
from tidegate.group.protocol.wire import MemberInfo
from tidegate.group.status import Member


def instance_of(name: str) -> int:
    """The instance id of a name on the wire; never 0.

    >>> instance_of("joiner") == instance_of("joiner") != instance_of("filter")
    True
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") or 1


@dataclass(frozen=True, slots=True)
class MissedRound:
    """A settled round and the offenders it names, for members that arrive too late."""

    round: Round
    offenders: tuple[MemberInfo, ...]


@dataclass(slots=True)
class MemberEntry:
    """The coordinator's record of one member."""

    member: Member
    last_seen_at: float
    sent: int = 0
    """Messages sent by the member."""
    leading: int = 0
    """Messages sent to the member."""
    is_draining: bool = False
    last_phase: str = "has joined"
    calls: int = 0
    """Open barrier calls."""
    missed: dict[str, MissedRound] = field(default_factory=dict)
    """By barrier, the last round that was settled without the member and not yet reported to it."""
    identity: Identity = field(init=False)
    """Instance and boot of the member."""

    def __post_init__(self) -> None:
        self.identity = Identity(self.member.instance, self.member.boot)

    def seen(self, now: float) -> Member:
        """The member as it is reported to other members."""
        return replace(
            self.member,
            is_draining=self.is_draining,
            last_phase=self.last_phase,
            silent=max(0.0, now - self.last_seen_at),
        )


class MemberTable:
    """The members by instance; a newer boot of an instance replaces the older one."""

    def __init__(self) -> None:
        self._entries: dict[int, MemberEntry] = {}

    def __iter__(self) -> Iterator[MemberEntry]:
        return iter(tuple(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: MemberEntry) -> None:
        """Add a member."""
        self._entries[entry.member.instance] = entry

    def get(self, identity: Identity) -> MemberEntry | None:
        """The member with this instance and boot, if present."""
        entry = self._entries.get(identity.instance)
        return entry if entry is not None and entry.member.boot == identity.boot else None

    def by_instance(self, instance: int) -> MemberEntry | None:
        """The member with this instance, whatever its boot."""
        return self._entries.get(instance)

    def remove(self, identity: Identity) -> MemberEntry | None:
        """Remove a member."""
        return self._entries.pop(identity.instance) if self.get(identity) else None
