"""One step of a task: fetch → align or process → commit, until the task is closed.

- **Fetch** the next messages of the task's channels (`task_channels`).
- **Align** barriers, when the task is a barrier node of the plan (`input_gate`), or **process**
  batches, when it is a stage: they are submitted to the stage's job batcher, and the loop goes on
  with other runs while a job is in progress (`stage_processor`, `result_collector`).
- **Commit** everything that follows from the step in one transaction under the task's lease:
  cursors, output messages with deterministic ids, state, results (`commit_rows`).

A crash before the commit leaves orphan files that are swept; a crash after it leaves nothing to do.
Processor memory is in no commit: cursors stay before the messages that are `uncommitted`, which are
read again after a crash. A step for a run that was closed meanwhile commits the parts of the
others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.dataflow import Bell
from tidegate.errors import Overtaken, ProcessorFailed
from tidegate.faults import crash_point
from tidegate.runtime.task import commit_rows
from tidegate.runtime.task.processor import Processor, StepInput, StepOutput, failure_on
from tidegate.runtime.task.task_attempt import TaskAttempt
from tidegate.runtime.task.task_channels import OpenRun, TaskChannels
from tidegate.store import (
    CursorAdvance,
    Database,
    Lease,
    StepCommit,
    commit_step,
    monitor_topic,
    number_of,
    refused_values,
    task_topic,
)
from tidegate.store.runs import retention

if TYPE_CHECKING:
    from tidegate.dataflow import StreamMessage
    from tidegate.runtime.task.commit_rows import ChecksumFiles
    from tidegate.runtime.task_graph import TaskEdge

IDLE_SECONDS = 1.0
"""After which an idle loop looks for messages although no notification arrived."""
STEP_MESSAGES = 256
"""Messages that a step takes at most."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The leases under which a task writes: its own, and those of its worker."""

    lease: Lease
    also: tuple[Lease, ...] = ()


