"""The formats of chunks and results: their names in addresses, headers and file names."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from tidegate.errors import UnknownResultFormat, UnknownUploadFormat

CHUNKS: Mapping[str, str] = {
    "csv": ".csv",
    "csv.gz": ".csv.gz",
    "csv.bz2": ".csv.bz2",
    "parquet": ".parquet",
    "arrow": ".arrow",
}
"""File extension of a chunk, by format; the reader is chosen by it."""

_BY_TYPE: Mapping[tuple[str, str], str] = {
    ("text/csv", ""): "csv",
    ("text/csv", "gzip"): "csv.gz",
    ("application/vnd.apache.parquet", ""): "parquet",
    ("application/vnd.apache.arrow.stream", ""): "arrow",
    ("application/vnd.apache.arrow.file", ""): "arrow",
}
_BY_NAME = {**{end: it for it, end in CHUNKS.items()}, ".feather": "arrow", ".ipc": "arrow"}


class ResultFormat(Enum):
    """The format of a result; the value is its name in `?format=`."""

    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"

    @property
    def media_type(self) -> str:
        """Its name in headers."""
        return _MEDIA[self]


_MEDIA = {
    ResultFormat.CSV: "text/csv",
    ResultFormat.PARQUET: "application/vnd.apache.parquet",
    ResultFormat.ARROW: "application/vnd.apache.arrow.stream",
}


def chunk_format(name: str | None, media_type: str | None, encoding: str | None) -> str:
    """The format of a chunk, by `?format=` or else its headers; raises `UnknownUploadFormat`."""
    if name is None:
        kind = (media_type or "").partition(";")[0].strip().lower()
        found = _BY_TYPE.get((kind, (encoding or "").strip().lower()))
    else:
        found = name if name in CHUNKS else None
    if found is None:
        given = name or " ".join(filter(None, (encoding, media_type))) or "an unnamed format"
        raise UnknownUploadFormat(given, ", ".join(CHUNKS))
    return found


def format_of_file(name: str) -> str | None:
    """The format of a file, by its name.

    >>> format_of_file("sales/1.CSV.gz"), format_of_file("1.feather"), format_of_file("1.xlsx")
    ('csv.gz', 'arrow', None)
    """
    ends = sorted(_BY_NAME, key=len, reverse=True)
    return next((_BY_NAME[end] for end in ends if name.lower().endswith(end)), None)


def result_format(name: str | None, accept: str | None) -> ResultFormat:
    """By `?format=`, or else the first known type in `Accept`; CSV if that accepts anything."""
    known = {each.value: each for each in ResultFormat}
    if name is not None:
        found = known.get(name)
    else:
        found = next(filter(None, map(_accepted, (accept or "*/*").split(","))), None)
    if found is None:
        raise UnknownResultFormat(name or accept or "", ", ".join(known))
    return found


def _accepted(entry: str) -> ResultFormat | None:
    kind = entry.partition(";")[0].strip().lower()
    if kind in {"*/*", "text/*"}:
        return ResultFormat.CSV
    return next((each for each in ResultFormat if each.media_type == kind), None)
