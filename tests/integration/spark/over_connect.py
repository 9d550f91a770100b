"""Run by `test_connect.py`: opens a local Connect session and prints what it saw."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import tidegate as tg
from tests.integration.spark.execution import execute, execute_runs
from tests.integration.spark.rows import assert_same
from tidegate.errors import RefusedBySpark, StageFailed
from tidegate.pipeline import Pipeline
from tidegate.spark import Session, analyze, open_session, reference


def declared(condition: str) -> Pipeline:
    shop = tg.Pipeline("shop")
    sales = shop.source("sales", "item string, store_id bigint, paid decimal(18,2)")
    per_item = sales.filter(condition).aggregate(by="item", mean="avg(paid)", sales="count(*)")
    per_item.sink("items")
    per_item.top(1, by="sales desc").join(sales, on="item").sink("best")
    return shop


def chunks(folder: Path, seed: int = 5) -> list[str]:
    chance = random.Random(seed)
    files = []
    for number in range(3):
        lines = [
            f"{chance.choice('abc')},{chance.randint(1, 3)}.0,{chance.randint(-999, 999) / 100}"
            for _ in range(40)
        ]
        file = folder / f"{seed}-{number}.csv"
        file.write_text("\n".join(["item,store_id,paid", *lines]))
        files.append(str(file))
    return files


def refused(session: Session) -> str:
    try:
        analyze(declared("sotre_id > 1"), session)
    except RefusedBySpark as error:
        return error.spark_condition
    return "nothing"


def failed(session: Session, folder: Path) -> str:
    sources = {"sales": chunks(folder)}
    too_narrow = declared("cast(store_id * 100 as tinyint) > 1")
    try:
        execute(session, too_narrow, sources, str(folder / "bad"), shards=1, seed=1)
    except StageFailed as error:
        return error.spark_condition
    return "nothing"


def compared(session: Session, folder: Path) -> str:
    """Two runs on two shards, in joint jobs."""
    pipeline = declared("store_id > 1")
    runs = {run: {"sales": chunks(folder, seed=run)} for run in (3, 12)}
    found = execute_runs(session, pipeline, runs, str(folder / "out"), shards=2, seed=1)
    for run, sources in runs.items():
        for sink, rows in reference(session, pipeline, sources).items():
            assert_same(found[run][sink], rows)
    return "same"


def seen(folder: Path) -> Iterator[str]:
    session = open_session("local[2]", connect=True, settings={"spark.sql.shuffle.partitions": "2"})
    yield f"refused {refused(session)}"
    yield f"columns {analyze(declared('store_id > 1'), session)['items']}"
    yield f"failed {failed(session, folder)}"
    yield compared(session, folder)
    session.stop()


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in seen(Path(sys.argv[1])))
