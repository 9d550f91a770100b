"""A run by HTTP from its beginning to its results."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from tests.integration.http.conftest import Asking, RunAsking
from tests.integration.runtime.shop import BOUND
from tests.waiting import wait_until
from tidegate.runtime.service import PipelineService


def complete(run: RunAsking) -> None:
    wait_until(lambda: run.get().json["run"]["state"] != "open", BOUND)
    assert run.get().json["run"]["state"] == "ended"


def test_a_run_is_begun_fed_ended_and_its_results_are_given_in_every_format(
    ann: Asking, service: PipelineService, tmp_path: Path
) -> None:
    run = ann.run("march")
    run.sell("tea, green", 700)
    complete(run)
    assert run.get("/results").json == {"results": {"best": 1, "bulk": 1}}

    csv = run.get("/results/best")
    assert (csv.status, csv.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert csv.body == b'item_name,sold\n"tea, green",700000\n'
    rows = [{"item_name": "tea, green", "sold": 700_000}]
    stored = run.get("/results/best?format=parquet")
    assert parquet.read_table(io.BytesIO(stored.body)).to_pylist() == rows
    arrow = run.get("/results/best", accept="application/vnd.apache.arrow.stream")
    assert ipc.open_stream(arrow.body).read_all().to_pylist() == rows


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_chunks_may_be_parquet_or_arrow_and_an_empty_result_has_its_columns(
    form: str, ann: Asking
) -> None:
    run = ann.run(f"sent-as-{form}")
    table = pa.table({"item_id": pa.array([1], pa.int64()), "quantity": pa.array([2], pa.int32())})
    assert run.put("sales", 1, encoded(table, form), form).status == 201
    for source, chunks in (("sales", 1), ("items", 0)):
        run.post(f"/sources/{source}/end", {"chunks": chunks})
    complete(run)
    assert run.get("/results/best").body == b"item_name,sold\n"
    empty = parquet.read_table(io.BytesIO(run.get("/results/best?format=parquet").body))
    assert (empty.num_rows, empty.column_names) == (0, ["item_name", "sold"])


def encoded(table: pa.Table, form: str) -> bytes:
    sink = pa.BufferOutputStream()
    if form == "parquet":
        parquet.write_table(table, sink)
    else:
        with ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue())
