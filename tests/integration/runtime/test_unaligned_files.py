"""Checkpoints that wait no longer, and the files that they and others need; without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from threading import Thread

import pytest

import tidegate as tg
from tests.integration.runtime.disk import DiskBench
from tests.integration.runtime.names import Hub, checksums
from tests.waiting import wait_until
from tidegate.pipeline.stream import Stream
from tidegate.plan import physical_plan
from tidegate.runtime.checkpoints.restore import graph_of
from tidegate.runtime.monitor.checkpoint_coordinator import CheckpointCoordinator
from tidegate.runtime.task import stage_state, task_channels
from tidegate.runtime.task.processor import StepInput, StepOutput
from tidegate.runtime.task.task_loop import TaskLoop
from tidegate.store import (
    Acknowledgement,
    Connection,
    Database,
    FileChecksum,
    RunInfo,
    RunState,
    begin_run,
    close_run,
    files_named,
)
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.runs import retention

COLUMNS = "k bigint, v bigint"
_names = count(1)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_channels, "ready_at", lambda *_: 0.0)


def totals(stream: Stream) -> Stream:
    return stream.aggregate(by="k", v="sum(v)")


@pytest.fixture
def joined(hub: Hub) -> DiskBench:
    declared = tg.Pipeline(f"unaligned-files-{next(_names)}", shards=2)
    a, b = declared.source("a", COLUMNS), declared.source("b", COLUMNS)
    totals(a).join(totals(b), on="k").sink("both")
    return DiskBench(*hub, physical_plan(declared))


@pytest.fixture
def simple(hub: Hub) -> DiskBench:
    declared = tg.Pipeline(f"unaligned-files-{next(_names)}", shards=1)
    totals(declared.source("a", COLUMNS)).sink("all")
    return DiskBench(*hub, physical_plan(declared))


def deliver(it: DiskBench) -> None:
    for source in it.task_graph.sources:
        it.deliver(source)


def begin(it: DiskBench, *, unpublished: bool = False) -> int:
    number = it.trigger(unpublished=unpublished)
    assert number is not None
    return number


def totalling(it: DiskBench) -> list[str]:
    return [task for task in it.tasks if task.partition("/")[0] in it.totalling]


def submit_jobs(it: DiskBench) -> None:
    """Stateful tasks have read the barrier and wait for their jobs; all others are done."""
    it.settle(without=totalling(it))
    for task in totalling(it):
        while it.tasks[task].turn():
            pass


def in_flight(it: DiskBench, number: int) -> int:
    asked = {"run": it.run.id, "number": number}
    sql = (
        b"SELECT count(*) FROM tidegate.in_flight_message"
        b" WHERE run_id = %(run)s AND number = %(number)s"
    )
    row = it.database.transact(lambda c: c.execute(sql, asked).fetchone())
    return int(row[0]) if row else 0


@pytest.mark.parametrize("how", ["unalign", "abort"])
def test_outputs_for_an_unpublished_checkpoint_are_not_used_again(
    joined: DiskBench, how: str
) -> None:
    """They were swept with the checkpoint that they were made for, although nothing has changed."""
    deliver(joined)
    first = begin(joined)
    collector = joined.plan.root.id
    joined.settle(without=[task for task in joined.tasks if task.startswith(collector)])
    assert getattr(joined, how)(first)
    for _ in range(2):
        joined.settle()
        begin(joined, unpublished=True)
        joined.settle()
        joined.sweep()
    shown = begin(joined)
    joined.settle()
    assert joined.shown(shown) == joined.expected(shown)


def test_files_of_a_step_that_came_too_late_are_swept(joined: DiskBench) -> None:
    for _ in range(3):
        deliver(joined)
        number = begin(joined)
        submit_jobs(joined)
        joined.unalign(number)
        joined.settle()
    begin(joined)
    joined.settle()
    for _ in range(4):
        begin(joined, unpublished=True)
        joined.settle()
    joined.retire(1)
    joined.sweep()
    assert joined.stranded == set()
    assert joined.finish() == joined.expected()


def test_a_stage_whose_jobs_outlast_every_checkpoint_makes_progress(simple: DiskBench) -> None:
    """And each checkpoint holds what has come since the last one, not all that ever came."""
    held = []
    for _ in range(6):
        simple.deliver("a")
        number = begin(simple)
        submit_jobs(simple)
        assert simple.unalign(number)
        simple.settle()
        held.append(in_flight(simple, number))
    assert max(held) == 1
    simple.restore(simple.restorable[0])
    assert simple.finish() == simple.expected()


def test_what_was_read_is_settled_though_no_barrier_ever_comes(
    simple: DiskBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_state, "ENOUGH", 4)
    held = []
    for _ in range(12):
        simple.deliver("a")
        simple.settle()
        number = begin(simple, unpublished=True)
        assert simple.unalign(number)
        simple.watch_over()
        held.append(in_flight(simple, number))
    assert max(held) <= 4
    simple.kill(totalling(simple)[0])
    simple.deliver("a")
    shown = begin(simple)
    simple.settle()
    assert simple.shown(shown) == simple.expected(shown)
    simple.restore(simple.restorable[0])
    assert simple.finish() == simple.expected()


def test_two_runs_may_come_too_late_one_after_the_other(
    simple: DiskBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one while what was done for the first is being dropped."""
    runs = [simple.run, simple.database.transact(lambda c: _another(c, simple))]
    for simple.run in runs:
        simple.delivered["a"].clear()
        simple.deliver("a")
        begin(simple)
    while simple.inject("a"):
        pass
    submit_jobs(simple)
    while simple.work():
        pass
    commit, switched = TaskLoop._commit, iter(runs)  # noqa: SLF001  no public hook

    def interrupted(loop: TaskLoop, step: StepInput, output: StepOutput) -> None:
        simple.run = next(switched, simple.run)
        simple.unalign(1)
        commit(loop, step, output)

    monkeypatch.setattr(TaskLoop, "_commit", interrupted)
    for task in totalling(simple):
        simple.tasks[task].turn()
    monkeypatch.undo()
    simple.settle()
    assert simple.restorable == [1]
    assert simple.finish() == simple.expected()


