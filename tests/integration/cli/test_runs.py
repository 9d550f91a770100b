"""`tidegate status`, `why` and `cancel` on a deployment that has runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.integration.runtime.shop import Client, ask, shop
from tests.integration.runtime.test_worker import working
from tests.waiting import wait_until
from tidegate.cli import app
from tidegate.plan import physical_plan, plan_hash
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.task_graph import build_task_graph
from tidegate.store import Database, Notifications, acquire
from tidegate.store.runs.status import record_release_points


class Command:
    """The command line of one deployment."""

    def __init__(self, folder: Path, database: Database) -> None:
        self._where = ["--deployment", str(folder), "--database", database.url]

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, *self._where])

    def json(self, *arguments: str) -> Any:
        answer = self(*arguments, "--json")
        assert answer.exit_code == 0, answer.output
        return json.loads(answer.stdout)


@pytest.fixture
def command(tmp_path: Path, database: Database) -> Command:
    return Command(tmp_path, database)


@pytest.fixture
def client(tmp_path: Path, database: Database) -> Client:
    """A client that owes chunks; nobody works on what it has delivered."""
    place = Deployment(database, str(tmp_path / "data"))
    task_graph = build_task_graph(physical_plan(shop()))
    with Notifications(database) as notifications:
        server = RunService(place, shop(), task_graph, _no_spark, notifications)
        client = Client(server, "march", tmp_path)
        client.sales(2, (1, 1))
        server.end("march", "sales", chunks=3)
    return client


def _no_spark() -> Any:
    raise AssertionError("plain CSV needs no Spark")


def test_an_empty_deployment_has_no_runs(command: Command) -> None:
    assert command("status").stdout == "no runs\n"
    assert command.json("status") == []


def test_status_lists_runs_with_what_they_have_and_are_to_have(
    command: Command, client: Client
) -> None:
    header, line = command("status").stdout.splitlines()
    assert header.split()[:3] == ["run", "pipeline", "state"]
    assert line.split()[:6] == ["march", "shop", "open", "1", "of", "3+"]
    (run,) = command.json("status")
    assert (run["run"]["name"], run["run"]["state"]) == ("march", "open")
    assert (run["delivered"], run["declared"], run["ended_sources"]) == (1, 3, 0)
    assert command.json("status", "--pipeline", "another") == []
    client.server.end("march", "items", chunks=2)
    assert command("status").stdout.splitlines()[1].split()[3:6] == ["1", "of", "5"]


def test_why_names_the_missing_chunks_and_the_task_that_no_worker_runs(
    command: Command, client: Client
) -> None:
    told = command("why", "march").stdout
    assert "source sales lacks 2 of 3 chunks: 1, 3" in told
    assert re.search(r"source items is not ended \(0 chunks .* for \d", told)
    assert "no worker runs it" in told
    facts = command.json("why", "march")
    owed = {reason["subject"]: reason["description"] for reason in facts["reasons"]}
    assert owed["source sales"] == "lacks 2 of 3 chunks: 1, 3"
    sales = next(source for source in facts["sources"] if source["name"] == "sales")
    assert sales["missing"] == [1, 3]


def table(told: str) -> dict[str, list[str]]:
    """The lines of a table by the name of what they are about."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in told.splitlines()[1:]]
    return {name: cells for name, *cells in rows}


def test_status_of_a_run_tells_stage_by_stage_what_was_expected_received_and_processed(
    command: Command, client: Client
) -> None:
    answer = command("status", "march")
    assert answer.exit_code == 0
    assert answer.stdout.splitlines()[0] == "run 'march' of shop is open"
    told = table(answer.stdout)
    assert told["expected"] == ["received", "processed", "released", "done"]
    assert told["source sales"] == ["3", "1", "-", "-", "no"]
    assert told["source items"] == ["?", "0", "-", "-", "no"]
    assert told["stage s1"] == ["0+", "1", "0", "-", "0 of 2"]
    assert told["stage b2"] == ["0+", "0", "0", "-", "0 of 2"]
    names = list(told)
    assert names.index("stage s1") < names.index("stage b2") < names.index("stage s2")
    assert names[-1] == "stage c"
    facts = command.json("status", "march")
    assert facts["run"]["name"] == "march"
    s1 = next(stage for stage in facts["stages"] if stage["stage"] == "s1")
    assert (s1["received"], s1["processed"], s1["is_all_declared"]) == (1, 0, False)


