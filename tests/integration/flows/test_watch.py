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
from tests.integration.flows.declared import approved, gated, numbers, offset
from tests.integration.flows.test_commands import NUMBERS, Command
from tests.integration.flows.test_metrics import ask
from tests.integration.flows.test_waiting import is_suspended
from tests.waiting import wait_until
from tidegate.cli.flow.watch import watching
from tidegate.errors import FlowFailed, NoStepWithItems
from tidegate.flows import Context, FailAtFirst, Flow, Tolerate, reached
from tidegate.flows.client import flow_run, start_flow
from tidegate.store import Connection, Database
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks


@pytest.fixture
def command(tmp_path: Path, database: Database) -> Command:
    return Command(tmp_path, database)


# ── watching ──


def test_on_a_terminal_a_run_is_drawn_until_it_is_over(work: Start) -> None:
    works = work(numbers)
    run = start_flow(works.database, numbers, 30)
    screen = Console(file=StringIO(), force_terminal=True, width=80, color_system=None)
    with watching(run, quiet=False, console=screen) as look:
        run.wait(60, works.notifications, look)
    assert isinstance(screen.file, StringIO)
    *_, last = screen.file.getvalue().split("\x1b[2K")
    assert f"run {run.id} of flow 'numbers' is completed" in last
    assert "30 of 30 items" in last


def test_without_a_terminal_events_are_plain_lines(work: Start) -> None:
    works = work(gated)
    run = start_flow(works.database, gated, 5)
    run.set_state(offset, 7, "a feed")
    page = Console(file=StringIO(), width=40, highlight=False)
    with watching(run, quiet=False, console=page) as look:
        run.wait(60, works.notifications, look)
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
        watching(flow_run(hand.database, run), quiet=False, console=page) as look,
    ):
        flow_run(hand.database, run).wait(60, on_change=look)
    assert isinstance(page.file, StringIO)
    assert "run 'numbers' is failed: step count_up: no source" in page.file.getvalue()


def test_show_goes_on_until_the_run_has_ended(command: Command, work: Start) -> None:
    run = str(start_flow(work(numbers).database, numbers, 30).id)
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
    run = start_flow(works.database, flow)
    run.set_state(position, 4100, "a feed")
    wait_until(lambda: is_suspended(hand, run.id))
    shown = command("show", str(run.id)).output
    assert "answer, since 2" in shown
    assert " min " in shown
    assert "position is 4,100 of 5,000: 900 behind, last written by a feed" in shown
    (waited,) = command.json("show", str(run.id))["waits"]
    assert (waited["step"], waited["behind"], waited["standing"]["value"]) == (
        "answer",
        900,
        4100,
    )
    assert waited["standing"]["target"] == waited["standing"]["condition"]["target"] == 5000
    assert waited["waiting_since"].endswith("Z")
    assert run.inspect().wait_of("answer")[0].standing is not None


def test_a_signal_that_is_awaited_is_shown_while_a_run_is_watched(
    command: Command, hand: Hand
) -> None:
    run = hand.begin(approved, '"?"')
    hand.complete(hand.claim("approved/ask"), '"?"')
    awaited = f"waits for its signal: `tidegate flow signal {run} act JSON`"
    assert f"  act {awaited}" in command("show", str(run)).output
    assert f"  act  {awaited}" in drawn(hand, run)
    grow_old(hand, run)
    assert f"act {awaited}" in [line.partition(" s  ")[2] for line in written(hand, run)]


