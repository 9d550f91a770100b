"""Processes that are started, fail, and are restarted."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.waiting import wait_until
from tidegate.runtime.cluster.log_rotation import Rotation
from tidegate.runtime.cluster.process_supervisor import ProcessSpec, ProcessSupervisor

WAITS = "import os; os.read(0, 1)"
"""Until the process that started it has ended."""


def spec(name: str, program: str) -> ProcessSpec:
    return ProcessSpec(name, "test", [sys.executable, "-c", program])


def supervised(folder: Path, *specs: ProcessSpec) -> ProcessSupervisor:
    supervisor = ProcessSupervisor(folder)
    supervisor.start(specs)
    return supervisor


def test_a_failed_process_is_restarted(tmp_path: Path) -> None:
    supervisor = supervised(tmp_path, spec("one", WAITS))
    try:
        process = supervisor.processes["one"]
        first = process.pid
        process.kill()
        wait_until(lambda: not process.is_alive)

        def is_back() -> bool:
            supervisor.supervise()
            return process.is_alive and process.pid != first

        wait_until(is_back)
        assert process.failures == 1
    finally:
        supervisor.close(10)


def test_a_process_that_exits_is_not_restarted(tmp_path: Path) -> None:
    supervisor = supervised(tmp_path, spec("one", "pass"), spec("other", WAITS))
    try:
        wait_until(lambda: supervisor.processes["one"].is_gone)
        supervisor.supervise()
        assert not supervisor.processes["one"].is_alive
        assert not supervisor.is_gone
    finally:
        supervisor.close(10)


def test_the_last_output_is_known(tmp_path: Path) -> None:
    supervisor = supervised(tmp_path, spec("one", "raise SystemExit('no such pipeline')"))
    wait_until(lambda: not supervisor.processes["one"].is_alive)

    assert supervisor.processes["one"].last_output() == "no such pipeline"
    assert supervisor.close(10) == []


def test_output_before_the_last_start_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text("output of another day\n")
    supervisor = supervised(tmp_path, spec("one", "print('here', flush=True); " + WAITS))
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


def test_failures_and_exits_are_reported_once(tmp_path: Path) -> None:
    supervisor = supervised(tmp_path, spec("one", WAITS), spec("other", "pass"))
    one, other = supervisor.processes["one"], supervisor.processes["other"]
    pids = one.pid, other.pid
    one.kill()
    wait_until(lambda: not (one.is_alive or other.is_alive))

    assert supervisor.supervise() == {
        "one": f"one (pid {pids[0]}) failed with signal 9; restarting in 0.5 s",
        "other": f"other (pid {pids[1]}) has exited and is not restarted",
    }
    assert supervisor.supervise() == {}
    supervisor.close(10)


def test_a_process_that_ignores_signals_is_killed(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print(1, flush=True); time.sleep(60)"
    )
    supervisor = supervised(tmp_path, spec("deaf", deaf))
    wait_until(lambda: "1" in supervisor.processes["deaf"].last_output())

    assert supervisor.close(0.2) == ["deaf"]
    assert not supervisor.processes["deaf"].is_alive


def test_they_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    child = [sys.executable, "-c", f"{WAITS}; print('over')"]
    program = f"""
import os, signal
from pathlib import Path
from tidegate.runtime.cluster.process_supervisor import ProcessSpec, ProcessSupervisor
supervisor = ProcessSupervisor(Path({str(tmp_path)!r}))
supervisor.start([ProcessSpec("child", "test", {child!r})])
os.kill(os.getpid(), signal.SIGKILL)
"""
    parent = supervised(tmp_path, spec("parent", program))
    wait_until((tmp_path / "child.log").exists)
    wait_until(lambda: "over" in (tmp_path / "child.log").read_text())
    parent.close(10)


def test_a_large_log_is_rotated(tmp_path: Path) -> None:
    supervisor = ProcessSupervisor(tmp_path, Rotation(bytes=10_000, files=2))
    supervisor.start([spec("one", f"print('x' * 20_000, flush=True); {WAITS}; print('last')")])
    try:
        process = supervisor.processes["one"]
        wait_until(lambda: process.log.stat().st_size > 10_000)
        supervisor.supervise()
        assert process.log.stat().st_size == 0
        assert (tmp_path / "one.log.1").stat().st_size > 10_000
    finally:
        supervisor.close(10)


def test_the_error_of_a_failed_process_is_reported_rather_than_later_output(tmp_path: Path) -> None:
    program = (
        "import sys; print('error: the database is gone', file=sys.stderr);"
        "print('26/11/18 00:00:01 WARN ShutdownHookManager: no such folder', file=sys.stderr);"
        "raise SystemExit(1)"
    )
    supervisor = supervised(tmp_path, spec("one", program))
    one = supervisor.processes["one"]
    pid = one.pid
    wait_until(lambda: not one.is_alive)

    assert one.last_output() == "the database is gone"
    assert supervisor.supervise()["one"] == (
        f"one (pid {pid}) failed with exit code 1 (the database is gone); restarting in 0.5 s"
    )
    supervisor.close(10)
