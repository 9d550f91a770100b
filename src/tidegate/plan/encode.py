"""Plans as plain values: the JSON of EXPLAIN, and the hash that identifies a plan."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from tidegate.pipeline.nodes import (
    AggregateCall,
    AggregateColumn,
    AggregateState,
    EventTime,
    Order,
    SelectColumn,
    SourceField,
)
from tidegate.plan.bounds import Bound
from tidegate.plan.physical import (
    PhysicalEdge,
    PhysicalJoin,
    PhysicalStage,
    inputs_by_operator,
    qualified_name,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.plan.logical import LogicalNode, LogicalPlan
    from tidegate.plan.physical import PhysicalNode, PhysicalOperator, PhysicalPlan

_PLAIN = frozenset({str, int, float, bool, type(None)})

_HIDDEN = frozenset({"at", "input", "left", "right", "reads"})
"""Fields that repeat others (the edges of a node) or follow from the SQL."""

_WORDING = frozenset({"approximate", "undecided", "bound", "released_by"})
"""Fields that describe a plan without changing what it does."""

_NAMELESS = frozenset(
    {
        SourceField,
        EventTime,
        SelectColumn,
        Order,
        AggregateState,
        AggregateCall,
        AggregateColumn,
        PhysicalEdge,
        Bound,
    }
)
"""Values whose kind follows from the field that contains them."""

_OPTIONAL = "event_time"
"""A field that is left out where it is None, so that it does not change the hash."""


def physical_json(plan: PhysicalPlan) -> dict[str, object]:
    """A physical plan as plain values."""
    return {
        "plan": "physical",
        "pipeline": plan.pipeline,
        "shards": plan.shards,
        "hash": plan_hash(plan),
        "root": plan.root.id,
        "nodes": [_physical_node(node, plan) for node in plan.nodes],
    }


def logical_json(plan: LogicalPlan) -> dict[str, object]:
    """A logical plan as plain values."""
    return {
        "plan": "logical",
        "pipeline": plan.pipeline,
        "shards": plan.shards,
        "sinks": [sink.id for sink in plan.sinks],
        "nodes": [_logical_node(node) for node in plan.nodes],
    }


def plan_hash(plan: PhysicalPlan) -> str:
    """SHA-256 of everything that determines what a plan does; the same in every process.

    A user's function is represented by its qualified name: its code cannot be compared.
    """
    return sha256(encoded(plan).encode()).hexdigest()


def encoded(plan: PhysicalPlan) -> str:
    """The nodes of a plan as JSON, from which its hash is computed."""
    nodes = [_encoded(node, _HIDDEN | _WORDING) for node in plan.nodes]
    return json.dumps(nodes, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _physical_node(node: PhysicalNode, plan: PhysicalPlan) -> object:
    if not isinstance(node, PhysicalStage):
        return _encoded(node, _HIDDEN)
    inputs = inputs_by_operator(node.operators, plan.arriving(node))
    operators = [_physical_operator(*each) for each in zip(node.operators, inputs, strict=True)]
    edges = _encoded(node.inputs, _HIDDEN)
    head = {"kind": type(node).__name__, "id": node.id}
    return head | {"operators": operators, "inputs": edges, "shards": node.shards}


def _physical_operator(operator: PhysicalOperator, inputs: Sequence[PhysicalEdge]) -> object:
    """An operator, and for a join the node on its right side."""
    members = {"kind": type(operator).__name__, **_members(operator, _HIDDEN)}
    return (
        members | {"right": inputs[-1].upstream} if isinstance(operator, PhysicalJoin) else members
    )


def _logical_node(node: LogicalNode) -> dict[str, object]:
    operator = _members(node.operator, _HIDDEN | {"inputs"})
    kind = type(node.operator).__name__
    return {"id": node.id, "kind": kind, **operator, "inputs": list(node.inputs)}


def _encoded(value: object, hidden: frozenset[str]) -> object:
    # By exact type: a wide plan has a million small values, and isinstance costs more than this.
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple:
        return [_encoded(item, hidden) for item in cast("tuple[object, ...]", value)]
    if kind in _NAMELESS:
        return _members(value, hidden)
    if is_dataclass(kind):
        return {"kind": kind.__name__, **_members(value, hidden)}
    return value.value if isinstance(value, Enum) else qualified_name(value)


def _members(value: object, hidden: frozenset[str]) -> dict[str, object]:
    kind: Any = type(value)
    members = {name: getattr(value, name) for name in _shown(kind, hidden)}
    if members.get(_OPTIONAL, value) is None:
        del members[_OPTIONAL]
    for name, member in members.items():
        if type(member) not in _PLAIN:
            members[name] = _encoded(member, hidden)
    return members


@cache
def _shown(kind: Any, hidden: frozenset[str]) -> tuple[str, ...]:
    # Every value of a plan has slots, which are its fields in order.
    return tuple(name for name in kind.__slots__ if name not in hidden)
