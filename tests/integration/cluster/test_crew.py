"""Processes that are started, die, and are started again."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.waiting import wait_until
from tidegate.runtime.cluster.log_rotation import Rotation
from tidegate.runtime.cluster.process_supervisor import ProcessSpec, ProcessSupervisor

WAITS = "import os; os.read(0, 1)"
"""Until whoever started it is gone."""


def spec(name: str, program: str) -> ProcessSpec:
    return ProcessSpec(name, "test", [sys.executable, "-c", program])


def crewed(folder: Path, *process_specs: ProcessSpec) -> ProcessSupervisor:
    supervisor = ProcessSupervisor(folder)
    supervisor.start(process_specs)
    return supervisor


def test_one_that_dies_is_started_again(tmp_path: Path) -> None:
    supervisor = crewed(tmp_path, spec("one", WAITS))
    try:
        process = supervisor.processes["one"]
        first = process.pid
        process.kill()
        wait_until(lambda: not process.is_alive)

        def is_back() -> bool:
            supervisor.look()
            return process.is_alive and process.pid != first

        wait_until(is_back)
        assert process.failures == 1
    finally:
        supervisor.close(10)


def test_one_that_ends_by_itself_stays_away(tmp_path: Path) -> None:
    supervisor = crewed(tmp_path, spec("one", "pass"), spec("other", WAITS))
    try:
        wait_until(lambda: supervisor.processes["one"].is_gone)
        supervisor.look()
        assert not supervisor.processes["one"].is_alive
        assert not supervisor.is_gone
    finally:
        supervisor.close(10)


def test_what_it_said_last_is_known(tmp_path: Path) -> None:
    supervisor = crewed(tmp_path, spec("one", "raise SystemExit('no such pipeline')"))
    wait_until(lambda: not supervisor.processes["one"].is_alive)

    assert supervisor.processes["one"].last_output() == "no such pipeline"
    assert supervisor.close(10) == []


def test_what_earlier_lives_said_is_not_taken_for_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text("words of another day\n")
    supervisor = crewed(tmp_path, spec("one", "print('here', flush=True); " + WAITS))
    process = supervisor.processes["one"]
    wait_until(lambda: process.last_output() == "here")
    process.kill()
    process.wait(10)
    process.spec = spec("one", WAITS)
    process.start()

    assert process.last_output() == "nothing"
    begun = re.findall(r"=== \d{4}-\d\d-\d\d \d\d:\d\d:\d\d one begins\n", process.log.read_text())
    assert len(begun) == 2
    supervisor.close(10)


def test_who_has_died_or_gone_is_said_once(tmp_path: Path) -> None:
    supervisor = crewed(tmp_path, spec("one", WAITS), spec("other", "pass"))
    one, other = supervisor.processes["one"], supervisor.processes["other"]
    pids = one.pid, other.pid
    one.kill()
    wait_until(lambda: not (one.is_alive or other.is_alive))

    assert supervisor.look() == {
        "one": f"one (pid {pids[0]}) has died with signal 9; started again in 0.5 s",
        "other": f"other (pid {pids[1]}) has ended in good order and stays away",
    }
    assert supervisor.look() == {}
    supervisor.close(10)


def test_one_that_does_not_listen_is_killed_in_the_end(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(1, flush=True); time.sleep(60)"
    )
    supervisor = crewed(tmp_path, spec("deaf", deaf))
    wait_until(lambda: "1" in supervisor.processes["deaf"].last_output())

    assert supervisor.close(0.2) == ["deaf"]
    assert not supervisor.processes["deaf"].is_alive


def test_they_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    child = [sys.executable, "-c", f"{WAITS}; print('over')"]
    program = f"""
import os, signal
from pathlib import Path
from tidegate.runtime.cluster.process_supervisor import Crew, Post
from tidegate.runtime.cluster.log_rotation import Rotation
crew = Crew(Path({str(tmp_path)!r}))
crew.start([Post("child", "test", {child!r})])
os.kill(os.getpid(), signal.SIGKILL)
"""
    parent = crewed(tmp_path, spec("parent", program))
    wait_until((tmp_path / "child.log").exists)
    wait_until(lambda: "over" in (tmp_path / "child.log").read_text())
    parent.close(10)


def test_the_log_of_a_process_that_says_much_is_put_aside(tmp_path: Path) -> None:
    supervisor = ProcessSupervisor(tmp_path, Rotation(bytes=10_000, files=2))
    supervisor.start([spec("one", f"print('x' * 20_000, flush=True); {WAITS}; print('last')")])
    try:
        process = supervisor.processes["one"]
        wait_until(lambda: process.log.stat().st_size > 10_000)
        supervisor.look()
        assert process.log.stat().st_size == 0
        assert (tmp_path / "one.log.1").stat().st_size > 10_000
    finally:
        supervisor.close(10)


def test_the_error_of_one_that_dies_is_told_and_not_what_java_said_last(tmp_path: Path) -> None:
    program = (
        "import sys; print('error: the database is gone', file=sys.stderr);"
        "print('26/11/18 00:00:01 WARN ShutdownHookManager: no such folder', file=sys.stderr);"
        "raise SystemExit(1)"
    )
    supervisor = crewed(tmp_path, spec("one", program))
    one = supervisor.processes["one"]
    pid = one.pid
    wait_until(lambda: not one.is_alive)

    assert one.last_output() == "the database is gone"
    assert supervisor.look()["one"] == (
        f"one (pid {pid}) has died with exit code 1 (the database is gone); started again in 0.5 s"
    )
    supervisor.close(10)