class TaskLoop:
    """Runs one task on the thread that calls `run`.

    After any error the loop and its processor are unusable: new ones continue from the last commit.
    `monitored` are the tasks of the graph at which the monitor releases END; this one may be among
    them.
    """

    def __init__(  # noqa: PLR0913  three have defaults
        self,
        database: Database,
        pipeline: str,
        processor: Processor,
        edges: Sequence[TaskEdge],
        owned: Ownership,
        monitored: Collection[str] = (),
        checksum: ChecksumFiles = lambda _: (),
        *,
        attempt: TaskAttempt | None = None,
    ) -> None:
        self.attempt = TaskAttempt() if attempt is None else attempt
        self._database = database
        self._pipeline = pipeline
        self._task = processor.name
        self._processor = processor
        self._owned = owned
        self._monitored = frozenset(monitored)
        self._is_monitored = self._task in self._monitored
        self._checksum = checksum
        self._channels = TaskChannels(
            database, pipeline, processor, edges, is_monitored=self._is_monitored
        )
        self._bell = Bell()
        self._may_have_messages = True
        self._is_job_done = False
        self._is_finishing = False
        self._is_closed = False
        processor.on_job_done(self._wake_for_job)

    def run(self) -> None:
        """Step until `close`, or until `finish` and no job is in progress."""
        while not self.is_closed:
            if not self.step():
                self.wait(IDLE_SECONDS)

    def step(self) -> bool:
        """Commit what jobs have finished, then take one step; False when there is no message."""
        for earlier, output in self._processor.finished():
            self.commit(earlier, output)
        step = self.fetch()
        if step is None:
            return False
        self.commit(step, self._process(step))
        return True

    # ── fetch ──

    def fetch(self) -> StepInput | None:
        """The messages of the next step, or None. Never waits for messages."""
        if self._is_finishing:
            return None
        limit = self.attempt.limit(STEP_MESSAGES)
        step = self._channels.next_step(limit)
        if step is None and self._may_have_messages:
            self._may_have_messages = False
            if self._channels.fetch():
                self._may_have_messages = True  # there may be more than was fetched
            step = self._channels.next_step(limit)
        if step is not None:
            self.attempt.started(step.runs)
        return step

    # ── align, process ──

    def _process(self, step: StepInput) -> StepOutput:
        try:
            return self._processor.process(step)
        except ProcessorFailed:
            raise
        except (Exception, SystemExit) as cause:
            raise failure_on(self._task, step.messages, cause) from cause

    # ── commit ──

    def commit(self, step: StepInput, output: StepOutput) -> None:
        """Commit a step; runs that a checkpoint has overtaken are dropped and read again."""
        finished = step.runs - output.deferred
        advanced = self._advanced(step, finished, output)
        while True:
            try:
                self._commit(step, output)
            except Overtaken as late:
                output = self._drop(output, late.runs)
            else:
                break
        self.attempt.committed(finished, advanced)

    def _commit(self, step: StepInput, output: StepOutput) -> None:
        runs, task, checksum = self._channels.runs, self._task, self._checksum
        touched = self._touched(step, output)
        advances = tuple(self._advances(touched))
        commit = StepCommit(
            lease=self._owned.lease,
            also=self._owned.also,
            advances=advances,
            state_updates=tuple(commit_rows.state_updates(runs, task, output, advances, checksum)),
            sent=tuple(commit_rows.sent(runs, output.messages)),
            published=tuple(output.published),
            ended_runs=tuple(commit_rows.ended(runs, output.messages)),
            failed=tuple(commit_rows.failed(runs, output)),
            topics=tuple(self._topics(output.messages)),
            acknowledged=tuple(commit_rows.acknowledged(runs, task, output, checksum)),
            runs=tuple(state.run.id for state in touched),
        )
        if commit.changes:
            with refused_values(task, self._keys_of(commit)):
                committed = self._database.transact(lambda c: commit_step(c, commit))
            crash_point("step.after_commit")
            if commit.published:
                crash_point("publish.after_commit")
            self._channels.forget(committed.closed)
        self._after_commit(commit, touched, output)

    def _touched(self, step: StepInput, output: StepOutput) -> list[OpenRun]:
        """The runs whose part of the step is complete."""
        runs = step.runs | {message.run for message in output.messages}
        runs -= output.failed.keys() | output.deferred
        return [state for key, state in self._channels.runs.items() if key in runs]

    def _advances(self, touched: Iterable[OpenRun]) -> Iterator[CursorAdvance]:
        for state in touched:
            for channel in state.inputs:
                uncommitted = self._processor.uncommitted(channel.edge, state.run.key)
                target = channel.handled - uncommitted
                if target != channel.cursor:
                    yield CursorAdvance(channel.id, channel.cursor, target)

    def _topics(self, messages: Sequence[StreamMessage]) -> Iterator[str]:
        """Who is notified of the commit: receiving tasks, and the monitor where it decides next."""
        receivers = commit_rows.receivers(self._channels.runs, messages)
        for receiver in receivers:
            yield task_topic(self._pipeline, receiver)
        ends_at_monitored = self._monitored & receivers and any(commit_rows.ends(messages))
        is_collected = not receivers and any(commit_rows.checkpoints(messages))
        if self._is_monitored or ends_at_monitored or is_collected:
            yield monitor_topic(self._pipeline)

    def _keys_of(self, commit: StepCommit) -> list[str]:
        """The runs that a step stores values of."""
        ids = {*commit.runs, *(failure.run for failure in commit.failed)}
        return [key for key, state in self._channels.runs.items() if state.run.id in ids]

    def _after_commit(
        self, commit: StepCommit, touched: Iterable[OpenRun], output: StepOutput
    ) -> None:
        """Update positions; runs that ended or failed are no longer open."""
        targets = {advance.channel: advance.target for advance in commit.advances}
        for state in touched:
            state.is_deferred = False
            for channel in state.inputs:
                channel.cursor = targets.get(channel.id, channel.cursor)
        for run in output.deferred & self._channels.runs.keys():
            self._channels.runs[run].is_deferred = True
        for end in commit_rows.ends(output.messages):
            self._channels.ended(end.run)
        self._channels.forget({failure.run for failure in commit.failed})

    def _drop(self, output: StepOutput, runs: Collection[int]) -> StepOutput:
        """Discard the output of these runs; its files are noted, so that they are swept."""
        dropped = {key for key, state in self._channels.runs.items() if state.run.id in runs}
        orphans = [
            (number_of(message.run), file)
            for message in output.messages
            if message.run in dropped
            for file in commit_rows.files_in(message)
        ]
        self._database.transact(lambda connection: retention.record_unused(connection, orphans))
        self._channels.forget(runs)
        self._may_have_messages = True
        return output.without(dropped)

    def _advanced(self, step: StepInput, finished: set[str], output: StepOutput) -> set[str]:
        """The runs for which the step commits something that is not repeated after a crash."""
        sent = {message.run for message in output.messages}
        uncommitted = self._processor.uncommitted
        return {run for run in finished if run in sent or not uncommitted(step.edge, run)}

    # ── waiting and closing ──

    def wait(self, timeout: float) -> None:
        """Sleep until woken, until gathered data is worth a step, or for `timeout` seconds."""
        if self._processor.prefers_large_steps:
            timeout = min(timeout, max(0.0, self._channels.ready_at() - monotonic()))
        self._bell.sleep_unless(lambda: self._is_woken, timeout)
        self._may_have_messages = True
        self._is_job_done = False  # the next step collects what has finished

    def wake(self) -> None:
        """There may be messages; safe to call from any thread."""
        self._may_have_messages = True
        self._bell.ring()

    def _wake_for_job(self) -> None:
        self._is_job_done = True
        self._bell.ring()

    @property
    def _is_woken(self) -> bool:
        may_read = self._may_have_messages and not self._is_finishing
        return may_read or self._is_job_done or self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, or `finish` and no job is in progress any more."""
        return self._is_closed or (self._is_finishing and not self._has_deferred)

    @property
    def _has_deferred(self) -> bool:
        return any(state.is_deferred for state in self._channels.runs.values())

    def close(self) -> None:
        """End the loop after the step in progress; its messages stay on their channels."""
        self._is_closed = True
        self._bell.ring()

    def finish(self) -> None:
        """Read no more messages, and end the loop when the jobs in progress are committed."""
        self._is_finishing = True
        self._bell.ring()
