"""How two plans of a pipeline differ, for whoever restores a run under a changed declaration.

    told = difference(encoded(before), encoded(after))
    told.fits, told.lines

Stages are compared by what they do; their ids only say where they stand. Whether a run of the one
can go on under the other is decided in `tidegate.plan.compatibility.fit`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tidegate.plan.compatibility.fit import (
    Keeping,
    Nodes,
    arriving,
    obstacles,
    stages,
    upstreams_of,
)
from tidegate.plan.compatibility.operator_words import Plain, step_words, way_words


@dataclass(frozen=True, slots=True)
class Part:
    """A stage that only one of two plans has, and what it does there."""

    stage: str
    does: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A stage of both plans: what it did, and does instead. Its id is that of the later one."""

    stage: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a plan differs from an earlier one."""

    added: tuple[Part, ...]
    removed: tuple[Part, ...]
    changed: tuple[Change, ...]
    obstacles: tuple[str, ...]
    """Why a run of the earlier plan cannot go on under the later; none: it can."""
    answering: tuple[str, ...]
    """Stages of which none may have ended: what they gave then was given for good."""

    @property
    def fits(self) -> bool:
        """Whether what a run keeps under the earlier plan is what the later would keep."""
        return not self.obstacles

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it for people, each change once: both halves of a split operator change alike."""
        changed = (f"{_joined(it.before)} → {_joined(it.after)}" for it in self.changed)
        removed = (f"removed: {_joined(it.does)}" for it in self.removed)
        added = (f"added: {_joined(it.does)}" for it in self.added)
        return tuple(dict.fromkeys([*changed, *removed, *added]))


def difference(before: str, after: str) -> Difference:
    """How the later of two encoded plans differs from the earlier."""
    old, new = _nodes(before), _nodes(after)
    pairs = [*_paired(old, new)]
    changes = (_change(old, new, left, right) for left, right in pairs if left and right)
    same = {left["id"]: right["id"] for left, right in pairs if left and right}
    found = tuple(it for it in changes if it.before != it.after)
    parts = [(left, right) for left, right in pairs if not (left and right)]
    return Difference(
        added=tuple(_part(right) for _, right in parts if right),
        removed=tuple(_part(left) for left, _ in parts if left),
        changed=found if found or parts else tuple(_rewired(old, new, same)),
        obstacles=tuple(obstacles(old, new)),
        answering=Keeping(new).answering,
    )


def _nodes(encoded: str) -> Nodes:
    return {node["id"]: node for node in json.loads(encoded)}


def _paired(old: Nodes, new: Nodes) -> Iterator[tuple[Plain | None, Plain | None]]:
    """Stages that do the same, those in their places that do not, and those without another."""
    left, right = stages(old), stages(new)
    matcher = SequenceMatcher(None, _keys(left), _keys(right), autojunk=False)
    for _, i, j, k, n in matcher.get_opcodes():
        for place in range(max(j - i, n - k)):
            yield (
                left[i + place] if i + place < j else None,
                right[k + place] if k + place < n else None,
            )


def _keys(sides: Sequence[Plain]) -> list[str]:
    return [json.dumps(stage["steps"]) for stage in sides]


def _part(stage: Plain) -> Part:
    return Part(stage["id"], tuple(step_words(step) for step in stage["steps"]))


def _change(old: Nodes, new: Nodes, left: Plain, right: Plain) -> Change:
    """What a stage did and does not, does and did not."""
    gone, come = _without(left["steps"], right["steps"]), _without(right["steps"], left["steps"])
    before, after = _lines(gone, come), _lines(come, gone)
    ways = _way(old, left), _way(new, right)
    if ways[0] != ways[1]:
        before, after = (*before, ways[0]), (*after, ways[1])
    if left["steps"] != right["steps"] and before == after:
        after = (*after, "computed by other formulas, or in another order")
    return Change(right["id"], before, after)


def _without(steps: Sequence[Plain], others: Sequence[Plain]) -> list[Plain]:
    return [step for step in steps if step not in others]


def _lines(steps: Sequence[Plain], others: Sequence[Plain]) -> tuple[str, ...]:
    return tuple(step_words(_narrowed(step, others)) for step in steps)


def _narrowed(step: Plain, others: Sequence[Plain]) -> Plain:
    """A step with those of its columns alone that differ in the other of its kind, if any do."""
    other = next((it for it in others if it["kind"] == step["kind"]), step)
    if "columns" not in step or not _without(other["columns"], step["columns"]):
        return step
    differing = _without(step["columns"], other["columns"])
    return {**step, "columns": differing or step["columns"]}


def _way(nodes: Nodes, stage: Plain) -> str:
    return way_words(arriving(nodes, stage), stage["shards"])


def _rewired(old: Nodes, new: Nodes, same: dict[str, str]) -> Iterator[Change]:
    """Stages that do the same with what others give."""
    for left, right in same.items():
        before = [same[it] for it in upstreams_of(old, old[left])]
        after = upstreams_of(new, new[right])
        if before != after:
            yield Change(right, (f"reads {_joined(before)}",), (f"reads {_joined(after)}",))


def _joined(words: Sequence[str]) -> str:
    return "; ".join(words) or "nothing"
