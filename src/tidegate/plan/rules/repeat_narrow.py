"""Scan again rather than store rows that several readers share.

    before   s2 [FinalTop] ◀─ s1 [Scan, Where]      after   s2 [FinalTop] ◀─ s1 [Scan, Where]
             s3 [PhysicalJoin] ◀─ s1                           s4 [PhysicalJoin] ◀─ s3 [Scan, Where]

A scan and the filters and selects above it cost less than writing their rows and reading them in
every reader, and each copy is fused with its reader and reads only the columns that it needs.
Expensive operators stay shared: users' functions, aggregates, distincts, tops, joins and unions. So
do filters and selects that run in the stage of one of these.

A stage is repeated for `MOST_COPIES` readers at most, counting those of copies above it; one with
more readers stays a single stage. Unions and joins are never repeated, so diamonds do not multiply,
and a plan grows by that factor at most.
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
    copies: defaultdict[str, list[str]] = defaultdict(list, {plan.root.id: [plan.root.id]})
    nodes = [
        _copy(node, name, repeated, copies)
        for node in reversed(plan.nodes)
        for name in dict.fromkeys(copies[node.id])
    ]
    return numbered(replace(plan, nodes=tuple(reversed(nodes))))


def _copy(
    node: PhysicalNode, name: str, repeated: set[str], copies: defaultdict[str, list[str]]
) -> PhysicalNode:
    """The node under this name, reading copies of its inputs that are added to `copies`."""
    # A reader that lists an input twice, as a self-join does, has one copy of it.
    for upstream in {edge.upstream: None for edge in node.inputs}:
        number = len(copies[upstream])
        copies[upstream].append(f"{upstream}.{number}" if upstream in repeated else upstream)
    edges = tuple(replace(edge, upstream=copies[edge.upstream][-1]) for edge in node.inputs)
    return replace(node, id=name, inputs=edges)


def _repeated(plan: PhysicalPlan) -> set[str]:
    """The stages to repeat: cheap ones with few readers, counting those of copies above."""
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
    """Stages that only filter and select rows that are stored anyway."""
    cheap: set[str] = set()
    for node in plan.nodes:
        uppers = {edge.upstream for edge in node.inputs}
        shared = all(upper in cheap or len(plan.readers[upper]) > 1 for upper in uppers)
        if shared and _is_cheap(node):
            cheap.add(node.id)
    return cheap


def _is_cheap(node: PhysicalNode) -> bool:
    return isinstance(node, PhysicalStage) and all(isinstance(it, _CHEAP) for it in node.operators)
