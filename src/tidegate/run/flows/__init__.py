"""Running flows: workers that perform their tasks, and clients that begin runs and wait for them.

    begin ──▶ tasks in PostgreSQL ──▶ FlowWorker claims ──▶ performs ──▶ commits in batches

Everything that has happened is in the database; a worker may die at any moment.
"""

from tidegate.run.flows.client import begin, result, signal, wait, write_state
from tidegate.run.flows.worker import FlowWorker, working

__all__ = ["FlowWorker", "begin", "result", "signal", "wait", "working", "write_state"]
