"""`tidegate submit`: a folder to a server and its results back, through whatever happens."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

import pytest
from typer.testing import CliRunner, Result

from tests.integration.http.conftest import ANN, MOST, TOKENS, spooled
from tests.integration.runtime.shop import BOUND, ask, shop
from tests.waiting import wait_until
from tidegate.cli import app
from tidegate.http import (
    HttpAddress,
    HttpClient,
    HttpLimits,
    http_run_client,
    listen_http,
    serve_http,
)
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.folder_run import (
    ProgressListener,
    RunOptions,
    chunks_of,
    run_folder,
    send,
    wait,
)
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.service import PipelineService
from tidegate.spark import Session
from tidegate.store import Database

FILES = {
    "sales/1.csv": "item_id,quantity\n1,2\n2,300\n",
    "sales/2.csv": "item_id,quantity\n1,900\n3,1\n",
    "sales/3.csv": "item_id,quantity\n2,5\n",
    "items/1.csv": 'item_id,item_name\n1,"tea, ""green"""\n2,coffee\n',
}
COUNT = len(FILES)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "files" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "files"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


class Submitting:
    """The command, as ann gives it."""

    def __init__(self, listening: HttpAddress, data: Path, out: Path) -> None:
        self._given = ["--data", str(data), "--out", str(out), "--server", listening.url]
        self._given += ["--patience", str(BOUND)]

    def __call__(self, run: str, *more: str, pipeline: str = "shop", token: str = ANN) -> Result:
        arguments = ["submit", pipeline, "--run", run, *self._given, *more]
        return CliRunner().invoke(app, arguments, env={"TIDEGATE_TOKEN": token})


@pytest.fixture
def submit(listening: HttpAddress, data: Path, out: Path) -> Submitting:
    return Submitting(listening, data, out)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_what_submit_writes_are_the_bytes_that_run_writes(
    submit: Submitting, data: Path, out: Path, spark: Session, url: str, tmp_path: Path
) -> None:
    done = submit("march", "--wait")
    assert done.exit_code == 0, done.output
    assert "run 'march' of shop is complete" in done.stdout
    (tmp_path / "data").mkdir()
    with Database(url).open() as database:
        elsewhere = Deployment(database, str(tmp_path / "data"))
        chunks = chunks_of(data, ["sales", "items"])
        run_folder(shop(), chunks, tmp_path / "by-run", spark, elsewhere, RunOptions("march"))
    assert contents(out) == contents(tmp_path / "by-run")
    assert contents(out)["best.csv"] == b'item_name,sold\n"tea, ""green""",902000\n'


def delivered(place: Deployment, run: str) -> int:
    sql = "SELECT count(*) FROM tidegate.chunk JOIN tidegate.run ON run.id = run_id WHERE name = %s"
    ((count,),) = ask(place.database, sql, f"ann/{run}")
    assert isinstance(count, int)
    return count


def incarnations(place: Deployment, run: str) -> int:
    sql = "SELECT count(*) FROM tidegate.run WHERE name = %s"
    ((count,),) = ask(place.database, sql, f"ann/{run}")
    assert isinstance(count, int)
    return count


