"""A whole pipeline over durable channels without Spark: its rows are the names of their files.

Every stage forwards the names it received: a stateless one at once, a stateful one all of them at
each barrier, by hash to the shards of its reader where rows are exchanged. So the result of a sink
shows exactly which chunks went in, and how often.

One thread does everything, in the order that a test chooses: a chunk is delivered, a barrier is
injected at one source, one task takes a step, a job is run, the coordinator or the monitor looks, a
task crashes and is restarted from the last commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import cast
from zlib import crc32

from pyspark.sql.types import StructType

from tidegate.completion import Release, decide
from tidegate.dataflow import Batch, CheckpointBarrier, CheckpointId
from tidegate.dataflow.checkpoint_barrier import UNPUBLISHED
from tidegate.plan import PhysicalPlan, PhysicalResultCollect, plan_hash
from tidegate.plan.physical import PhysicalStage, Scan, WriteSink
from tidegate.runtime.checkpoints.client import CheckpointClient
from tidegate.runtime.checkpoints.restore import graph_of
from tidegate.runtime.jobs.job_batcher import JobBatcher, ShardOutputs
from tidegate.runtime.monitor.checkpoint_coordinator import CheckpointCoordinator
from tidegate.runtime.task.processor import Processor
from tidegate.runtime.task.result_collector import ResultCollector
from tidegate.runtime.task.stage_processor import StageProcessor
from tidegate.runtime.task.task_loop import Ownership, TaskLoop
from tidegate.runtime.task_graph import HEAD, TaskGraph, build_task_graph
from tidegate.spark import JobInput, PreparedStage
from tidegate.spark.analyze.prepare import route_of
from tidegate.store import (
    ChannelName,
    Chunk,
    Connection,
    Database,
    FileChecksum,
    Lease,
    Notifications,
    RunInfo,
    RunState,
    acquire,
    begin_run,
    end_source,
    record_chunk,
    results_of,
    unreleased,
)
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.checkpoints import restore as restore_store
from tidegate.store.checkpoints import unaligned
from tidegate.store.runs.releases import release
from tidegate.store.runs.results import reload_run
from tidegate.store.runs.status import record_release_points

Hub = tuple[Database, Notifications]
"""Shared by several benches; each has a pipeline of its own."""
Shown = dict[str, Counter[str]]
"""By sink, which names it shows, and how often."""
LONG = 3600.0


def checksums(files: Sequence[str]) -> list[FileChecksum]:
    return [FileChecksum(file, 1, file) for file in files]


class ManualJobBatcher:
    """Stands for the job batcher of a stage: a job runs when the test calls `work`."""

    def __init__(self, shards: int | None) -> None:
        self._shards = shards
        self._requests: list[tuple[Future[ShardOutputs], JobInput]] = []

    def submit(self, job_input: JobInput) -> Future[ShardOutputs]:
        result: Future[ShardOutputs] = Future()
        self._requests.append((result, job_input))
        return result

    def work(self) -> bool:
        """Run the oldest job; whether there was one."""
        while self._requests:
            result, job_input = self._requests.pop(0)
            if result.set_running_or_notify_cancel():
                result.set_result(self._outputs(job_input))
                return True
        return False

    def _outputs(self, job_input: JobInput) -> ShardOutputs:
        names = [file for its in job_input.inputs for batch in its for file in batch.files]
        if self._shards is None:
            return {None: Batch(tuple(names), len(names))} if names else {}
        shards: dict[int | None, list[str]] = {}
        for name in names:
            shards.setdefault(crc32(name.encode()) % self._shards, []).append(name)
        return {shard: Batch(tuple(its), len(its)) for shard, its in shards.items()}


class NamesProcessorFactory:
    """Builds the processors of a plan."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self.batchers: list[ManualJobBatcher] = []

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> StageProcessor:
        prepared = self.prepared(stage)
        batcher = self._batcher(prepared.route.shards if prepared.route else None)
        compacting = self._batcher(None)
        return StageProcessor(
            name, shard, prepared, batcher, lambda _, job_input: compacting.submit(job_input)
        )

    def collector(self, name: str, collect: PhysicalResultCollect) -> ResultCollector:
        return ResultCollector(name, collect.sinks)

    def prepared(self, stage: PhysicalStage) -> PreparedStage:
        inputs = (StructType([]),) * max(1, len(self._plan.arriving(stage)))
        route = route_of(self._plan, stage)
        return PreparedStage(stage, inputs, StructType([]), ({},) * len(stage.operators), route)

    def _batcher(self, shards: int | None) -> JobBatcher:
        batcher = ManualJobBatcher(shards)
        self.batchers.append(batcher)
        return cast("JobBatcher", batcher)


