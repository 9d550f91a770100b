"""A worker and its tasks, without Spark: what becomes of tasks that die or are taken at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest

from tests.integration.runtime.operators import Operator
from tests.integration.runtime.shop import Client, allow, ask, refuse
from tests.waiting import wait_until
from tidegate.dataflow import Event
from tidegate.errors import NotABatch
from tidegate.plan import PhysicalResultCollect, PhysicalStage
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.task.processor import StepInput, StepOutput
from tidegate.runtime.task_graph import TaskGraph
from tidegate.runtime.worker import task_worker as workers
from tidegate.runtime.worker.task_worker import Worker
from tidegate.runtime.worker.worker_losses import take
from tidegate.settings import Settings
from tidegate.store import Connection, FileChecksum, Notifications, RunState
from tidegate.store.runs.worker_losses import TaskAcquisition

Handle = Callable[[StepInput], None]
SOURCE_TASKS = ("s1/0", "s1/1")
"""The tasks of the shop that read its sales for what sold best."""
QUICK = Settings(task_restart_seconds=0.001)


class Staged(Operator):
    """Passes on what comes, after whatever the test wants of it."""

    def __init__(self, name: str, before: Handle) -> None:
        super().__init__(name)
        self._before = before

    def process(self, step: StepInput) -> StepOutput:
        if self.name in SOURCE_TASKS:
            self._before(step)
        return super().process(step)

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        return ()


class ProcessorFactory:
    """Stages that do nothing but what the test wants."""

    def __init__(self, before: Handle) -> None:
        self._before = before

    def write_as(self, writer: str) -> None:
        pass

    def checksum(self, files: Sequence[str]) -> Sequence[FileChecksum]:
        return ()

    def learn(self, task: str, suspects: Mapping[int, int]) -> None:
        pass

    @property
    def loss(self) -> str | None:
        return None

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> Operator:
        return Staged(name, self._before)

    def collector(self, name: str, collect: PhysicalResultCollect) -> Operator:
        return Operator(name)


@contextmanager
def working(
    place: Deployment,
    task_graph: TaskGraph,
    before: Handle = lambda _: None,
    stages: Sequence[str] = (),
    process: str = "",
    settings: Settings = QUICK,
) -> Iterator[Worker]:
    with Notifications(place.database) as notifications:
        its = (place.database, task_graph, ProcessorFactory(before), notifications, settings)
        with Worker(*its, stages=stages, process=process) as worker:
            yield worker


def events(step: StepInput) -> list[Event[object]]:
    return [message for message in step.messages if isinstance(message, Event)]


def sell(server: RunService, tmp_path: Path, *names: str) -> list[Client]:
    """Runs of one chunk each, on the same shard."""
    clients = [Client(server, name, tmp_path) for name in names]
    for client in clients:
        client.sales(1, (1, 1))
    return clients


def is_processed(place: Deployment, client: Client) -> bool:
    asked = """
        SELECT bool_and(cursor.seq = channel.sent) FROM tidegate.channel
        JOIN tidegate.cursor ON channel_id = channel.id WHERE run_id = %s AND to_task LIKE 's1/%%'
        """
    return ask(place.database, asked, client.id) == [(True,)]


# --- tasks that die --------------------------------------------------------------------------


def test_a_task_without_progress_of_a_run_ends_the_worker_however_long_each_attempt_takes(
    place: Deployment,
    task_graph: TaskGraph,
    counter: RunService,
    tmp_path: Path,
) -> None:
    failures: list[int] = []

    def broken(step: StepInput) -> None:
        failures.append(1)
        raise OSError("the share is gone")

    slow = replace(QUICK, task_stable_seconds=0.0)  # as if each attempt took long to fail
    with working(place, task_graph, broken, settings=slow) as worker:
        sell(counter, tmp_path, "march")
        wait_until(lambda: worker.error is not None)
        assert "the share is gone" in str(worker.error)
    assert len(failures) == QUICK.task_failures + 1
    assert counter.known("march").state is RunState.OPEN


def test_a_task_that_fails_often_but_makes_progress_is_restarted(
    place: Deployment, task_graph: TaskGraph, counter: RunService, tmp_path: Path
) -> None:
    tried: Counter[str] = Counter()

    def flaky(step: StepInput) -> None:
        for event in events(step):
            tried[str(event.payload)] += 1
            if tried[str(event.payload)] == 1:
                raise OSError("not at once")

    (client,) = sell(counter, tmp_path, "march")
    with working(place, task_graph, flaky) as worker:
        for number in range(2, 2 * QUICK.task_failures + 4):
            client.sales(number, (number, 1))
            wait_until(lambda: is_processed(place, client))
        assert worker.error is None
    assert len(tried) > 2 * QUICK.task_failures


def test_of_runs_that_were_handled_together_only_the_one_that_broke_a_rule_fails(
    place: Deployment, task_graph: TaskGraph, counter: RunService, tmp_path: Path
) -> None:
    clients = sell(counter, tmp_path, "march", "april", "may")
    together: list[int] = []

    def strict(step: StepInput) -> None:
        together.append(len({message.run for message in step.messages}))
        if any(event.run == f"april#{clients[1].id}" for event in events(step)):
            raise NotABatch(kind="str")

    with working(place, task_graph, strict) as worker:
        wait_until(lambda: counter.known("april").state is RunState.FAILED)
        wait_until(lambda: is_processed(place, clients[0]) and is_processed(place, clients[2]))
        assert worker.error is None
    assert max(together) > 1
    assert counter.known("march").state is RunState.OPEN
    assert counter.known("may").state is RunState.OPEN


class Quoting(Staged):
    """Sends on a text that PostgreSQL refuses, for the runs of one name."""

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        return [Event("a\0b", event.run, 0)] if event.run.startswith("april#") else ()


class QuotingProcessorFactory(ProcessorFactory):
    def stage(self, name: str, stage: PhysicalStage, shard: int) -> Operator:
        return Quoting(name, self._before)


def test_a_value_that_postgresql_refuses_fails_its_run_and_no_other(
    place: Deployment, task_graph: TaskGraph, counter: RunService, tmp_path: Path
) -> None:
    clients = sell(counter, tmp_path, "march", "april", "may")
    with Notifications(place.database) as notifications:
        factory = QuotingProcessorFactory(lambda _: None)
        with Worker(place.database, task_graph, factory, notifications) as worker:
            wait_until(lambda: counter.known("april").state is RunState.FAILED)
            wait_until(lambda: is_processed(place, clients[0]) and is_processed(place, clients[2]))
            assert worker.error is None
    assert "PostgreSQL refused a value" in str(counter.known("april").cause)
    assert counter.known("march").state is RunState.OPEN
    assert counter.known("may").state is RunState.OPEN


def test_a_task_whose_run_could_not_be_failed_is_released_and_taken_again(
    place: Deployment,
    task_graph: TaskGraph,
    counter: RunService,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def strict(step: StepInput) -> None:
        raise NotABatch(kind="str")

    sell(counter, tmp_path, "march")
    refuse(place.database, "run", "XX000")
    with working(place, task_graph, strict) as worker:
        wait_until(lambda: "gives up task s1" in caplog.text)
        allow(place.database)
        wait_until(lambda: counter.known("march").state is RunState.FAILED)
        wait_until(lambda: set(worker.tasks) == set(task_graph.tasks))


def test_a_worker_that_does_not_own_a_task_any_more_fails_no_run_for_it(
    place: Deployment,
    task_graph: TaskGraph,
    counter: RunService,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def robbed(step: StepInput) -> None:
        if events(step):
            steal = """
                UPDATE tidegate.lease SET owner = 'thief', epoch = epoch + 1
                WHERE kind = 'task' AND key LIKE '%%s1/%%' RETURNING key
                """
            assert ask(place.database, steal)
            raise NotABatch(kind="str")

    sell(counter, tmp_path, "march")
    with working(place, task_graph, robbed):
        wait_until(lambda: "gives up task s1" in caplog.text)
    assert counter.known("march").state is RunState.OPEN


# --- looking for tasks -----------------------------------------------------------------------


def test_a_worker_looks_for_tasks_again_after_any_error(
    place: Deployment, task_graph: TaskGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [OSError("no space"), ZeroDivisionError()]
    processor = TaskGraph.processor

    def flaky(self: TaskGraph, task: str, factory: ProcessorFactory) -> object:
        if errors:
            raise errors.pop()
        return processor(self, task, factory)

    monkeypatch.setattr(TaskGraph, "processor", flaky)
    with working(place, task_graph) as worker:
        wait_until(lambda: set(worker.tasks) == set(task_graph.tasks))
        assert worker.error is None
    assert not errors


def test_a_task_that_is_taken_while_the_worker_closes_is_given_back(
    place: Deployment, task_graph: TaskGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking, goes_on = Flag(), Flag()

    def slow(connection: Connection, *args: object) -> TaskAcquisition | None:
        taken = take(connection, *args)  # type: ignore[arg-type]
        taking.set()
        assert goes_on.wait(30)
        return taken

    monkeypatch.setattr(workers, "take", slow)
    with working(place, task_graph) as worker:
        assert taking.wait(30)
        closing = Thread(target=worker.close)
        closing.start()
        wait_until(worker._closed.is_set)  # noqa: SLF001  nothing else tells
        goes_on.set()
        closing.join(30)
        assert worker.tasks == ()
        assert ask(place.database, "SELECT key FROM tidegate.lease WHERE owner IS NOT NULL") == []


# --- sharing tasks ---------------------------------------------------------------------------


def test_workers_share_the_tasks_evenly_and_one_that_stays_takes_them_all(
    place: Deployment, task_graph: TaskGraph
) -> None:
    everything = set(task_graph.tasks)
    with working(place, task_graph) as first:
        wait_until(lambda: set(first.tasks) == everything)
        with working(place, task_graph) as second:
            wait_until(lambda: abs(len(first.tasks) - len(second.tasks)) <= 1)
            wait_until(lambda: {*first.tasks, *second.tasks} == everything)
            assert not {*first.tasks} & {*second.tasks}
        wait_until(lambda: set(first.tasks) == everything)


def test_a_draining_worker_commits_its_work_in_progress_and_none_is_repeated(
    place: Deployment, task_graph: TaskGraph, counter: RunService, tmp_path: Path
) -> None:
    at_work, goes_on, done = Flag(), Flag(), list[str]()

    def slow(step: StepInput) -> None:
        if events(step):
            at_work.set()
            assert goes_on.wait(30)
            done.extend(str(event.payload) for event in events(step))

    (client,) = sell(counter, tmp_path, "march")
    with working(place, task_graph, slow) as leaving:
        assert at_work.wait(30)
        with working(place, task_graph, slow) as staying:
            drained: list[bool] = []
            draining = Thread(target=lambda: drained.append(leaving.drain(30)))
            draining.start()
            wait_until(lambda: len(staying.tasks) >= len(task_graph.tasks) - len(SOURCE_TASKS))
            assert not drained
            goes_on.set()
            draining.join(30)
            assert drained == [True]
            assert leaving.tasks == ()
            wait_until(lambda: set(staying.tasks) == set(task_graph.tasks))
            wait_until(lambda: is_processed(place, client))
    assert len(done) == 1


def test_a_worker_that_cannot_finish_in_time_says_so(
    place: Deployment, task_graph: TaskGraph, counter: RunService, tmp_path: Path
) -> None:
    at_work, goes_on = Flag(), Flag()

    def slow(step: StepInput) -> None:
        if events(step):
            at_work.set()
            assert goes_on.wait(30)

    sell(counter, tmp_path, "march")
    with working(place, task_graph, slow) as worker:
        assert at_work.wait(30)
        assert worker.drain(0.2) is False
        assert set(worker.tasks) <= set(SOURCE_TASKS)
        goes_on.set()


def test_a_worker_for_some_stages_takes_their_tasks_and_no_others(
    place: Deployment, task_graph: TaskGraph
) -> None:
    node = task_graph.tasks[SOURCE_TASKS[0]][0]
    with working(place, task_graph, stages=[node.id]) as some:
        wait_until(lambda: set(some.tasks) == set(SOURCE_TASKS))
        with working(place, task_graph) as rest:
            wait_until(lambda: {*some.tasks, *rest.tasks} == set(task_graph.tasks))
            assert set(some.tasks) <= set(SOURCE_TASKS)


def test_a_worker_that_cannot_start_tasks_leaves_them_to_others(
    place: Deployment, task_graph: TaskGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: set[object] = set()
    processor = TaskGraph.processor

    def picky(self: TaskGraph, task: str, factory: ProcessorFactory) -> object:
        if factory in broken:
            raise OSError("no more threads")
        return processor(self, task, factory)

    monkeypatch.setattr(TaskGraph, "processor", picky)
    cannot = ProcessorFactory(lambda _: None)
    broken.add(cannot)
    with (
        Notifications(place.database) as notifications,
        Worker(place.database, task_graph, cannot, notifications) as unlucky,
        working(place, task_graph) as able,
    ):
        wait_until(lambda: set(able.tasks) == set(task_graph.tasks))
        assert unlucky.tasks == ()
        broken.clear()
        wait_until(lambda: len(unlucky.tasks) >= len(task_graph.tasks) // 2)


def test_owner_ids_of_a_worker_begin_with_its_process_name(
    place: Deployment, task_graph: TaskGraph
) -> None:
    with working(place, task_graph, process="worker-1") as worker:
        first = worker.name
        assert re.fullmatch("worker-1-[0-9a-f]{12}", first)
        ask(place.database, "UPDATE tidegate.lease SET owner = 'ann', epoch = epoch + 1"
            " WHERE kind = 'worker' AND owner = %s", first)  # fmt: skip
        wait_until(lambda: worker.name != first)
        assert re.fullmatch("worker-1-[0-9a-f]{12}", worker.name)


def test_a_worker_knows_the_tasks_that_no_worker_can_run(
    place: Deployment, task_graph: TaskGraph
) -> None:
    node = task_graph.tasks[SOURCE_TASKS[0]][0]
    others = set(task_graph.tasks) - set(SOURCE_TASKS)
    with working(place, task_graph, stages=[node.id]) as some:
        wait_until(lambda: set(some.unattended) == others)
        with working(place, task_graph):
            wait_until(lambda: some.unattended == ())
