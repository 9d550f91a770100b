"""What the steps of a recorded plan do, in the words of whoever declared the pipeline.

A recorded plan is plain values (see `tidegate.plan.encode`): whoever reads it may not have the
declaration that it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tidegate.plan.wording import checkpoint, listed

Plain: TypeAlias = Mapping[str, Any]
"""A node or a step of a recorded plan, or a part of one."""


def step_words(step: Plain) -> str:
    """One line about a step. Both halves of a split operator are the operator that was declared.

    >>> step_words({"kind": "Where", "sql": "quantity > 100"})
    'filter quantity > 100'
    >>> step_words({"kind": "PartialTop", "n": 1, "by": [{"sql": "a", "descending": True}],
    ...             "per": []})
    'top 1 by=[a desc]'
    """
    match step["kind"]:
        case "Scan":
            return f"source {step['source']} {_fields(step['columns'])}{_event_time(step)}"
        case "Where":
            return f"filter {checkpoint(step['sql'])}"
        case "Project":
            return f"select {_formulas(step['columns'])}"
        case "Apply":
            return f"transform {step['function']}"
        case "PartialAggregate" | "MergeAggregate":
            return f"aggregate by={listed(step['by'])} {_formulas(step['columns'])}"
        case _:
            return _keyed(step)


def _keyed(step: Plain) -> str:
    match step["kind"]:
        case "PartialTop" | "Top":
            per = f" per={listed(step['per'])}" if step["per"] else ""
            return f"top {step['n']:,} by={listed([_order(it) for it in step['by']])}{per}"
        case "Join":
            return f"join {step['how']} on={listed(step['on'])}"
        case "Union":
            return f"union {listed(step['columns'])}" if step["columns"] else "union"
        case "Write":
            return f"sink {step['sink']}"
        case kind:
            return str(kind)


def way_words(edges: Sequence[Plain], shards: int) -> str:
    """One line about how rows reach a stage, and on how many shards it runs.

    >>> way_words([{"upstream": "s1", "move": "exchange", "keys": ["id"]}], 4)
    'on 4 shards, exchange by=[id]'
    """
    moves = [it["move"] + (f" by={listed(it['keys'])}" if it["keys"] else "") for it in edges]
    return ", ".join([f"on {shards:,} shard{'' if shards == 1 else 's'}", *moves])


def _fields(columns: Sequence[Plain]) -> str:
    return listed([f"{it['name']} {it['type']}" for it in columns])


def _event_time(step: Plain) -> str:
    its = step.get("event_time")
    return f" event time {its['column']}, {its['delay']:,} ms late" if its else ""


def _formulas(columns: Sequence[Plain]) -> str:
    return listed(
        [it["name"] if it["sql"] == it["name"] else f"{it['name']} = {it['sql']}" for it in columns]
    )


def _order(it: Plain) -> str:
    return f"{it['sql']} {'desc' if it['descending'] else 'asc'}"
