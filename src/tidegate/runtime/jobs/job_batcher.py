"""The job batcher of a stage: combines the inputs of its tasks into Spark jobs.

Tasks submit inputs and get a future of the outputs. A large input is a job of its own. Small ones,
of several shards and runs, are combined: while a job runs, the next inputs gather, so that a busy
stage combines more, and an idle one starts at once. A joint job that fails is repeated run by run,
so that only the run that causes the failure fails.

A request can be cancelled (`cancel` of its future) until a job has started. A task that submits the
same run and shard again was restarted, so the earlier request is cancelled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeAlias

from tidegate.errors import StageFailed
from tidegate.spark import is_in_the_data

if TYPE_CHECKING:
    from tidegate.dataflow import Batch
    from tidegate.spark import JobInput

LARGE_IN_FLIGHT = 2
SMALL_IN_FLIGHT = 2
"""Jobs of one stage at a time. Small ones never wait for large ones."""
ALONE = 16 << 20
ALONE_ROWS = 500_000
"""Bytes or rows from which an input is a job of its own; below, a job costs more than its data."""
TOGETHER = 64 << 20
"""Bytes that a joint job takes at most."""
MOST_INPUTS = 128
"""Inputs that a joint job takes at most."""
GATHERING = 0.004
"""Seconds that a joint job waits for the other shards, which are woken by the same commit."""
ATTEMPTS = 3
PAUSE = 0.5
"""Seconds before a failed job is repeated, growing with each attempt."""

ShardOutputs: TypeAlias = "dict[int | None, Batch]"
"""The output for one input: a batch for each shard of the reading stage, or one under None."""
RunJob: TypeAlias = "Callable[[Sequence[JobInput]], Sequence[ShardOutputs]]"


@dataclass(slots=True)
class JobTotals:
    """The jobs of a stage so far."""

    jobs: int = 0
    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class JobRequest:
    """An input of a job, and the future of its output."""

    input: JobInput
    bytes: int
    result: Future[ShardOutputs]

    @property
    def key(self) -> tuple[int, int]:
        """Run and shard; a job has at most one request of each."""
        return self.input.run, self.input.shard


class JobBatcher:
    """Runs the Spark jobs of one stage, each by one call of `run_job`.

    `prefer` is called on every thread that runs small jobs, before its first. Inputs of suspects
    are jobs of their own.
    """

    def __init__(
        self,
        stage: str,
        run_job: RunJob,
        prefer: Callable[[], None] = lambda: None,
        is_suspect: Callable[[JobInput], bool] = lambda _: False,
    ) -> None:
        self._run_job = run_job
        self._is_suspect = is_suspect
        self._large_jobs = ThreadPoolExecutor(LARGE_IN_FLIGHT, f"tidegate-{stage}-large-jobs")
        self._small_jobs = ThreadPoolExecutor(
            SMALL_IN_FLIGHT, f"tidegate-{stage}-small-jobs", initializer=prefer
        )
        self._small: list[JobRequest] = []
        self._lock = Lock()
        self._closed = Event()
        self.totals = JobTotals()

    def submit(self, job_input: JobInput) -> Future[ShardOutputs]:
        """Submit an input; its output comes with the job that takes it."""
        size = sum(batch.bytes for batches in job_input.inputs for batch in batches)
        request = JobRequest(job_input, size, Future())
        if size >= ALONE or job_input.rows >= ALONE_ROWS or self._is_suspect(job_input):
            self._large_jobs.submit(self._start, [request])
            return request.result
        with self._lock:
            for earlier in self._small:
                if earlier.key == request.key:
                    earlier.result.cancel()
            self._small.append(request)
        self._small_jobs.submit(self._start_joint)
        return request.result

    def close(self) -> None:
        """Start no more jobs; running ones are not awaited, and not repeated."""
        self._closed.set()
        for jobs in (self._large_jobs, self._small_jobs):
            jobs.shutdown(wait=False, cancel_futures=True)

    def _start_joint(self) -> None:
        """One joint job over what has gathered; often an earlier one has taken it all."""
        sleep(GATHERING)
        with self._lock:
            requests = list(_fitting(self._small))
            del self._small[: len(requests)]
        self._start(requests)

    def _start(self, requests: Sequence[JobRequest]) -> None:
        """Run a job for the requests that were not cancelled."""
        active = [each for each in requests if each.result.set_running_or_notify_cancel()]
        if not active or self._closed.is_set():
            return
        try:
            self._run_jointly(active)
        except BaseException as error:  # noqa: BLE001  waiting tasks must get it
            for request in active:
                if not request.result.done():
                    request.result.set_exception(error)

    def _run_jointly(self, requests: Sequence[JobRequest]) -> None:
        by_run = _by_run(requests)
        if len(by_run) == 1:
            self._run_alone(requests)
            return
        try:
            outputs = self._run(requests)
        except StageFailed:
            if self._closed.is_set():
                raise
            for of_run in by_run.values():
                self._run_alone(of_run)
        else:
            _set_results(requests, outputs)

    def _run_alone(self, requests: Sequence[JobRequest]) -> None:
        """A job for the requests of one run, which fails alone."""
        try:
            _set_results(requests, self._run_with_retries(requests))
        except StageFailed as failure:
            for request in requests:
                request.result.set_exception(failure)

    def _run_with_retries(self, requests: Sequence[JobRequest]) -> Sequence[ShardOutputs]:
        """Repeat a failed job, unless the data itself is the cause."""
        for attempt in range(1, ATTEMPTS):
            try:
                return self._run(requests)
            except StageFailed as failure:
                if is_in_the_data(failure.__cause__) or paused(PAUSE * attempt, self._closed):
                    raise
        return self._run(requests)

    def _run(self, requests: Sequence[JobRequest]) -> Sequence[ShardOutputs]:
        started = monotonic()
        outputs = self._run_job([request.input for request in requests])
        with self._lock:
            self.totals.jobs += 1
            self.totals.rows += sum(batch.rows for each in outputs for batch in each.values())
            self.totals.seconds += monotonic() - started
        return outputs


def paused(seconds: float, closed: Event) -> bool:
    """Wait; whether the batcher was closed meanwhile."""
    return closed.wait(seconds)


def _fitting(requests: Sequence[JobRequest]) -> Iterator[JobRequest]:
    """The first requests that fit into one job; at least one."""
    remaining = TOGETHER
    for request in requests[:MOST_INPUTS]:
        if remaining <= 0:
            return
        remaining -= request.bytes
        yield request


def _by_run(requests: Sequence[JobRequest]) -> dict[int, list[JobRequest]]:
    runs: dict[int, list[JobRequest]] = defaultdict(list)
    for request in requests:
        runs[request.input.run].append(request)
    return runs


def _set_results(requests: Sequence[JobRequest], outputs: Sequence[ShardOutputs]) -> None:
    for request, output in zip(requests, outputs, strict=True):
        request.result.set_result(output)
