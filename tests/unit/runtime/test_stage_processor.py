"""A stage as a processor: when it submits jobs, for which run, and what follows from the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from threading import Event as Flag
from threading import Semaphore

import pytest
from pyspark.sql.types import StructType

from tidegate.dataflow import (
    Barrier,
    BarrierKind,
    Batch,
    CheckpointBarrier,
    Edge,
    Event,
    SinkResult,
    StreamMessage,
    Watermark,
)
from tidegate.dataflow.checkpoint_barrier import UNPUBLISHED
from tidegate.errors import NotABatch, StageFailed
from tidegate.plan.physical import (
    FinalTop,
    PhysicalJoin,
    PhysicalOperator,
    PhysicalStage,
    Where,
    WriteSink,
)
from tidegate.runtime.jobs import job_batcher as batchers
from tidegate.runtime.jobs.job_batcher import JobBatcher
from tidegate.runtime.task.processor import StepInput, StepOutput
from tidegate.runtime.task.stage_processor import StageProcessor
from tidegate.spark import JobInput, PreparedStage, Route

WAIT = 30
CHANNEL = Edge(0, "upstream")
END = BarrierKind.END_OF_RUN
MAY, JUNE = "may#1", "june#2"
FILTER = Where("a > 0", ("a",))
FIRST = FinalTop(1, (), ())


class Spark:
    """Stands for a job: records its inputs; one batch each, or one per shard of the reader."""

    def __init__(self, shards: Sequence[int | None] = (None,)) -> None:
        self.inputs: list[JobInput] = []
        self.fails_for: set[int] = set()
        self._shards = shards

    def __call__(self, inputs: Sequence[JobInput]) -> list[dict[int | None, Batch]]:
        for each in inputs:
            if each.run in self.fails_for:
                raise StageFailed("s1", "BROKEN", "it is broken")
        self.inputs.extend(inputs)
        return [
            {shard: Batch((f"run={each.run}",), each.rows) for shard in self._shards}
            for each in inputs
        ]


@pytest.fixture
def spark() -> Spark:
    return Spark()


@pytest.fixture
def batcher(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobBatcher]:
    monkeypatch.setattr(batchers, "PAUSE", 0.0)
    with closing(JobBatcher("s1", spark)) as batcher:
        yield batcher


def stage(*steps: PhysicalOperator, inputs: int = 1, route: Route | None = None) -> PreparedStage:
    schema = StructType([])
    physical = PhysicalStage("s1", steps, (), 2)
    return PreparedStage(physical, (schema,) * inputs, schema, ({},) * len(steps), route)


def handle(operator: StageProcessor, *messages: StreamMessage) -> StepOutput:
    """The output of a step, its jobs awaited."""
    worked = Semaphore(0)
    operator.on_job_done(worked.release)
    outcome = operator.process(StepInput(CHANNEL, messages))
    while outcome.deferred:
        assert worked.acquire(timeout=WAIT)
        for step, more in operator.finished():
            outcome.deferred -= {message.run for message in step.messages}
            outcome.messages.extend(more.messages)
            outcome.failed |= more.failed
    return outcome


def batch(name: str, rows: int = 1) -> Batch:
    return Batch((f"{name}.parquet",), rows, 10)


def checkpoint(number: int, *, is_unpublished: bool = False) -> Barrier:
    return Barrier.of_checkpoint(
        CheckpointBarrier(number, 1, UNPUBLISHED if is_unpublished else 0), MAY
    )


def payloads(outcome: StepOutput) -> list[object]:
    return [message.payload for message in outcome.messages if isinstance(message, Event)]


def test_a_stateless_stage_runs_a_job_for_each_run_of_a_step(
    spark: Spark, batcher: JobBatcher
) -> None:
    narrow = StageProcessor("s1/1", 1, stage(FILTER), batcher)
    outcome = handle(
        narrow,
        Event(batch("a"), MAY),
        Event(batch("b"), JUNE),
        Watermark(5, MAY),
        Event(batch("c"), MAY),
        END.with_id(1, MAY),
    )
    assert {(each.run, each.shard, each.inputs) for each in spark.inputs} == {
        (1, 1, ((batch("a"), batch("c")),)),
        (2, 1, ((batch("b"),),)),
    }
    may = [message for message in outcome.messages if message.run == MAY]
    assert may == [Event(Batch(("run=1",), 2), MAY), Watermark(5, MAY), END.with_id(1, MAY)]
    assert [message for message in outcome.messages if message.run == JUNE] == [
        Event(Batch(("run=2",), 1), JUNE)
    ]


def test_no_run_waits_for_the_job_of_another(spark: Spark) -> None:
    """The large job of one run is in progress; messages of another are processed at once."""
    started, goes_on, worked = Flag(), Flag(), Semaphore(0)

    def run_job(inputs: Sequence[JobInput]) -> list[dict[int | None, Batch]]:
        if inputs[0].run == 1:
            started.set()
            assert goes_on.wait(WAIT)
        return spark(inputs)

    with closing(JobBatcher("s1", run_job)) as batcher:
        narrow = StageProcessor("s1/0", 0, stage(FILTER), batcher)
        narrow.on_job_done(worked.release)
        large = Event(Batch(("a.parquet",), batchers.ALONE_ROWS), MAY)
        first = StepInput(CHANNEL, (large, END.with_id(1, MAY)))
        assert narrow.process(first).deferred == {MAY}
        assert started.wait(WAIT)
        assert narrow.is_blocked(CHANNEL, MAY)
        assert not narrow.is_blocked(CHANNEL, JUNE)
        second = StepInput(CHANNEL, (Event(batch("b"), JUNE),))
        assert narrow.process(second).deferred == {JUNE}
        assert worked.acquire(timeout=WAIT)
        assert [step for step, _ in narrow.finished()] == [second]
        goes_on.set()
        assert worked.acquire(timeout=WAIT)
        ((step, outcome),) = narrow.finished()
        assert step == first
        assert outcome.messages[-1] == END.with_id(1, MAY)
        assert not narrow.is_blocked(CHANNEL, MAY)


def test_the_output_for_a_run_that_was_closed_is_dropped(spark: Spark, batcher: JobBatcher) -> None:
    worked = Semaphore(0)
    narrow = StageProcessor("s1/0", 0, stage(FILTER), batcher)
    narrow.on_job_done(worked.release)
    narrow.process(StepInput(CHANNEL, (Event(batch("a"), MAY),)))
    narrow.forget(MAY)
    assert not narrow.is_blocked(CHANNEL, MAY)
    assert worked.acquire(timeout=WAIT)
    assert narrow.finished() == ()


def test_exchanged_batches_go_to_the_shard_that_the_job_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(JobBatcher("s1", Spark(shards=(0, 3)))) as batcher:
        spread = StageProcessor("s1/0", 0, stage(FILTER, route=Route(("a",), 4)), batcher)
        outcome = handle(spread, Event(batch("a"), MAY))
    assert [event.shard for event in outcome.messages if isinstance(event, Event)] == [0, 3]


def test_a_stateful_stage_collects_batches_by_input_until_end(
    spark: Spark, batcher: JobBatcher
) -> None:
    join = StageProcessor("s1/0", 0, stage(PhysicalJoin(("a",), "inner"), inputs=2), batcher)
    left = Event(batch("left"), MAY, port=0)
    right = Event(batch("right"), MAY, port=1)
    assert handle(join, right, Watermark(7, MAY), left).messages == []
    assert join.uncommitted(CHANNEL, MAY) == 3
    assert join.uncommitted(CHANNEL, JUNE) == 0
    rows, watermark, end = handle(join, END.with_id(1, MAY)).messages
    assert spark.inputs == [JobInput(1, 0, ((batch("left"),), (batch("right"),)))]
    assert (rows, end) == (Event(Batch(("run=1",), 2), MAY), END.with_id(1, MAY))
    assert watermark == Watermark(7, MAY)
    assert join.uncommitted(CHANNEL, MAY) == 0


def test_a_watermark_is_forwarded_once_behind_the_next_output(batcher: JobBatcher) -> None:
    top = StageProcessor("s1/0", 0, stage(FIRST), batcher)
    assert handle(top, Watermark(5, MAY), Event(batch("a"), MAY), Watermark(7, MAY)).messages == []
    first, second = checkpoint(1), checkpoint(2)
    rows, *behind = handle(top, first).messages
    assert isinstance(rows, Event)
    assert behind == [Watermark(7, MAY), first]
    assert [each for each in handle(top, second).messages if not isinstance(each, Event)] == [
        second
    ]
    assert top.uncommitted(CHANNEL, MAY) == 0


def test_an_unpublished_checkpoint_has_no_output_so_the_watermark_waits_for_the_next_one(
    batcher: JobBatcher,
) -> None:
    top = StageProcessor("s1/0", 0, stage(FIRST), batcher)
    unpublished = checkpoint(1, is_unpublished=True)
    assert handle(top, Watermark(5, MAY), unpublished).messages == [unpublished]
    assert top.uncommitted(CHANNEL, MAY) == 0
    assert Watermark(5, MAY) in handle(top, checkpoint(2)).messages


@pytest.mark.parametrize(("forwarded", "goes_on"), [(None, True), (3, True), (5, False)])
def test_a_restarted_stage_restores_the_watermark_that_was_not_forwarded(
    batcher: JobBatcher, forwarded: int | None, goes_on: bool
) -> None:
    top = StageProcessor("s1/0", 0, stage(FIRST), batcher)
    top.restore_watermarks(MAY, {CHANNEL: 5}, forwarded)
    assert (Watermark(5, MAY) in handle(top, checkpoint(2)).messages) is goes_on


def test_end_without_any_rows_is_a_job_because_a_count_of_nothing_is_a_row(
    spark: Spark, batcher: JobBatcher
) -> None:
    top = StageProcessor("s1/0", 0, stage(FIRST), batcher)
    assert payloads(handle(top, END.with_id(1, MAY))) == [Batch(("run=1",), 0)]


def test_a_stage_that_changes_nothing_forwards_batches_without_a_job(
    spark: Spark, batcher: JobBatcher
) -> None:
    sink = StageProcessor("s1", 0, stage(WriteSink("totals")), batcher)
    assert payloads(handle(sink, Event(batch("a"), MAY))) == [SinkResult("totals", batch("a"))]
    assert spark.inputs == []


@pytest.mark.parametrize("step", [FILTER, FIRST])
def test_a_payload_that_is_not_a_batch_fails_its_run_and_no_other(
    step: PhysicalOperator, spark: Spark, batcher: JobBatcher
) -> None:
    operator = StageProcessor("s1/0", 0, stage(step), batcher)
    outcome = handle(
        operator,
        Event("a.parquet", MAY),
        Event(batch("b"), JUNE),
        END.with_id(1, MAY),
        END.with_id(1, JUNE),
    )
    assert [type(cause) for cause in outcome.failed.values()] == [NotABatch]
    assert list(outcome.failed) == [MAY]
    assert {message.run for message in outcome.messages} == {JUNE}
    assert operator.uncommitted(CHANNEL, MAY) == 0


def test_only_the_run_whose_job_fails_is_named_and_the_others_go_on(
    spark: Spark, batcher: JobBatcher
) -> None:
    spark.fails_for = {1}
    top = StageProcessor("s1/0", 0, stage(FIRST), batcher)
    outcome = handle(
        top,
        Event(batch("a"), MAY),
        Event(batch("b"), JUNE),
        END.with_id(1, MAY),
        END.with_id(1, JUNE),
    )
    assert [str(cause) for cause in outcome.failed.values()] == [
        "stage s1 failed in Spark: it is broken [BROKEN]"
    ]
    assert list(outcome.failed) == [MAY]
    assert outcome.messages == [Event(Batch(("run=2",), 1), JUNE), END.with_id(1, JUNE)]


def test_a_closed_run_leaves_nothing_behind(spark: Spark, batcher: JobBatcher) -> None:
    top = StageProcessor("s1/0", 0, stage(FIRST), batcher)
    handle(top, Event(batch("lost"), MAY))
    top.forget(MAY)
    assert top.uncommitted(CHANNEL, MAY) == 0
    handle(top, END.with_id(3, MAY))
    assert spark.inputs == [JobInput(1, 0, ((),))]


def test_a_step_that_took_long_makes_the_next_one_smaller(
    batcher: JobBatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 60.0])
    monkeypatch.setattr("tidegate.runtime.task.stage_processor.monotonic", lambda: next(times))
    narrow = StageProcessor("s1/0", 0, stage(FILTER), batcher)
    before = narrow.step_bytes
    handle(narrow, Event(Batch(("large.parquet",), 1, before), MAY))
    assert narrow.step_bytes == before // 2