def test_without_wait_the_run_goes_on_and_the_same_command_with_it_fetches_the_results(
    submit: Submitting, out: Path, place: Deployment
) -> None:
    first = submit("april", "--json")
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout) == {
        "pipeline": "shop", "run": "april", "state": "submitted", "rows_out": None,
        "checkpoints": [],
    }  # fmt: skip
    assert not out.exists()
    second = submit("april", "--wait", "--json")
    assert second.exit_code == 0, second.output
    assert json.loads(second.stdout)["rows_out"] == {"best": 1, "bulk": 2}
    assert sorted(contents(out)) == ["best.csv", "bulk.csv"]
    assert incarnations(place, "april") == 1


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The chunks that were sent, whether or not they were taken."""
    sent: list[tuple[str, int]] = []
    deliver = RunService.deliver

    def noted(self: RunService, run: str, source: str, number: int, file: str) -> bool:
        sent.append((source, number))
        return deliver(self, run, source, number, file)

    monkeypatch.setattr(RunService, "deliver", noted)
    return sent


def test_an_interrupted_submit_goes_on_and_sends_only_what_is_missing(
    submit: Submitting, data: Path, out: Path, arrivals: list[tuple[str, int]], place: Deployment
) -> None:
    wrong = data / "sales" / "2.csv"
    wrong.write_text("item_id,quantity\n1,many\n")
    refused = submit("may", "--wait", "--json")
    assert refused.exit_code == 1
    error = json.loads(refused.stdout)["error"]
    assert (error["condition"], error["file"], error["line"]) == ("BadValue", str(wrong), 2)
    assert "run 'may' stays open" in error["notes"][0]
    assert not out.exists()
    wrong.write_text(FILES["sales/2.csv"])
    there = delivered(place, "may")
    assert there == COUNT - 1
    arrivals.clear()
    assert submit("may", "--wait").exit_code == 0
    assert arrivals == [("sales", 2)]
    assert incarnations(place, "may") == 1


def test_other_bytes_in_the_place_of_a_chunk_that_is_there_are_a_conflict(
    submit: Submitting, data: Path
) -> None:
    (data / "sales" / "3.csv").write_text("item_id,quantity\n1,many\n")
    refused = submit("june")
    assert refused.exit_code == 1
    assert "repeat the command, or cancel the run" in refused.stderr
    (data / "sales" / "1.csv").write_text("item_id,quantity\n9,9\n")
    answer = submit("june", "--json")
    assert json.loads(answer.stdout)["error"]["condition"] == "ChunkConflict"


def test_other_chunks_under_the_name_of_a_complete_run_are_a_run_of_their_own(
    submit: Submitting, data: Path, out: Path, place: Deployment
) -> None:
    assert submit("july", "--wait").exit_code == 0
    (data / "sales" / "3.csv").unlink()
    (data / "sales" / "2.csv").write_text("item_id,quantity\n2,1000\n")
    assert submit("july", "--wait").exit_code == 0
    assert contents(out)["best.csv"] == b"item_name,sold\ncoffee,1300000\n"
    assert incarnations(place, "july") == 2


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (["--server", "ftp://x"], 2, "is no address of a server"),
        (["--data", "/nowhere"], 2, "there is no folder /nowhere"),
        (["--data", "/"], 2, "has no folder for"),
        (["--deadline", "0", "--wait"], 3, "has failed: its deadline has passed"),
    ],
)
def test_exit_codes_are_usage_failure_and_timeout(
    more: list[str], code: int, says: str, submit: Submitting
) -> None:
    answer = submit(f"coded{code}{len(more)}", *more)
    assert (answer.exit_code, says in answer.stderr) == (code, True), answer.output
    assert "stays open" not in answer.stderr


@pytest.mark.parametrize("more", [["--data", "/nowhere"], ["--server", "ftp://x"]])
def test_local_errors_are_raised_before_the_server_is_called(
    more: list[str], submit: Submitting
) -> None:
    assert "asking" not in submit("x", *more).stderr


def test_a_file_that_is_no_chunk_is_refused_before_a_run_is_begun(
    submit: Submitting, data: Path, place: Deployment
) -> None:
    (data / "sales" / "0.txt").write_text(FILES["sales/1.csv"])
    refused = submit("unexpected")
    assert refused.exit_code == 2
    assert str(data / "sales" / "0.txt") in refused.stderr
    assert incarnations(place, "unexpected") == 0


def test_chunks_may_end_in_upper_case(submit: Submitting, data: Path, out: Path) -> None:
    for file in [*data.glob("*/*.csv")]:
        file.rename(file.with_suffix(".CSV"))
    assert submit("upper", "--wait").exit_code == 0
    assert contents(out)["best.csv"] == b'item_name,sold\n"tea, ""green""",902000\n'


def test_waiting_has_an_end_and_the_run_goes_on(
    submit: Submitting, monkeypatch: pytest.MonkeyPatch, place: Deployment
) -> None:
    released = Event()
    end = RunService.end

    def held(
        self: RunService, run: str, source: str | None = None, chunks: int | None = None
    ) -> None:
        if released.is_set() or source != "sales":
            end(self, run, source, chunks)

    monkeypatch.setattr(RunService, "end", held)
    answer = submit("endless", "--wait", "--timeout", "0.2")
    assert answer.exit_code == 3, answer.output
    assert "continues" in answer.stderr
    released.set()
    assert submit("endless", "--wait").exit_code == 0


