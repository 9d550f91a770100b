"""The processors of a plan that runs on Spark, and the desks at which they work."""

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
    from tidegate.runtime.jobs.job_batcher import ShardOutputs, Work
    from tidegate.runtime.worker.isolated_trials import Trials
    from tidegate.spark import Checked, JobInput, PreparedStage, Session
    from tidegate.store import FileChecksum


class SparkProcessorFactory:
    """Makes the processors of a checked plan; see `build_task_graph.ProcessorFactory`.

    Batches go below `root`, under the name of whoever works here. All tasks of a stage share its
    desk.
    """

    def __init__(self, checked: Checked, session: Session, root: str, trials: Trials) -> None:
        self._prepared = checked.stages
        self._trials = trials
        self._tasks: dict[tuple[str, int], str] = {}
        """The names of tasks by stage and shard."""
        self._session = session
        self._root = root
        self._storage = FileStorage(root)
        self._writer = "nobody"
        self._adding = Lock()
        self._compacting: dict[tuple[str, int], JobBatcher] = {}
        self._batchers = {
            id: JobBatcher(
                id,
                partial(self._perform, prepared),
                partial(prefer_this_thread, session),
                partial(self._is_suspect, prepared),
            )
            for id, prepared in checked.stages.items()
        }

    def write_as(self, writer: str) -> None:
        """From here on batches are written under this name."""
        self._writer = writer
        self._trials.worker = writer

    def learn(self, task: str, suspects: Mapping[int, int]) -> None:
        """Process these runs alone in a task: each may be the cause of a lost worker."""
        self._trials.learn(task, suspects)

    @property
    def loss(self) -> str | None:
        """How Spark has ended; None while it runs."""
        return why_ended(self._session)

    def checksum(self, files: Sequence[str]) -> Sequence[FileChecksum]:
        """The size and SHA-256 of files."""
        return self._storage.checksum(files)

    @property
    def work(self) -> Mapping[str, Work]:
        """What every stage has done here so far."""
        return {stage: batcher.work for stage, batcher in self._batchers.items()}

    def close(self) -> None:
        """Take no more work."""
        with self._adding:
            for batcher in (*self._batchers.values(), *self._compacting.values()):
                batcher.close()

    def stage(self, name: str, stage: PhysicalStage, shard: int) -> StageProcessor:
        """A stage hands its work to its desk."""
        prepared, batcher = self._prepared[stage.id], self._batchers[stage.id]
        self._tasks[stage.id, shard] = name
        return StageProcessor(name, shard, prepared, batcher, partial(self._compact, prepared))

    def _compact(self, prepared: PreparedStage, port: int, share: JobInput) -> Future[ShardOutputs]:
        """One batch of many, at a desk of its own: nobody waits for it."""
        key = prepared.stage.id, port
        with self._adding:
            if key not in self._compacting:
                perform = partial(self._perform, compacting(prepared, port))
                name = f"{prepared.stage.id}-condensing-{port}"
                is_suspect = partial(self._is_suspect, prepared)
                self._compacting[key] = JobBatcher(name, perform, is_suspect=is_suspect)
            return self._compacting[key].submit(share)

    def collector(self, name: str, collect: PhysicalResultCollect) -> ResultCollector:
        """Where all sinks meet."""
        return ResultCollector(name, collect.sinks)

    def _perform(
        self, prepared: PreparedStage, shares: Sequence[JobInput]
    ) -> Sequence[ShardOutputs]:
        parts = [(share.run, self._task(prepared, share)) for share in shares]
        with self._trials.job(parts):
            return run_stage_job(
                self._session, prepared, shares, root=self._root, writer=self._writer
            )

    def _is_suspect(self, prepared: PreparedStage, share: JobInput) -> bool:
        return self._trials.is_suspect(share.run, self._task(prepared, share))

    def _task(self, prepared: PreparedStage, share: JobInput) -> str:
        return self._tasks.get((prepared.stage.id, share.shard), prepared.stage.id)
