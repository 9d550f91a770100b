"""The coffee pipeline, served: whatever the way of the data, the answers are those of DuckDB.

Every service takes several clients at once, each with its own data, its own size of chunks and
its own way to deliver them, because starting a Spark job costs more than their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

import tidegate as tg
from tests.coffee_answers import answers, csv_text
from tests.integration.runtime.shop import BOUND
from tidegate.errors import RefusedBySpark
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session, write_csv
from tidegate.store import open_runs, publications
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Format, Size, write

Rows = list[bytes]
Sizes = Callable[[Random, int], int]
"""How many rows the next chunk gets, of so many."""


@dataclass(frozen=True)
class Way:
    """One client: its data, how it cuts it into chunks, and how it delivers them."""

    name: str
    size: Size
    rows: Sizes | None = None
    """None: every file is a chunk as it is."""
    format: Format = "csv"
    threads: int = 1
    repeats: float = 0.0
    """Which part of the chunks is delivered twice."""


def everything(_: Random, rows: int) -> int:
    return rows


def one_row(_: Random, rows: int) -> int:
    return min(rows, 1)


def some_rows(chance: Random, rows: int) -> int:
    return chance.randint(1, max(1, rows // 3))


ONE_BY_ONE = Way("one by one", Size(12, stores=3, menu_items=3), one_row, threads=3, repeats=0.3)
ALL_AT_ONCE = Way("all at once", Size(3_000), everything)
IN_PIECES = Way("in pieces", Size(900, stores=5), some_rows, threads=3, repeats=0.5)
AS_PARQUET = Way("as Parquet", Size(1_200, files=3), None, "parquet", threads=2)
NOTHING = Way("nothing", Size(0), everything)
SOLD_NOTHING = Way("sold nothing", Size(0, files=1))

CLIENTS = {
    1: [ONE_BY_ONE, IN_PIECES, ALL_AT_ONCE],
    2: [AS_PARQUET, IN_PIECES, SOLD_NOTHING, NOTHING],
    3: [ONE_BY_ONE, AS_PARQUET, IN_PIECES],
    4: [IN_PIECES, ALL_AT_ONCE],
    5: [ONE_BY_ONE, IN_PIECES, ALL_AT_ONCE, SOLD_NOTHING],
}
"""By the number of shards."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("shards", sorted(CLIENTS))
def test_the_answers_are_the_same_whatever_the_way_of_the_data(
    shards: int, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    ways = CLIENTS[shards]
    with serve(place, pipeline, spark, shards) as service:
        with ThreadPoolExecutor(len(ways)) as clients:
            for sent in [
                clients.submit(deliver, service.server, way, tmp_path / way.name, seed)
                for seed, way in enumerate(ways, shards * 10)
            ]:
                sent.result()
        for way in ways:
            assert found(service, spark, place, way, tmp_path) == expected(tmp_path / way.name)
    published = place.database.transact(publications)
    assert list(published.values()) == [1] * len(ways)


def test_what_spark_refuses_is_reported_at_start_up_with_the_users_line(
    place: Deployment, spark: Session
) -> None:
    typo = tg.Pipeline("typo")
    sales = typo.source("sales", "id bigint, amount bigint")
    sales.filter("amuont > 0").sink("wrong")  # the line that is reported
    with pytest.raises(RefusedBySpark) as refused, serve(place, typo, spark):
        pass
    assert refused.value.at.text.endswith("# the line that is reported")
    assert place.database.transact(lambda c: open_runs(c, "typo")) == []
    assert list(Path(place.root).iterdir()) == []


# --- what comes out --------------------------------------------------------------------------


def found(
    service: PipelineService, spark: Session, place: Deployment, way: Way, folder: Path
) -> dict[str, str]:
    """The results as files."""
    texts = {}
    for sink, batches in service.server.wait(way.name, BOUND).items():
        file = folder / f"{way.name} {sink}.csv"
        write_csv(spark, place.root, batches, service.schema_of(sink), file)
        texts[sink] = file.read_bytes().decode()
    return texts


def expected(folder: Path) -> dict[str, str]:
    return {sink: csv_text(sink, rows) for sink, rows in answers(folder).items()}


# --- what goes in ----------------------------------------------------------------------------


def deliver(server: RunService, way: Way, folder: Path, seed: int) -> None:
    """All chunks in any order, some twice; the ends come whenever they come."""
    chance = Random(seed)
    folder.mkdir()
    write(folder, way.size, seed, way.format)
    server.begin(way.name)
    chunks = {source: list(checkpoint(way, folder / source, chance)) for source in pipeline.sources}
    calls = [
        (source, number, file)
        for source, files in chunks.items()
        for number, file in enumerate(files, 1)
    ]
    calls += [call for call in calls if chance.random() < way.repeats]
    chance.shuffle(calls)
    early = [source for source in chunks if chance.random() < 0.5]
    for source in early:
        server.end(way.name, source, len(chunks[source]))
    _send(server, way, calls)
    for source in chunks.keys() - set(early):
        server.end(way.name, source)


def _send(server: RunService, way: Way, calls: Sequence[tuple[str, int, Path]]) -> None:
    with ThreadPoolExecutor(way.threads) as pool:
        for sent in [
            pool.submit(server.deliver, way.name, source, number, str(file))
            for source, number, file in calls
        ]:
            sent.result()


def checkpoint(way: Way, folder: Path, chance: Random) -> Iterator[Path]:
    """The files of a source, or other files with the same rows."""
    files = sorted(folder.glob(f"*.{way.format}"))
    if way.rows is None:
        yield from files
        return
    header, rows = _lines(files)
    pieces = folder.with_name(f"{folder.name} in pieces")
    pieces.mkdir()
    number = 0
    while rows:
        taken = way.rows(chance, len(rows))
        number += 1
        file = pieces / f"{number}.csv"
        file.write_bytes(b"".join([header, *rows[:taken]]))
        rows = rows[taken:]
        yield file


def _lines(files: Sequence[Path]) -> tuple[bytes, Rows]:
    """The header and all rows; no field of this data holds a line break."""
    texts = [file.read_bytes().splitlines(keepends=True) for file in files]
    return texts[0][0], [row for _, *rows in texts for row in rows]