@dataclass
class Task:
    """A processor in its loop."""

    processor: Processor
    loop: TaskLoop

    def turn(self) -> bool:
        """Commit finished jobs, else take one step; whether there was anything to do."""
        finished = self.processor.finished()
        for earlier, outcome in finished:
            self.loop.commit(earlier, outcome)
        if finished:
            return True
        self.loop.wake()
        step = self.loop.fetch()
        if step is not None:
            self.loop.commit(step, self.processor.process(step))
        return step is not None


@dataclass
class Bench:
    """One run of a pipeline, its tasks, coordinator and monitor."""

    database: Database
    notifications: Notifications
    plan: PhysicalPlan
    delivered: dict[str, list[list[str]]] = field(default_factory=dict)
    """By source, the names in each chunk."""
    ended: set[str] = field(default_factory=set)
    before: dict[tuple[int, str], int] = field(default_factory=dict)
    """By checkpoint and source how many chunks were delivered when the barrier was injected."""

    def __post_init__(self) -> None:
        self.factory = self.factory_of(self.plan)
        self.delivered = {source: [] for source in self.task_graph.sources}
        gates = self.task_graph.monitored
        self.database.transact(lambda c: record_release_points(c, plan_hash(self.plan), gates))
        self.run = self.database.transact(self._begin)
        self.tasks = {task: self._built(task) for task in self.task_graph.tasks}
        self.coordinator = CheckpointCoordinator(self.database, self.plan.pipeline, checksums)
        self.watch = self._lease("monitor", self.plan.pipeline)
        self.checkpoints = CheckpointClient(
            self.database, self.plan, self.notifications, lambda _: self.run, lambda: None
        )

    def factory_of(self, plan: PhysicalPlan) -> NamesProcessorFactory:
        return NamesProcessorFactory(plan)

    @cached_property
    def task_graph(self) -> TaskGraph:
        return build_task_graph(self.plan)

    # ── what may happen ──

    def deliver(self, source: str, rows: int = 2, watermark: int | None = None) -> None:
        number = len(self.delivered[source]) + 1
        names = [f"{source} {number}.{row}" for row in range(rows)]
        readers = self.task_graph.sources[source]
        shard = (number - 1) % len(readers[0])
        chunk = Chunk(source, number, "-", rows, rows, tuple(names), shard, watermark)
        channels = [ChannelName(HEAD, tasks[shard]) for tasks in readers]
        ends = self._channels(source)
        self.database.transact(lambda c: record_chunk(c, self.run, chunk, channels, ends))
        self.delivered[source].append(names)

    def end(self, source: str) -> None:
        ends = self._channels(source)
        self.database.transact(lambda c: end_source(c, self.run, source, None, ends))
        self.ended.add(source)

    def trigger(self, *, unpublished: bool = False) -> int | None:
        trigger = partial(
            checkpoint_store.trigger, run=self.run, id=CheckpointId.new(), unpublished=unpublished
        )
        return self.database.transact(trigger)

    def unalign(self, number: int) -> bool:
        """A checkpoint stops waiting for tasks that have not forwarded its barrier."""
        return self.database.transact(lambda c: unaligned.unalign(c, self.run, number))

    def inject(self, source: str) -> bool:
        """Inject the pending barrier of a source; whether there was one."""
        for pending in self.database.transact(
            lambda c: checkpoint_store.pending_barriers(c, self.plan.pipeline)
        ):
            if pending.source == source:
                barrier = CheckpointBarrier(
                    pending.number, pending.epoch, UNPUBLISHED * pending.is_unpublished
                )
                channels = self._channels(source)
                inject = partial(
                    checkpoint_store.inject,
                    run=pending.run,
                    source=source,
                    barrier=barrier,
                    channels=channels,
                )
                assert self.database.transact(inject)
                self.before[pending.number, source] = len(self.delivered[source])
                return True
        return False

    def abort(self, number: int) -> bool:
        reason = "the test wants it"
        return self.database.transact(
            lambda c: checkpoint_store.abort(c, self.run, number, reason, "the test")
        )

    def kill(self, task: str) -> None:
        """A task crashes and is restarted from the last commit."""
        self.tasks[task] = self._built(task)

    def restore(self, number: int) -> None:
        """The run is restored to a checkpoint; running tasks are not informed."""
        graph = graph_of(self.task_graph)
        earlier = self.run
        self.run = self.database.transact(
            lambda c: restore_store.restore(c, earlier, number, graph)
        )

    def watch_over(self) -> bool:
        """The coordinator and the monitor look; whether the monitor released an END."""
        self.coordinator.look(self.watch)
        return self.database.transact(self._release)

    def work(self) -> bool:
        """Run one job of each stage; whether there was any."""
        return bool([batcher for batcher in self.factory.batchers if batcher.work()])

    # ── until the end ──

    def settle(self, *, without: Collection[str] = ()) -> None:
        """Go on until nothing is left to do; the tasks in `without` do not run.

        A task that has just opened a run reads only with its next fetch whether END is released.
        """
        while self._round(without) or self._round(without):
            pass

    def finish(self) -> Shown:
        """End all sources and go on until the run has ended: the results of its sinks."""
        for source in self.task_graph.sources.keys() - self.ended:
            self.end(source)
        self.settle()
        now = self.database.transact(lambda c: reload_run(c, self.run))
        assert now is not None
        assert now.state is RunState.ENDED, f"the run is stuck: {now}"
        found = self.database.transact(lambda c: results_of(c, self.run))
        return {sink: self.names_in(its.batches) for sink, its in found.items()}

    def _round(self, asleep: Collection[str]) -> bool:
        injected = [self.inject(source) for source in self.task_graph.sources]
        turns = [task.turn() for name, task in self.tasks.items() if name not in asleep]
        worked = self.work()
        released = self.watch_over()
        return any([*injected, *turns, worked, released])

    # ── what is to be seen ──

    def shown(self, number: int) -> Shown:
        """The results of all sinks at a checkpoint."""
        results = self.checkpoints.read(self.run.name, number).results
        return {sink: self.names_in(batches) for sink, batches in results.items()}

    def names_in(self, batches: Sequence[Batch]) -> Counter[str]:
        """Which names the batches contain, and how often."""
        return Counter(name for batch in batches for name in batch.files)

    def expected(self, number: int | None = None) -> Shown:
        """The expected results: what follows from the chunks before each source's barrier."""
        given = {source: Counter(self._before(source, number)) for source in self.delivered}
        return {stage.operators[-1].sink: self._follows(stage.id, given)
                for stage in self.plan.stages
                if isinstance(stage.operators[-1], WriteSink)}  # fmt: skip

    @property
    def committed(self) -> list[int]:
        """The published checkpoints."""
        every = self.checkpoints.all(self.run.name)
        return [it.number for it in every if it.state.value == "committed" and it.is_published]

    @property
    def totalling(self) -> list[str]:
        """The stateful stages."""
        return [it.id for it in self.plan.stages if self.factory.prepared(it).is_stateful]

    @property
    def restorable(self) -> list[int]:
        every = self.checkpoints.all(self.run.name)
        return [it.number for it in every if it.state.value == "committed"]

    def _before(self, source: str, number: int | None) -> Iterator[str]:
        chunks = self.delivered[source]
        upto = len(chunks) if number is None else self.before.get((number, source), len(chunks))
        return (name for names in chunks[:upto] for name in names)

    def _follows(self, node: str, given: dict[str, Counter[str]]) -> Counter[str]:
        """The names that come out of a node of the plan."""
        found = self.plan.by_id[node]
        operators = found.operators if isinstance(found, PhysicalStage) else ()
        names = sum((given[each.source] for each in operators if isinstance(each, Scan)), Counter())
        return sum((self._follows(edge.upstream, given) for edge in found.inputs), names)

    # ── how ──

    def _begin(self, connection: Connection) -> RunInfo:
        graph = graph_of(self.task_graph)
        name, sources = self.plan.pipeline, tuple(graph.sources)
        return begin_run(
            connection, name, "march", graph.channels, sources=sources, plan=graph.plan
        )

    def _built(self, task: str) -> Task:
        processor = self.task_graph.processor(task, self.factory)
        owned = Ownership(self._lease("task", f"{self.plan.pipeline}/{task}"))
        return Task(processor, TaskLoop(self.database, self.plan.pipeline, processor,
                                            self.task_graph.edges, owned, self.task_graph.monitored,
                                            checksums))  # fmt: skip

    def _lease(self, kind: str, key: str) -> Lease:
        lease = self.database.transact(lambda c: acquire(c, kind, key, "the bench", LONG))
        assert lease is not None
        return lease

    def _channels(self, source: str) -> list[ChannelName]:
        readers = self.task_graph.sources[source]
        return [ChannelName(HEAD, task) for tasks in readers for task in tasks]

    def _release(self, connection: Connection) -> bool:
        waiting = unreleased(connection, self.plan.pipeline, self.task_graph.monitored)
        let_go = [release(connection, run, task) for run, task, facts in waiting
                  if isinstance(decide(facts), Release)]  # fmt: skip
        return any(let_go)
