"""`tidegate status`, `why` and `cancel` on a deployment that has runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.integration.run.shop import Client, shop
from tidegate.cli import app
from tidegate.plan import physical_plan
from tidegate.run.assemble import assemble
from tidegate.run.deployment import Deployment
from tidegate.run.server import Server
from tidegate.store import Database, Wakeups


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
    assembly = assemble(physical_plan(shop()))
    with Wakeups(database) as wakeups:
        server = Server(place, shop(), assembly, _no_spark, wakeups)
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
    assert line.split()[:6] == ["march", "shop", "open", "1", "of", "3"]
    (run,) = command.json("status")
    assert (run["run"]["name"], run["run"]["state"]) == ("march", "open")
    assert (run["delivered"], run["declared"], run["ended_sources"]) == (1, 3, 0)
    assert command.json("status", "--pipeline", "another") == []


def test_why_names_the_missing_chunks_and_the_task_that_nobody_runs(
    command: Command, client: Client
) -> None:
    told = command("why", "march").stdout
    assert "source sales owes 2 of 3 chunks: 1, 3" in told
    assert "source items has not been closed by its client" in told
    assert "nobody runs it" in told
    facts = command.json("why", "march")
    owed = {reason["who"]: reason["what"] for reason in facts["reasons"]}
    assert owed["source sales"] == "owes 2 of 3 chunks: 1, 3"
    sales = next(source for source in facts["sources"] if source["name"] == "sales")
    assert sales["missing"] == [1, 3]


def test_cancel_gives_a_run_up_and_says_so_when_it_was_closed_before(
    command: Command, client: Client
) -> None:
    assert command("cancel", "march").exit_code == 0
    assert "is cancelled" in command("why", "march").stdout
    (run,) = command.json("status")
    assert run["run"]["state"] == "cancelled"
    again = command("cancel", "march")
    assert again.exit_code == 1
    assert "cancelled" in again.stderr


@pytest.mark.parametrize("asked", ["why", "cancel"])
def test_an_unknown_run_is_an_error(asked: str, command: Command, client: Client) -> None:
    answer = command(asked, "april")
    assert answer.exit_code != 0
    assert "april" in answer.stderr


def test_an_error_is_json_where_json_was_asked_for(command: Command, client: Client) -> None:
    answer = command("why", "april", "--json")
    assert answer.exit_code != 0
    assert json.loads(answer.stdout)["error"]["condition"] == "UnknownRun"


def test_a_folder_that_is_no_deployment_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEGATE_DATABASE", raising=False)
    answer = CliRunner().invoke(app, ["status", "--deployment", str(tmp_path / "nothing")])
    assert answer.exit_code == 2
    assert "is no deployment" in answer.stderr
    assert not (tmp_path / "nothing").exists()
