"""Small inputs become one job, large ones run alone, only the run that causes a failure fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from threading import Event, Lock

import pytest

from tidegate.dataflow import Batch
from tidegate.errors import StageFailed
from tidegate.runtime.jobs import job_batcher as batchers
from tidegate.runtime.jobs.job_batcher import JobBatcher
from tidegate.spark import JobInput

WAIT = 30


def job_input(run: int, shard: int = 0, size: int = 1, rows: int = 1) -> JobInput:
    return JobInput(run, shard, ((Batch((f"run={run}/to={shard}/a.parquet",), rows, size),),))


class Spark:
    """Stands for `run_stage_job`: records jobs, can be held up, fails for some runs."""

    def __init__(self) -> None:
        self.jobs: list[list[int]] = []
        self.failing: dict[int, list[StageFailed]] = {}
        self.goes_on = Event()
        self.goes_on.set()
        self.started = Event()
        self._changing = Lock()

    def __call__(self, inputs: Sequence[JobInput]) -> list[dict[int | None, Batch]]:
        with self._changing:
            self.jobs.append([each.run for each in inputs])
        self.started.set()
        assert self.goes_on.wait(WAIT)
        for each in inputs:
            if self.failing.get(each.run):
                raise self.failing[each.run][0]
        return [{None: Batch((f"out-{each.run}-{each.shard}",), each.run)} for each in inputs]


@pytest.fixture
def spark() -> Spark:
    return Spark()


@pytest.fixture
def batcher(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobBatcher]:
    monkeypatch.setattr(batchers, "SMALL_IN_FLIGHT", 1)
    monkeypatch.setattr(batchers, "PAUSE", 0.0)
    with closing(JobBatcher("s1", spark)) as batcher:
        yield batcher


def overflow() -> StageFailed:
    failure = StageFailed("s1", "ARITHMETIC_OVERFLOW", "too large")
    failure.__cause__ = ValueError("[ARITHMETIC_OVERFLOW] too large SQLSTATE: 22003")
    return failure


def test_inputs_submitted_while_a_job_runs_share_the_next_one(
    spark: Spark, batcher: JobBatcher
) -> None:
    spark.goes_on.clear()
    results = [batcher.submit(job_input(1))]
    assert spark.started.wait(WAIT)
    results += [batcher.submit(job_input(run)) for run in (2, 3, 4)]
    spark.goes_on.set()
    rows = [result.result(WAIT)[None].rows for result in results]
    assert rows == [1, 2, 3, 4]
    assert spark.jobs == [[1], [2, 3, 4]]
    assert batcher.totals.jobs == 2


def test_a_large_input_is_a_job_of_its_own(spark: Spark, batcher: JobBatcher) -> None:
    spark.goes_on.clear()
    results = [
        batcher.submit(job_input(1)),
        batcher.submit(job_input(2, size=batchers.ALONE)),
        batcher.submit(job_input(3, rows=batchers.ALONE_ROWS)),
    ]
    spark.goes_on.set()
    assert all(result.result(WAIT) for result in results)
    assert sorted(spark.jobs) == [[1], [2], [3]]


def test_a_small_input_does_not_wait_for_large_ones(spark: Spark, batcher: JobBatcher) -> None:
    held, released = Event(), Event()

    def run_job(inputs: Sequence[JobInput]) -> list[dict[int | None, Batch]]:
        if inputs[0].rows >= batchers.ALONE_ROWS:
            held.set()
            assert released.wait(WAIT)
        return spark(inputs)

    with closing(JobBatcher("s2", run_job)) as busy:
        large = [busy.submit(job_input(run, rows=batchers.ALONE_ROWS)) for run in range(1, 6)]
        assert held.wait(WAIT)
        assert busy.submit(job_input(9)).result(WAIT)
        assert not any(result.done() for result in large)
        released.set()
        assert all(result.result(WAIT) for result in large)


def test_a_joint_job_takes_no_more_than_its_bytes(spark: Spark, batcher: JobBatcher) -> None:
    spark.goes_on.clear()
    first = batcher.submit(job_input(1))
    assert spark.started.wait(WAIT)
    size = batchers.ALONE - 1
    results = [first, *(batcher.submit(job_input(run, size=size)) for run in range(2, 12))]
    spark.goes_on.set()
    assert all(result.result(WAIT) for result in results)
    most = batchers.TOGETHER // size + 1
    assert max(map(len, spark.jobs)) <= most < 10


def test_of_a_failing_joint_job_only_the_run_that_causes_it_fails(
    spark: Spark, batcher: JobBatcher
) -> None:
    spark.failing[3] = [overflow()]
    spark.goes_on.clear()
    first = batcher.submit(job_input(1))
    assert spark.started.wait(WAIT)
    results = {run: batcher.submit(job_input(run)) for run in (2, 3, 4)}
    spark.goes_on.set()
    assert first.result(WAIT)
    assert results[2].result(WAIT)
    assert results[4].result(WAIT)
    with pytest.raises(StageFailed) as failed:
        results[3].result(WAIT)
    assert failed.value.spark_condition == "ARITHMETIC_OVERFLOW"
    assert spark.jobs == [[1], [2, 3, 4], [2], [3], [4]]


def test_a_failure_in_the_data_is_not_repeated_and_any_other_a_few_times(
    spark: Spark, batcher: JobBatcher
) -> None:
    spark.failing = {1: [overflow()], 2: [StageFailed("s1", "IOException", "no space left")]}
    for run in (1, 2):
        with pytest.raises(StageFailed):
            batcher.submit(job_input(run)).result(WAIT)
    assert spark.jobs == [[1]] + [[2]] * batchers.ATTEMPTS


def test_an_error_outside_of_the_job_reaches_all_waiting_tasks() -> None:
    def broken(_: Sequence[JobInput]) -> list[dict[int | None, Batch]]:
        raise ConnectionError("Spark is gone")

    with closing(JobBatcher("s2", broken)) as batcher:
        results = [batcher.submit(job_input(1)), batcher.submit(job_input(2))]
        for result in results:
            with pytest.raises(ConnectionError):
                result.result(WAIT)


def test_a_request_that_was_cancelled_is_in_no_job(spark: Spark, batcher: JobBatcher) -> None:
    spark.goes_on.clear()
    first = batcher.submit(job_input(1))
    assert spark.started.wait(WAIT)
    cancelled, other = batcher.submit(job_input(2)), batcher.submit(job_input(3))
    assert cancelled.cancel()
    spark.goes_on.set()
    assert first.result(WAIT)
    assert other.result(WAIT)
    assert spark.jobs == [[1], [3]]


def test_an_input_that_is_submitted_again_replaces_the_earlier_one(
    spark: Spark, batcher: JobBatcher
) -> None:
    """Two inputs of the same run and shard in one job would read everything twice."""
    spark.goes_on.clear()
    first = batcher.submit(job_input(1))
    assert spark.started.wait(WAIT)
    stale, again, other = (
        batcher.submit(job_input(2)),
        batcher.submit(job_input(2)),
        batcher.submit(job_input(2, 1)),
    )
    spark.goes_on.set()
    assert first.result(WAIT)
    assert again.result(WAIT)
    assert other.result(WAIT)
    assert stale.cancelled()
    assert spark.jobs == [[1], [2, 2]]


def test_a_closed_batcher_repeats_no_job(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batchers, "PAUSE", 60.0)
    spark.failing = {1: [StageFailed("s1", "IOException", "no space left")]}
    batcher = JobBatcher("s1", spark)
    result = batcher.submit(job_input(1))
    assert spark.started.wait(WAIT)
    batcher.close()
    with pytest.raises(StageFailed):
        result.result(WAIT)
    assert spark.jobs == [[1]]
