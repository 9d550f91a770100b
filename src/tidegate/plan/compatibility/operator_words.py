"""One-line descriptions of the operators of a recorded plan, in the words of its declaration.

A recorded plan consists of plain values (see `tidegate.plan.encode`), because its declaration may
not be available where it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tidegate.plan.wording import listed, shortened

Plain: TypeAlias = Mapping[str, Any]
"""A node or an operator of a recorded plan, or a part of one."""


def operator_words(operator: Plain) -> str:  # noqa: PLR0911  one case per operator
    """One line about an operator. Both halves of a split operator are the operator declared.

    An operator of another version of Tidegate is described by its kind.

    >>> operator_words({"kind": "Where", "sql": "quantity > 100"})
    'filter quantity > 100'
    >>> operator_words({"kind": "PartialTop", "n": 1, "by": [{"sql": "a", "descending": True}],
    ...                 "per": []})
    'top 1 by=[a desc]'
    """
    match operator:
        case {"kind": "Scan", "source": source, "columns": columns}:
            return f"source {source} {_fields(columns)}{_event_time(operator)}"
        case {"kind": "Where", "sql": sql}:
            return f"filter {shortened(sql)}"
        case {"kind": "Project", "columns": columns}:
            return f"select {_formulas(columns)}"
        case {"kind": "Apply", "function": function}:
            return f"transform {function}"
        case {"kind": "PhysicalUnion", "columns": columns}:
            return f"union {listed(columns)}" if columns else "union"
        case {"kind": "WriteSink", "sink": sink}:
            return f"sink {sink}"
        case _:
            return _keyed(operator)


def _keyed(operator: Plain) -> str:
    match operator:
        case {
            "kind": "WholeAggregate" | "PartialAggregate" | "MergeAggregate" | "CompactAggregate",
            "by": by,
            "columns": columns,
        }:
            return f"aggregate by={listed(by)} {_formulas(columns)}"
        case {"kind": "PartialDistinct" | "FinalDistinct"}:
            return "distinct"
        case {"kind": "PartialTop" | "FinalTop", "n": n, "by": by, "per": per}:
            groups = f" per={listed(per)}" if per else ""
            return f"top {n:,} by={listed([_order(key) for key in by])}{groups}"
        case {"kind": "PhysicalJoin", "how": how, "on": on}:
            return f"join {how} on={listed(on)}"
        case _:
            return str(operator["kind"])


def input_words(edges: Sequence[Plain], shards: int) -> str:
    """One line about how rows reach a stage, and on how many shards it runs.

    >>> input_words([{"upstream": "s1", "move": "exchange", "keys": ["id"]}], 4)
    'on 4 shards, exchange by=[id]'
    """
    moves = [it["move"] + (f" by={listed(it['keys'])}" if it["keys"] else "") for it in edges]
    return ", ".join([f"on {shards:,} shard{'' if shards == 1 else 's'}", *moves])


def _fields(columns: Sequence[Plain]) -> str:
    return listed([f"{it['name']} {it['type']}" for it in columns])


def _event_time(scan: Plain) -> str:
    time = scan.get("event_time")
    return f" event time {time['column']}, {time['delay']:,} ms late" if time else ""


def _formulas(columns: Sequence[Plain]) -> str:
    return listed(
        [it["name"] if it["sql"] == it["name"] else f"{it['name']} = {it['sql']}" for it in columns]
    )


def _order(key: Plain) -> str:
    return f"{key['sql']} {'desc' if key['descending'] else 'asc'}"
