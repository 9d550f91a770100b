"""What the monitor looks at: one run at one shard of a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Producer:
    """One upstream task of the shard. Its messages are numbered densely from 1."""

    name: str
    declared: int | None = None
    """How many messages it sent to this shard in all; None until its END has come."""


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """Who feeds a shard, what each declared, and which messages of each were processed."""

    producers: tuple[Producer, ...]
    """Everybody whom the plan lets send to this shard, heard of or not."""
    processed: Mapping[str, frozenset[int]]
    """For each producer the numbers of its messages whose effect is committed."""
