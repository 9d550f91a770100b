"""`tidegate results`: final results and those of checkpoints, in all formats."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, ipc, parquet

from tests.integration.cli.command import DECLARED, Command, dripping
from tests.integration.runtime.shop import BOUND, Client
from tidegate.runtime.service import PipelineService

FIRST = {"item_name": ["rice"], "sold": [200_000]}
FINAL = {"item_name": ["tea"], "sold": [307_000]}


def read(file: Path) -> dict[str, list[object]]:
    found: dict[str, list[object]] = table(file).to_pydict()
    return found


def table(file: Path) -> pa.Table:
    if file.suffix == ".csv":
        return csv.read_csv(file)
    if file.suffix == ".parquet":
        return parquet.read_table(file)
    with ipc.open_stream(file) as stream:
        return stream.read_all()


def two_checkpoints(command: Command, service: PipelineService, name: str, folder: Path) -> None:
    client = dripping(service, name, folder)
    for number in (1, 2):
        taken = command.json("checkpoint", name, "--timeout", str(BOUND))
        assert (taken["number"], taken["is_published"]) == (number, True)
        if number == 1:
            client.sales(2, (1, 300))
    client.end()
    client.wait()


def test_checkpoints_and_the_final_results_are_written_in_all_formats(
    command: Command, service: PipelineService, tmp_path: Path
) -> None:
    two_checkpoints(command, service, "formats", tmp_path)
    for kind in ("csv", "parquet", "arrow"):
        out = tmp_path / kind
        where = ("--out", str(out), "--format", kind)
        first = ("results", "formats", "--checkpoint", "1", "--sink", "best", *where)
        assert command.json(*first) == {
            "run": "formats",
            "pipeline": "shop",
            "state": "ended",
            "checkpoint": 1,
            "results": [{"sink": "best", "rows": 1, "file": str(out / f"best.{kind}")}],
        }
        assert [file.name for file in out.iterdir()] == [f"best.{kind}"]
        assert read(out / f"best.{kind}") == FIRST
        final = command.json("results", "formats", *where)
        assert final["checkpoint"] is None
        assert {it["sink"]: it["rows"] for it in final["results"]} == {"best": 1, "bulk": 2}
        assert read(out / f"best.{kind}") == FINAL
        bulk = table(out / f"bulk.{kind}").sort_by("item_id").to_pydict()
        assert bulk == {"item_id": [1, 2], "quantity": [300, 200]}


def test_a_checkpoint_of_an_open_run_is_read_and_its_final_results_are_not_ready(
    command: Command, service: PipelineService, tmp_path: Path
) -> None:
    dripping(service, "open", tmp_path)
    command.json("checkpoint", "open", "--timeout", str(BOUND))
    out = ("--out", str(tmp_path / "out"))
    written = command("results", "open", "--checkpoint", "1", *out)
    assert written.exit_code == 0, written.output
    assert written.stdout.splitlines()[0] == "run 'open' of shop: checkpoint 1"
    assert (tmp_path / "out/best.csv").read_text() == "item_name,sold\nrice,200000\n"
    assert command.error("results", "open", *out) == (1, "ResultsNotReady")


def test_unknown_sinks_and_checkpoints_are_named_and_nothing_is_written(
    command: Command, service: PipelineService, tmp_path: Path
) -> None:
    two_checkpoints(command, service, "unknown", tmp_path)
    out = ("--out", str(tmp_path / "out"))
    assert command.error("results", "unknown", "--sink", "worst", *out) == (1, "UnknownSink")
    answer = command("results", "unknown", "--checkpoint", "7", *out, "--json")
    error = json.loads(answer.stdout)["error"]
    assert (answer.exit_code, error["condition"]) == (1, "UnknownCheckpoint")
    assert error["known"] == "1, 2"
    assert command.error("results", "nowhere", *out) == (1, "UnknownRun")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_sink_without_rows_has_its_columns(
    command: Command, service: PipelineService, tmp_path: Path, kind: str
) -> None:
    client = Client(service.server, f"empty-{kind}", tmp_path)
    client.sales(1, (1, 7))
    command.json("checkpoint", client.run, "--timeout", str(BOUND))
    empty = ("results", client.run, "--checkpoint", "1", "--format", kind, "--sink", "bulk")
    out = ("--out", str(tmp_path), "--declared", DECLARED)
    command.json(*empty, *out)
    assert table(tmp_path / f"bulk.{kind}").column_names == ["item_id", "quantity"]
