"""Shares of several runs and shards in one job give what each gives by itself."""

import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame

import tidegate as tg
from tidegate.dataflow import Batch
from tidegate.errors import StageFailed
from tidegate.pipeline import nodes
from tidegate.pipeline.nodes import AggregateColumn, Order, SelectColumn, SourceField
from tidegate.plan import Move, PhysicalEdge, PhysicalPlan, PhysicalStage
from tidegate.plan.physical import (
    Apply,
    FinalTop,
    MergeAggregate,
    PartialAggregate,
    PartialTop,
    PhysicalJoin,
    PhysicalOperator,
    PhysicalUnion,
    Project,
    Scan,
    Where,
    WriteSink,
)
from tidegate.spark import (
    JobInput,
    PreparedStage,
    Session,
    passes_through,
    prepare,
    run_stage_job,
)

SCHEMA = pa.schema({
    "k": pa.string(), "item": pa.int64(), "price": pa.decimal128(10, 2),
    "side1": pa.int64(), "side2": pa.int64(),
})  # fmt: skip
ITEM = SourceField("item", "bigint")
SCAN = Scan("sales", (SourceField("k", "string"), ITEM, SourceField("price", "decimal(10,2)")))
SIDES = SCAN, *(Scan("sales", (ITEM, SourceField(name, "bigint"))) for name in ("side1", "side2"))
OWNERS = [(run, shard) for run in (4, 31) for shard in (0, 1)]
DEAREST = (Order("price", True, ("price",)),)
BY_ITEM = SelectColumn("*", "*", ()), SelectColumn("odd", "item % 2", ("item",))
Result = dict[int | None, Batch]


def columns_of(**sql: str) -> tuple[AggregateColumn, ...]:
    node = tg.Pipeline("p").source("s", "k string").aggregate(columns=sql).node
    assert isinstance(node, nodes.Aggregate)
    return node.columns


SUMS = columns_of(total="sum(price)", mean="avg(price)", n="count(*)", last="max(item)")
PARTIAL = PartialAggregate(("item",), SUMS, exact=False)
ALL = PartialAggregate((), SUMS, exact=False)
COUNT = columns_of(rows="count(*)")


def doubled(rows: DataFrame) -> DataFrame:
    return rows.union(rows)


def stage_of(
    spark: Session,
    operators: Sequence[PhysicalOperator],
    inputs: Sequence[Scan] = (),
    keys: Sequence[str] | None = None,
) -> PreparedStage:
    """These steps on two shards, over scans if there are inputs, and a reader."""
    scans = [PhysicalStage(f"input{at}", (scan,), (), 2) for at, scan in enumerate(inputs)]
    tested = PhysicalStage(
        "tested", (*operators,), tuple(PhysicalEdge(scan.id) for scan in scans), 2
    )
    move = Move.FORWARD if keys is None else Move.EXCHANGE
    reader = PhysicalStage(
        "reader", (WriteSink("out"),), (PhysicalEdge("tested", move, (*(keys or ()),)),), 2
    )
    return prepare(PhysicalPlan("shop", 2, (*scans, tested, reader)), spark)["tested"]


def merging(
    spark: Session, partial: PartialAggregate, *then: PhysicalOperator
) -> list[PreparedStage]:
    """A stage that aggregates in part, and the one that merges it by shard."""
    first = PhysicalStage("first", (SCAN, partial), (), 2)
    merge = MergeAggregate(partial.by, partial.columns)
    edge = PhysicalEdge("first", Move.EXCHANGE, partial.by)
    tested = PhysicalStage("tested", (merge, *then), (edge,), 2)
    prepared = prepare(PhysicalPlan("shop", 2, (first, tested)), spark)
    return [prepared["first"], prepared["tested"]]


def chunk(root: Path, owner: tuple[int, int], rows: Sequence[dict[str, object]]) -> Batch:
    run, shard = owner
    file = f"chunks/run={run}/to={shard}/sales/{uuid4().hex}.parquet"
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.Table.from_pylist(list(rows), SCHEMA), root / file)
    return Batch((file,), len(rows), (root / file).stat().st_size)


