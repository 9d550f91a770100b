"""Results for people: one CSV file per sink, the same bytes whatever the way to it."""

from __future__ import annotations

import csv
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING
from uuid import uuid4

from tidegate.spark.exchange import read
from tidegate.spark.schemas import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from tidegate.spark.exchange import Batch
    from tidegate.spark.sessions import Session


def write_csv(
    session: Session, root: str, batches: Sequence[Batch], schema: StructType, path: Path
) -> None:
    """Write rows with a header, ordered by their columns from left to right, in one go.

    The file appears whole or not at all. Nulls are empty fields, quotes are doubled.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not any(batch.files for batch in batches):
        _write_header(schema, path)
        return
    folder = path.with_name(f".{path.name}.{uuid4().hex}")
    rows = read(session, root, batches, schema).coalesce(1)
    ordered = rows.sortWithinPartitions(*(column(name) for name in schema.names))
    ordered.write.option("header", True).option("escape", '"').csv(folder.absolute().as_uri())
    (part,) = folder.glob("part-*")
    part.replace(path)
    rmtree(folder)


def _write_header(schema: StructType, path: Path) -> None:
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
    with unfinished.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(schema.names)
    unfinished.replace(path)
