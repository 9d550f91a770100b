"""The facts of one run at one shard of a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Producer:
    """One upstream task of the shard. Its messages are numbered densely from 1."""

    name: str
    declared: int | None = None
    """How many messages it sent to this shard in total; None until its END has arrived."""


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """The producers of a shard, and which messages of each were processed."""

    producers: tuple[Producer, ...]
    """All tasks that send to this shard according to the plan, even if nothing has arrived."""
    processed: Mapping[str, frozenset[int]]
    """By producer, the numbers of the messages whose effect is committed."""
