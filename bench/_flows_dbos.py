"""The flows benchmark, DBOS: a workflow that enqueues child workflows, and one that runs steps.

    python -m bench._flows_dbos URL EXECUTOR      # a worker process

As in its documentation of fan-out: a queue, from which every process takes, and a parent that
asks for the result of each child. A step is cheaper than a workflow, and is not given to another
process. A workflow is taken up again when a process of the same name comes back, or by Conductor.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from threading import Event
from time import sleep, time
from typing import cast

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, WorkflowHandle

from bench._flows_side import READY, ProcessSupervisor, supervisor

QUEUE, PARENTS = "children", "parents"
POLL = 0.1
"""Seconds between two polls of a queue; a tenth of the default."""


@DBOS.workflow()
def child(seconds: float) -> float:
    """Gives when it began."""
    began = time()
    if seconds:
        sleep(seconds)
    return began


@DBOS.workflow()
def fan(children: int, seconds: float) -> float:
    """A child workflow each; gives when the first began."""
    begun: list[WorkflowHandle[float]] = [
        DBOS.enqueue_workflow(QUEUE, child, seconds) for _ in range(children)
    ]
    return float(min(it.get_result() for it in begun))


@DBOS.step()
def step() -> float:
    """Gives when it began."""
    return time()


@DBOS.workflow()
def fan_steps(children: int) -> float:
    """A step each; gives when the first began."""
    return float(min(step() for _ in range(children)))


class Dbos:
    """Workflows of its own application, and processes for them."""

    name = "DBOS child workflows"
    spreads = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = DBOSClient(system_database_url=_address(url))

    def close(self) -> None:
        """Close the database."""
        self._client.destroy()

    def workers(self, number: int) -> AbstractContextManager[ProcessSupervisor]:
        """Each with its own name, as required."""
        command = ["-m", "bench._flows_dbos", self._url]
        return supervisor([[*command, f"executor-{it}"] for it in range(number)])

    def begin(self, children: int, seconds: float = 0.0) -> str:
        """A parent workflow."""
        return self._begin("fan", children, seconds)

    def wait(self, parent: str) -> None:
        """Until the parent has all results."""
        self._client.retrieve_workflow(parent).get_result()

    def first(self, parent: str) -> float:
        """From the result of the parent."""
        return cast("float", self._client.retrieve_workflow(parent).get_result())

    def done(self, parent: str) -> int:
        """Its children have its name, and a number."""
        return len(self._client.list_workflows(
            workflow_id_prefix=f"{parent}-", status="SUCCESS", load_input=False, load_output=False
        ))  # fmt: skip

    def _begin(self, workflow: str, *arguments: object) -> str:
        wanted: EnqueueOptions = {"queue_name": PARENTS, "workflow_name": workflow}
        return str(self._client.enqueue(wanted, *arguments).get_workflow_id())


class DbosSteps(Dbos):
    """A workflow whose children are steps, one after the other in one process."""

    name = "DBOS steps"
    spreads = False

    def begin(self, children: int, seconds: float = 0.0) -> str:
        """A workflow with steps, which take no time."""
        assert not seconds
        return self._begin("fan_steps", children)


def _address(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def _work(url: str, executor: str) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": _address(url),
        "executor_id": executor,
        "application_version": "1",
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.launch()
    for queue in (QUEUE, PARENTS):
        DBOS.register_queue(queue, polling_interval_sec=POLL)
    print(READY, flush=True)
    Event().wait()


if __name__ == "__main__":
    _work(*sys.argv[1:])
