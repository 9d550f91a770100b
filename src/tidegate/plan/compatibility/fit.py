"""Whether what a run keeps under one plan still fits another: why not, if it does not.

What is kept came *for good*: rows of sources that went through narrow stages only, on which a
stateful stage or a sink then builds. It was made by the steps before it, so those must not change.
What a stateful stage answers serves one cut and is computed anew for the next, from all that the
stage keeps. So what is done with answers may change:

    kept for good       every stage from a source to a stateful stage or a sink, and of a stateful
                        stage that such rows reach all steps up to the last stateful one
    computed anew       the steps behind those, and every stage that only answers reach

The shards of a stage keep what was sent there by its key, which depends on the types of both sides
of a join; so nothing may change before a stage that keeps rows for good. Stages and the ways
between them have to be the same by their ids, and so have the columns of what a stage gives:
earlier cuts of the run are still read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tidegate.plan.compatibility.operator_words import Plain, step_words
from tidegate.plan.physical import STATEFUL

Nodes: TypeAlias = Mapping[str, Plain]
"""The nodes of a recorded plan by their ids, upstream before downstream."""

_STATEFUL = frozenset(kind.__name__ for kind in STATEFUL)
OTHER_GRAPH = "the stages, their shards, their state or the ways between them are not the same"


@dataclass(frozen=True)
class Keeping:
    """What the stages of a plan keep."""

    nodes: Nodes

    @cached_property
    def passing(self) -> frozenset[str]:
        """The narrow stages through which rows of sources go for good."""
        found: set[str] = set()
        for node in stages(self.nodes):
            upstreams = upstreams_of(self.nodes, node)
            if not is_stateful(node) and (not upstreams or found & set(upstreams)):
                found.add(node["id"])
        return frozenset(found)

    @cached_property
    def keeping(self) -> frozenset[str]:
        """The stateful stages that such rows reach."""
        return frozenset(
            node["id"]
            for node in stages(self.nodes)
            if is_stateful(node) and self.passing & set(upstreams_of(self.nodes, node))
        )

    @property
    def answering(self) -> tuple[str, ...]:
        """All other stages, and those: what they give is for good when they have ended."""
        return tuple(node["id"] for node in stages(self.nodes) if node["id"] not in self.passing)


def obstacles(before: Nodes, after: Nodes) -> Iterator[str]:
    """Why what was kept under one plan does not fit another."""
    if _frame(before) != _frame(after):
        yield OTHER_GRAPH
        return
    changed = [node for node in stages(after) if node["steps"] != before[node["id"]]["steps"]]
    behind = _behind(after, [node["id"] for node in changed])
    kept = Keeping(after)
    for node in changed:
        yield from _misfits(before[node["id"]]["steps"], node, kept)
    for stage in [*kept.passing, *kept.keeping]:
        if stage in behind:
            yield f"{stage} keeps or passes on rows for good, and what comes before it has changed"


def stages(nodes: Nodes) -> list[Plain]:
    """Those that do something, upstream before downstream."""
    return [node for node in nodes.values() if "steps" in node]


def arriving(nodes: Nodes, node: Plain) -> Sequence[Plain]:
    """The edges over which rows reach a node: its barrier's, if it stands behind one."""
    uppers = [nodes[edge["upstream"]] for edge in node["inputs"]]
    guards: list[Plain] = [upper for upper in uppers if upper["kind"] == "PhysicalBarrier"]
    edges: Sequence[Plain] = guards[0]["inputs"] if guards else node["inputs"]
    return edges


def upstreams_of(nodes: Nodes, node: Plain) -> list[str]:
    """The stages that a node reads."""
    return [edge["upstream"] for edge in arriving(nodes, node)]


def is_stateful(stage: Plain) -> bool:
    """Whether it answers only when its input is complete."""
    return any(step["kind"] in _STATEFUL for step in stage["steps"])


def _misfits(before: Sequence[Plain], after: Plain, kept: Keeping) -> Iterator[str]:
    stage, steps = after["id"], after["steps"]
    if stage in kept.passing:
        yield f"what went through {stage} before is kept as it was: {_told(before, steps)}"
    elif stage in kept.keeping and _stateful_part(before) != _stateful_part(steps):
        yield f"{stage} keeps rows for what it did with them: {_told(before, steps)}"
    if stage not in kept.passing and _columns(before) != _columns(steps):
        yield f"{stage} would give other columns, and earlier cuts have those they had"


def _told(before: Sequence[Plain], after: Sequence[Plain]) -> str:
    return step_words(next((it for it in before if it not in after), before[-1]))


def _frame(nodes: Nodes) -> list[object]:
    """Everything but the steps, and which of the stages keep state."""
    plain = [
        {name: its for name, its in node.items() if name != "steps"} for node in nodes.values()
    ]
    return [plain, [is_stateful(node) for node in stages(nodes)]]


def _stateful_part(steps: Sequence[Plain]) -> list[Plain]:
    """The steps up to the last stateful one."""
    last = max(place for place, step in enumerate(steps) if step["kind"] in _STATEFUL)
    return [*steps[: last + 1]]


def _behind(nodes: Nodes, changed: Iterable[str]) -> set[str]:
    """The stages that rows reach from one of these."""
    origins = set(changed)
    found: set[str] = set()
    for node in stages(nodes):
        if (origins | found) & set(upstreams_of(nodes, node)):
            found.add(node["id"])
    return found


def _columns(steps: Iterable[Plain]) -> list[object]:
    """What decides which columns a stage gives."""
    return [its for step in steps if (its := _columns_of(step)) is not None]


def _columns_of(step: Plain) -> object:
    match step["kind"]:
        case "Where" | "Top" | "PartialTop":
            return None
        case "Project":
            return [column["name"] for column in step["columns"]]
        case "PartialAggregate" | "MergeAggregate":
            return [step["kind"], step["by"], [column["name"] for column in step["columns"]]]
        case _:
            return step