def test_why_names_the_messages_that_a_task_has_not_processed(
    command: Command, client: Client
) -> None:
    assert re.search(r"task s1/\d has not processed message 1 of 1 from", told_why(command))
    client.sales(1, (1, 1))
    client.sales(3, (1, 1))
    told = told_why(command)
    assert re.search(r"task s1/\d has not processed messages 1 to 2 and END from", told)


def told_why(command: Command) -> str:
    return command("why", "march").stdout


def test_where_end_waits_for_its_release_the_reason_is_the_monitor_and_not_the_worker(
    command: Command, client: Client, tmp_path: Path, database: Database
) -> None:
    task_graph = build_task_graph(physical_plan(shop()))
    record = plan_hash(task_graph.plan), task_graph.monitored
    database.transact(lambda c: record_release_points(c, *record))
    client.sales(1, (1, 1))
    client.sales(3, (1, 1))
    with working(Deployment(database, str(tmp_path / "data")), task_graph) as worker:
        wait_until(lambda: table(command("status", "march").stdout)["stage b2"][0] == "0")
        wait_until(lambda: "the monitor" in told_why(command))
        owed = r"the monitor has not released task b2/0 to pass on END from s1/0, END from s1/1 for"
        assert re.search(rf"{owed} \d+\.\d s \(no monitor runs\)", told_why(command))
        assert "task b2/0 has not" not in told_why(command)
        assert table(command("status", "march").stdout)["stage b2"][3] == "0 of 2"

        database.transact(lambda c: acquire(c, "monitor", "shop", "ann", 60))
        assert re.search(rf"{owed} .*\(holder ann\)", told_why(command))
        ask(database, "UPDATE tidegate.lease SET expires_at = now() WHERE owner = 'ann'")
        assert re.search(r"\(the lease of holder ann expired \d+\.\d s ago", told_why(command))
        assert worker.name not in told_why(command)


def test_cancel_closes_a_run_and_refuses_a_closed_one(command: Command, client: Client) -> None:
    assert command("cancel", "march").exit_code == 0
    assert "is cancelled" in command("why", "march").stdout
    (run,) = command.json("status")
    assert run["run"]["state"] == "cancelled"
    again = command("cancel", "march")
    assert again.exit_code == 1
    assert "run 'march' is cancelled already; there is nothing to cancel" in again.stderr


def test_runs_with_the_same_name_are_listed_with_numbers_and_a_cause_has_its_own_line(
    command: Command, client: Client, database: Database
) -> None:
    ask(database, "UPDATE tidegate.run SET state = 'failed', cause = 'no tea', closed_at = now()")
    again = client.server.begin("march").id
    _, first, second, cause = command("status").stdout.splitlines()
    assert first.split()[:3] == [f"march#{again}", "shop", "open"]
    assert second.split()[:3] == [f"march#{client.id}", "shop", "failed"]
    assert cause == "    no tea"


@pytest.mark.parametrize("asked", ["status", "why", "cancel"])
def test_an_unknown_run_is_an_error(asked: str, command: Command, client: Client) -> None:
    answer = command(asked, "april")
    assert answer.exit_code != 0
    assert "april" in answer.stderr


def test_an_error_is_json_where_json_was_asked_for(command: Command, client: Client) -> None:
    answer = command("why", "april", "--json")
    assert answer.exit_code != 0
    assert json.loads(answer.stdout)["error"]["condition"] == "UnknownRun"


def test_a_folder_that_is_not_a_deployment_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEGATE_DATABASE", raising=False)
    answer = CliRunner().invoke(app, ["status", "--deployment", str(tmp_path / "nothing")])
    assert answer.exit_code == 2
    assert "is no deployment" in answer.stderr
    assert not (tmp_path / "nothing").exists()
