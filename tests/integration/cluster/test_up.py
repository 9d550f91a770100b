"""`tidegate up`: a server, monitors and workers as real processes that die, freeze and leave.

One deployment serves all tests of this file; each leaves it complete.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.waiting import wait_until
from tidegate.group import Member
from tidegate.http import HttpClient, HttpRunClient, http_run_client
from tidegate.runtime.cluster.peer import GroupPeer
from tidegate.runtime.ingestion.folder_run import ProgressListener, RunOptions, chunks_of, send
from tidegate.store import Database, open_database
from tidegate.testing import ChaosCluster

PIPELINE = "tests.integration.http.declared:pipeline"
BOUND = 180.0
"""Seconds for anything that has to happen; far more than it takes."""

pytestmark = pytest.mark.timeout(600)


@dataclass
class AtWork:
    """A cluster, this process as a member of its group, and its database."""

    cluster: ChaosCluster
    peer: GroupPeer
    database: Database
    server: HttpRunClient

    def member(self, name: str) -> Member | None:
        return next((it for it in self.peer.members if it.name == name), None)

    def pid(self, name: str) -> int:
        member = self.member(name)
        assert member is not None
        return member.pid

    def holders(self) -> dict[str, int]:
        """How many tasks each owner id of a worker has."""
        rows = self._ask(
            "SELECT owner FROM tidegate.lease WHERE kind = 'task' AND owner IS NOT NULL"
            " AND expires_at > clock_timestamp()"
        )
        owners = [str(owner) for (owner,) in rows]
        return {owner: owners.count(owner) for owner in owners}

    def leader(self) -> tuple[int, int]:
        """The process that leads the monitors, and the epoch of its lease."""
        rows = self._ask("SELECT owner, epoch FROM tidegate.lease WHERE kind = 'monitor'")
        ((owner, epoch),) = rows
        return int(str(owner).partition("-")[0]), int(str(epoch))

    def reported(self) -> str:
        """The output of `up`."""
        return (self.cluster.folder / "up.log").read_text()

    def is_even(self) -> bool:
        counts = list(self.holders().values())
        return len(counts) == 2 and abs(counts[0] - counts[1]) <= 1

    def is_complete(self) -> bool:
        names = {member.name for member in self.peer.members}
        return {"server", "monitor-1", "monitor-2", "worker-1", "worker-2"} <= names

    def _ask(self, sql: str) -> list[tuple[object, ...]]:
        return self.database.transact(lambda c: c.execute(sql).fetchall())


@pytest.fixture(scope="module")
def at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AtWork]:
    cluster = ChaosCluster(PIPELINE, tmp_path_factory.mktemp("cluster"))
    with (
        cluster.up() as peer,
        open_database(None, cluster.deployment) as database,
    ):
        server = http_run_client(
            HttpClient(f"http://{cluster.url}", None, BOUND), lambda served: served
        )
        yield AtWork(cluster, peer, database, server)
        peer.leave()


def written(folder: Path, items: int, chunks: int = 4) -> Path:
    """Data of a shop whose item 1 sells best: 5 in one chunk and 5 in another beat 6 in one."""
    for source in ("sales", "items"):
        (folder / source).mkdir(parents=True)
    names = [f"{item},item {item}" for item in range(1, items + 1)]
    (folder / "items" / "1.csv").write_text("\n".join(["item_id,item_name", *names]) + "\n")
    for chunk in range(1, chunks + 1):
        sold = ["1,5", f"{chunk + 1},6", f"{items},{200 + chunk}" if chunk == 1 else "1,1"]
        (folder / "sales" / f"{chunk}.csv").write_text(
            "\n".join(["item_id,quantity", *sold]) + "\n"
        )
    return folder


def sent(at_work: AtWork, name: str, folder: Path) -> None:
    """Everything of a run, its ENDs included."""
    data = written(folder / name, items=50)
    send(
        at_work.server,
        chunks_of(data, at_work.server.served.sources),
        RunOptions(name),
        ProgressListener(),
    )


def result(at_work: AtWork, name: str, folder: Path) -> str:
    at_work.server.wait(name, BOUND)
    at_work.server.write(name, "best", folder / f"{name}.csv")
    return (folder / f"{name}.csv").read_text()


def test_a_run_goes_through_all_of_them(at_work: AtWork, tmp_path: Path) -> None:
    wait_until(at_work.is_even, BOUND)
    sent(at_work, "first", tmp_path)

    assert result(at_work, "first", tmp_path).splitlines()[1:] == ["item 50,201000"]
    assert {owner.rpartition("-")[0] for owner in at_work.holders()} == {"worker-1", "worker-2"}


def test_a_killed_worker_loses_its_tasks_and_is_restarted(at_work: AtWork, tmp_path: Path) -> None:
    wait_until(at_work.is_even, BOUND)
    killed = at_work.pid("worker-1")
    sent(at_work, "killed", tmp_path)
    os.kill(killed, signal.SIGKILL)

    assert result(at_work, "killed", tmp_path).splitlines()[1:] == ["item 50,201000"]
    wait_until(lambda: at_work.is_complete() and at_work.pid("worker-1") != killed, BOUND)
    wait_until(at_work.is_even, BOUND)
    wait_until(lambda: "worker-1 is running again" in at_work.reported(), BOUND)
    assert f"worker-1 (pid {killed}) failed with signal 9; restarting in" in at_work.reported()


@pytest.mark.parametrize("name", ["worker-1", "server"])
def test_a_process_whose_java_is_killed_is_restarted_and_works(
    name: str, at_work: AtWork, tmp_path: Path
) -> None:
    wait_until(at_work.is_complete, BOUND)
    wait_until(at_work.is_even, BOUND)
    killed = at_work.pid(name)
    (java,) = [it for it in psutil.Process(killed).children() if it.name() == "java"]
    java.kill()

    gone = f"{name} (pid {killed}) failed with exit code 1 (Spark has ended in this process:"
    wait_until(lambda: gone in at_work.reported(), BOUND)
    sent(at_work, f"java-of-{name}", tmp_path)
    assert result(at_work, f"java-of-{name}", tmp_path).splitlines()[1:] == ["item 50,201000"]
    wait_until(lambda: at_work.is_complete() and at_work.pid(name) != killed, BOUND)
    wait_until(at_work.is_even, BOUND)


def test_a_suspended_worker_loses_its_tasks_and_gets_tasks_again_when_it_continues(
    at_work: AtWork, tmp_path: Path
) -> None:
    wait_until(at_work.is_even, BOUND)
    frozen = at_work.pid("worker-2")
    os.kill(frozen, signal.SIGSTOP)
    try:
        sent(at_work, "frozen", tmp_path)
        wait_until(lambda: len(at_work.holders()) == 1, BOUND)
        assert result(at_work, "frozen", tmp_path).splitlines()[1:] == ["item 50,201000"]
        wait_until(lambda: at_work.member("worker-2") is None, BOUND)
    finally:
        os.kill(frozen, signal.SIGCONT)
    wait_until(at_work.is_even, BOUND)
    wait_until(lambda: at_work.member("worker-2") is not None, BOUND)  # it joins by itself
    assert at_work.pid("worker-2") == frozen


def test_another_monitor_goes_on_when_the_one_that_leads_is_killed(
    at_work: AtWork, tmp_path: Path
) -> None:
    leader, epoch = at_work.leader()
    sent(at_work, "led", tmp_path)
    os.kill(leader, signal.SIGKILL)

    assert result(at_work, "led", tmp_path).splitlines()[1:] == ["item 50,201000"]
    other, later = at_work.leader()
    assert other != leader
    assert later > epoch
    wait_until(at_work.is_complete, BOUND)


def test_a_worker_that_is_drained_hands_over_and_the_runs_go_on(
    at_work: AtWork, tmp_path: Path
) -> None:
    wait_until(at_work.is_even, BOUND)
    sent(at_work, "drained", tmp_path)
    asked = [sys.executable, "-m", "tidegate", "drain", "worker-1"]
    asked += ["--deployment", str(at_work.cluster.deployment)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=BOUND, check=False)

    assert done.returncode == 0, done.stderr
    assert "worker-1 has handed over and ended" in done.stderr
    assert result(at_work, "drained", tmp_path).splitlines()[1:] == ["item 50,201000"]
    wait_until(lambda: len(at_work.holders()) == 1, BOUND)
    assert at_work.member("worker-1") is None  # it left on purpose, so it stays away


def test_an_unknown_name_cannot_be_drained(at_work: AtWork) -> None:
    asked = [sys.executable, "-m", "tidegate", "drain", "worker-9"]
    asked += ["--deployment", str(at_work.cluster.deployment)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=BOUND, check=False)

    assert done.returncode == 1
    assert "there is no worker-9; workers are worker-" in done.stderr


def test_what_they_write_is_for_their_user_only(at_work: AtWork) -> None:
    deployment = at_work.cluster.deployment
    folders = [deployment, *(deployment / name for name in ("logs", "data", "data/uploads"))]

    assert {stat.S_IMODE(it.stat().st_mode) for it in folders} == {0o700}
    logs = list((deployment / "logs").iterdir())
    assert {stat.S_IMODE(it.stat().st_mode) for it in logs} == {0o600}


def test_the_logs_of_all_processes_have_timestamps(at_work: AtWork) -> None:
    logs = at_work.cluster.deployment / "logs"
    time = r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO tidegate\.cli\.processes\.logs: "

    assert re.search(rf"{time}all processes are running", (logs / "up.log").read_text())
    for name in ("worker-2", "monitor-1", "server"):
        assert re.search(rf"{time}running as {name}", (logs / f"{name}.log").read_text())


def test_at_the_end_each_says_what_it_did(at_work: AtWork) -> None:
    up = at_work.pid("up")
    os.kill(up, signal.SIGINT)
    wait_until(lambda: "worker-2 (worker):" in at_work.reported(), BOUND)

    reported = at_work.reported()
    assert "all processes are running" in reported
    assert re.search(r"worker-2 \(worker\): [\d,]+ tasks at the end, [\d,]+ jobs", reported)
    assert re.search(r"server \(server\): \d+ runs begun, \d+ chunks taken", reported)
