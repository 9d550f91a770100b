"""Topics: under which names those are woken who wait for something; see `notifications`."""

from __future__ import annotations


def task_topic(pipeline: str, task: str) -> str:
    """The topic under which a task is woken; also the key of its lease."""
    return f"{pipeline}/{task}"


def registrations_topic(pipeline: str) -> str:
    """The topic of workers that share the tasks of the pipeline, for when some are free."""
    return f"seats/{pipeline}"


def run_topic(pipeline: str) -> str:
    """The topic of those who wait for a run of the pipeline to be closed."""
    return f"run/{pipeline}"


def checkpoint_topic(pipeline: str) -> str:
    """The topic of those who append to the sources of runs, for when barriers are wanted."""
    return f"cut/{pipeline}"


def monitor_topic(pipeline: str) -> str:
    """The topic of whoever watches the runs of the pipeline and releases them."""
    return f"monitor/{pipeline}"


def flow_topic(flow: str) -> str:
    """The topic of the workers of a flow, and of those who wait for one of its runs."""
    return f"flow/{flow}"


def pipelines_topic(flow: str) -> str:
    """The topic of whoever wakes tasks of a flow, for when runs of pipelines are closed."""
    return f"pipelines/{flow}"
