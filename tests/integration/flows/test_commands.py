"""`tidegate flow …` on a deployment that has runs."""

from __future__ import annotations

import getpass
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.integration.flows.conftest import Hand, Works
from tests.integration.flows.declared import approved, numbers
from tests.waiting import wait_until
from tidegate.cli import app
from tidegate.store import Database
from tidegate.store.flows import tasks

NUMBERS = "tests.integration.flows.declared:numbers"
APPROVED = "tests.integration.flows.declared:approved"


class Command:
    """The command line of one deployment."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.where = ["--deployment", str(folder), "--database", database.url]

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["flow", *arguments, *self.where], env={"COLUMNS": "200"})

    def json(self, *arguments: str) -> Any:
        answer = self(*arguments, "--json")
        assert answer.exit_code == 0, answer.output
        return json.loads(answer.stdout)

    def refused(self, *arguments: str) -> tuple[int, str]:
        """The exit code, and the condition."""
        answer = self(*arguments, "--json")
        return answer.exit_code, json.loads(answer.stdout)["error"]["condition"]


@pytest.fixture
def command(tmp_path: Path, database: Database) -> Command:
    return Command(tmp_path, database)


def test_a_run_is_begun_once_under_a_key_and_listed(command: Command) -> None:
    first = command.json("run", NUMBERS, "--input", "3", "--key", "march")
    again = command.json("run", NUMBERS, "--input", "3", "--key", "march")
    assert first["id"] == again["id"]
    assert [it["key"] for it in command.json("list")] == ["march"]
    assert "numbers  march  running" in command("list").output
    assert command("list", "--flow", "others").output == "no runs\n"


def test_another_input_under_the_same_key_is_refused(command: Command) -> None:
    command.json("run", NUMBERS, "--input", "3", "--key", "march")
    asked = ("run", NUMBERS, "--input", "4", "--key", "march")
    assert command.refused(*asked) == (1, "FlowInputDiffers")
    assert command.refused("run", NUMBERS, "--input", "4", "--key", "") == (2, "InvalidRunKey")


def test_waiting_reports_how_the_run_ended(command: Command, work: Callable[..., Works]) -> None:
    work(numbers)
    said = command("run", NUMBERS, "--input", "30", "--wait", "--timeout", "60")
    assert said.exit_code == 0
    assert said.stdout.endswith("is completed; total returned 870\n")


def test_a_wait_that_takes_too_long_has_its_own_exit_code(command: Command) -> None:
    said = command("run", NUMBERS, "--input", "3", "--wait", "--timeout", "0.1")
    assert said.exit_code == 3


def test_a_run_is_shown_step_by_step(command: Command, hand: Hand) -> None:
    run = hand.begin(numbers, "5")
    (generator,) = hand.claim("numbers/count_up")
    hand.spawn(generator, range(3))
    item, *_ = hand.claim("numbers/count_up[]")
    hand.do(tasks.fail, item, "out of luck", 0.0, is_final=False)
    shown = command("show", str(run)).output
    assert "count_up  generator  running  3+" in shown
    assert "out of luck" in shown
    step, _ = command.json("show", str(run))["steps"]
    assert (step["spawned"], step["in_flight"], step["last_error"]) == (3, 3, "out of luck")


def test_a_run_is_signalled_paused_resumed_and_cancelled(command: Command) -> None:
    run = str(command.json("run", APPROVED, "--input", '"now?"')["id"])
    assert "received its signal" in command("signal", run, "act", "true").output
    assert "is paused" in command("pause", run).output
    assert "is running" in command("resume", run).output
    assert "is canceled: enough" in command("cancel", run, "--reason", "enough").output
    other = str(command.json("run", APPROVED, "--input", '"now?"')["id"])
    assert f"is canceled: requested by {getpass.getuser()}" in command("cancel", other).output
    refused = command("retry", run)
    assert (refused.exit_code, "is canceled" in refused.output) == (1, True)


def test_a_failed_run_is_tried_again(command: Command, hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    (ask,) = hand.claim("approved/ask")
    hand.do(tasks.fail, ask, "broken", 0.0, is_final=True)
    assert "is failed: step ask: broken" in command("show", str(run)).output
    assert "is running" in command("retry", str(run)).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nowhere"], "no flow 'nowhere'"),
        (["run", "tests.nowhere:flow"], "no flow"),
        (["run", "tests.waiting:LONG"], "not a Flow"),
        (["run", NUMBERS, "--input", "{"], "not JSON"),
        (["worker", "tests.waiting"], "declares no flow"),
        (["worker", "tests.nowhere"], "no flow"),
    ],
)
def test_a_command_that_means_nothing_is_a_usage_error(
    command: Command, arguments: list[str], said: str
) -> None:
    refused = command(*arguments)
    assert refused.exit_code == 2, refused.output
    assert said in refused.output


def test_an_input_of_another_type_is_refused(command: Command) -> None:
    refused = command("run", NUMBERS, "--input", '"seven"')
    assert (refused.exit_code, "cannot begin with" in refused.output) == (2, True)
    assert command.refused("run", NUMBERS, "--input", '"seven"') == (2, "InvalidFlowInput")
    assert command("show", "404").exit_code == 1


def test_ctrl_c_lets_a_worker_finish_and_report_it(command: Command, tmp_path: Path) -> None:
    log = tmp_path / "log"
    module = "tests.integration.flows.declared"
    asked = [sys.executable, "-m", "tidegate", "flow", "worker", module, *command.where]
    with log.open("wb") as opened:
        process = subprocess.Popen(asked, stdout=opened, stderr=opened)
    try:
        wait_until(lambda: "stop with Ctrl-C" in log.read_text() or process.poll() is not None, 60)
        said = command("run", NUMBERS, "--input", "30", "--wait", "--timeout", "60")
        assert "is completed" in said.output
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
        assert "all running jobs were finished and their tasks handed over" in log.read_text()
    finally:
        process.kill()
        process.wait()
