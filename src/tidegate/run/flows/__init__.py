"""Running flows: workers that perform their tasks, and clients that begin runs and wait for them.

    begin ──▶ tasks in PostgreSQL ──▶ FlowWorker claims ──▶ performs ──▶ commits in batches

Everything that has happened is in the database; a worker may die at any moment.
"""

from tidegate.run.flows.client import begin, result, signal, tolerate, wait, write_state
from tidegate.run.flows.metrics import metrics_text
from tidegate.run.flows.sight import Sight, events, follow_events, see
from tidegate.run.flows.worker import FlowWorker, working

__all__ = [
    "FlowWorker",
    "Sight",
    "begin",
    "events",
    "follow_events",
    "metrics_text",
    "result",
    "see",
    "signal",
    "tolerate",
    "wait",
    "working",
    "write_state",
]
