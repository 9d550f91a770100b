"""Decides whether a run can be restored under another plan than that of its checkpoint.

The nodes of a plan are recorded when it is served, so that the difference from another declaration
can be shown. A run can be restored if its state fits both plans (see
`tidegate.plan.compatibility.fit`), and if no result was final at the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.errors import OtherPlan, StillServed, listed
from tidegate.plan import difference, encoded, plan_hash
from tidegate.store import plan_of
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.runs import plans
from tidegate.store.runs.status import owners, record_release_points

if TYPE_CHECKING:
    from tidegate.plan import Difference
    from tidegate.runtime.task_graph import TaskGraph
    from tidegate.store import Connection, RunInfo
    from tidegate.store.checkpoints.checkpoints import CommittedCheckpoint

NOT_RECORDED = "the nodes of its plan were not recorded"
UNALIGNED = "the checkpoint is unaligned: it contains messages in flight between stages"


def record_plan(connection: Connection, task_graph: TaskGraph) -> None:
    """Record a plan before runs begin under it."""
    plan = plan_hash(task_graph.plan)
    record_release_points(connection, plan, task_graph.monitored)
    plans.record(connection, plan, encoded(task_graph.plan))
    plans.record_served_plan(
        connection, task_graph.name, plans.ServedPlan(plan, task_graph.plan.shards)
    )


def refuse_misfit(connection: Connection, task_graph: TaskGraph, run: RunInfo, number: int) -> None:
    """Raise `OtherPlan` if a checkpoint was taken under another plan and its state does not fit."""
    checkpoint = checkpoint_store.committed_checkpoint(connection, run, number)
    ours = plan_hash(task_graph.plan)
    if checkpoint is None or checkpoint.manifest["plan"] == ours:
        return
    nodes = plans.recorded(connection, checkpoint.manifest["plan"])
    if nodes is None:
        raise OtherPlan(run.pipeline, ours, run.name, (), (NOT_RECORDED,))
    changes = difference(nodes, encoded(task_graph.plan))
    obstacles = changes.obstacles or tuple(
        _obstacles_at(connection, task_graph, run, checkpoint, changes)
    )
    if obstacles:
        raise OtherPlan(run.pipeline, ours, run.name, changes.lines, obstacles)


def refuse_while_served(connection: Connection, task_graph: TaskGraph, run: RunInfo) -> None:
    """Raise `StillServed` if the run would change its plan while a worker owns a task of it.

    A worker under the old plan would process messages that are meant for the new one.
    """
    if plan_of(connection, run) == plan_hash(task_graph.plan):
        return
    every = owners(connection, run.pipeline, task_graph.tasks)
    names = {owner.name for owner in every.values() if owner.name and owner.expires_in > 0}
    if names:
        raise StillServed(run.pipeline, run.name, listed(sorted(names)))


def _obstacles_at(
    connection: Connection,
    task_graph: TaskGraph,
    run: RunInfo,
    checkpoint: CommittedCheckpoint,
    changes: Difference,
) -> Iterator[str]:
    """What makes one checkpoint unfit although the plans are compatible."""
    tasks = [task for task, (node, _) in task_graph.tasks.items() if node.id in changes.recomputed]
    ended = plans.ended_before(connection, run, checkpoint.number, tasks)
    if ended:
        yield f"{listed(ended)} had ended before the checkpoint, with results of the earlier plan"
    if not checkpoint.manifest.get("is_aligned", True):
        yield UNALIGNED
