"""Flows: durable workflows of steps, declared on plain functions and typed by annotations.

    Flow ──▶ @flow.step, map_step, generator + handler, reduce ──▶ Definition

Declaring runs nothing and knows no database. A run of a flow lives in PostgreSQL: its steps wait
for each other, for signals and for the flow's state; the work of a step is tasks, which workers
claim, and a task that nobody finished is done again. What may follow what stands in `states`, when
a step begins and how it ends in `decide`.
"""

from tidegate.errors import FinalFailure
from tidegate.flows.model.context import Context
from tidegate.flows.model.flow import Flow, GeneratorStep
from tidegate.flows.model.gates import StateGate, all_of, is_set, reached
from tidegate.flows.model.keys import FlowStateReader, StateKey
from tidegate.flows.model.pipeline_result import Released
from tidegate.flows.model.policies import Backoff, FailAtFirst, Tolerate
from tidegate.flows.model.states import FlowState, StepState, TaskState
from tidegate.flows.model.steps import Handler, Step

__all__ = [
    "Backoff",
    "Context",
    "FailAtFirst",
    "FinalFailure",
    "Flow",
    "FlowState",
    "FlowStateReader",
    "GeneratorStep",
    "Handler",
    "Released",
    "StateGate",
    "StateKey",
    "Step",
    "StepState",
    "TaskState",
    "Tolerate",
    "all_of",
    "is_set",
    "reached",
]
