"""Which format a chunk has and a result gets."""

from __future__ import annotations

import pytest

from tidegate.errors import UnknownResultFormat, UnknownUploadFormat
from tidegate.http.formats import ResultFormat, chunk_format, result_format


@pytest.mark.parametrize(
    ("asked", "media_type", "encoding", "found"),
    [
        ("csv.bz2", "text/plain", None, "csv.bz2"),
        (None, "text/csv; charset=utf-8", None, "csv"),
        (None, "Text/CSV", "gzip", "csv.gz"),
        (None, "application/vnd.apache.parquet", None, "parquet"),
        (None, "application/vnd.apache.arrow.file", None, "arrow"),
    ],
)
def test_the_format_of_a_chunk_is_in_its_address_or_else_its_headers(
    asked: str | None, media_type: str, encoding: str | None, found: str
) -> None:
    assert chunk_format(asked, media_type, encoding) == found


@pytest.mark.parametrize(
    ("asked", "media_type", "encoding"),
    [
        (None, None, None),
        ("xlsx", "text/csv", None),
        ("", "text/csv", None),
        (None, "application/x-www-form-urlencoded", None),
        (None, "application/vnd.apache.parquet", "gzip"),
    ],
)
def test_anything_else_is_refused(
    asked: str | None, media_type: str | None, encoding: str | None
) -> None:
    with pytest.raises(UnknownUploadFormat):
        chunk_format(asked, media_type, encoding)


@pytest.mark.parametrize(
    ("asked", "accept", "found"),
    [
        (None, None, ResultFormat.CSV),
        (None, "*/*", ResultFormat.CSV),
        (None, "application/json, application/vnd.apache.parquet;q=0.5", ResultFormat.PARQUET),
        ("arrow", "text/csv", ResultFormat.ARROW),
    ],
)
def test_a_result_has_the_requested_format_and_is_csv_by_default(
    asked: str | None, accept: str | None, found: ResultFormat
) -> None:
    assert result_format(asked, accept) is found


@pytest.mark.parametrize(("asked", "accept"), [("xlsx", None), (None, "application/json")])
def test_an_unknown_result_format_is_refused(asked: str | None, accept: str | None) -> None:
    with pytest.raises(UnknownResultFormat):
        result_format(asked, accept)