def sale(chance: random.Random) -> dict[str, object]:
    return {
        "k": chance.choice(["a", "b", None]),
        "item": chance.randrange(6),
        "price": Decimal(chance.randint(-9999, 9999)).scaleb(-2),
        "side1": chance.randrange(4),
        "side2": chance.randrange(4),
    }


def job_inputs_of(root: Path, inputs: int = 1) -> list[JobInput]:
    chance = random.Random(11)
    return [
        JobInput(*owner, tuple(
            tuple(chunk(root, owner, [sale(chance) for _ in range(12)]) for _ in range(2))
            for _ in range(inputs)
        ))
        for owner in OWNERS
    ]  # fmt: skip


def run(
    spark: Session, stage: PreparedStage, job_inputs: Sequence[JobInput], root: Path
) -> list[Result]:
    return run_stage_job(spark, stage, job_inputs, str(root), "worker-1")


def one_by_one(
    spark: Session, stage: PreparedStage, job_inputs: Sequence[JobInput], root: Path
) -> list[Result]:
    return [made for job_input in job_inputs for made in run(spark, stage, [job_input], root)]


def rows_of(results: Sequence[Result], root: Path) -> list[dict[int | None, list[str]]]:
    """What each share gave to each shard, in any order."""
    return [
        {
            to: sorted(repr(row) for file in batch.files for row in stored_rows(root / file))
            for to, batch in made.items()
        }
        for made in results
    ]


def stored_rows(file: Path) -> list[dict[str, object]]:
    with pa.parquet.ParquetFile(file) as stored:
        rows: list[dict[str, object]] = stored.read().to_pylist()
    return rows


def assert_joint(
    spark: Session, stage: PreparedStage, job_inputs: Sequence[JobInput], root: Path
) -> list[Result]:
    """Together the shares give what they give alone, in files of their own."""
    joint = run(spark, stage, job_inputs, root)
    alone = one_by_one(spark, stage, job_inputs, root)
    assert rows_of(joint, root) == rows_of(alone, root)
    for job_input, made in zip(job_inputs, joint, strict=True):
        for to, batch in made.items():
            reader = job_input.shard if to is None else to
            place = f"/run={job_input.run}/from={job_input.shard}/to={reader}/"
            assert all(place in file for file in batch.files)
    return joint


OPERATORS: dict[str, tuple[PhysicalOperator, ...]] = {
    "where": (Where("item > 1", ("item",)),),
    "project": (Project(BY_ITEM),),
    "partial aggregate": (PARTIAL,),
    "partial aggregate without groups": (Where("price > 0", ("price",)), ALL),
    "partial top": (PartialTop(2, DEAREST, ("k",)),),
    "partial top of all": (PartialTop(2, DEAREST, ()),),
    "star in an expression": (Where("hash(*) % 2 = 0", ("*",)),),
    "user's function": (Apply(doubled),),
}
JOINS: dict[str, tuple[PhysicalOperator, ...]] = {
    "join": (PhysicalJoin(("item",), "inner"),),
    "full join": (PhysicalJoin(("item",), "full"),),
    "two joins": (
        PartialTop(3, DEAREST, ()),
        PhysicalJoin(("item",), "left"),
        Project((SelectColumn("item", "side1 + 1", ("side1",)), SelectColumn("mine", "k", ("k",)))),
        PhysicalJoin(("item",), "anti"),
    ),
}


