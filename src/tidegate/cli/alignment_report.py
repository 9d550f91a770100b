"""What the cuts of a run say about its plan: who came last at each barrier, how long it held."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.plan import PhysicalBarrier

if TYPE_CHECKING:
    from tidegate.plan import PhysicalPlan
    from tidegate.store.checkpoints.alignment_stats import TaskAlignment

NO_CHECKPOINTS = "This run has no cut: `tidegate checkpoint` takes one."


@dataclass(frozen=True, slots=True)
class BarrierStats:
    """How one barrier of the plan held the cuts of a run, over all its shards."""

    checkpoint: int
    """The latest."""
    task: str
    """The shard that held it longest."""
    seconds: float
    last: str
    """Who came last there."""
    checkpoints: int
    """How many are remembered."""
    total: float
    """Seconds that all shards have held all of them."""
    came_last: Mapping[str, int]
    """How often each was the last, the most frequent first."""

    def render(self) -> tuple[str, str]:
        """The latest cut, and all."""
        who = ", ".join(f"{task} {times}x" for task, times in self.came_last.items())
        checkpoints = "1 checkpoint" if self.checkpoints == 1 else f"{self.checkpoints} checkpoints"
        held = f"held {self.seconds:.3f} s at {self.task}"
        return (
            f"checkpoint {self.checkpoint}: {self.last} came last, {held}",
            f"{checkpoints}: held {self.total:.3f} s in all; last came {who}",
        )


def barrier_stats(plan: PhysicalPlan, found: Sequence[TaskAlignment]) -> dict[str, BarrierStats]:
    """By the id of each barrier that a cut has passed, how it held."""
    by_node: dict[str, list[TaskAlignment]] = defaultdict(list)
    for it in found:
        by_node[it.task.partition("/")[0]].append(it)
    barriers = (node.id for node in plan.nodes if isinstance(node, PhysicalBarrier))
    return {id: _stats(by_node[id]) for id in barriers if by_node[id]}


def _stats(found: Sequence[TaskAlignment]) -> BarrierStats:
    latest = max(it.number for it in found)
    longest = max((it for it in found if it.number == latest), key=lambda it: it.waited)
    return BarrierStats(
        checkpoint=latest,
        task=longest.task,
        seconds=longest.waited,
        last=longest.last,
        checkpoints=len({it.number for it in found}),
        total=sum(it.waited for it in found),
        came_last=_counted(it.last for it in found),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
