"""Builds the processors of a plan that runs on Spark, and the job batchers of its stages."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.jobs.job_batcher import JobBatcher
from tidegate.runtime.task.result_collector import ResultCollector
from tidegate.runtime.task.stage_processor import StageProcessor
from tidegate.spark import compacting, prefer_this_thread, run_stage_job, why_ended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from tidegate.plan import PhysicalResultCollect, PhysicalStage
    from tidegate.runtime.jobs.job_batcher import JobTotals, ShardOutputs
    from tidegate.runtime.worker.isolated_trials import Trials
    from tidegate.spark import Checked, JobInput, PreparedStage, Session
    from tidegate.store import FileChecksum


class SparkProcessorFactory:
    """Builds the processors of a checked plan; see `task_graph.ProcessorFactory`.

    Batches are written below `root`, in a folder named after the worker. All tasks of a stage share
    its job batcher.
    """

    def __init__(self, checked: Checked, session: Session, root: str, trials: Trials) -> None:
        self._prepared = checked.stages
        self._trials = trials
        self._tasks: dict[tuple[str, int], str] = {}
        """The names of tasks by stage and shard."""
        self._session = session
        self._root = root
        self._storage = FileStorage(root)
        self._writer = "unnamed"
        self._lock = Lock()
        self._compacting_batchers: dict[tuple[str, int], JobBatcher] = {}
        self._batchers = {
            id: JobBatcher(
                id,
                partial(self._run_job, prepared),
                partial(prefer_this_thread, session),
                partial(self._is_suspect, prepared),
            )
            for id, prepared in checked.stages.items()
        }

    def write_as(self, writer: str) -> None:
        """Write batches in a folder of this name from now on."""
        self._writer = writer
        self._trials.worker = writer

    def learn(self, task: str, suspects: Mapping[int, int]) -> None:
        """Process these runs alone in a task: each may be the cause of a lost worker."""
        self._trials.learn(task, suspects)

    @property
    def loss(self) -> str | None:
        """How Spark ended; None while it runs."""
        return why_ended(self._session)

    def checksum(self, files: Sequence[str]) -> Sequence[FileChecksum]:
        """The size and SHA-256 of files."""
        return self._storage.checksum(files)

    @property
    def totals(self) -> Mapping[str, JobTotals]:
        """By stage, the jobs that this process has run."""
        return {stage: batcher.totals for stage, batcher in self._batchers.items()}

    def close(self) -> None:
        """Start no more jobs."""
        with self._lock:
            for batcher in (*self._batchers.values(), *self._compacting_batchers.values()):
                batcher.close()

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> StageProcessor:
        """The processor of one shard of a stage."""
        prepared, batcher = self._prepared[stage.id], self._batchers[stage.id]
        self._tasks[stage.id, shard] = name
        return StageProcessor(name, shard, prepared, batcher, partial(self._compact, prepared))

    def _compact(
        self, prepared: PreparedStage, port: int, job_input: JobInput
    ) -> Future[ShardOutputs]:
        """Compact batches, in a batcher of its own: no step waits for such jobs."""
        key = prepared.stage.id, port
        with self._lock:
            if key not in self._compacting_batchers:
                run_job = partial(self._run_job, compacting(prepared, port))
                name = f"{prepared.stage.id}-compaction-{port}"
                is_suspect = partial(self._is_suspect, prepared)
                self._compacting_batchers[key] = JobBatcher(name, run_job, is_suspect=is_suspect)
            return self._compacting_batchers[key].submit(job_input)

    def collector(self, name: str, collect: PhysicalResultCollect) -> ResultCollector:
        """The processor that collects the results of all sinks."""
        return ResultCollector(name, collect.sinks)

    def _run_job(
        self, prepared: PreparedStage, inputs: Sequence[JobInput]
    ) -> Sequence[ShardOutputs]:
        parts = [(each.run, self._task(prepared, each)) for each in inputs]
        with self._trials.job(parts):
            return run_stage_job(
                self._session, prepared, inputs, root=self._root, writer=self._writer
            )

    def _is_suspect(self, prepared: PreparedStage, job_input: JobInput) -> bool:
        return self._trials.is_suspect(job_input.run, self._task(prepared, job_input))

    def _task(self, prepared: PreparedStage, job_input: JobInput) -> str:
        return self._tasks.get((prepared.stage.id, job_input.shard), prepared.stage.id)
