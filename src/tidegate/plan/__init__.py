"""From a declared pipeline to stages that run, and to the text that explains them.

    Pipeline ──logical_plan──▶ LogicalPlan ──physical_plan──▶ PhysicalPlan ──▶ EXPLAIN, the runtime

A logical plan is the declaration, checked as a whole. A physical plan says which operators run
together as one stage, on how many shards, how rows move between stages, and where barriers
align. Planning is pure: the same declaration gives the same plan, with the same ids, everywhere.
"""

from tidegate.plan.compatibility.difference import Difference, difference
from tidegate.plan.encode import encoded, logical_json, physical_json, plan_hash
from tidegate.plan.explain import explain_logical, explain_physical
from tidegate.plan.logical import LogicalNode, LogicalPlan, logical_plan
from tidegate.plan.physical import (
    Edge,
    Move,
    PhysicalBarrier,
    PhysicalNode,
    PhysicalPlan,
    PhysicalResultCollect,
    PhysicalStage,
)
from tidegate.plan.planner import RULES, physical_plan

__all__ = [
    "RULES",
    "Difference",
    "Edge",
    "LogicalNode",
    "LogicalPlan",
    "Move",
    "PhysicalBarrier",
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
