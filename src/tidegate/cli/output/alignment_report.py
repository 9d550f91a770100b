"""Alignment of a run's checkpoints: for each barrier the last upstream and the time waited."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.plan import PhysicalBarrier

if TYPE_CHECKING:
    from tidegate.plan import PhysicalPlan
    from tidegate.store.checkpoints.alignment_stats import TaskAlignment

NO_CHECKPOINTS = "This run has no checkpoint: `tidegate checkpoint` takes one."


@dataclass(frozen=True, slots=True)
class BarrierStats:
    """Alignment at one barrier of the plan, over all its shards and retained checkpoints."""

    checkpoint: int
    """The latest checkpoint."""
    task: str
    """The shard that waited longest for it."""
    seconds: float
    last: str
    """The upstream that arrived last there."""
    checkpoints: int
    """Number of retained checkpoints."""
    total: float
    """Seconds waited by all shards for all checkpoints."""
    came_last: Mapping[str, int]
    """How often each upstream arrived last, the most frequent first."""

    def render(self) -> tuple[str, str]:
        """A line about the latest checkpoint, and one about all."""
        upstreams = ", ".join(f"{task} {times}x" for task, times in self.came_last.items())
        checkpoints = "1 checkpoint" if self.checkpoints == 1 else f"{self.checkpoints} checkpoints"
        waited = f"waited {self.seconds:.3f} s at {self.task}"
        return (
            f"checkpoint {self.checkpoint}: {self.last} came last, {waited}",
            f"{checkpoints}: waited {self.total:.3f} s in all; last {upstreams}",
        )


def barrier_stats(plan: PhysicalPlan, found: Sequence[TaskAlignment]) -> dict[str, BarrierStats]:
    """The alignment of each barrier that a checkpoint has passed, by its id."""
    by_node: dict[str, list[TaskAlignment]] = defaultdict(list)
    for alignment in found:
        by_node[alignment.task.partition("/")[0]].append(alignment)
    barriers = (node.id for node in plan.nodes if isinstance(node, PhysicalBarrier))
    return {id: _stats(by_node[id]) for id in barriers if by_node[id]}


def _stats(found: Sequence[TaskAlignment]) -> BarrierStats:
    latest = max(each.number for each in found)
    longest = max((each for each in found if each.number == latest), key=lambda each: each.waited)
    return BarrierStats(
        checkpoint=latest,
        task=longest.task,
        seconds=longest.waited,
        last=longest.last,
        checkpoints=len({each.number for each in found}),
        total=sum(each.waited for each in found),
        came_last=_counted(each.last for each in found),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
