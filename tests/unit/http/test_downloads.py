"""A result on its way out leaves nothing behind, however far it came."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.types import StringType, StructType
from starlette.requests import ClientDisconnect
from starlette.types import Message

from tidegate.dataflow import Batch
from tidegate.errors import SpaceReserved
from tidegate.http.client_api import ClientApi
from tidegate.http.downloads import Downloads
from tidegate.http.formats import ResultFormat
from tidegate.http.limits.executors import Executors
from tidegate.http.limits.limits import HttpLimits
from tidegate.http.spool import open_spool

SCOPE = {"type": "http", "asgi": {"spec_version": "2.4"}}


class Results:
    """An account whose result is a file in two pieces."""

    client = "ann"

    def result(
        self, run: str, sink: str, wanted: ResultFormat, folder: Path, of: object
    ) -> Iterator[bytes]:
        file = folder / f"{sink}.csv"
        file.write_bytes(b"tea,1\nmilk,2\n")
        return iter(file.read_bytes().splitlines(keepends=True))


def there(root: Path) -> list[Path]:
    return [*root.rglob("best.csv")]


def sent(root: Path, taken: int) -> list[Message]:
    """What a client gets that is gone after so many messages; nothing is left then."""
    heard: list[Message] = []

    async def send(message: Message) -> None:
        if len(heard) == taken:
            raise OSError("gone")
        heard.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def fetch() -> None:
        api = cast("ClientApi", Results())
        asked = api, "march", "best", ResultFormat.CSV, None
        answer = await Downloads(spool, executors, HttpLimits()).send(*asked)
        assert there(root)
        await answer(SCOPE, receive, send)

    with open_spool(str(root)) as spool, Executors(HttpLimits()) as executors:
        try:
            asyncio.run(fetch())
        finally:
            assert there(root) == []
    return heard


def test_a_result_is_sent_piece_by_piece_and_removed(tmp_path: Path) -> None:
    bodies = [it.get("body", b"") for it in sent(tmp_path, taken=10)]
    assert bodies == [b"", b"tea,1\n", b"milk,2\n", b""]


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_a_result_is_removed_when_its_client_is_gone_also_before_the_first_piece(
    tmp_path: Path, taken: int
) -> None:
    with pytest.raises(ClientDisconnect):
        sent(tmp_path, taken)


def test_a_csv_that_the_disk_has_no_space_for_is_refused_before_it_is_written(
    tmp_path: Path,
) -> None:
    """The file stores the value once, and the CSV has it in every row."""
    parquet.write_table(pa.table({"name": ["x" * 1000] * 10_000}), tmp_path / "1.parquet")
    batch = Batch(("1.parquet",), 10_000, (tmp_path / "1.parquet").stat().st_size)
    assert batch.bytes < 5000

    def check(incoming: int) -> None:
        if incoming > 5_000_000:
            raise SpaceReserved(str(tmp_path), 5_000_000, 0)

    def write_csv(*_: object) -> None:
        raise AssertionError("it was written")

    server = SimpleNamespace(wait=lambda *_, **__: {"best": [batch]}, write_csv=write_csv)
    service = SimpleNamespace(
        server=server, schema_of=lambda _: StructType().add("name", StringType())
    )
    place = SimpleNamespace(database=None, root=str(tmp_path), reserve=SimpleNamespace(check=check))
    account = ClientApi(cast("Any", service), cast("Any", place), "ann")
    with pytest.raises(SpaceReserved):
        account.result("march", "best", ResultFormat.CSV, tmp_path)
