"""Scan again rather than write down what several readers share.

    before   s2 [Top] ◀─ s1 [Scan, Where]      after   s2 [Top] ◀─ s1 [Scan, Where]
             s3 [Join] ◀─ s1                           s4 [Join] ◀─ s3 [Scan, Where]

A scan and the filters and selects above it cost less than writing their rows and reading them in
every reader, and each copy is fused with its reader and reads only the columns that it needs.
What is not cheap is shared as before: users' functions, aggregates, tops, joins and unions. So are
filters and selects that run in the stage of one of these.

A stage is repeated for `MOST_COPIES` readers at most, counting those of copies above it; one with
more stays a single stage, read by all. Unions and joins are never repeated, so streams that part
and meet again do not multiply, and a plan grows by that factor at worst.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.plan.numbering import numbered
from tidegate.plan.physical import PhysicalStage, Project, Scan, Where

if TYPE_CHECKING:
    from tidegate.plan.physical import PhysicalNode, PhysicalPlan

MOST_COPIES = 8

_CHEAP = (Scan, Where, Project)


def repeat_narrow(plan: PhysicalPlan) -> PhysicalPlan:
    """Every cheap stage becomes as many stages as it has readers."""
    repeated = _repeated(plan)
    wanted: defaultdict[str, list[str]] = defaultdict(list, {plan.root.id: [plan.root.id]})
    copies = [
        _copy(node, name, repeated, wanted)
        for node in reversed(plan.nodes)
        for name in dict.fromkeys(wanted[node.id])
    ]
    return numbered(replace(plan, nodes=tuple(reversed(copies))))


def _copy(
    node: PhysicalNode, name: str, repeated: set[str], wanted: defaultdict[str, list[str]]
) -> PhysicalNode:
    """The node under a name of its own, reading copies that it adds to those `wanted`."""
    # A reader that lists a child twice, as a self-join does, has one copy of it.
    for upstream in {edge.upstream: None for edge in node.inputs}:
        number = len(wanted[upstream])
        wanted[upstream].append(f"{upstream}.{number}" if upstream in repeated else upstream)
    edges = tuple(replace(edge, upstream=wanted[edge.upstream][-1]) for edge in node.inputs)
    return replace(node, id=name, inputs=edges)


def _repeated(plan: PhysicalPlan) -> set[str]:
    """The stages to repeat: cheap ones whose readers, and those of copies above, are few."""
    cheap = _cheap(plan)
    copies = dict.fromkeys(plan.by_id, 1)
    repeated: set[str] = set()
    for node in reversed(plan.nodes):
        readers = sum(copies[reader] for reader in dict.fromkeys(plan.readers[node.id]))
        if node.id in cheap and 1 < readers <= MOST_COPIES:
            copies[node.id] = readers
            repeated.add(node.id)
    return repeated


def _cheap(plan: PhysicalPlan) -> set[str]:
    """Stages that filter and select rows which are written down in any case."""
    cheap: set[str] = set()
    for node in plan.nodes:
        uppers = {edge.upstream for edge in node.inputs}
        shared = all(upper in cheap or len(plan.readers[upper]) > 1 for upper in uppers)
        if shared and _is_cheap(node):
            cheap.add(node.id)
    return cheap


def _is_cheap(node: PhysicalNode) -> bool:
    return isinstance(node, PhysicalStage) and all(isinstance(it, _CHEAP) for it in node.steps)
