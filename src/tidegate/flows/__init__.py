"""Flows: durable workflows of steps, declared on plain functions and typed by annotations.

    Flow ──▶ @flow.step, map_step, generator + handler, reduce ──▶ Definition

A declaration runs nothing and needs no database. A run of a flow is stored in PostgreSQL: its steps
wait for each other, for signals and for the flow's state. A step consists of tasks, which workers
claim; a task whose worker fails is executed again. `model.states` has the legal transitions, the
SQL functions `tidegate.flow_readiness` and `flow_verdict` decide when a step starts and ends.

    start_flow(database, flow, input) ──▶ FlowRun: wait, result, signal, cancel, …
    flow_worker(database, flow)           executes tasks in this process
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tidegate.backoff import Backoff
from tidegate.errors import FinalFailure
from tidegate.flows.model.context import Context
from tidegate.flows.model.flow import Flow, GeneratorStep
from tidegate.flows.model.gates import StateGate, all_of, is_set, reached
from tidegate.flows.model.keys import FlowStateReader, StateKey
from tidegate.flows.model.pipeline_result import Released
from tidegate.flows.model.policies import FailAtFirst, Tolerate
from tidegate.flows.model.states import FlowState, StepState, TaskState
from tidegate.flows.model.steps import Handler, Step

if TYPE_CHECKING:
    from tidegate.flows.client import FlowRun, flow_run, start_flow
    from tidegate.flows.inspect import RunInspection
    from tidegate.flows.worker.worker import FlowWorker, flow_worker

__all__ = [
    "Backoff",
    "Context",
    "FailAtFirst",
    "FinalFailure",
    "Flow",
    "FlowRun",
    "FlowState",
    "FlowStateReader",
    "FlowWorker",
    "GeneratorStep",
    "Handler",
    "Released",
    "RunInspection",
    "StateGate",
    "StateKey",
    "Step",
    "StepState",
    "TaskState",
    "Tolerate",
    "all_of",
    "flow_run",
    "flow_worker",
    "is_set",
    "reached",
    "start_flow",
]

_LAZY = {
    "FlowRun": "tidegate.flows.client",
    "flow_run": "tidegate.flows.client",
    "start_flow": "tidegate.flows.client",
    "RunInspection": "tidegate.flows.inspect",
    "FlowWorker": "tidegate.flows.worker.worker",
    "flow_worker": "tidegate.flows.worker.worker",
}
"""Names that need the store, which itself imports the declarations above."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
