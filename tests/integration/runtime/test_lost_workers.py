"""A run whose data ends every worker that processes it fails alone, after a few of them.

The engine of these workers is a fake that ends when it is given the data of a certain run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.runtime.operators import Operator
from tests.integration.runtime.shop import Client, ask
from tests.waiting import wait_until
from tidegate.dataflow import Event
from tidegate.errors import SparkLost
from tidegate.plan import PhysicalResultCollect, PhysicalStage
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.task.processor import StepInput, StepOutput
from tidegate.runtime.task_graph import TaskGraph
from tidegate.runtime.worker.isolated_trials import Trials
from tidegate.runtime.worker.task_worker import Worker
from tidegate.store import FileChecksum, Notifications, RunState, number_of

BAD = "bad#"


class Engine:
    """Ends with the first job for a bad run, as a JVM that runs out of memory does."""

    def __init__(self, place: Deployment) -> None:
        self.loss: str | None = None
        self.trials = Trials(place.database, lambda: self.loss, lambda _: self.loss)

    def job(self, task: str, runs: Sequence[str]) -> None:
        with self.trials.job([(number_of(run), task) for run in runs]):
            if self.loss is not None:
                raise ConnectionError("refused")
            if any(run.startswith(BAD) for run in runs):
                self.loss = "Java ended with exit code 3"
                raise ConnectionError("cut off")


class Stage(Operator):
    """One job for all runs of a step, or one for each suspect."""

    def __init__(self, name: str, engine: Engine) -> None:
        super().__init__(name)
        self._engine = engine

    def process(self, step: StepInput) -> StepOutput:
        runs = dict.fromkeys(it.run for it in step.messages if isinstance(it, Event))
        alone = [it for it in runs if self._engine.trials.is_suspect(number_of(it), self.name)]
        jobs = [[run for run in runs if run not in alone], *([run] for run in alone)]
        with ThreadPoolExecutor() as threads:  # those behind the bad one wait for their turn
            done = [threads.submit(self._engine.job, self.name, job) for job in filter(None, jobs)]
        for job in done:
            job.result()
        return super().process(step)

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        return ()


class ProcessorFactory:
    """Makes stages of one engine."""

    def __init__(self, place: Deployment) -> None:
        self.engine = Engine(place)

    @property
    def loss(self) -> str | None:
        return self.engine.loss

    def write_as(self, writer: str) -> None:
        self.engine.trials.worker = writer

    def learn(self, task: str, suspects: Mapping[int, int]) -> None:
        self.engine.trials.learn(task, suspects)

    def checksum(self, files: Sequence[str]) -> Sequence[FileChecksum]:
        return ()

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> Operator:
        return Stage(name, self.engine)

    def collector(self, name: str, collect: PhysicalResultCollect) -> Operator:
        return Operator(name)


@contextmanager
def working(place: Deployment, task_graph: TaskGraph) -> Iterator[Worker]:
    with (
        Notifications(place.database) as notifications,
        Worker(place.database, task_graph, ProcessorFactory(place), notifications) as worker,
    ):
        yield worker


def sell(server: RunService, folder: Path, *names: str) -> list[Client]:
    """Runs of one chunk each, on the same shard."""
    clients = [Client(server, name, folder) for name in names]
    for client in clients:
        client.sales(1, (1, 1))
    return clients


def is_processed(place: Deployment, client: Client) -> bool:
    asked = """
        SELECT bool_and(cursor.seq = channel.sent) FROM tidegate.channel
        JOIN tidegate.cursor ON channel_id = channel.id WHERE run_id = %s AND to_task LIKE 's1/%%'
        """
    return ask(place.database, asked, client.id) == [(True,)]


def suspects(place: Deployment) -> list[tuple[object, ...]]:
    return ask(place.database, "SELECT run_id FROM tidegate.isolated_run WHERE losses > 0")


def test_a_worker_without_spark_ends_at_once_and_others_get_its_tasks(
    place: Deployment, task_graph: TaskGraph, counter: RunService, tmp_path: Path
) -> None:
    with working(place, task_graph) as worker:
        sell(counter, tmp_path, "bad")
        wait_until(lambda: isinstance(worker.error, SparkLost), bound=5)
    held = "SELECT key FROM tidegate.lease WHERE kind = 'task' AND expires_at > clock_timestamp()"
    assert ask(place.database, f"{held} AND owner IS NOT NULL") == []


@pytest.mark.timeout(60)
def test_a_run_that_ends_every_worker_fails_after_three_that_processed_it_alone(
    place: Deployment,
    task_graph: TaskGraph,
    counter: RunService,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, bad, last = sell(counter, tmp_path, "first", "bad", "last")

    def is_over() -> bool:
        return counter.known("bad").state is RunState.FAILED and all(
            is_processed(place, it) for it in (first, last)
        )

    lost = 0
    while not is_over():
        with working(place, task_graph) as worker:
            wait_until(lambda: worker.error is not None or is_over())
            lost += worker.error is not None
    assert lost == 1 + 3, "one while all were processed together"
    cause = str(counter.known("bad").cause)
    assert "run 'bad' ends its worker processes: 3 lost while it was processed alone" in cause
    assert "Java ended with exit code 3" in cause
    for client in (first, last):
        assert counter.known(client.run).state is RunState.OPEN
        assert f"processed run {client.run!r}" not in caplog.text
    assert f"lost while it processed run 'bad' (id {bad.id}) alone in task s" in caplog.text
    assert {run for (run,) in suspects(place)} == {bad.id}


def test_a_worker_that_is_closed_makes_no_suspects(
    place: Deployment, task_graph: TaskGraph, counter: RunService, tmp_path: Path
) -> None:
    sell(counter, tmp_path, "march")
    for _ in range(3):
        with working(place, task_graph) as worker:
            wait_until(lambda: set(worker.tasks) == set(task_graph.tasks))
    assert ask(place.database, "SELECT * FROM tidegate.isolated_run") == []
