"""How two plans of a pipeline differ, to restore a run under a changed declaration.

    found = difference(encoded(before), encoded(after))
    found.fits, found.lines

Stages are matched by their operators, not by their ids. Whether a run of one plan can continue
under the other is decided in `tidegate.plan.compatibility.fit`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tidegate.plan.compatibility.fit import (
    Nodes,
    Retention,
    arriving,
    obstacles,
    stages,
    upstreams_of,
)
from tidegate.plan.compatibility.operator_words import Plain, input_words, operator_words


@dataclass(frozen=True, slots=True)
class UnmatchedStage:
    """A stage that only one of two plans has, and its operators."""

    stage: str
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangedStage:
    """A stage of both plans, with the operators that differ. Its id is that of the later plan."""

    stage: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a plan differs from an earlier one."""

    added: tuple[UnmatchedStage, ...]
    removed: tuple[UnmatchedStage, ...]
    changed: tuple[ChangedStage, ...]
    obstacles: tuple[str, ...]
    """Why a run of the earlier plan cannot continue under the later; empty if it can."""
    recomputed: tuple[str, ...]
    """Stages that must not have ended, because the output of an ended stage is permanent."""

    @property
    def fits(self) -> bool:
        """Whether the state of a run under the earlier plan fits the later."""
        return not self.obstacles

    @property
    def lines(self) -> tuple[str, ...]:
        """Readable lines, each change once: both halves of a split operator change alike."""
        changed = (f"{_joined(it.before)} → {_joined(it.after)}" for it in self.changed)
        removed = (f"removed: {_joined(it.operators)}" for it in self.removed)
        added = (f"added: {_joined(it.operators)}" for it in self.added)
        return tuple(dict.fromkeys([*changed, *removed, *added]))


def difference(before: str, after: str) -> Difference:
    """How the later of two encoded plans differs from the earlier."""
    old, new = _nodes(before), _nodes(after)
    pairs = [*_paired(old, new)]
    changes = (_change(old, new, left, right) for left, right in pairs if left and right)
    same = {left["id"]: right["id"] for left, right in pairs if left and right}
    changed = tuple(it for it in changes if it.before != it.after)
    unmatched = [(left, right) for left, right in pairs if not (left and right)]
    return Difference(
        added=tuple(_unmatched(right) for _, right in unmatched if right),
        removed=tuple(_unmatched(left) for left, _ in unmatched if left),
        changed=changed if changed or unmatched else tuple(_rewired(old, new, same)),
        obstacles=tuple(obstacles(old, new)),
        recomputed=Retention(new).recomputed,
    )


def _nodes(encoded: str) -> Nodes:
    return {node["id"]: node for node in json.loads(encoded)}


def _paired(old: Nodes, new: Nodes) -> Iterator[tuple[Plain | None, Plain | None]]:
    """Stages with the same operators, stages that replace each other, and unmatched ones."""
    left, right = stages(old), stages(new)
    matcher = SequenceMatcher(None, _keys(left), _keys(right), autojunk=False)
    for _, i, j, k, n in matcher.get_opcodes():
        for offset in range(max(j - i, n - k)):
            yield (
                left[i + offset] if i + offset < j else None,
                right[k + offset] if k + offset < n else None,
            )


def _keys(sides: Sequence[Plain]) -> list[str]:
    return [json.dumps(stage["operators"]) for stage in sides]


def _unmatched(stage: Plain) -> UnmatchedStage:
    return UnmatchedStage(
        stage["id"], tuple(operator_words(operator) for operator in stage["operators"])
    )


def _change(old: Nodes, new: Nodes, left: Plain, right: Plain) -> ChangedStage:
    """The operators of a stage that only one of the plans has."""
    removed = _without(left["operators"], right["operators"])
    added = _without(right["operators"], left["operators"])
    before, after = _lines(removed, added), _lines(added, removed)
    inputs = _inputs(old, left), _inputs(new, right)
    if inputs[0] != inputs[1]:
        before, after = (*before, inputs[0]), (*after, inputs[1])
    if left["operators"] != right["operators"] and before == after:
        after = (*after, "computed by other formulas, or in another order")
    return ChangedStage(right["id"], before, after)


def _without(operators: Sequence[Plain], others: Sequence[Plain]) -> list[Plain]:
    return [operator for operator in operators if operator not in others]


def _lines(operators: Sequence[Plain], others: Sequence[Plain]) -> tuple[str, ...]:
    return tuple(operator_words(_narrowed(operator, others)) for operator in operators)


def _narrowed(operator: Plain, others: Sequence[Plain]) -> Plain:
    """An operator with only the columns that differ from the other one of its kind, if any do."""
    other = next((it for it in others if it["kind"] == operator["kind"]), operator)
    if "columns" not in operator or not _without(other["columns"], operator["columns"]):
        return operator
    differing = _without(operator["columns"], other["columns"])
    return {**operator, "columns": differing or operator["columns"]}


def _inputs(nodes: Nodes, stage: Plain) -> str:
    return input_words(arriving(nodes, stage), stage["shards"])


def _rewired(old: Nodes, new: Nodes, same: dict[str, str]) -> Iterator[ChangedStage]:
    """Stages that have the same operators and read other stages."""
    for left, right in same.items():
        before = [same[it] for it in upstreams_of(old, old[left])]
        after = upstreams_of(new, new[right])
        if before != after:
            yield ChangedStage(right, (f"reads {_joined(before)}",), (f"reads {_joined(after)}",))


def _joined(words: Sequence[str]) -> str:
    return "; ".join(words) or "nothing"
