"""Topics: the names under which commits are notified; see `notifications`."""

from __future__ import annotations


def task_topic(pipeline: str, task: str) -> str:
    """New messages or releases for a task. Also the key of the task's lease."""
    return f"{pipeline}/{task}"


def registrations_topic(pipeline: str) -> str:
    """Free tasks of a pipeline, for its workers."""
    return f"registrations/{pipeline}"


def run_topic(pipeline: str) -> str:
    """Closed runs and committed checkpoints of a pipeline."""
    return f"run/{pipeline}"


def checkpoint_topic(pipeline: str) -> str:
    """Triggered checkpoints of a pipeline, for the barrier injectors of its sources."""
    return f"checkpoint/{pipeline}"


def monitor_topic(pipeline: str) -> str:
    """Changes that the monitor of a pipeline decides on."""
    return f"monitor/{pipeline}"


def flow_topic(flow: str) -> str:
    """Ready tasks and closed runs of a flow."""
    return f"flow/{flow}"


def pipelines_topic(flow: str) -> str:
    """Closed pipeline runs that tasks of a flow wait for."""
    return f"pipelines/{flow}"