def test_an_unknown_token_and_another_pipeline_are_errors(
    submit: Submitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submit("x", token="wrong").exit_code == 1
    assert "TIDEGATE_TOKEN" in submit("x", token="wrong").stderr
    other = submit("x", pipeline="coffee")
    assert other.exit_code == 2
    assert "takes runs of 'shop', not of" in other.stderr
    served = submit("by-address", pipeline="tests.integration.http.declared:pipeline")
    assert served.exit_code == 0, served.output


def test_wait_without_out_and_a_chunk_too_large_are_refused_before_anything_is_sent(
    listening: HttpAddress, data: Path, arrivals: list[tuple[str, int]]
) -> None:
    given = ["submit", "shop", "--run", "big", "--data", str(data), "--server", listening.url]
    runner = CliRunner(env={"TIDEGATE_TOKEN": ANN})
    assert runner.invoke(app, [*given, "--wait"]).exit_code == 2
    (data / "sales" / "2.csv").write_text("item_id,quantity\n" + "1,1\n" * MOST)
    refused = runner.invoke(app, [*given, "--json"])
    assert json.loads(refused.stdout)["error"]["condition"] == "ChunkTooLarge"
    assert ("sales", 2) not in arrivals


# --- the server goes away and comes back -----------------------------------------------------


def test_a_server_that_restarts_while_chunks_are_sent_is_not_noticed_by_its_client(
    service: PipelineService, place: Deployment, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, gone = Event(), Event()
    deliver, first = RunService.deliver, Lock()

    def slow(self: RunService, run: str, source: str, number: int, file: str) -> bool:
        is_new = deliver(self, run, source, number, file)
        if first.acquire(blocking=False):
            taken.set()
            assert gone.wait(BOUND)
        return is_new

    monkeypatch.setattr(RunService, "deliver", slow)

    def submitted(url: str) -> dict[str, int]:
        remote = http_run_client(HttpClient(url, ANN, BOUND), lambda served: served)
        chunks = chunks_of(data, remote.served.sources)
        send(remote, chunks, RunOptions("august"), ProgressListener())
        return wait(remote, "august", ProgressListener(), remote.check)

    with ThreadPoolExecutor(2) as pool:
        with serve_http(service, place, "127.0.0.1:0", TOKENS, HttpLimits(MOST)) as listening:
            result = pool.submit(submitted, listening.url)
            assert taken.wait(BOUND)
            pool.submit(gone.set)
        address = f"{listening.host}:{listening.port}"
        assert not result.done()
        with serve_http(service, place, address, TOKENS, HttpLimits(MOST)):
            assert result.result(BOUND) == {"best": 1, "bulk": 2}
    assert delivered(place, "august") == COUNT
    assert incarnations(place, "august") == 1
    wait_until(lambda: spooled(place) == [])


def test_a_client_outlasts_a_start_of_its_server_that_takes_longer_than_its_patience(
    service: PipelineService, place: Deployment, data: Path
) -> None:
    said: list[str] = []

    def submitted(url: str) -> dict[str, int]:
        calls = HttpClient(url, ANN, patience=0)
        calls.on_outage = said.append
        remote = http_run_client(calls, lambda served: served)
        send(
            remote,
            chunks_of(data, remote.served.sources),
            RunOptions("september"),
            ProgressListener(),
        )
        return wait(remote, "september", ProgressListener(), remote.check)

    with (
        ThreadPoolExecutor(1) as pool,
        listen_http("127.0.0.1:0", TOKENS, HttpLimits(MOST)) as http_server,
    ):
        result = pool.submit(submitted, http_server.at.url)
        wait_until(lambda: len(said) > 0 or result.done())
        with http_server.serve(service, place):
            assert result.result(BOUND) == {"best": 1, "bulk": 2}
    assert said[0].startswith("the server is starting")
