"""`tidegate flow`: watching a run, following its events, and changing it from outside."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.integration.flows.calls import Start
from tests.integration.flows.conftest import ITEMS, Hand
from tests.integration.flows.declared import gated, numbers, offset
from tests.integration.flows.test_commands import Command
from tests.integration.flows.test_metrics import ask
from tests.integration.flows.test_waiting import is_parked
from tests.waiting import wait_until
from tidegate.cli.flow_watching import watching
from tidegate.errors import FlowFailed, NoStepWithItems
from tidegate.flows import Context, FailAtFirst, Flow, Tolerate, reached
from tidegate.run.flows import begin, follow_events, see, tolerate, wait, write_state
from tidegate.store import Database
from tidegate.store import flow_tasks as tasks
from tidegate.store import flows as store


@pytest.fixture
def command(tmp_path: Path, database: Database) -> Command:
    return Command(tmp_path, database)


# ── watching ──


def test_on_a_terminal_a_run_is_drawn_until_it_is_over(work: Start) -> None:
    works = work(numbers)
    run = begin(works.database, numbers, 30)
    screen = Console(file=StringIO(), force_terminal=True, width=80, color_system=None)
    with watching(works.database, quiet=False, console=screen) as look:
        wait(works.database, run, 60, works.wakeups, look)
    assert isinstance(screen.file, StringIO)
    *_, last = screen.file.getvalue().split("\x1b[2K")
    assert f"run {run} of flow 'numbers' is completed" in last
    assert "30 of 30 items" in last


def test_elsewhere_what_happened_is_told_in_plain_lines(work: Start) -> None:
    works = work(gated)
    run = begin(works.database, gated, 5)
    write_state(works.database, run, offset, 7, "a feed")
    page = Console(file=StringIO(), width=40, highlight=False)
    with watching(works.database, quiet=False, console=page) as look:
        wait(works.database, run, 60, works.wakeups, look)
    assert isinstance(page.file, StringIO)
    text = page.file.getvalue()
    assert "\x1b" not in text
    assert "\r" not in text
    told = [line.partition(" s  ")[2] for line in text.splitlines()]
    assert told[0] == "run 'gated' is running"
    assert "state 'offset' is 7, by a feed" in told
    assert told[-2:] == ["step 'switch' is completed", "run 'gated' is completed"]
    assert len(told) == len(set(told))


def test_a_run_that_ends_badly_is_drawn_as_it_ended(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(tasks.fail, generator, "no source", 0.0, is_final=True)
    page = Console(file=StringIO(), highlight=False)
    with (
        pytest.raises(FlowFailed),
        watching(hand.database, quiet=False, console=page) as look,
    ):
        wait(hand.database, run, 60, look=look)
    assert isinstance(page.file, StringIO)
    assert "run 'numbers' is failed: step count_up: no source" in page.file.getvalue()


def test_show_goes_on_until_the_run_has_ended(command: Command, work: Start) -> None:
    run = str(begin(work(numbers).database, numbers, 30))
    shown = command("show", run, "--watch", "--timeout", "60")
    assert (shown.exit_code, "is completed" in shown.stdout) == (0, True), shown.output
    assert "step 'total' is completed" in shown.stderr
    assert command.json("show", run, "--watch")["run"]["state"] == "completed"


def test_showing_ends_with_the_exit_code_of_how_it_went(command: Command, hand: Hand) -> None:
    run, generator = hand.generating()
    assert command("show", str(run), "--watch", "--timeout", "0.1").exit_code == 3
    hand.do(tasks.fail, generator, "no source", 0.0, is_final=True)
    failed = command("show", str(run), "--watch", "--timeout", "60")
    assert (failed.exit_code, "no source" in failed.stderr) == (1, True)


def test_a_wait_is_shown_with_what_for_since_when_and_until_when(
    command: Command, work: Start, hand: Hand
) -> None:
    flow = Flow("shown")
    position = flow.state("position", int, external=True)
    flow.step(wait_for=reached(position, 5000), wait_timeout=3600)(answer)
    works = work(flow)
    run = begin(works.database, flow)
    write_state(works.database, run, position, 4100, "a feed")
    wait_until(lambda: is_parked(hand, run))
    shown = command("show", str(run)).output
    assert "answer, since 2" in shown
    assert " min " in shown
    assert "position is 4,100 of 5,000: 900 behind, last written by a feed" in shown
    (waited,) = command.json("show", str(run))["waits"]
    assert (waited["step"], waited["behind"], waited["standing"]["value"]) == (
        "answer",
        900,
        "4100",
    )
    assert see(works.database, run).wait_of("answer")[0].standing is not None


# ── events ──


def test_events_are_lines_for_people_and_objects_for_programs(command: Command, hand: Hand) -> None:
    run = str(hand.begin(gated, "5"))
    assert command("set", run, "offset", "3").exit_code == 0
    told = [line[21:] for line in command("events", run).output.splitlines()]
    assert told[:2] == ["run 'gated' is running", "step 'switch' is running"]
    assert told[2].startswith("state 'offset' is 3, by ")
    lines = command("events", run, "--json").stdout.splitlines()
    first, _, last = [json.loads(line) for line in lines]
    assert (first["kind"], first["run"], first["detail"]) == ("run", int(run), {"to": "running"})
    assert (last["kind"], last["name"], last["detail"]["value"]) == ("state", "offset", 3)
    behind = command("events", run, "--json", "--after", str(first["id"])).stdout.splitlines()
    assert behind == lines[1:]
    assert command("events", "404").exit_code == 1


def test_events_are_followed_until_the_run_is_over(command: Command, work: Start) -> None:
    works = work(numbers)
    run = begin(works.database, numbers, 30)
    followed = command("events", str(run), "--follow", "--json").stdout.splitlines()
    last = json.loads(followed[-1])
    assert (last["kind"], last["detail"]["to"]) == ("run", "completed")
    assert [it.id for it in follow_events(works.database, run)] == [
        json.loads(line)["id"] for line in followed
    ]


# ── changing a run from outside ──


def test_a_key_is_written_from_outside_and_wakes_who_waits(command: Command, work: Start) -> None:
    works = work(gated)
    run = begin(works.database, gated, 5)
    assert command("set", str(run), "offset", "7").output == f"state 'offset' of run {run} is 7\n"
    wait(works.database, run, 60, works.wakeups)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["target", "7"], 1, "declared with external=True"),
        (["nothing", "7"], 1, "may not write the state 'nothing'"),
        (["offset", "2"], 1, "2 would be back"),
        (["offset", "seven"], 2, "not JSON"),
    ],
)
def test_a_key_that_may_not_be_written_so_is_refused(
    command: Command, hand: Hand, arguments: list[str], code: int, said: str
) -> None:
    run = str(hand.begin(gated, "5"))
    assert command("set", run, "offset", "3").exit_code == 0
    refused = command("set", run, *arguments)
    assert (refused.exit_code, said in refused.output) == (code, True), refused.output


def test_a_failure_policy_is_changed_while_a_run_goes_on(command: Command, hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(3))
    said = command("tolerate", str(run), "count_up", "--count", "1", "--share", "0.5")
    assert said.output == (
        f"step 'count_up' of run {run} tolerates 1 failed item and 50 % of all items\n"
    )
    first, *_ = hand.claim(ITEMS)
    hand.do(tasks.fail, first, "broken", 0.0, is_final=True)
    assert hand.state(run) == "running"
    assert "tolerates no failed item" in command("tolerate", str(run), "count_up").output
    assert hand.state(run) == "failed"


def test_only_steps_with_items_have_a_failure_policy(command: Command, hand: Hand) -> None:
    run = hand.begin(numbers, "3")
    refused = command("tolerate", str(run), "total", "--count", "1")
    assert (refused.exit_code, "no step 'total' with items" in refused.output) == (1, True)
    assert command("tolerate", str(run), "count_up", "--share", "2").exit_code == 2
    with pytest.raises(NoStepWithItems):
        tolerate(hand.database, run, "nothing", Tolerate(count=1))
    tolerate(hand.database, run, "count_up", Tolerate(share=0.25))
    tolerate(hand.database, run, "count_up", FailAtFirst())
    asked = (
        "SELECT tolerated_count, tolerated_share FROM tidegate.flow_step WHERE name = 'count_up'"
    )
    assert hand.ask(asked) == [(None, None)]


# ── figures ──


def test_figures_are_printed_once(command: Command, hand: Hand) -> None:
    run = hand.begin(gated, "5")
    hand.do(store.set_external_state, run, "offset", "3", "a feed")
    told = command("metrics").stdout
    assert f'tidegate_flow_state_value{{flow="gated",run="{run}",key="offset"}} 3\n' in told


def test_a_worker_serves_figures_while_it_works(command: Command, tmp_path: Path) -> None:
    log = tmp_path / "log"
    module = "tests.integration.flows.declared"
    asked = ["flow", "worker", module, "--metrics", "0", *command.where]
    with log.open("wb") as opened:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", *asked], stdout=opened, stderr=opened
        )
    try:
        wait_until(lambda: "at work" in log.read_text() or process.poll() is not None, 60)
        found = re.search(r"figures at http://127\.0\.0\.1:(\d+)/metrics", log.read_text())
        assert found is not None, log.read_text()
        status, _, text = ask(int(found[1]), "/metrics")
        assert (status, "\ntidegate_flow_workers 1\n" in text) == (200, True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def answer(context: Context) -> int:
    return 1
