"""Processes of a deployment as members of a group; here they are threads of one process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from os import getpid
from pathlib import Path
from threading import Event, Thread

import pytest
from typer.testing import CliRunner, Result

from tests.waiting import wait_until
from tidegate.cli import app
from tidegate.cli.processes.process_commands import refuse_taken_name
from tidegate.errors import ClusterIncomplete, NameTaken, NoSecret, UnknownMember
from tidegate.group import Coordinator, Message, new_secret
from tidegate.runtime.cluster import discovery
from tidegate.runtime.cluster.discovery import GroupAddress
from tidegate.runtime.cluster.local_cluster import (
    ClusterSpec,
    CoordinatorSupervisor,
    LocalCluster,
    Warnings,
)
from tidegate.runtime.cluster.membership_probe import refuse_used_name
from tidegate.runtime.cluster.peer import DRAIN, STATS, STOP, Departure, GroupPeer, Stats
from tidegate.runtime.cluster.process_supervisor import ProcessSpec, ProcessSupervisor
from tidegate.runtime.cluster.roles import run_until_stopped

Join = Callable[[str], GroupPeer]


@pytest.fixture
def place() -> Iterator[GroupAddress]:
    secret = new_secret()
    with Coordinator("tcp://127.0.0.1:0", secret=secret) as coordinator:
        yield GroupAddress(coordinator.address, secret)


@pytest.fixture
def join(place: GroupAddress) -> Iterator[Join]:
    joined: list[GroupPeer] = []

    def join(name: str) -> GroupPeer:
        joined.append(GroupPeer.join(name, place))
        return joined[-1]

    yield join
    for peer in joined:
        peer.group.close()


class RecordingRole:
    """Does nothing, and records that it has handed over."""

    def __init__(self, role: str = "test") -> None:
        self.role = role
        self.is_handed_over = False

    def check(self) -> None:
        pass

    def hand_over(self, bound: float) -> bool:
        self.is_handed_over = True
        return True

    def did(self) -> dict[str, int]:
        return {"steps": 3}

    @property
    def warning(self) -> str:
        return ""


def running(role: RecordingRole, peer: GroupPeer, stopped: Event) -> Thread:
    thread = Thread(target=run_until_stopped, args=(role, peer, stopped), daemon=True)
    thread.start()
    return thread


def test_a_leaving_process_waits_until_its_final_stats_are_handled(place: GroupAddress) -> None:
    received, may_go_on, stopped = Event(), Event(), Event()

    class SlowPeer(GroupPeer):
        def _record_stats(self, message: Message) -> None:
            received.set()
            assert may_go_on.wait(30)
            super()._record_stats(message)

    slow = SlowPeer.join("slow", place)
    leaving = GroupPeer.join("leaving", place)
    leaving.group.wait_for(["slow"])
    stopped.set()
    thread = running(RecordingRole(), leaving, stopped)

    assert received.wait(10)
    thread.join(1.0)
    assert thread.is_alive(), "no process leaves before the others have handled its messages"
    may_go_on.set()
    thread.join(20)
    assert not thread.is_alive()
    slow.group.close()


def test_all_members_join_a_fence_that_one_of_them_calls(join: Join) -> None:
    join("one")
    join("other")
    calling = join("calling")
    calling.group.wait_for(["one", "other"])

    assert calling.fence("now").is_satisfied


def test_a_drained_process_hands_over_and_leaves(join: Join) -> None:
    role, supervisor = RecordingRole(), join("supervisor")
    thread = running(role, join("worker"), Event())
    supervisor.group.wait_for(["worker"])
    supervisor.order("worker", DRAIN)

    final = Stats("worker", "test", {"steps": 3}, is_final=True)
    assert supervisor.wait_until_gone("worker", 20) == Departure(final)
    thread.join(10)
    assert role.is_handed_over


def test_stopped_processes_publish_final_stats(join: Join) -> None:
    supervisor = join("supervisor")
    threads = [running(RecordingRole(), join(name), Event()) for name in ("one", "other")]
    supervisor.group.wait_for(["one", "other"])
    supervisor.hint(STOP)

    assert supervisor.wait_for_final_stats({"one", "other"}, 20)
    assert {stats.name for stats in supervisor.stats.values() if stats.is_final} == {"one", "other"}
    for thread in threads:
        thread.join(10)


def test_a_lost_process_is_not_waited_for(join: Join) -> None:
    supervisor, dying = join("supervisor"), join("dying")
    supervisor.group.wait_for(["dying"])
    dying.group.close()

    assert supervisor.wait_for_final_stats({"dying"}, 20)


def test_a_lost_process_departs_without_final_stats(join: Join) -> None:
    supervisor, dying = join("supervisor"), join("dying")
    supervisor.group.wait_for(["dying"])
    dying.group.close()

    assert supervisor.wait_until_gone("dying", 20) == Departure(None)


def test_no_member_counts_as_gone_without_a_coordinator() -> None:
    secret = new_secret()
    with Coordinator("tcp://127.0.0.1:0", secret=secret) as coordinator:
        peer = GroupPeer.join("alone", GroupAddress(coordinator.address, secret))
    wait_until(lambda: not peer.group.is_connected)

    assert peer.wait_until_gone("other", 0.5) is None
    peer.group.close()


def test_without_a_coordinator_hints_are_lost_and_nothing_else(place: GroupAddress) -> None:
    secret = new_secret()
    with Coordinator("tcp://127.0.0.1:0", secret=secret) as coordinator:
        peer = GroupPeer.join("alone", GroupAddress(coordinator.address, secret))
    wait_until(lambda: not peer.group.is_connected)
    peer.hint(STATS)
    role, stopped = RecordingRole(), Event()
    stopped.set()
    thread = running(role, peer, stopped)
    thread.join(60)

    assert not thread.is_alive()
    assert role.is_handed_over


def test_an_order_to_an_unknown_member_is_an_error(join: Join) -> None:
    with pytest.raises(UnknownMember):
        join("supervisor").order("worker-9", DRAIN)


# --- names -----------------------------------------------------------------------------------


def invoked(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(it) for it in arguments])


def joining(name: str, place: GroupAddress, then: str) -> list[str]:
    """The command of a process that joins a group."""
    program = (
        "import os, signal, sys; from tidegate.runtime.cluster.peer import GroupPeer;"
        "from tidegate.runtime.cluster.discovery import GroupAddress;"
        f"peer = GroupPeer.join({name!r}, GroupAddress(sys.argv[1], sys.argv[2].encode())); {then}"
    )
    return [sys.executable, "-c", program, place.address, place.secret.decode()]


@pytest.mark.parametrize("command", ["worker", "monitor", "serve"])
def test_a_process_is_not_started_under_the_name_of_a_running_one(
    command: str, place: GroupAddress, join: Join, tmp_path: Path
) -> None:
    place.save(tmp_path)
    first = join("worker-1")
    done = invoked(command, "coffee", "--deployment", tmp_path, "--name", "worker-1")

    assert done.exit_code == 2
    assert f"worker-1 is already running (pid {getpid()} on " in done.stderr
    assert not first.is_replaced


def test_up_may_give_its_processes_their_names(
    place: GroupAddress, join: Join, tmp_path: Path
) -> None:
    place.save(tmp_path)
    join("worker-1")
    refuse_taken_name(tmp_path, None, "worker-1", with_parent=True)

    with pytest.raises(NameTaken):
        refuse_taken_name(tmp_path, None, "worker-1", with_parent=False)


def test_the_name_of_a_killed_process_is_free(place: GroupAddress, join: Join) -> None:
    supervisor = join("supervisor")
    asked = joining("worker-1", place, "os.kill(os.getpid(), signal.SIGSTOP)")
    with subprocess.Popen(asked) as process:
        supervisor.group.wait_for(["worker-1"], 30.0)
        with pytest.raises(NameTaken):
            refuse_used_name(place, "worker-1")
        process.kill()

    refuse_used_name(place, "worker-1")


def test_a_replaced_process_hands_over_and_ends(
    join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    role, old = RecordingRole(), join("worker-1")
    thread = running(role, old, Event())
    join("worker-1")
    thread.join(30)

    assert not thread.is_alive()
    assert role.is_handed_over
    assert "another process is worker-1 now" in caplog.text


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("worker-9", "there is no worker-9; workers are worker-1, worker-2"),
        ("up", "up is no worker, and only workers are drained; workers are worker-1, worker-2"),
        ("monitor-1", "monitor-1 is a monitor, and only workers are drained; workers are worker-1"),
    ],
)
def test_draining_another_than_a_worker_lists_the_workers(
    name: str, why: str, place: GroupAddress, join: Join, tmp_path: Path
) -> None:
    place.save(tmp_path)
    join("up")
    stopped = Event()
    threads = [
        running(RecordingRole(role), join(name), stopped)
        for role, name in (("worker", "worker-1"), ("worker", "worker-2"), ("monitor", "monitor-1"))
    ]
    done = invoked("drain", name, "--deployment", tmp_path)

    assert done.exit_code == 1
    assert why in done.stderr
    assert all(thread.is_alive() for thread in threads)
    stopped.set()
    for thread in threads:
        thread.join(30)


def test_a_worker_is_drained_by_its_name(place: GroupAddress, join: Join, tmp_path: Path) -> None:
    place.save(tmp_path)
    thread = running(RecordingRole("worker"), join("worker-1"), Event())
    done = invoked("drain", "worker-1", "--deployment", tmp_path)

    assert done.exit_code == 0, done.stderr
    assert "worker-1 has handed over and ended" in done.stderr
    thread.join(30)


# --- discovery -------------------------------------------------------------------------------


def test_the_folder_of_a_deployment_has_the_address_of_its_group(tmp_path: Path) -> None:
    place = GroupAddress("tcp://127.0.0.1:7001", new_secret())
    assert discovery.find(tmp_path) is None
    place.save(tmp_path)

    assert discovery.find(tmp_path) == place
    assert (tmp_path / discovery.FILE).stat().st_mode & 0o077 == 0
    discovery.remove(tmp_path, GroupAddress("tcp://127.0.0.1:7002", new_secret()))
    assert discovery.find(tmp_path) == place  # of another coordinator
    discovery.remove(tmp_path, place)
    assert discovery.find(tmp_path) is None


def test_an_address_needs_the_secret(tmp_path: Path) -> None:
    with pytest.raises(NoSecret):
        discovery.find(tmp_path, "tcp://10.0.0.1:7001", {})

    found = discovery.find(tmp_path, "tcp://10.0.0.1:7001", {discovery.SECRET: "x" * 32})
    assert found == GroupAddress("tcp://10.0.0.1:7001", b"x" * 32)


# --- starting --------------------------------------------------------------------------------


def test_a_process_that_does_not_start_is_named_with_its_last_output(
    join: Join, tmp_path: Path
) -> None:
    supervisor = ProcessSupervisor(tmp_path)
    here = "import os; os.read(0, 1)"
    absent = "print('no Spark here', flush=True); " + here
    supervisor.start(ProcessSpec(name, "test", [sys.executable, "-c", program])
               for name, program in (("worker-1", here), ("worker-2", absent)))  # fmt: skip
    try:
        join("worker-1")
        wait_until(lambda: "no Spark" in supervisor.processes["worker-2"].last_output())
        with pytest.raises(ClusterIncomplete) as raised:
            LocalCluster(supervisor, join("supervisor")).wait_until_ready(Event(), bound=1.0)
        assert raised.value.reason == "worker-2 did not start"
        assert "last output of worker-2: no Spark here" in raised.value.output
    finally:
        supervisor.close(10)


def test_a_process_that_fails_repeatedly_ends_the_start(join: Join, tmp_path: Path) -> None:
    supervisor = ProcessSupervisor(tmp_path)
    supervisor.start(
        [ProcessSpec("worker-1", "test", [sys.executable, "-c", "raise SystemExit('no')"])]
    )
    try:
        with pytest.raises(ClusterIncomplete):
            LocalCluster(supervisor, join("supervisor")).wait_until_ready(Event(), bound=300.0)
        assert supervisor.processes["worker-1"].failures > 1
    finally:
        supervisor.close(10)


def test_a_process_with_wrong_arguments_ends_the_start_at_once(join: Join, tmp_path: Path) -> None:
    supervisor = ProcessSupervisor(tmp_path)
    refused = "import sys; print('there is no stage nope', flush=True); sys.exit(2)"
    programs = {"slow": "import os; os.read(0, 1)", "worker-1": refused}
    supervisor.start(
        ProcessSpec(it, "test", [sys.executable, "-c", programs[it]]) for it in programs
    )
    try:
        with pytest.raises(ClusterIncomplete) as raised:
            LocalCluster(supervisor, join("supervisor")).wait_until_ready(Event(), bound=300.0)
        assert raised.value.reason == "worker-1 did not start"
        assert raised.value.output == "last output of worker-1: there is no stage nope"
        assert supervisor.processes["worker-1"].failures == 1
    finally:
        supervisor.close(10)


def test_failures_and_recoveries_are_reported(
    place: GroupAddress, join: Join, tmp_path: Path
) -> None:
    reported: list[str] = []
    supervisor, peer = ProcessSupervisor(tmp_path), join("supervisor")
    supervisor.start([ProcessSpec("worker-1", "test", joining("worker-1", place, "os.read(0, 1)"))])
    cluster = LocalCluster(supervisor, peer, report=reported.append)
    try:
        cluster.wait_until_ready(Event(), bound=60.0)
        process = supervisor.processes["worker-1"]
        killed = process.pid
        process.kill()

        def is_back() -> bool:
            cluster.supervise()
            return "worker-1 is running again" in reported

        wait_until(is_back, 60.0)
        failed = f"worker-1 (pid {killed}) failed with signal 9; restarting in 0.5 s"
        assert reported == [failed, "worker-1 is running again"]
    finally:
        supervisor.close(10)


def test_lists_of_stages_are_assigned_to_the_workers_in_turn() -> None:
    spec = ClusterSpec("shop", Path("here"), 3, 0, stages=["s1,s2", "s3"])

    assert [it.command[-2:] for it in spec.process_specs()] == [
        ["--stages", "s1,s2"],
        ["--stages", "s3"],
        ["--stages", "s1,s2"],
    ]


def test_a_warning_is_reported_once_and_only_if_it_persists() -> None:
    reported: list[str] = []
    warnings = Warnings(reported.append)
    for now, present in enumerate(["a b", "a", "a", "a", "a", "a", "a b", "", "a"]):
        warnings.update({*present.split()}, float(now))

    assert reported == ["a"]


def test_a_broken_coordinator_is_restarted() -> None:
    secret = new_secret()
    with CoordinatorSupervisor("tcp://127.0.0.1:0", secret) as coordinator_supervisor:
        first = coordinator_supervisor.coordinator
        peer = GroupPeer.join("worker-1", GroupAddress(first.address, secret))
        first._failure = KeyError(3)  # noqa: SLF001  nothing else breaks it
        first.close()
        coordinator_supervisor.supervise()

        assert coordinator_supervisor.coordinator is not first
        assert coordinator_supervisor.coordinator.address == first.address
        other = GroupPeer.join("worker-2", GroupAddress(first.address, secret))
        other.group.wait_for(["worker-1"], 30.0)
        for each in (peer, other):
            each.group.close()
