"""Workers of flows die, freeze and are restarted; every run ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.crash.flows import Job, marked
from tests.integration.conftest import (  # noqa: F401  fixtures
    database,
    new_database,
    server,
    template,
    temporary_folder,
    url,
)
from tests.waiting import wait_until
from tidegate.faults import VARIABLE
from tidegate.flows import FlowState, StepState
from tidegate.flows.client import FlowRun, flow_run, start_flow
from tidegate.store import Database, EmbeddedPostgres
from tidegate.store.flows.runs import StepProgress

LEASE = 1.0
SWEEPS_PER_LEASE = 6
SLACK = 6.0
"""Seconds that a busy machine may take longer, far below what a forgotten sweep would."""
BOUND = 60.0
POINTS = [
    "flow.claim.after_commit",
    "flow.claim.after_commit:3",
    "flow.complete.before_commit:2",
    "flow.complete.after_commit:2",
    "flow.finish.before_commit",
    "flow.spawn.before_commit",
    "flow.spawn.before_commit:4",
    "flow.spawn.after_commit:4",
]


@dataclass
class ProcessSupervisor:
    """Workers in processes of their own, and the runs that they work for."""

    database: Database
    folder: Path
    left: ExitStack
    flows: str = "tests.crash.flows:marked"
    logs: list[Path] = field(default_factory=list)

    def hire(self, crash_at: str = "") -> subprocess.Popen[bytes]:
        log = self.folder / f"worker-{len(self.logs)}.log"
        self.logs.append(log)
        command = [sys.executable, "-m", "tidegate", "flow", "worker", self.flows]
        command += ["--deployment", str(self.folder), "--database", self.database.url]
        command += ["--lease", str(LEASE), "--threads", "2", "--name", log.stem]
        environment = {**os.environ, VARIABLE: crash_at} if crash_at else dict(os.environ)
        with log.open("wb") as opened:
            process = subprocess.Popen(command, stdout=opened, stderr=opened, env=environment)
        self.left.callback(process.wait)
        self.left.callback(process.kill)
        return process

    def begin(self, items: int, seconds: float = 0.0) -> FlowRun:
        return start_flow(self.database, marked, Job(items, seconds, str(self.folder / "marks")))

    def step(self, run: FlowRun) -> StepProgress:
        return next(it for it in run.inspect().steps if it.name == "produce")

    def state(self, run: FlowRun) -> FlowState:
        return run.status().state

    def wait_at_work(self, run: FlowRun, succeeded: int) -> None:
        wait_until(lambda: self.step(run).succeeded >= succeeded, BOUND)

    def items_in_hand(self, worker: str) -> int:
        of_worker = f"state = 'claimed' AND position >= 0 AND owner LIKE '{worker}-%'"
        return int(self.ask(f"SELECT count(*) FROM tidegate.flow_task WHERE {of_worker}"))

    def kill_at_work(self, process: subprocess.Popen[bytes], worker: str) -> None:
        """Kill a worker that has more in hand than what it may be about to commit."""

        def is_caught() -> bool:
            process.send_signal(signal.SIGSTOP)
            if self.items_in_hand(worker) >= 5:
                return True
            process.send_signal(signal.SIGCONT)
            return False

        wait_until(is_caught, BOUND)
        process.kill()

    def check(self, run: FlowRun, items: int) -> None:
        """The run is completed, and every item counts once, whatever happened."""
        wait_until(lambda: self.state(run) not in {FlowState.RUNNING, FlowState.CANCELING}, BOUND)
        assert self.state(run) is FlowState.COMPLETED, self.said()
        found = self.step(run)
        assert found.state is StepState.COMPLETED
        assert (found.spawned, found.succeeded, found.in_flight) == (items, items, 0)
        assert list(run.result("produce")) == list(range(items))
        assert run.result("total") == items * (items - 1) // 2
        assert set(self.marks()) - {"generator"} == {f"item {number}" for number in range(items)}

    def marks(self) -> list[str]:
        return (self.folder / "marks").read_text().splitlines()

    def said(self) -> str:
        return "\n".join(log.read_text() for log in self.logs)

    def ask(self, query: str) -> Any:
        row = self.database.transact(lambda c: c.execute(query.encode()).fetchone())
        assert row is not None
        return row[0]


@pytest.fixture
def supervisor(database: Database) -> Iterator[ProcessSupervisor]:  # noqa: F811  a fixture
    with temporary_folder() as folder, ExitStack() as left:
        yield ProcessSupervisor(database, folder, left)


def test_what_a_killed_worker_had_in_flight_is_done_within_the_bound_of_its_lease(
    supervisor: ProcessSupervisor,
) -> None:
    first, _ = supervisor.hire(), supervisor.hire()
    wait_until(lambda: all("stop with Ctrl-C" in it.read_text() for it in supervisor.logs), BOUND)
    run = supervisor.begin(300, seconds=0.02)
    supervisor.wait_at_work(run, 20)
    supervisor.kill_at_work(first, "worker-0")
    killed_at = monotonic()
    wait_until(lambda: supervisor.items_in_hand("worker-0") == 0, BOUND)
    assert monotonic() - killed_at < LEASE * (1 + 1 / SWEEPS_PER_LEASE) + SLACK
    supervisor.check(run, 300)
    left = "SELECT count(*) FROM tidegate.flow_task WHERE state NOT IN ('succeeded')"
    assert supervisor.ask(left) == 0
    assert supervisor.ask("SELECT sum(losses) FROM tidegate.flow_task WHERE position >= 0") > 0


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_may_be_killed_at_any_point(supervisor: ProcessSupervisor, point: str) -> None:
    run = supervisor.begin(100)
    mortal = supervisor.hire(crash_at=point)
    assert mortal.wait(BOUND) == -signal.SIGKILL, supervisor.said()
    began = monotonic()
    supervisor.hire()
    supervisor.check(run, 100)
    assert monotonic() - began < BOUND


def test_a_generator_that_is_run_again_spawns_nothing_twice(supervisor: ProcessSupervisor) -> None:
    run = supervisor.begin(100)
    assert supervisor.hire(crash_at="flow.spawn.after_commit:5").wait(BOUND) == -signal.SIGKILL
    assert supervisor.step(run).spawned == 50
    supervisor.hire()
    supervisor.check(run, 100)
    assert supervisor.marks().count("generator") == 2


def test_a_frozen_worker_finds_what_it_had_done_by_others_and_is_refused(
    supervisor: ProcessSupervisor,
) -> None:
    run = supervisor.begin(150, seconds=0.02)
    frozen = supervisor.hire()
    supervisor.wait_at_work(run, 10)
    frozen.send_signal(signal.SIGSTOP)
    supervisor.hire()
    supervisor.check(run, 150)
    frozen.send_signal(signal.SIGCONT)
    wait_until(lambda: "lost its lease" in supervisor.logs[0].read_text(), BOUND)
    other = supervisor.begin(20)
    wait_until(lambda: supervisor.state(other) is FlowState.COMPLETED, BOUND)
    assert supervisor.step(run).succeeded == 150


@pytest.mark.parametrize("dies_first", [True, False])
def test_a_run_is_cancelled_although_its_worker_is_killed_during_the_fan_out(
    supervisor: ProcessSupervisor, dies_first: bool
) -> None:
    run = supervisor.begin(5000, seconds=0.2)
    worker = supervisor.hire()
    supervisor.wait_at_work(run, 5)
    if dies_first:
        worker.kill()
        worker.wait()
    state = run.cancel("enough")
    assert state is FlowState.CANCELING
    worker.kill()
    supervisor.hire()
    wait_until(lambda: supervisor.state(run) is FlowState.CANCELED, BOUND)
    found = supervisor.step(run)
    assert (found.state, found.in_flight) == (StepState.CANCELED, 0)


def test_all_workers_are_restarted_one_after_the_other(supervisor: ProcessSupervisor) -> None:
    run = supervisor.begin(400, seconds=0.01)
    workers = [supervisor.hire(), supervisor.hire()]
    for worker in workers:
        done = supervisor.step(run).succeeded
        supervisor.wait_at_work(run, done + 20)
        supervisor.hire()
        worker.terminate()
        assert worker.wait(BOUND) == 0, supervisor.said()
    supervisor.check(run, 400)
    assert supervisor.ask("SELECT sum(losses) FROM tidegate.flow_task") == 0


@pytest.mark.parametrize("also_a_worker", [False, True])
def test_postgresql_is_killed_for_two_seconds_in_the_middle(
    supervisor: ProcessSupervisor,
    server: EmbeddedPostgres,  # noqa: F811  a fixture
    also_a_worker: bool,
) -> None:
    run = supervisor.begin(300, seconds=0.01)
    first = supervisor.hire()
    supervisor.wait_at_work(run, 20)
    supervisor.hire()
    if also_a_worker:
        first.kill()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until = monotonic() + 2.0
    while monotonic() < until:
        sleep(0.05)  # it is away for so long
    server.ensure_running()
    supervisor.check(run, 300)


def test_the_same_work_can_be_begun_from_many_processes_and_runs_once(
    supervisor: ProcessSupervisor, tmp_path: Path
) -> None:
    command = [
        sys.executable, "-m", "tidegate", "flow", "run", "tests.crash.flows:marked",
        "--deployment", str(tmp_path), "--database", supervisor.database.url, "--key", "march",
        "--input", f'{{"items": 5, "seconds": 0, "marks": "{supervisor.folder / "marks"}"}}',
    ]  # fmt: skip
    begun = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    said = {it.communicate(timeout=BOUND)[0] for it in begun}
    assert said == {b"run 1 of flow 'marked' is running\n"}
    supervisor.hire()
    supervisor.check(flow_run(supervisor.database, 1, marked), 5)


def test_runs_end_right_under_faults_at_random(
    supervisor: ProcessSupervisor,
    server: EmbeddedPostgres,  # noqa: F811  a fixture
) -> None:
    chance = random.Random(6)
    runs = [supervisor.begin(1500, seconds=0.004) for _ in range(2)]
    workers = [supervisor.hire(), supervisor.hire()]
    faults = ["kill", "freeze", "stop", "kill", "PostgreSQL", "kill"]
    for number, fault in enumerate(chance.sample(faults, len(faults))):
        supervisor.wait_at_work(runs[0], 150 * (number + 1))
        victim = workers.pop(0)
        if fault == "PostgreSQL":
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            server.ensure_running()
            workers.append(victim)
        elif fault == "freeze":
            victim.send_signal(signal.SIGSTOP)
            workers.append(supervisor.hire())
        else:
            victim.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
            workers.append(supervisor.hire())
    for run in runs:
        supervisor.check(run, 1500)
