"""The formats of chunks and results: what they are called in addresses, headers and file names."""

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
"""How the file of a chunk ends, by which it is read."""

_BY_TYPE: Mapping[tuple[str, str], str] = {
    ("text/csv", ""): "csv",
    ("text/csv", "gzip"): "csv.gz",
    ("application/vnd.apache.parquet", ""): "parquet",
    ("application/vnd.apache.arrow.stream", ""): "arrow",
    ("application/vnd.apache.arrow.file", ""): "arrow",
}
_BY_NAME = {**{end: it for it, end in CHUNKS.items()}, ".feather": "arrow", ".ipc": "arrow"}


class ResultFormat(Enum):
    """How a result is given; the value is what it is called in an address."""

    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"

    @property
    def media_type(self) -> str:
        """What it is called in headers."""
        return _MEDIA[self]


_MEDIA = {
    ResultFormat.CSV: "text/csv",
    ResultFormat.PARQUET: "application/vnd.apache.parquet",
    ResultFormat.ARROW: "application/vnd.apache.arrow.stream",
}


def chunk_format(asked: str | None, media_type: str | None, encoding: str | None) -> str:
    """What a chunk is sent as, by `?format=` or else its headers; raises `UnknownUploadFormat`."""
    if asked is None:
        kind = (media_type or "").partition(";")[0].strip().lower()
        found = _BY_TYPE.get((kind, (encoding or "").strip().lower()))
    else:
        found = asked if asked in CHUNKS else None
    if found is None:
        given = asked or " ".join(filter(None, (encoding, media_type))) or "nothing that says what"
        raise UnknownUploadFormat(given, ", ".join(CHUNKS))
    return found


def format_of_file(name: str) -> str | None:
    """The format that a file's name tells, for who sends it.

    >>> format_of_file("sales/1.CSV.gz"), format_of_file("1.feather"), format_of_file("1.xlsx")
    ('csv.gz', 'arrow', None)
    """
    ends = sorted(_BY_NAME, key=len, reverse=True)
    return next((_BY_NAME[end] for end in ends if name.lower().endswith(end)), None)


def result_format(asked: str | None, accept: str | None) -> ResultFormat:
    """By `?format=`, or else the first known type in `Accept`; CSV for who takes anything."""
    known = {it.value: it for it in ResultFormat}
    if asked is not None:
        found = known.get(asked)
    else:
        found = next(filter(None, map(_accepted, (accept or "*/*").split(","))), None)
    if found is None:
        raise UnknownResultFormat(asked or accept or "", ", ".join(known))
    return found


def _accepted(entry: str) -> ResultFormat | None:
    kind = entry.partition(";")[0].strip().lower()
    if kind in {"*/*", "text/*"}:
        return ResultFormat.CSV
    return next((it for it in ResultFormat if it.media_type == kind), None)
