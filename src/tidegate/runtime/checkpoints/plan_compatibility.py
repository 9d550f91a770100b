"""Whether a run may go on under another plan than the one that it was cut with.

What a plan consists of is recorded when it is served, so that whoever has another declaration can
be told how the two differ. A run goes on if what it keeps fits both (see
`tidegate.plan.compatibility.fit`), and if at the cut all answers were still to be computed anew.
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

NOT_RECORDED = "what its plan consisted of was not recorded"
UNALIGNED = "the cut waited for no barriers: what was on its way between stages belongs to it"


def record_plan(connection: Connection, task_graph: TaskGraph) -> None:
    """Note what others have to know of a plan under which runs are about to be begun."""
    plan = plan_hash(task_graph.plan)
    record_release_points(connection, plan, task_graph.monitored)
    plans.record(connection, plan, encoded(task_graph.plan))
    plans.record_served_plan(
        connection, task_graph.name, plans.ServedPlan(plan, task_graph.plan.shards)
    )


def refuse_misfit(connection: Connection, task_graph: TaskGraph, run: RunInfo, number: int) -> None:
    """Raise `OtherPlan` if a cut was taken under another plan, and what it keeps does not fit."""
    checkpoint = checkpoint_store.committed_checkpoint(connection, run, number)
    ours = plan_hash(task_graph.plan)
    if checkpoint is None or checkpoint.manifest["plan"] == ours:
        return
    nodes = plans.recorded(connection, checkpoint.manifest["plan"])
    if nodes is None:
        raise OtherPlan(run.pipeline, ours, run.name, (), (NOT_RECORDED,))
    told = difference(nodes, encoded(task_graph.plan))
    found = told.obstacles or tuple(
        _at_the_checkpoint(connection, task_graph, run, checkpoint, told)
    )
    if found:
        raise OtherPlan(run.pipeline, ours, run.name, told.lines, found)


def refuse_while_served(connection: Connection, task_graph: TaskGraph, run: RunInfo) -> None:
    """Raise `StillServed` if a run changes its plan while somebody has a task of its pipeline.

    Whoever serves the plan that it has would take what is sent to its tasks under the other.
    """
    if plan_of(connection, run) == plan_hash(task_graph.plan):
        return
    every = owners(connection, run.pipeline, task_graph.tasks)
    names = {it.name for it in every.values() if it.name is not None and it.expires_in > 0}
    if names:
        raise StillServed(run.pipeline, run.name, listed(sorted(names)))


def _at_the_checkpoint(
    connection: Connection,
    task_graph: TaskGraph,
    run: RunInfo,
    checkpoint: CommittedCheckpoint,
    told: Difference,
) -> Iterator[str]:
    """What was given for good at one cut, and is not at another."""
    tasks = [task for task, (node, _) in task_graph.tasks.items() if node.id in told.recomputed]
    ended = plans.ended_before(connection, run, checkpoint.number, tasks)
    if ended:
        yield f"{listed(ended)} had ended before the cut, with what the earlier plan answered"
    if not checkpoint.manifest.get("is_aligned", True):
        yield UNALIGNED