def test_earlier_events_are_summarised_in_one_line(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    hand.do(store.set_external_state, run, "offset", "3", "a feed")
    grow_old(hand, run)
    hand.do(store.pause_flow, run)
    first, *rest = [line.split(" s  ") for line in written(hand, run)]
    assert first[1] == f"3 events before; `tidegate flow events {run}` lists them"
    assert [it[1] for it in rest] == ["run 'gated' is paused"]
    assert all(60 <= float(it[0]) < 120 for it in (first, *rest))  # since the run was begun


def test_an_error_of_several_lines_is_printed_on_one(command: Command, hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(tasks.fail, generator, "no source:\n  of\nthe numbers", 0.0, is_final=True)
    told = "run 'numbers' is failed: step count_up: no source: of the numbers"
    assert told in [line.partition(" s  ")[2] for line in written(hand, run)]
    assert told in command("events", str(run)).output


def test_a_step_that_no_worker_claims_is_shown_everywhere(
    command: Command, database: Database
) -> None:
    run = start_flow(database, numbers, 5)
    begun = command("run", NUMBERS, "--input", "5")
    assert "no worker is alive" in begun.stderr
    assert "has been ready" not in command("show", str(run.id)).output  # nobody is late yet
    grow_old(Asking(database), run.id)
    late = r"has been ready for 1 min \d+ s: no worker is alive"
    assert re.search(f"  count_up {late}", command("show", str(run.id)).output)
    assert any(re.search(late, line) for line in drawn(Asking(database), run.id))
    assert any(re.search(f"count_up {late}", line) for line in written(Asking(database), run.id))
    shown = command.json("show", str(run.id))
    assert shown["ready_seconds"]["count_up"] >= 60
    assert shown["workers"] == 0


def test_workers_that_serve_other_flows_are_not_reported_as_failed(
    command: Command, hand: Hand
) -> None:
    run = hand.begin(numbers, "5")
    grow_old(hand, run)
    shown = command("show", str(run)).output
    assert "count_up has been ready for 1 min" in shown
    assert "no worker claims it; the only worker may be busy" in shown


def test_unclaimed_items_are_reported_and_not_those_behind_others(hand: Hand) -> None:
    run, generator = hand.generating()
    hand.spawn(generator, range(3))
    grow_old(hand, run)
    assert flow_run(hand.database, run).inspect().unclaimed["count_up"] >= 60
    hand.claim(ITEMS, room=1)  # somebody works on them
    assert flow_run(hand.database, run).inspect().unclaimed == {}


def test_a_run_that_is_paused_or_over_waits_for_no_worker(hand: Hand) -> None:
    run = hand.begin(numbers, "5")
    grow_old(hand, run)
    hand.do(store.pause_flow, run)
    assert flow_run(hand.database, run).inspect().ready == {}
    hand.do(store.cancel_flow, run, "enough")
    assert flow_run(hand.database, run).inspect().ready == {}


def test_a_step_at_its_gate_is_not_reported_as_unclaimed_while_it_is_evaluated(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    (switch,) = hand.claim("gated/switch")
    hand.do(tasks.suspend, switch, ["offset"], 0, 0, 0.0, None)
    grow_old(hand, run)
    hand.do(store.set_external_state, run, "offset", "3", "a feed")  # which wakes it
    sight = flow_run(hand.database, run).inspect()
    assert (sight.ready["switch"] >= 60, sight.unclaimed) == (True, {})


def test_state_and_times_are_given_to_programs_as_stored(command: Command, hand: Hand) -> None:
    run = hand.begin(gated, "5")
    hand.do(store.set_external_state, run, "offset", "1000", "a feed")
    shown = command.json("show", str(run))
    assert (shown["state"]["offset"]["value"], shown["state"]["target"]["value"]) == (1000, None)
    (listed,) = command.json("list")
    assert listed == shown["run"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", listed["begun_at"])


# ── results ──


def test_what_a_run_gave_is_printed_as_json(command: Command, work: Start) -> None:
    run = str(work(numbers).finish(numbers, 1500).id)
    assert command("result", run).output == f"{1500 * 1499}\n"
    assert command("result", run, "total").output == f"{1500 * 1499}\n"
    items = command("result", run, "count_up").output.splitlines()  # more than one page
    assert [json.loads(it) for it in items] == [2 * it for it in range(1500)]


def test_several_last_steps_are_printed_with_their_names(command: Command, work: Start) -> None:
    flow = Flow("forked")
    flow.step(name="one")(answer)
    flow.step(name="other", condition=lambda: False)(answer)
    flow.map_step(name="each")(negate)
    run = str(work(flow).finish(flow, [1, 2]).id)
    assert [json.loads(it) for it in command("result", run).output.splitlines()] == [
        {"step": "one", "result": 1},
        {"step": "other", "result": None},
        {"step": "each", "result": -1},
        {"step": "each", "result": -2},
    ]
    assert command("result", run, "other").output == "null\n"
    shown = command("show", run, "--watch").stdout
    assert shown.endswith(f"`tidegate flow result {run}` prints its results\n")


def test_a_result_does_nothing_to_a_terminal(command: Command, hand: Hand) -> None:
    run = str(hand.begin(approved, '"?"'))
    hand.complete(hand.claim("approved/ask"), '"\x9b2J caf\xe9"')
    told = command("result", run, "ask").output
    assert told.rstrip("\n").isprintable()
    assert json.loads(told) == "\x9b2J caf\xe9"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["404"], "there is no run 404"),
        (["RUN"], "step 'total' of run RUN is waiting"),
        (["RUN", "count_up"], "step 'count_up' of run RUN is running"),
        (["RUN", "nostep"], "has no step 'nostep'; its steps are: count_up, total"),
    ],
)
def test_a_result_that_is_not_there_is_not_printed(
    command: Command, hand: Hand, arguments: list[str], said: str
) -> None:
    run = str(hand.generating()[0])
    refused = command("result", *(it.replace("RUN", run) for it in arguments))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert said.replace("RUN", run) in refused.stderr


# ── what failed ──


def test_items_that_failed_are_listed_with_their_first_and_last_errors(
    command: Command, hand: Hand
) -> None:
    run, generator = hand.generating()
    hand.do(store.tolerate, run, "count_up", 5, None)
    hand.spawn(generator, range(4))
    one, two, *_ = hand.claim(ITEMS)
    hand.do(tasks.fail, one, "no such\nrow", 0.0, is_final=False)
    (again,) = hand.claim(ITEMS)
    hand.do(tasks.fail, again, "gone", 0.0, is_final=True)
    hand.do(tasks.fail, two, "gone", 0.0, is_final=True)
    _, *lines = [it.split("  ") for it in command("failed", str(run)).output.splitlines()]
    assert [[cell.strip() for cell in line if cell.strip()] for line in lines] == [
        ["count_up", "0", "-", "2", "no such row", "gone"],
        ["count_up", "1", "-", "1", "gone", "the same"],
    ]
    first = command("failed", str(run), "--most", "1").output.splitlines()
    assert first[-1] == "and 1 more of 2; --most N lists more of them"
    found = command.json("failed", str(run), "--step", "count_up", "--most", "1")
    assert found["number"] == 2
    assert found["failed"] == [
        {"step": "count_up", "position": 0, "key": None, "attempts": 2, "cause": "no such\nrow",
         "last_error": "gone"}
    ]  # fmt: skip
    assert command("failed", str(run), "--step", "total").output == "no failed items\n"
    assert command.refused("failed", str(run), "--step", "nostep") == (1, "UnknownRunStep")
    assert command.refused("failed", "404") == (1, "UnknownFlowRun")


def test_a_function_that_failed_is_listed_without_a_position(command: Command, hand: Hand) -> None:
    run, generator = hand.generating()
    hand.do(tasks.fail, generator, "no source", 0.0, is_final=True)
    found = command.json("failed", str(run))
    assert (found["number"], found["failed"][0]["position"]) == (1, None)
    hand.do(store.retry_flow, run)
    assert command.json("failed", str(run)) == {"number": 0, "failed": []}


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
    run = start_flow(works.database, numbers, 30)
    followed = command("events", str(run.id), "--follow", "--json").stdout.splitlines()
    last = json.loads(followed[-1])
    assert (last["kind"], last["detail"]["to"]) == ("run", "completed")
    assert [it.id for it in run.events(follow=True)] == [
        json.loads(line)["id"] for line in followed
    ]


# ── changing a run from outside ──


def test_a_key_written_from_outside_wakes_waiting_steps(command: Command, work: Start) -> None:
    works = work(gated)
    run = start_flow(works.database, gated, 5)
    assert (
        command("set", str(run.id), "offset", "7").output
        == f"state 'offset' of run {run.id} is 7\n"
    )
    run.wait(60, works.notifications)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["target", "7"], 1, "declares with external=True"),
        (["nothing", "7"], 1, "has no key 'nothing'; its keys are: offset, target"),
        (["offset", "2"], 1, "cannot decrease to 2"),
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


