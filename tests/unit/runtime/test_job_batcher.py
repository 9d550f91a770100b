"""The desk: small shares become one job, large ones run alone, only the guilty run fails."""

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


def share(run: int, shard: int = 0, size: int = 1, rows: int = 1) -> JobInput:
    return JobInput(run, shard, ((Batch((f"run={run}/to={shard}/a.parquet",), rows, size),),))


class Spark:
    """Stands for run_shares: remembers jobs, can be held up, fails for some runs."""

    def __init__(self) -> None:
        self.jobs: list[list[int]] = []
        self.failing: dict[int, list[StageFailed]] = {}
        self.goes_on = Event()
        self.goes_on.set()
        self.started = Event()
        self._changing = Lock()

    def __call__(self, shares: Sequence[JobInput]) -> list[dict[int | None, Batch]]:
        with self._changing:
            self.jobs.append([it.run for it in shares])
        self.started.set()
        assert self.goes_on.wait(WAIT)
        for it in shares:
            if self.failing.get(it.run):
                raise self.failing[it.run][0]
        return [{None: Batch((f"out-{it.run}-{it.shard}",), it.run)} for it in shares]


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


def test_shares_that_come_while_a_job_is_at_work_share_the_next(
    spark: Spark, batcher: JobBatcher
) -> None:
    spark.goes_on.clear()
    answers = [batcher.submit(share(1))]
    assert spark.started.wait(WAIT)
    answers += [batcher.submit(share(run)) for run in (2, 3, 4)]
    spark.goes_on.set()
    made = [answer.result(WAIT)[None].rows for answer in answers]
    assert made == [1, 2, 3, 4]
    assert spark.jobs == [[1], [2, 3, 4]]
    assert batcher.work.jobs == 2


def test_a_large_share_is_a_job_of_its_own(spark: Spark, batcher: JobBatcher) -> None:
    spark.goes_on.clear()
    answers = [
        batcher.submit(share(1)),
        batcher.submit(share(2, size=batchers.ALONE)),
        batcher.submit(share(3, rows=batchers.ALONE_ROWS)),
    ]
    spark.goes_on.set()
    assert all(answer.result(WAIT) for answer in answers)
    assert sorted(spark.jobs) == [[1], [2], [3]]


def test_a_small_share_does_not_wait_for_large_ones(spark: Spark, batcher: JobBatcher) -> None:
    held, released = Event(), Event()

    def perform(shares: Sequence[JobInput]) -> list[dict[int | None, Batch]]:
        if shares[0].rows >= batchers.ALONE_ROWS:
            held.set()
            assert released.wait(WAIT)
        return spark(shares)

    with closing(JobBatcher("s2", perform)) as busy:
        large = [busy.submit(share(run, rows=batchers.ALONE_ROWS)) for run in range(1, 6)]
        assert held.wait(WAIT)
        assert busy.submit(share(9)).result(WAIT)
        assert not any(answer.done() for answer in large)
        released.set()
        assert all(answer.result(WAIT) for answer in large)


def test_a_joint_job_takes_no_more_than_its_bytes(spark: Spark, batcher: JobBatcher) -> None:
    spark.goes_on.clear()
    first = batcher.submit(share(1))
    assert spark.started.wait(WAIT)
    size = batchers.ALONE - 1
    answers = [first, *(batcher.submit(share(run, size=size)) for run in range(2, 12))]
    spark.goes_on.set()
    assert all(answer.result(WAIT) for answer in answers)
    most = batchers.TOGETHER // size + 1
    assert max(map(len, spark.jobs)) <= most < 10


def test_of_a_failing_joint_job_only_the_guilty_run_fails(
    spark: Spark, batcher: JobBatcher
) -> None:
    spark.failing[3] = [overflow()]
    spark.goes_on.clear()
    first = batcher.submit(share(1))
    assert spark.started.wait(WAIT)
    answers = {run: batcher.submit(share(run)) for run in (2, 3, 4)}
    spark.goes_on.set()
    assert first.result(WAIT)
    assert answers[2].result(WAIT)
    assert answers[4].result(WAIT)
    with pytest.raises(StageFailed) as failed:
        answers[3].result(WAIT)
    assert failed.value.spark_condition == "ARITHMETIC_OVERFLOW"
    assert spark.jobs == [[1], [2, 3, 4], [2], [3], [4]]


def test_what_is_in_the_data_is_not_tried_again_and_anything_else_a_few_times(
    spark: Spark, batcher: JobBatcher
) -> None:
    spark.failing = {1: [overflow()], 2: [StageFailed("s1", "IOException", "no space left")]}
    for run in (1, 2):
        with pytest.raises(StageFailed):
            batcher.submit(share(run)).result(WAIT)
    assert spark.jobs == [[1]] + [[2]] * batchers.ATTEMPTS


def test_an_error_that_is_not_of_the_job_reaches_everybody_who_waits() -> None:
    def broken(_: Sequence[JobInput]) -> list[dict[int | None, Batch]]:
        raise ConnectionError("Spark is gone")

    with closing(JobBatcher("s2", broken)) as batcher:
        answers = [batcher.submit(share(1)), batcher.submit(share(2))]
        for answer in answers:
            with pytest.raises(ConnectionError):
                answer.result(WAIT)


def test_an_order_that_was_withdrawn_is_in_no_job(spark: Spark, batcher: JobBatcher) -> None:
    spark.goes_on.clear()
    first = batcher.submit(share(1))
    assert spark.started.wait(WAIT)
    withdrawn, wanted = batcher.submit(share(2)), batcher.submit(share(3))
    assert withdrawn.cancel()
    spark.goes_on.set()
    assert first.result(WAIT)
    assert wanted.result(WAIT)
    assert spark.jobs == [[1], [3]]


def test_a_share_that_is_handed_in_again_takes_the_place_of_the_earlier(
    spark: Spark, batcher: JobBatcher
) -> None:
    """Two shares of the same run and shard in one job would read everything twice."""
    spark.goes_on.clear()
    first = batcher.submit(share(1))
    assert spark.started.wait(WAIT)
    stale, again, other = (
        batcher.submit(share(2)),
        batcher.submit(share(2)),
        batcher.submit(share(2, 1)),
    )
    spark.goes_on.set()
    assert first.result(WAIT)
    assert again.result(WAIT)
    assert other.result(WAIT)
    assert stale.cancelled()
    assert spark.jobs == [[1], [2, 2]]


def test_a_desk_that_is_closed_tries_nothing_again(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchers, "PAUSE", 60.0)
    spark.failing = {1: [StageFailed("s1", "IOException", "no space left")]}
    batcher = JobBatcher("s1", spark)
    answer = batcher.submit(share(1))
    assert spark.started.wait(WAIT)
    batcher.close()
    with pytest.raises(StageFailed):
        answer.result(WAIT)
    assert spark.jobs == [[1]]
