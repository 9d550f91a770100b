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
from tidegate.store.runs.status import owners, record_gates

if TYPE_CHECKING:
    from tidegate.plan import Difference
    from tidegate.runtime.task_graph import Assembly
    from tidegate.store import Connection, Run
    from tidegate.store.checkpoints.checkpoints import Cut

NOT_RECORDED = "what its plan consisted of was not recorded"
UNALIGNED = "the cut waited for no barriers: what was on its way between stages belongs to it"


def record_plan(connection: Connection, assembly: Assembly) -> None:
    """Note what others have to know of a plan under which runs are about to be begun."""
    plan = plan_hash(assembly.plan)
    record_gates(connection, plan, assembly.monitored)
    plans.record(connection, plan, encoded(assembly.plan))
    plans.note_served(connection, assembly.name, plans.Served(plan, assembly.plan.shards))


def refuse_misfit(connection: Connection, assembly: Assembly, run: Run, number: int) -> None:
    """Raise `OtherPlan` if a cut was taken under another plan, and what it keeps does not fit."""
    cut = checkpoint_store.cut_of(connection, run, number)
    ours = plan_hash(assembly.plan)
    if cut is None or cut.manifest["plan"] == ours:
        return
    nodes = plans.recorded(connection, cut.manifest["plan"])
    if nodes is None:
        raise OtherPlan(run.pipeline, ours, run.name, (), (NOT_RECORDED,))
    told = difference(nodes, encoded(assembly.plan))
    found = told.obstacles or tuple(_at_the_cut(connection, assembly, run, cut, told))
    if found:
        raise OtherPlan(run.pipeline, ours, run.name, told.lines, found)


def refuse_while_served(connection: Connection, assembly: Assembly, run: Run) -> None:
    """Raise `StillServed` if a run changes its plan while somebody has a task of its pipeline.

    Whoever serves the plan that it has would take what is sent to its tasks under the other.
    """
    if plan_of(connection, run) == plan_hash(assembly.plan):
        return
    every = owners(connection, run.pipeline, assembly.places)
    names = {it.name for it in every.values() if it.name is not None and it.expires_in > 0}
    if names:
        raise StillServed(run.pipeline, run.name, listed(sorted(names)))


def _at_the_cut(
    connection: Connection, assembly: Assembly, run: Run, cut: Cut, told: Difference
) -> Iterator[str]:
    """What was given for good at one cut, and is not at another."""
    tasks = [task for task, (node, _) in assembly.places.items() if node.id in told.answering]
    ended = plans.ended_before(connection, run, cut.number, tasks)
    if ended:
        yield f"{listed(ended)} had ended before the cut, with what the earlier plan answered"
    if not cut.manifest.get("is_aligned", True):
        yield UNALIGNED
