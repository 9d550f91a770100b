"""Whether the state of a run under one plan fits another plan, and if not, why.

Rows of sources that only narrow stages have processed are *permanent*: they are stored by the
stateful stage or the sink that they reach. They were computed by the operators before it, so those
must not change. The output of a stateful stage is valid for one checkpoint and recomputed for the
next, from all state of the stage. So what is done with such output may change:

    permanent     every stage from a source to a stateful stage or a sink, and in a stateful stage
                  that permanent rows reach, all operators up to the last stateful one
    recomputed    the operators behind those, and every stage that only recomputed rows reach

Rows are assigned to the shards of a stage by its key, which depends on the types of both sides of a
join; so nothing may change upstream of a stage that stores permanent rows. Stages and the edges
between them must be the same by their ids, and so must the columns of a stage's output: earlier
checkpoints of the run are still read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tidegate.plan.compatibility.operator_words import Plain, operator_words
from tidegate.plan.physical import STATEFUL

Nodes: TypeAlias = Mapping[str, Plain]
"""The nodes of a recorded plan by id, upstream before downstream."""

_STATEFUL = frozenset(kind.__name__ for kind in STATEFUL)
OTHER_GRAPH = "the stages, their shards, their state or the edges between them are not the same"


@dataclass(frozen=True)
class Retention:
    """Which stages of a plan handle permanent rows."""

    nodes: Nodes

    @cached_property
    def forwarding(self) -> frozenset[str]:
        """The narrow stages that permanent rows pass through."""
        found: set[str] = set()
        for node in stages(self.nodes):
            upstreams = upstreams_of(self.nodes, node)
            if not is_stateful(node) and (not upstreams or found & set(upstreams)):
                found.add(node["id"])
        return frozenset(found)

    @cached_property
    def storing(self) -> frozenset[str]:
        """The stateful stages that permanent rows reach."""
        return frozenset(
            node["id"]
            for node in stages(self.nodes)
            if is_stateful(node) and self.forwarding & set(upstreams_of(self.nodes, node))
        )

    @property
    def recomputed(self) -> tuple[str, ...]:
        """The stages whose output is recomputed for each checkpoint until they have ended."""
        return tuple(node["id"] for node in stages(self.nodes) if node["id"] not in self.forwarding)


def obstacles(before: Nodes, after: Nodes) -> Iterator[str]:
    """Why the state of a run under one plan does not fit another."""
    if _frame(before) != _frame(after):
        yield OTHER_GRAPH
        return
    changed = [
        node for node in stages(after) if node["operators"] != before[node["id"]]["operators"]
    ]
    downstream = _downstream(after, [node["id"] for node in changed])
    retention = Retention(after)
    for node in changed:
        yield from _obstacles_of_stage(before[node["id"]]["operators"], node, retention)
    for stage in [*retention.forwarding, *retention.storing]:
        if stage in downstream:
            yield f"{stage} stores or forwards permanent rows, and a stage before it has changed"


def stages(nodes: Nodes) -> list[Plain]:
    """The stages of a plan, upstream before downstream."""
    return [node for node in nodes.values() if "operators" in node]


def arriving(nodes: Nodes, node: Plain) -> Sequence[Plain]:
    """The edges over which rows reach a node: those of its barrier, if it has one."""
    uppers = [nodes[edge["upstream"]] for edge in node["inputs"]]
    barriers: list[Plain] = [upper for upper in uppers if upper["kind"] == "PhysicalBarrier"]
    edges: Sequence[Plain] = barriers[0]["inputs"] if barriers else node["inputs"]
    return edges


def upstreams_of(nodes: Nodes, node: Plain) -> list[str]:
    """The stages that a node reads."""
    return [edge["upstream"] for edge in arriving(nodes, node)]


def is_stateful(stage: Plain) -> bool:
    """Whether it produces output only when its input is complete."""
    return any(operator["kind"] in _STATEFUL for operator in stage["operators"])


def _obstacles_of_stage(
    before: Sequence[Plain], after: Plain, retention: Retention
) -> Iterator[str]:
    stage, operators = after["id"], after["operators"]
    if stage in retention.forwarding:
        yield f"rows that {stage} has processed stay as they are: {_changed(before, operators)}"
    elif stage in retention.storing and _stateful_part(before) != _stateful_part(operators):
        yield f"{stage} stores rows that it has processed: {_changed(before, operators)}"
    if stage not in retention.forwarding and _columns(before) != _columns(operators):
        yield f"{stage} would produce other columns than in earlier checkpoints"


def _changed(before: Sequence[Plain], after: Sequence[Plain]) -> str:
    """The first operator that is no longer there."""
    return operator_words(next((it for it in before if it not in after), before[-1]))


def _frame(nodes: Nodes) -> list[object]:
    """Everything but the operators, and which of the stages are stateful."""
    plain = [
        {name: value for name, value in node.items() if name != "operators"}
        for node in nodes.values()
    ]
    return [plain, [is_stateful(node) for node in stages(nodes)]]


def _stateful_part(operators: Sequence[Plain]) -> list[Plain]:
    """The operators up to the last stateful one."""
    last = max(at for at, operator in enumerate(operators) if operator["kind"] in _STATEFUL)
    return [*operators[: last + 1]]


def _downstream(nodes: Nodes, changed: Iterable[str]) -> set[str]:
    """The stages that rows of one of these reach."""
    origins = set(changed)
    found: set[str] = set()
    for node in stages(nodes):
        if (origins | found) & set(upstreams_of(nodes, node)):
            found.add(node["id"])
    return found


def _columns(operators: Iterable[Plain]) -> list[object]:
    """What determines the output columns of a stage."""
    return [columns for it in operators if (columns := _columns_of(it)) is not None]


def _columns_of(operator: Plain) -> object:
    match operator["kind"]:
        case "Where" | "FinalDistinct" | "PartialDistinct" | "FinalTop" | "PartialTop":
            return None
        case "Project":
            return [column["name"] for column in operator["columns"]]
        case "PartialAggregate" | "MergeAggregate" as kind:
            return [kind, operator["by"], [column["name"] for column in operator["columns"]]]
        case _:
            # Any change of another operator counts as one of columns, which is refused.
            return operator
