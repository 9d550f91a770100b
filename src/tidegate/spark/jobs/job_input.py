"""Shares: what each task brings to a joint job, and which of them can run together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.pipeline.nodes import STAR
from tidegate.plan.physical import (
    Apply,
    MergeAggregate,
    PartialAggregate,
    PartialTop,
    Project,
    Top,
    Where,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidegate.plan.physical import Step
    from tidegate.spark.jobs.exchange import Batch


@dataclass(frozen=True, slots=True)
class JobInput:
    """What one task does of a joint job: the batches of one run, one tuple per input of the stage.

    `run` is the number that the store gave it, `shard` the task's shard of the stage. No two
    shares of a job have both in common.
    """

    run: int
    shard: int
    inputs: tuple[tuple[Batch, ...], ...]

    @property
    def rows(self) -> int:
        """How many rows it brings."""
        return sum(batch.rows for batches in self.inputs for batch in batches)


def jobs_of(steps: Sequence[Step], shares: Iterable[JobInput]) -> list[list[JobInput]]:
    """The shares that have anything to compute, by the job they run in."""
    together: list[JobInput] = []
    alone: list[JobInput] = []
    is_joint = can_be_joint(steps)
    for share in shares:
        if makes_a_row_of_nothing(steps) and not any(batch.rows for batch in share.inputs[0]):
            alone.append(share)
        elif share.rows:
            (together if is_joint else alone).append(share)
    return [*([together] if together else []), *([share] for share in alone)]


def makes_a_row_of_nothing(steps: Sequence[Step]) -> bool:
    """Whether no rows give one: a merge without groups does, where no tag could come from."""
    return any(isinstance(step, MergeAggregate) and not step.by for step in steps)


def can_be_joint(steps: Sequence[Step]) -> bool:
    """Whether the steps keep rows of different shares apart, if they have tags.

    A user's function would see the tags, so would a `*` inside of an expression. A merge without
    groups behind other steps may find that they left nothing of a share, tags included. (So may a
    partial aggregate without groups, but no partial result merges like one of nothing.)
    """
    later = steps[1:]
    return not (
        any(isinstance(step, Apply) for step in steps)
        or any(STAR in read for step in steps for read in _reads(step))
        or makes_a_row_of_nothing(later)
    )


def _reads(step: Step) -> Iterable[tuple[str, ...]]:
    """The columns that each expression of a step looks at."""
    match step:
        case Where(reads=reads):
            return [reads]
        case Project(columns=columns):
            return [column.reads for column in columns]
        case PartialAggregate(columns=columns) | MergeAggregate(columns=columns):
            return [column.reads for column in columns]
        case Top(by=order) | PartialTop(by=order):
            return [it.reads for it in order]
        case _:
            return []