def test_every_narrow_operator_keeps_job_inputs_apart(
    spark: Session, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    job_inputs = job_inputs_of(tmp_path)
    for name, operators in OPERATORS.items():
        with subtests.test(name):
            assert_joint(spark, stage_of(spark, (SCAN, *operators)), job_inputs, tmp_path)


def test_rows_of_every_job_input_are_exchanged_by_their_keys(
    spark: Session, tmp_path: Path
) -> None:
    stage = stage_of(spark, (SCAN, PARTIAL), keys=["item"])
    joint = assert_joint(spark, stage, job_inputs_of(tmp_path), tmp_path)
    assert all(made.keys() == {0, 1} for made in joint)


def test_joins_and_unions_keep_job_inputs_apart(
    spark: Session, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    job_inputs = job_inputs_of(tmp_path, inputs=3)
    for name, operators in JOINS.items():
        with subtests.test(name):
            stage = stage_of(spark, operators, SIDES[: 3 if name == "two joins" else 2])
            fitting = [replace(it, inputs=it.inputs[: len(stage.inputs)]) for it in job_inputs]
            assert_joint(spark, stage, fitting, tmp_path)
    with subtests.test("union"):
        stage = stage_of(spark, (PhysicalUnion(("K", "item")),), [SCAN] * 3)
        assert_joint(spark, stage, job_inputs, tmp_path)


@pytest.mark.parametrize("partial", [PARTIAL, ALL], ids=["grouped", "all"])
def test_merged_aggregates_and_tops_keep_job_inputs_apart(
    spark: Session, tmp_path: Path, partial: PartialAggregate, subtests: pytest.Subtests
) -> None:
    made = run(spark, merging(spark, partial)[0], job_inputs_of(tmp_path), tmp_path)
    job_inputs = [
        JobInput(number, shard, (tuple(it[shard] for it in parts if shard in it),))
        for number, parts in ((4, made[:2]), (31, made[2:]))
        for shard in (0, 1)
    ]
    best = FinalTop(2, (Order("n", True, ("n",)),), ())
    for then in ([], [best], [Where("n > 5", ("n",)), best], [PartialAggregate((), COUNT, False)]):
        with subtests.test(then=then):
            assert_joint(spark, merging(spark, partial, *then)[1], job_inputs, tmp_path)


def test_an_empty_job_input_gives_no_rows_but_an_aggregate_without_groups_gives_one(
    spark: Session, tmp_path: Path
) -> None:
    empty = JobInput(5, 0, ((),))
    first, merge = merging(spark, PARTIAL)
    assert run(spark, first, [empty], tmp_path) == [{}]
    assert run(spark, merge, [empty, replace(empty, run=6)], tmp_path) == [{}, {}]
    first, merge = merging(spark, ALL)
    (full, *_) = job_inputs_of(tmp_path)
    (parts, *_) = run(spark, first, [full], tmp_path)
    joint = run(
        spark, merge, [empty, JobInput(4, 0, ((parts[0],),)), JobInput(6, 1, ((),))], tmp_path
    )
    counts = [[row["n"] for file in made[None].files for row in stored_rows(tmp_path / file)]
              for made in joint]  # fmt: skip
    assert counts == [[0], [24], [0]]


def test_inputs_that_can_run_together_are_one_spark_job(spark: Session, tmp_path: Path) -> None:
    job_inputs = job_inputs_of(tmp_path, inputs=2)
    stage = stage_of(spark, JOINS["join"], SIDES[:2], keys=["item"])
    group = uuid4().hex
    spark.sparkContext.setJobGroup(group, "counted")
    run(spark, stage, job_inputs, tmp_path)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == 1


def test_a_failing_input_fails_the_job_with_sparks_cause_and_the_others_run_without_it(
    spark: Session, tmp_path: Path
) -> None:
    stage = stage_of(
        spark, (SCAN, Project((SelectColumn("n", "cast(item as tinyint)", ("item",)),)))
    )
    good, bad, *_ = job_inputs_of(tmp_path)
    huge = chunk(tmp_path, (bad.run, bad.shard), [sale(random.Random(1)) | {"item": 1000}])
    bad = replace(bad, inputs=((huge,),))
    with pytest.raises(StageFailed) as raised:
        run(spark, stage, [good, bad], tmp_path)
    assert (raised.value.stage, raised.value.spark_condition) == ("tested", "CAST_OVERFLOW")
    assert raised.value.__cause__ is not None
    assert [made[None].rows for made in run(spark, stage, [good], tmp_path)] == [24]
    with pytest.raises(StageFailed):
        run(spark, stage, [bad], tmp_path)


def test_a_stage_that_only_scans_or_writes_passes_batches_on(spark: Session) -> None:
    assert passes_through(stage_of(spark, (SCAN,)))
    assert passes_through(stage_of(spark, (SCAN, WriteSink("sales"))))
    assert not passes_through(stage_of(spark, (SCAN,), keys=["item"]))
    assert not passes_through(stage_of(spark, (SCAN, Where("item > 1", ("item",)))))
