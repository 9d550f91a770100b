"""The input of one task to a Spark job, and which of them can run together in one job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Never

from tidegate.pipeline.nodes import STAR
from tidegate.plan.physical import (
    Apply,
    CompactAggregate,
    FinalDistinct,
    FinalTop,
    MergeAggregate,
    PartialAggregate,
    PartialDistinct,
    PartialTop,
    PhysicalJoin,
    PhysicalUnion,
    Project,
    Scan,
    Where,
    WholeAggregate,
    WriteSink,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidegate.dataflow import Batch
    from tidegate.plan.physical import PhysicalOperator


@dataclass(frozen=True, slots=True)
class JobInput:
    """The part of one task in a job: the batches of one run, one tuple per input of the stage.

    `run` is the number of the run in the store, `shard` the task's shard of the stage. No two
    inputs of a job have both in common.
    """

    run: int
    shard: int
    inputs: tuple[tuple[Batch, ...], ...]

    @property
    def rows(self) -> int:
        """The number of rows of all batches."""
        return sum(batch.rows for batches in self.inputs for batch in batches)


def jobs_of(
    operators: Sequence[PhysicalOperator], inputs: Iterable[JobInput]
) -> list[list[JobInput]]:
    """The inputs for which there is anything to compute, grouped by the job they run in."""
    together: list[JobInput] = []
    alone: list[JobInput] = []
    is_joint = can_be_joint(operators)
    for job_input in inputs:
        is_empty = not any(batch.rows for batch in job_input.inputs[0])
        if is_empty and has_row_for_no_input(operators):
            alone.append(job_input)
        elif job_input.rows:
            (together if is_joint else alone).append(job_input)
    return [*([together] if together else []), *([job_input] for job_input in alone)]


def has_row_for_no_input(operators: Sequence[PhysicalOperator]) -> bool:
    """Whether an empty input gives one row: so does a merge without groups, and it has no tag."""
    return any(isinstance(operator, MergeAggregate) and not operator.by for operator in operators)


def can_be_joint(operators: Sequence[PhysicalOperator]) -> bool:
    """Whether the operators never combine rows with different tags: of two runs, or two shards.

    A merge without groups behind other operators may find that they left no rows of a job input,
    and therefore no tags. (So may a partial aggregate without groups, but no partial result
    merges like that of an empty input.)
    """
    return all(map(_keeps_tags_apart, operators)) and not has_row_for_no_input(operators[1:])


def _keeps_tags_apart(operator: PhysicalOperator) -> bool:  # noqa: PLR0911  one case per operator
    """Whether an operator works on tagged rows; not where tags are visible to users' code.

    Tags are visible to a user's function, and to a `*` inside of an expression. An operator that
    is not listed here runs in a job of its own.
    """
    match operator:
        case Scan() | PhysicalJoin() | PhysicalUnion() | WriteSink():
            return True
        case PartialDistinct() | FinalDistinct():
            return True
        case Where(reads=reads):
            return STAR not in reads
        case Project(columns=columns):
            return not any(STAR in column.reads for column in columns)
        case WholeAggregate() | PartialAggregate() | MergeAggregate() | CompactAggregate():
            return not any(STAR in column.reads for column in operator.columns)
        case FinalTop(by=order) | PartialTop(by=order):
            return not any(STAR in key.reads for key in order)
        case Apply():
            return False
        case _:
            _unlisted: Never = operator  # type: ignore[unreachable]  # mypy: all are listed
            return False
