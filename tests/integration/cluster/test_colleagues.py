"""Processes of a deployment that talk to each other: here they are threads of one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from os import getpid
from pathlib import Path
from threading import Event, Thread
from typing import cast

import pytest
from typer.testing import CliRunner, Result

from tests.waiting import wait_until
from tidegate.cli import app
from tidegate.cli.process_commands import join_as_peer, refuse_taken_name
from tidegate.errors import ClusterIncomplete, NameTaken, NoSecret, UnknownMember
from tidegate.group import Coordinator, new_secret
from tidegate.runtime.cluster import discovery
from tidegate.runtime.cluster.discovery import GroupAddress
from tidegate.runtime.cluster.local_cluster import (
    ClusterSpec,
    CoordinatorSupervisor,
    LocalCluster,
    Warnings,
)
from tidegate.runtime.cluster.membership_probe import refuse_used_name
from tidegate.runtime.cluster.peer import DRAIN, STOP, Departure, GroupPeer, Stats
from tidegate.runtime.cluster.process_supervisor import ProcessSpec, ProcessSupervisor
from tidegate.runtime.cluster.roles import run_until_stopped
from tidegate.store import Notifications

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


class Duty:
    """Does nothing, and remembers what it was told."""

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


def standing(duty: Duty, peer: GroupPeer, stopped: Event) -> Thread:
    thread = Thread(target=run_until_stopped, args=(duty, peer, stopped), daemon=True)
    thread.start()
    return thread


def test_news_reach_the_others(place: GroupAddress, join: Join) -> None:
    heard = Event()
    listening = GroupPeer.join("listening", place, on_news=heard.set)
    join("telling").tell_news()

    assert heard.wait(10)
    listening.group.close()


def test_news_of_colleagues_wake_whoever_waits_in_a_process_of_the_deployment(
    place: GroupAddress, join: Join, tmp_path: Path
) -> None:
    place.save(tmp_path)
    woken = Event()

    class Sleepers:
        def wake_everybody(self) -> None:
            woken.set()

    with join_as_peer(tmp_path, None, "worker-1", cast("Notifications", Sleepers())):
        join("telling").tell_news()
        assert woken.wait(10)


def test_one_that_goes_waits_until_everybody_is_through_with_the_news(
    place: GroupAddress,
) -> None:
    hears, goes_on, stopped = Event(), Event(), Event()

    def slowly() -> None:
        hears.set()
        assert goes_on.wait(30)

    busy = GroupPeer.join("busy", place, on_news=slowly)
    going = GroupPeer.join("going", place)
    going.group.wait_for(["busy"])
    stopped.set()
    thread = standing(Duty(), going, stopped)

    assert hears.wait(10)
    thread.join(1.0)
    assert thread.is_alive(), "nobody may go before the others have dealt with what it said"
    goes_on.set()
    thread.join(20)
    assert not thread.is_alive()
    busy.group.close()


def test_a_fence_brings_everybody_together_although_one_alone_called_it(join: Join) -> None:
    join("one")
    join("other")
    calling = join("calling")
    calling.group.wait_for(["one", "other"])

    assert calling.fence("now").is_satisfied


def test_one_that_is_told_to_drain_hands_over_and_goes(join: Join) -> None:
    duty, chief = Duty(), join("chief")
    thread = standing(duty, join("worker"), Event())
    chief.group.wait_for(["worker"])
    chief.order("worker", DRAIN)

    final = Stats("worker", "test", {"steps": 3}, is_final=True)
    assert chief.wait_until_gone("worker", 20) == Departure(final)
    thread.join(10)
    assert duty.is_handed_over


def test_all_that_are_told_to_stop_say_what_they_did(join: Join) -> None:
    chief = join("chief")
    threads = [standing(Duty(), join(name), Event()) for name in ("one", "other")]
    chief.group.wait_for(["one", "other"])
    chief.hint(STOP)

    assert chief.wait_for_final_stats({"one", "other"}, 20)
    assert {stats.name for stats in chief.stats.values() if stats.is_final} == {"one", "other"}
    for thread in threads:
        thread.join(10)


def test_one_that_dies_without_a_word_is_not_waited_for(join: Join) -> None:
    chief, dying = join("chief"), join("dying")
    chief.group.wait_for(["dying"])
    dying.group.close()

    assert chief.wait_for_final_stats({"dying"}, 20)


def test_one_that_is_lost_is_gone_without_a_last_word(join: Join) -> None:
    chief, dying = join("chief"), join("dying")
    chief.group.wait_for(["dying"])
    dying.group.close()

    assert chief.wait_until_gone("dying", 20) == Departure(None)


def test_nobody_is_gone_while_there_is_no_coordinator_to_tell() -> None:
    secret = new_secret()
    with Coordinator("tcp://127.0.0.1:0", secret=secret) as coordinator:
        peer = GroupPeer.join("left alone", GroupAddress(coordinator.address, secret))
    wait_until(lambda: not peer.group.is_connected)

    assert peer.wait_until_gone("somebody", 0.5) is None
    peer.group.close()


def test_without_a_coordinator_hints_are_lost_and_nothing_else(place: GroupAddress) -> None:
    secret = new_secret()
    with Coordinator("tcp://127.0.0.1:0", secret=secret) as coordinator:
        peer = GroupPeer.join("left alone", GroupAddress(coordinator.address, secret))
    wait_until(lambda: not peer.group.is_connected)
    peer.tell_news()
    duty, stopped = Duty(), Event()
    stopped.set()
    thread = standing(duty, peer, stopped)
    thread.join(60)

    assert not thread.is_alive()
    assert duty.is_handed_over


def test_an_order_to_somebody_who_is_not_here_is_an_error(join: Join) -> None:
    with pytest.raises(UnknownMember):
        join("chief").order("worker-9", DRAIN)


# --- names -----------------------------------------------------------------------------------


def invoked(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(it) for it in arguments])


def joining(name: str, place: GroupAddress, then: str) -> list[str]:
    """The command of a process that joins a group."""
    program = (
        "import os, signal, sys; from tidegate.runtime.cluster.peer import Colleague;"
        "from tidegate.runtime.cluster.discovery import MeetingPlace;"
        f"it = Colleague.join({name!r}, MeetingPlace(sys.argv[1], sys.argv[2].encode())); {then}"
    )
    return [sys.executable, "-c", program, place.address, place.secret.decode()]


@pytest.mark.parametrize("command", ["worker", "monitor", "serve"])
def test_nobody_is_started_under_the_name_of_somebody_who_lives(
    command: str, place: GroupAddress, join: Join, tmp_path: Path
) -> None:
    place.save(tmp_path)
    first = join("worker-1")
    done = invoked(command, "coffee", "--deployment", tmp_path, "--name", "worker-1")

    assert done.exit_code == 2
    assert f"worker-1 is here already (pid {getpid()} on " in done.stderr
    assert not first.is_replaced


def test_up_may_give_its_processes_their_names(
    place: GroupAddress, join: Join, tmp_path: Path
) -> None:
    place.save(tmp_path)
    join("worker-1")
    refuse_taken_name(tmp_path, None, "worker-1", with_parent=True)

    with pytest.raises(NameTaken):
        refuse_taken_name(tmp_path, None, "worker-1", with_parent=False)


def test_the_name_of_somebody_who_has_died_is_free(place: GroupAddress, join: Join) -> None:
    chief = join("chief")
    asked = joining("worker-1", place, "os.kill(os.getpid(), signal.SIGSTOP)")
    with subprocess.Popen(asked) as process:
        chief.group.wait_for(["worker-1"], 30.0)
        with pytest.raises(NameTaken):
            refuse_used_name(place, "worker-1")
        process.kill()

    refuse_used_name(place, "worker-1")


def test_one_whose_name_another_process_has_taken_hands_over_and_ends(
    join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    duty, old = Duty(), join("worker-1")
    thread = standing(duty, old, Event())
    join("worker-1")
    thread.join(30)

    assert not thread.is_alive()
    assert duty.is_handed_over
    assert "another process is worker-1 now" in caplog.text


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("worker-9", "there is no worker-9; workers are worker-1, worker-2"),
        ("up", "up is no worker, and only workers are drained; workers are worker-1, worker-2"),
        ("monitor-1", "monitor-1 is a monitor, and only workers are drained; workers are worker-1"),
    ],
)
def test_who_can_be_drained_is_said_to_whoever_names_somebody_else(
    name: str, why: str, place: GroupAddress, join: Join, tmp_path: Path
) -> None:
    place.save(tmp_path)
    join("up")
    stopped = Event()
    threads = [
        standing(Duty(role), join(name), stopped)
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
    thread = standing(Duty("worker"), join("worker-1"), Event())
    done = invoked("drain", "worker-1", "--deployment", tmp_path)

    assert done.exit_code == 0, done.stderr
    assert "worker-1 has handed over and gone" in done.stderr
    thread.join(30)


# --- where they meet -------------------------------------------------------------------------


def test_the_folder_of_a_deployment_tells_where_its_processes_meet(tmp_path: Path) -> None:
    place = GroupAddress("tcp://127.0.0.1:7001", new_secret())
    assert discovery.find(tmp_path) is None
    place.save(tmp_path)

    assert discovery.find(tmp_path) == place
    assert (tmp_path / discovery.FILE).stat().st_mode & 0o077 == 0
    discovery.forget(tmp_path, GroupAddress("tcp://127.0.0.1:7002", new_secret()))
    assert discovery.find(tmp_path) == place  # somebody else's
    discovery.forget(tmp_path, place)
    assert discovery.find(tmp_path) is None


def test_whoever_gives_an_address_has_to_give_the_secret(tmp_path: Path) -> None:
    with pytest.raises(NoSecret):
        discovery.find(tmp_path, "tcp://10.0.0.1:7001", {})

    found = discovery.find(tmp_path, "tcp://10.0.0.1:7001", {discovery.SECRET: "x" * 32})
    assert found == GroupAddress("tcp://10.0.0.1:7001", b"x" * 32)


# --- the beginning ---------------------------------------------------------------------------


def test_whoever_does_not_come_is_named_with_what_it_said_last(join: Join, tmp_path: Path) -> None:
    supervisor = ProcessSupervisor(tmp_path)
    here = "import os; os.read(0, 1)"
    absent = "print('no Spark here', flush=True); " + here
    supervisor.start(ProcessSpec(name, "test", [sys.executable, "-c", program])
               for name, program in (("worker-1", here), ("worker-2", absent)))  # fmt: skip
    try:
        join("worker-1")
        wait_until(lambda: "no Spark" in supervisor.processes["worker-2"].last_output())
        with pytest.raises(ClusterIncomplete) as raised:
            LocalCluster(supervisor, join("chief")).gather(Event(), bound=1.0)
        assert raised.value.reason == "worker-2 did not come"
        assert "worker-2 said last: no Spark here" in raised.value.said
    finally:
        supervisor.close(10)


def test_one_that_dies_again_and_again_before_it_is_at_work_is_not_waited_for(
    join: Join, tmp_path: Path
) -> None:
    supervisor = ProcessSupervisor(tmp_path)
    supervisor.start(
        [ProcessSpec("worker-1", "test", [sys.executable, "-c", "raise SystemExit('no')"])]
    )
    try:
        with pytest.raises(ClusterIncomplete):
            LocalCluster(supervisor, join("chief")).gather(Event(), bound=300.0)
        assert supervisor.processes["worker-1"].failures > 1
    finally:
        supervisor.close(10)


def test_one_that_was_asked_for_what_makes_no_sense_ends_the_waiting_at_once(
    join: Join, tmp_path: Path
) -> None:
    supervisor = ProcessSupervisor(tmp_path)
    refused = "import sys; print('there is no stage nope', flush=True); sys.exit(2)"
    programs = {"slow": "import os; os.read(0, 1)", "worker-1": refused}
    supervisor.start(
        ProcessSpec(it, "test", [sys.executable, "-c", programs[it]]) for it in programs
    )
    try:
        with pytest.raises(ClusterIncomplete) as raised:
            LocalCluster(supervisor, join("chief")).gather(Event(), bound=300.0)
        assert raised.value.reason == "worker-1 did not come"
        assert raised.value.said == "worker-1 said last: there is no stage nope"
        assert supervisor.processes["worker-1"].failures == 1
    finally:
        supervisor.close(10)


def test_whoever_looks_after_a_deployment_hears_of_deaths_and_of_those_who_are_back(
    place: GroupAddress, join: Join, tmp_path: Path
) -> None:
    said: list[str] = []
    supervisor, chief = ProcessSupervisor(tmp_path), join("chief")
    supervisor.start([ProcessSpec("worker-1", "test", joining("worker-1", place, "os.read(0, 1)"))])
    company = LocalCluster(supervisor, chief, say=said.append)
    try:
        company.gather(Event(), bound=60.0)
        process = supervisor.processes["worker-1"]
        killed = process.pid
        process.kill()

        def is_back() -> bool:
            company.look()
            return "worker-1 is back" in said

        wait_until(is_back, 60.0)
        died = f"worker-1 (pid {killed}) has died with signal 9; started again in 0.5 s"
        assert said == [died, "worker-1 is back"]
    finally:
        supervisor.close(10)


def test_lists_of_stages_are_dealt_out_to_the_workers() -> None:
    wanted = ClusterSpec("shop", Path("here"), 3, 0, stages=["s1,s2", "s3"])

    assert [spec.command[-2:] for spec in wanted.process_specs()] == [
        ["--stages", "s1,s2"],
        ["--stages", "s3"],
        ["--stages", "s1,s2"],
    ]


def test_a_warning_is_said_once_and_only_if_it_stays() -> None:
    said: list[str] = []
    warnings = Warnings(said.append)
    for now, amiss in enumerate(["a b", "a", "a", "a", "a", "a", "a b", "", "a"]):
        warnings.note({*amiss.split()}, float(now))

    assert said == ["a"]


def test_a_coordinator_that_a_fault_of_its_own_has_ended_is_begun_again() -> None:
    secret = new_secret()
    with CoordinatorSupervisor("tcp://127.0.0.1:0", secret) as coordinator_supervisor:
        first = coordinator_supervisor.coordinator
        peer = GroupPeer.join("worker-1", GroupAddress(first.address, secret))
        first._fault = KeyError(3)  # noqa: SLF001  nothing else breaks it
        first.close()
        coordinator_supervisor.look()

        assert coordinator_supervisor.coordinator is not first
        assert coordinator_supervisor.coordinator.address == first.address
        other = GroupPeer.join("worker-2", GroupAddress(first.address, secret))
        other.group.wait_for(["worker-1"], 30.0)
        for each in (peer, other):
            each.group.close()