def test_a_signal_for_an_unknown_step_is_refused(command: Command, hand: Hand) -> None:
    run = str(hand.begin(numbers, "5"))
    refused = command("signal", run, "nostep", "true")
    assert (refused.exit_code, "has no step 'nostep'" in refused.stderr) == (1, True)
    assert "it takes none" in command("signal", run, "total", "true").stderr


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
        flow_run(hand.database, run).tolerate("nothing", Tolerate(count=1))
    flow_run(hand.database, run).tolerate("count_up", Tolerate(share=0.25))
    flow_run(hand.database, run).tolerate("count_up", FailAtFirst())
    asked = (
        "SELECT tolerated_count, tolerated_share FROM tidegate.flow_step WHERE name = 'count_up'"
    )
    assert hand.ask(asked) == [(None, None)]


# ── figures ──


def test_figures_are_printed_once(command: Command, hand: Hand) -> None:
    run = hand.begin(gated, "5")
    hand.do(store.set_external_state, run, "offset", "3", "a feed")
    told = command("metrics").stdout
    assert f'tidegate_flow_state_value{{flow="gated",key="offset",run="{run}"}} 3.0\n' in told


def test_a_worker_serves_figures_while_it_works(command: Command, tmp_path: Path) -> None:
    log = tmp_path / "log"
    module = "tests.integration.flows.declared"
    asked = ["flow", "worker", module, "--metrics", "0", *command.where]
    with log.open("wb") as opened:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", *asked], stdout=opened, stderr=opened
        )
    try:
        wait_until(lambda: "stop with Ctrl-C" in log.read_text() or process.poll() is not None, 60)
        found = re.search(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", log.read_text())
        assert found is not None, log.read_text()
        status, _, text = ask(int(found[1]), "/metrics")
        assert (status, "\ntidegate_flow_workers 1.0\n" in text) == (200, True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def answer(context: Context) -> int:
    return 1


def negate(context: Context, number: int) -> int:
    return -number


class Asking(Hand):
    """Somebody who looks, and is no worker."""

    def __post_init__(self) -> None:
        pass


def grow_old(hand: Hand, run: int) -> None:
    """Let everything have happened a minute earlier."""

    def move(connection: Connection) -> None:
        for table, column, of in (
            ("flow_run", "begun_at", "id"),
            ("flow_step", "started_at", "run_id"),
            ("flow_task", "available_at", "run_id"),
            ("flow_event", "at", "run_id"),
        ):
            moved = f"UPDATE tidegate.{table} SET {column} = {column} - interval '1 min'"
            connection.execute(f"{moved} WHERE {of} = %s".encode(), (run,))

    hand.do(move)


def looked_at(hand: Hand, run: int, console: Console) -> list[str]:
    with watching(flow_run(hand.database, run), quiet=False, console=console) as look:
        assert look is not None
        look(hand.do(store.flow_run, run))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def written(hand: Hand, run: int) -> list[str]:
    """What a log gets of one look at a run."""
    return [
        line.strip() for line in looked_at(hand, run, Console(file=StringIO(), highlight=False))
    ]


def drawn(hand: Hand, run: int) -> list[str]:
    """What a terminal shows of it."""
    screen = Console(file=StringIO(), force_terminal=True, width=120, color_system=None)
    return [re.sub("\x1b\\[[0-9?]*[A-Za-z]", "", it) for it in looked_at(hand, run, screen)]
