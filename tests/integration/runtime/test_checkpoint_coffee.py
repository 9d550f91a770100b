"""Coffee as a run that goes on: chunks drip in, and all answers of one cut belong together."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from io import StringIO
from pathlib import Path
from shutil import copy

import pytest

from tests.coffee_answers import answers, csv_text
from tests.integration.runtime.shop import BOUND
from tests.waiting import wait_until
from tidegate.checkpoint import Checkpoints, CheckpointState
from tidegate.runtime.checkpoints.client import CheckpointResults
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session, write_csv
from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size, write

RUN = "march"
DIMENSIONS = ("menu_items", "stores", "users")
DRIPPING = ("transactions", "transaction_items")
FILES = 2
YEARS = ("2024", "2025")


def chunks(folder: Path, source: str) -> list[Path]:
    return sorted((folder / source).glob("*.csv"))


def admitted(folder: Path, checkpoint: CheckpointResults, to: Path) -> Path:
    """A folder with exactly the chunks that a cut's manifest names."""
    for source, said in checkpoint.manifest["sources"].items():
        (to / source).mkdir(parents=True)
        for file in chunks(folder, source)[: said["chunks"]]:
            copy(file, to / source)
    return to


def shown(
    service: PipelineService,
    spark: Session,
    place: Deployment,
    checkpoint: CheckpointResults,
    to: Path,
) -> Iterator[tuple[str, str]]:
    """What each sink shows at a cut, as the text of a file."""
    to.mkdir()
    for sink, batches in checkpoint.results.items():
        file = to / f"{sink}.csv"
        write_csv(spark, place.root, batches, service.schema_of(sink), file)
        yield sink, file.read_bytes().decode()


def tpv(text: str) -> Decimal:
    return sum((Decimal(row["tpv"]) for row in csv.DictReader(StringIO(text))), Decimal(0))


def expected(folder: Path) -> Mapping[str, str]:
    return {sink: csv_text(sink, rows) for sink, rows in answers(folder).items()}


def daytime_amount(folder: Path) -> Decimal:
    """What all transactions come to that Q3 asks about, by other means."""
    total = Decimal(0)
    for file in chunks(folder, "transactions"):
        for row in csv.DictReader(StringIO(file.read_text())):
            time = row["created_at"][11:19]
            is_asked = row["created_at"][:4] in YEARS and "06:00:00" <= time <= "23:00:00"
            total += Decimal(row["final_amount"] or 0) if is_asked and row["store_id"] else 0
    return total


def latest(service: PipelineService) -> int:
    every = service.server.checkpoints.all(RUN)
    return max((it.number for it in every if it.state is CheckpointState.COMMITTED), default=0)


def drip(service: PipelineService, data: Path) -> Iterator[CheckpointResults]:
    """The first chunks, the next ones, and so on; whatever cut there is after each."""
    server = service.server
    for source in DIMENSIONS:
        server.deliver(RUN, source, 1, str(chunks(data, source)[0]))
        server.end(RUN, source)
    for number in range(1, FILES + 1):
        before = latest(service)
        for source in DRIPPING:
            server.deliver(RUN, source, number, str(chunks(data, source)[number - 1]))
        wait_until(partial(_is_beyond, service, before), BOUND)
        yield server.checkpoints.read(RUN)
    for source in DRIPPING:
        server.end(RUN, source)


def _is_beyond(service: PipelineService, number: int) -> bool:
    return latest(service) > number


@pytest.mark.timeout(400)
def test_all_answers_of_a_cut_follow_from_the_rows_admitted_up_to_it(
    place: Deployment, spark: Session, tmp_path: Path
) -> None:
    data = tmp_path / "in"
    write(data, Size(600, files=FILES, stores=4), seed=5)
    with serve(place, pipeline, spark) as service:
        service.server.begin(RUN, checkpoints=Checkpoints(every=0.5, retained=100))
        read = list(drip(service, data))
        final = service.server.wait(RUN, BOUND)
        for checkpoint in read:
            folder = admitted(data, checkpoint, tmp_path / f"admitted-{checkpoint.number}")
            texts = dict(
                shown(service, spark, place, checkpoint, tmp_path / f"cut-{checkpoint.number}")
            )
            assert texts == expected(folder), f"cut {checkpoint.number}"
            assert tpv(texts["q3"]) == daytime_amount(folder), f"cut {checkpoint.number}"
    rows = {sink: sum(batch.rows for batch in batches) for sink, batches in final.items()}
    assert rows == {sink: len(its) for sink, its in answers(data).items()}
    came = [checkpoint.manifest["sources"]["transactions"]["chunks"] for checkpoint in read]
    assert came == sorted(came)
    assert len(set(came)) > 1, "chunks came between two cuts"
