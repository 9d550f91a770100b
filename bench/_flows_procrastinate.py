"""The flows benchmark, Procrastinate: a job that defers its children in batches.

    python -m bench._flows_procrastinate URL      # a worker process

As in its documentation: asynchronous tasks, `batch_defer`, workers with concurrency and
notifications. Nobody waits for jobs, so it is looked until none is left. The jobs of a worker
that ended are listed by `get_stalled_jobs`, and stay so until they are retried explicitly.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from bench._flows_side import READY, ProcessSupervisor, supervisor, wait_until

CONCURRENCY = 20
BATCH = 100
BOUND = 3600.0
app = App(connector=PsycopgConnector())


@app.task(name="child")
async def child(seconds: float) -> None:
    """Takes so long."""
    if seconds:
        await asyncio.sleep(seconds)


@app.task(name="fan")
async def fan(parent: str, children: int, seconds: float) -> None:
    """A job for each child, on a queue of its own."""
    for first in range(0, children, BATCH):
        size = min(BATCH, children - first)
        jobs: list[dict[str, Any]] = [{"seconds": seconds}] * size
        await child.configure(queue=parent).batch_defer_async(*jobs)


class Procrastinate:
    """Jobs, and workers for them."""

    name = "Procrastinate jobs"
    spreads = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._app = App(connector=SyncPsycopgConnector(conninfo=url)).open()
        self._app.schema_manager.apply_schema()
        self._numbers = count()
        self._asked: dict[str, int] = {}
        self._connection = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()
        self._app.close()

    def workers(self, number: int) -> AbstractContextManager[ProcessSupervisor]:
        """With concurrency."""
        return supervisor([["-m", "bench._flows_procrastinate", self._url]] * number)

    def begin(self, children: int, seconds: float = 0.0) -> str:
        """A job that defers the others."""
        parent = f"parent-{next(self._numbers)}"
        job = self._app.configure_task("fan", queue="parents")
        job.defer(parent=parent, children=children, seconds=seconds)
        self._asked[parent] = children
        return parent

    def wait(self, parent: str) -> None:
        """Until all children have succeeded."""
        wait_until(lambda: self.done(parent) == self._asked[parent], BOUND)

    def first(self, parent: str) -> float:
        """From its events."""
        return float(self._ask(
            "SELECT extract(epoch FROM min(event.at)) FROM procrastinate_events AS event"
            " JOIN procrastinate_jobs AS job ON job.id = event.job_id"
            " WHERE job.queue_name = %s AND event.type = 'started'", parent
        ))  # fmt: skip

    def done(self, parent: str) -> int:
        """From its jobs."""
        return int(self._ask(
            "SELECT count(*) FROM procrastinate_jobs"
            " WHERE queue_name = %s AND status = 'succeeded'", parent
        ))  # fmt: skip

    def _ask(self, query: str, parent: str) -> float:
        row = self._connection.execute(query.encode(), [parent]).fetchone()
        assert row is not None
        return float(row[0])


async def _work(url: str) -> None:
    with app.replace_connector(PsycopgConnector(conninfo=url)) as ours:
        async with ours.open_async():
            print(READY, flush=True)
            await ours.run_worker_async(concurrency=CONCURRENCY)


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