def _another(connection: Connection, it: DiskBench) -> RunInfo:
    graph = graph_of(it.task_graph)
    sources = tuple(graph.sources)
    name = it.plan.pipeline
    return begin_run(connection, name, "april", graph.channels, sources=sources, plan=graph.plan)


def test_a_checkpoint_that_all_tasks_acknowledged_is_published_even_if_it_was_to_become_unaligned(
    joined: DiskBench,
) -> None:
    deliver(joined)
    number = begin(joined)
    while any([*map(joined.inject, joined.task_graph.sources), joined.work(),
               *[task.turn() for task in joined.tasks.values()]]):  # fmt: skip
        pass
    assert not joined.unalign(number)
    joined.watch_over()
    assert joined.committed == [number]


def test_one_that_is_given_up_afterwards_keeps_nothing(simple: DiskBench) -> None:
    simple.deliver("a")
    number = begin(simple)
    assert simple.unalign(number)
    assert in_flight(simple, number) == 1
    assert simple.abort(number)
    assert in_flight(simple, number) == 0


def test_an_unaligned_checkpoint_has_its_size_and_the_slowest_task_that_acknowledged(
    joined: DiskBench,
) -> None:
    deliver(joined)
    number = begin(joined)
    joined.inject("a")
    joined.inject("b")
    stalled = {task for task in joined.tasks if not task.startswith("s1")}
    joined.settle(without=stalled)
    joined.unalign(number)
    joined.watch_over()
    (it,) = joined.checkpoints.all(joined.run.name)
    assert it.bytes > 0
    assert it.slowest is not None
    assert it.slowest not in stalled


def test_a_run_that_is_closed_while_files_are_sealed_keeps_them(simple: DiskBench) -> None:
    simple.deliver("a")
    number = begin(simple)
    assert simple.unalign(number)
    lost: set[str] = set()

    def checksum(files: Sequence[str]) -> list[FileChecksum]:
        database, run = simple.database, simple.run
        database.transact(lambda c: close_run(c, run, RunState.CANCELLED, "enough"))
        lost.update(set(files) - database.transact(lambda c: files_named(c, {run.id})))
        return checksums(files)

    CheckpointCoordinator(simple.database, simple.plan.pipeline, checksum).look(simple.watch)
    assert simple.restorable == [number]
    assert lost == set()


def test_an_answer_that_comes_while_its_checkpoint_is_forgotten_is_no_trouble(
    simple: DiskBench,
) -> None:
    simple.deliver("a")
    for _ in range(2):
        assert simple.unalign(begin(simple, unpublished=True))
        simple.watch_over()
    trouble: list[BaseException] = []

    def late() -> None:
        try:
            given = [Acknowledgement(simple.run.id, 1, "late")]
            simple.database.transact(lambda c: checkpoint_store.acknowledge(c, given))
        except BaseException as error:  # noqa: BLE001  the test looks at it
            trouble.append(error)

    thread = Thread(target=late)
    with simple.database.connect() as other, other.transaction():
        retention.retire(other, simple.run, 1)
        thread.start()
        wait_until(lambda: _is_waiting(simple.database))
    thread.join(20)
    assert trouble == []


def _is_waiting(database: Database) -> bool:
    sql = b"""SELECT FROM pg_stat_activity
              WHERE wait_event_type = 'Lock' AND datname = current_database()"""
    return database.transact(lambda c: c.execute(sql).fetchone()) is not None
