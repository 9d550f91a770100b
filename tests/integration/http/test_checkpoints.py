"""Cuts by HTTP: taken, read as results, gone back to, and told to who follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import BufferReader
from typer.testing import CliRunner

from tests.integration.http.conftest import ANN, Asking, RunAsking
from tests.integration.http.test_event_streams import heard, kinds
from tests.integration.runtime.shop import BOUND, ask
from tests.waiting import wait_until
from tidegate.checkpoint import Checkpoints, CheckpointState
from tidegate.cli import app
from tidegate.errors import UnknownCheckpoint
from tidegate.http import HttpAddress, HttpClient, HttpRunClient, http_run_client
from tidegate.runtime.deployment import Deployment


def sell(run: RunAsking, number: int, item: int, quantity: int) -> None:
    sold = run.put("sales", number, f"item_id,quantity\n{item},{quantity}\n".encode())
    assert sold.status == 201, sold.body


def dripping(ann: Asking, name: str) -> RunAsking:
    """A run that knows tea and rice, and has sold some tea."""
    run = ann.run(name)
    assert run.put("items", 1, b"item_id,item_name\n1,tea\n2,rice\n").status == 201
    sell(run, 1, 1, 200)
    return run


def take(run: RunAsking) -> int:
    """A cut, once it is one."""
    begun = run.post("/checkpoints")
    assert begun.status == 202, begun.body
    number: int = begun.json["number"]
    wait_until(lambda: run.get(f"/checkpoints/{number}").status == 200, BOUND)
    return number


def test_a_checkpoint_is_taken_read_in_every_format_and_restored(ann: Asking, ben: Asking) -> None:
    run = dripping(ann, "checkpoint")
    assert take(run) == 1
    sell(run, 2, 2, 300)
    assert take(run) == 2

    first = run.get("/checkpoints/1").json
    assert (first["number"], first["results"]) == (1, {"best": 1, "bulk": 1})
    assert first["manifest"]["sources"]["sales"] == {"chunks": 1, "ended": False}
    assert run.get("/checkpoints/latest").json["number"] == 2
    listed = run.get("/checkpoints").json["checkpoints"]
    assert [(it["number"], it["state"]) for it in listed] == [(1, "committed"), (2, "committed")]

    assert run.get("/results/best?checkpoint=1&format=csv").body == b"item_name,sold\ntea,200000\n"
    assert (
        run.get("/results/best?checkpoint=latest&format=csv").body
        == b"item_name,sold\nrice,300000\n"
    )
    bulk = run.get("/results/bulk?checkpoint=2&format=parquet").body
    assert pq.read_table(BufferReader(bulk)).num_rows == 2
    assert run.get("/results?checkpoint=latest").json == {"results": {"best": 1, "bulk": 2}}
    assert run.get("/results").refusal == (409, "ResultsNotReady")
    assert ben("GET", "/pipelines/shop/runs/cut/checkpoints").refusal == (404, "UnknownRun")

    restored = run.post("/restore", {"checkpoint": 1})
    assert (restored.status, restored.json["name"], restored.json["incarnation"]) == (
        201,
        "checkpoint",
        2,
    )
    sell(run, 3, 1, 150)
    for source in ("items", "sales"):
        assert run.post(f"/sources/{source}/end").status == 200
    wait_until(lambda: run.get("/results").status == 200, BOUND)
    assert run.get("/results/best?format=csv").body == b"item_name,sold\ntea,350000\n"
    assert kinds(heard(run)) == ["checkpoint", "query-end", "query-end", "complete"]


@pytest.mark.parametrize(
    ("method", "path", "body", "refusal"),
    [
        ("GET", "/checkpoints/latest", None, (404, "UnknownCheckpoint")),
        ("GET", "/checkpoints/7", None, (404, "UnknownCheckpoint")),
        ("GET", "/checkpoints/first", None, (400, "InvalidRequest")),
        ("GET", "/results/best?checkpoint=7", None, (404, "UnknownCheckpoint")),
        ("GET", "/results?checkpoint=0", None, (400, "InvalidRequest")),
        ("POST", "/restore", {}, (404, "UnknownCheckpoint")),
        ("POST", "/restore", {"checkpoint": 0}, (400, "InvalidRequest")),
        ("PUT", "/checkpoints", None, (405, "WrongMethod")),
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_refused(
    ann: Asking, method: str, path: str, body: Any, refusal: tuple[int, str]
) -> None:
    if ann("GET", "/pipelines/shop/runs/uncut/state").status == 404:
        ann.run("uncut")
    refused = ann(method, f"/pipelines/shop/runs/uncut{path}", body)
    assert refused.refusal == refusal
    assert "ann/" not in refused.body.decode()


def test_a_checkpoint_that_cannot_be_taken_is_refused_with_the_reason(ann: Asking) -> None:
    run = ann.run("whole")
    run.sell()
    assert run.post("/checkpoints").refusal[0] == 409
    wait_until(lambda: run.get("/results").status == 200, BOUND)
    assert run.post("/checkpoints").refusal == (409, "RunEnded")
    refused = ann("POST", "/pipelines/shop/runs", {"run": "x", "checkpoints": {"every": 0}})
    assert refused.refusal == (400, "InvalidRequest")


@pytest.fixture
def remote(listening: HttpAddress) -> HttpRunClient:
    return http_run_client(HttpClient(listening.url, ANN, BOUND), lambda served: served)


def test_a_client_takes_a_checkpoint_and_fetches_a_sink_of_it(
    remote: HttpRunClient, tmp_path: Path
) -> None:
    remote.begin("remote", checkpoints=Checkpoints(every=0.5, retained=100))
    (tmp_path / "items.csv").write_text("item_id,item_name\n1,tea\n")
    (tmp_path / "sales.csv").write_text("item_id,quantity\n1,200\n")
    remote.deliver("remote", "items", 1, str(tmp_path / "items.csv"))
    remote.deliver("remote", "sales", 1, str(tmp_path / "sales.csv"))

    def has_sold() -> bool:
        try:
            return remote.checkpoint("remote").results == {"best": 1, "bulk": 1}
        except UnknownCheckpoint:
            return False

    wait_until(has_sold, BOUND)
    restored = remote.restore("remote")
    assert restored.incarnation == 2
    number = remote.take_checkpoint("remote")
    wait_until(lambda: remote.checkpoint("remote").number >= number, BOUND)
    states = {it.number: it.state for it in remote.checkpoints("remote")}
    assert states[number] is CheckpointState.COMMITTED
    remote.write("remote", "best", tmp_path / "best.csv", checkpoint=number)
    assert (tmp_path / "best.csv").read_text() == "item_name,sold\ntea,200000\n"


def test_submit_takes_periodic_checkpoints(
    listening: HttpAddress, place: Deployment, tmp_path: Path
) -> None:
    for name, text in {
        "items": "item_id,item_name\n1,tea\n",
        "sales": "item_id,quantity\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.csv").write_text(text)
    given = [
        "submit",
        "shop",
        "--run",
        "often",
        "--data",
        str(tmp_path),
        "--checkpoint-every",
        "30",
    ]
    answer = CliRunner().invoke(
        app, [*given, "--server", listening.url], env={"TIDEGATE_TOKEN": ANN}
    )
    assert answer.exit_code == 0, answer.output
    sql = "SELECT checkpoints ->> 'every' FROM tidegate.run WHERE name = 'ann/often'"
    assert ask(place.database, sql) == [("30.0",)]
