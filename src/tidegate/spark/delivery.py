"""What a client delivers, looked at before it is taken: without Spark, by header or footer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import MissingColumns, NoSuchChunk, UnknownSource
from tidegate.spark.chunks import layout_of
from tidegate.spark.exchange import Batch
from tidegate.spark.files import chunk_rows

if TYPE_CHECKING:
    from tidegate.pipeline import Pipeline


def check_chunk(pipeline: Pipeline, source: str, file: str) -> Batch:
    """The file as a batch, if it has every column that the source declares.

    Raises `UnknownSource`, `NoSuchChunk`, `UnknownFormat` or `MissingColumns`.
    """
    declared = pipeline.sources.get(source)
    if declared is None:
        raise UnknownSource(source=source, known=", ".join(pipeline.sources))
    if "://" not in file:
        file = _local(source, file)
    found = layout_of(file).columns
    known = {name.casefold() for name in found}
    missing = tuple(it.name for it in declared.schema if it.name.casefold() not in known)
    if missing:
        raise MissingColumns(source, file, missing, found)
    return Batch((file,), chunk_rows(file))


def _local(source: str, file: str) -> str:
    path = Path(file).absolute()
    if not path.is_file():
        raise NoSuchChunk(source=source, file=str(path))
    return str(path)
