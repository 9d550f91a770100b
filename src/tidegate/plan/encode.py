"""Plans as plain values: the JSON of EXPLAIN, and the hash that tells two plans apart."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING

from tidegate.pipeline.nodes import Transform
from tidegate.plan.physical import Apply, qualified_name

if TYPE_CHECKING:
    from tidegate.plan.logical import LogicalNode, LogicalPlan
    from tidegate.plan.physical import PhysicalNode, PhysicalPlan

_DERIVED = frozenset({"reads"})
_GRAPH = frozenset({"at", "input", "inputs", "left", "right"})


def physical_json(plan: PhysicalPlan) -> dict[str, object]:
    """A physical plan as plain values."""
    return {
        "plan": "physical",
        "pipeline": plan.pipeline,
        "shards": plan.shards,
        "hash": plan_hash(plan),
        "root": plan.root.id,
        "nodes": [_physical_node(node) for node in plan.nodes],
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
    """SHA-256 of everything that decides what a plan does; the same in every process.

    A user's function counts by its qualified name: its code cannot be compared.
    """
    nodes = [_physical_node(node) for node in plan.nodes]
    text = json.dumps(nodes, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def _physical_node(node: PhysicalNode) -> dict[str, object]:
    return {"id": node.id, "kind": type(node).__name__, **_members(node, without=frozenset({"id"}))}


def _logical_node(node: LogicalNode) -> dict[str, object]:
    operator = _value(node.operator)
    assert isinstance(operator, dict)
    return {"id": node.id, **operator, "inputs": list(node.inputs)}


def _members(value: object, without: frozenset[str] = _GRAPH) -> dict[str, object]:
    hidden = without | _DERIVED
    names = (field.name for field in fields(value) if field.name not in hidden)  # type: ignore[arg-type]
    return {name: _value(getattr(value, name)) for name in names}


def _value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, Apply | Transform):
        return {"kind": type(value).__name__, "function": qualified_name(value.function)}
    if is_dataclass(value):
        return {"kind": type(value).__name__, **_members(value)}
    return value
