"""A stage as a processor: when it answers, for which run, and what a cancelled run leaves."""

import csv
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.errors import BadValue, StageFailed
from tidegate.pipeline import Pipeline
from tidegate.plan import physical_plan
from tidegate.run.stages import SinkResult, StageOperator
from tidegate.run.step import Outcome, Step
from tidegate.signals import (
    BarrierKind,
    Carrier,
    Edge,
    Event,
    InstantKind,
    StreamMessage,
    Watermark,
)
from tidegate.spark import Batch, PreparedStage, Session, prepare
from tidegate.spark.exchange import read

LANE = Edge(0, "upstream")
END = BarrierKind.END_OF_RUN


def shop() -> Pipeline:
    shop = tg.Pipeline("shop", shards=2)
    sales = shop.source("sales", "store bigint, amount decimal(10,2)")
    sales.aggregate(by="store", total="sum(amount)").sink("totals")
    sales.aggregate(n="count(*)").sink("count")
    return shop


@pytest.fixture(scope="module")
def stages(spark: Session) -> dict[str, PreparedStage]:
    """The stages by their steps, their sink, and whether their rows are exchanged."""
    prepared = prepare(physical_plan(shop()), spark)
    names: dict[str, PreparedStage] = {}
    for stage in prepared.values():
        steps = "+".join(type(step).__name__ for step in stage.stage.steps)
        names[" ".join(filter(None, [steps, stage.sink, "by shard" if stage.route else ""]))] = (
            stage
        )
    return names


def handle(operator: StageOperator, *messages: StreamMessage) -> Outcome:
    return operator.handle(Step(Carrier.DATA, LANE, messages))


def chunk(folder: Path, name: str, *rows: tuple[object, ...]) -> Event[Batch]:
    file = folder / f"{name.replace('/', ' of ')}.csv"
    with file.open("w") as out:
        csv.writer(out).writerows([("store", "amount"), *rows])
    return Event(Batch((str(file),), 0), run=name.partition("-")[0])


def payloads(outcome: Outcome) -> list[object]:
    return [message.payload for message in outcome.data if isinstance(message, Event)]


def test_stages_of_a_plan_know_their_source_their_sink_and_their_route(
    stages: dict[str, PreparedStage],
) -> None:
    assert stages["Scan"].source == "sales"
    routes = {name: stage.route for name, stage in stages.items() if stage.route}
    assert [(route.keys, route.shards) for route in routes.values()] == [(("store",), 2)]
    assert {stage.sink for stage in stages.values()} == {None, "totals", "count"}


def test_a_narrow_stage_answers_every_step_apart_for_each_run(
    spark: Session, stages: dict[str, PreparedStage], tmp_path: Path
) -> None:
    scan = StageOperator("s1/0", stages["Scan"], spark, str(tmp_path / "out"))
    outcome = handle(
        scan,
        chunk(tmp_path, "may", (1, "2.50"), (2, 1)),
        chunk(tmp_path, "june/1", (3, 1)),
        Watermark(5, "may"),
        chunk(tmp_path, "may-2", (4, 1)),
        END.with_id(1, "may"),
    )
    *events, watermark, end = outcome.data
    assert isinstance(watermark, Watermark)
    assert end == END.with_id(1, "may")
    found = {event.run: event.payload for event in events if isinstance(event, Event)}
    counts = {run: batch.rows for run, batch in found.items() if isinstance(batch, Batch)}
    assert counts == {"may": 3, "june/1": 1}


def test_a_stateful_stage_keeps_batches_until_end_and_each_run_apart(
    spark: Session, stages: dict[str, PreparedStage], tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    partial = StageOperator("s2/0", stages["PartialAggregate by shard"], spark, out)
    scan = StageOperator("s1/0", stages["Scan"], spark, out)
    rows = handle(scan, chunk(tmp_path, "may", *((store, 1) for store in range(20))))
    events = [event for event in handle(partial, *rows.data).data if isinstance(event, Event)]
    assert {event.shard for event in events} == {0, 1}
    merge = StageOperator("s3/0", stages["MergeAggregate"], spark, out)
    assert handle(merge, *events, BarrierKind.CHECKPOINT.with_id(1, "may")).data == [
        BarrierKind.CHECKPOINT.with_id(1, "may")
    ]
    assert payloads(handle(merge, END.with_id(2, "june"))) == []
    (batch,) = payloads(handle(merge, *events, END.with_id(3, "may")))
    assert isinstance(batch, Batch)
    totals = read(spark, [batch], stages["MergeAggregate"].output)
    assert {total for _, total in totals.collect()} == {2}
    assert payloads(handle(merge, END.with_id(4, "may"))) == []


def test_a_sink_passes_batches_on_without_a_job_and_an_empty_count_is_a_result(
    spark: Session, stages: dict[str, PreparedStage], tmp_path: Path
) -> None:
    write = StageOperator("s4", stages["Write totals"], spark, str(tmp_path))
    batch = Batch(("somewhere.parquet",), 3)
    assert payloads(handle(write, Event(batch, "may"))) == [SinkResult("totals", batch)]
    count = StageOperator("s6", stages["MergeAggregate+Write count"], spark, str(tmp_path))
    (result,) = payloads(handle(count, END.with_id(1, "may")))
    assert isinstance(result, SinkResult)
    schema = stages["MergeAggregate+Write count"].output
    assert read(spark, [result.batch], schema).collect() == [(0,)]


def test_a_cancelled_run_gives_nothing_and_its_name_can_be_used_again(
    spark: Session, stages: dict[str, PreparedStage], tmp_path: Path
) -> None:
    count = StageOperator("s6", stages["MergeAggregate+Write count"], spark, str(tmp_path))
    handle(count, Event(Batch(("lost.parquet",), 1), "may"))
    cancel = InstantKind.CANCEL.with_id(1, "may")
    count.handle(Step(Carrier.CONTROL, LANE, (cancel,)))
    assert payloads(handle(count, END.with_id(2, "may"))) == []
    assert len(payloads(handle(count, END.with_id(3, "may")))) == 1


def test_a_value_that_is_not_of_its_declared_type_is_told_with_its_place(
    spark: Session, stages: dict[str, PreparedStage], tmp_path: Path
) -> None:
    scan = StageOperator("s1/0", stages["Scan"], spark, str(tmp_path / "out"))
    with pytest.raises(BadValue) as raised:
        handle(scan, chunk(tmp_path, "may", (1, 1), ("one", 1)))
    error = raised.value
    assert (error.source, error.file) == ("sales", str(tmp_path / "may.csv"))
    assert (error.column, error.value, error.type, error.line) == ("store", "one", "bigint", 3)
    assert "CAST_INVALID_INPUT" in str(error.__cause__)


def test_any_other_failing_job_is_told_with_the_stage_and_spark_s_own_cause(
    spark: Session, stages: dict[str, PreparedStage], tmp_path: Path
) -> None:
    scan = StageOperator("s1/0", stages["Scan"], spark, str(tmp_path / "out"))
    with pytest.raises(StageFailed) as raised:
        handle(scan, chunk(tmp_path, "may", (1,)))
    assert raised.value.stage == "s1"
    assert raised.value.spark_condition.startswith("MALFORMED_CSV_RECORD")
