"""Plans a declared pipeline as stages that run, and explains the plan as text.

    Pipeline ──logical_plan──▶ LogicalPlan ──physical_plan──▶ PhysicalPlan ──▶ EXPLAIN, the runtime

A logical plan is the declaration, checked as a whole. A physical plan defines which operators run
together as one stage, on how many shards, how rows move between stages, and where barriers are
aligned. Planning is pure: the same declaration gives the same plan, with the same ids, in every
process.
"""

from tidegate.plan.compatibility.difference import Difference, difference
from tidegate.plan.encode import encoded, logical_json, physical_json, plan_hash
from tidegate.plan.explain import explain_logical, explain_physical
from tidegate.plan.logical import LogicalNode, LogicalPlan, logical_plan
from tidegate.plan.physical import (
    Move,
    PhysicalBarrier,
    PhysicalEdge,
    PhysicalNode,
    PhysicalPlan,
    PhysicalResultCollect,
    PhysicalStage,
)
from tidegate.plan.planner import RULES, physical_plan

__all__ = [
    "RULES",
    "Difference",
    "LogicalNode",
    "LogicalPlan",
    "Move",
    "PhysicalBarrier",
    "PhysicalEdge",
    "PhysicalNode",
    "PhysicalPlan",
    "PhysicalResultCollect",
    "PhysicalStage",
    "difference",
    "encoded",
    "explain_logical",
    "explain_physical",
    "logical_json",
    "logical_plan",
    "physical_json",
    "physical_plan",
    "plan_hash",
]
