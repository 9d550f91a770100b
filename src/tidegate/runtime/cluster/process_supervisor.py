"""Starts the processes of a deployment on one machine, restarts them when they fail, stops them.

A process that exits with code 0 was drained and is not restarted. One that fails is restarted
after a pause that grows while it fails soon after its start.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from time import monotonic, strftime

from tidegate.backoff import Backoff
from tidegate.permissions import private_folder
from tidegate.runtime.cluster.exit_reason import last_error
from tidegate.runtime.cluster.log_rotation import Rotation

RESTARTS = Backoff(first=0.5, longest=30.0, jitter=0.0)
STABLE = 60.0
"""Seconds of uptime after which a failure does not prolong the pause."""
USAGE = 2
"""The exit code of a command that can never succeed: its arguments are wrong."""
KILL_BOUND = 5.0
TIME = "%Y-%m-%d %H:%M:%S"
UNROTATED = Rotation(bytes=0, files=0)
READ = 64 << 10
"""Bytes at the end of a log that are searched for an error."""
TAIL = 1500
"""Characters at the end of a log that are shown if it has no error."""


@dataclass(frozen=True)
class ProcessSpec:
    """A process to start."""

    name: str
    role: str
    command: Sequence[str]


def describe_exit(code: int) -> str:
    """The meaning of the exit code of a failed process.

    >>> describe_exit(-9), describe_exit(2)
    ('signal 9', 'exit code 2')
    """
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class SupervisedProcess:
    """One process, over all its restarts."""

    def __init__(self, spec: ProcessSpec, logs: Path, rotation: Rotation = UNROTATED) -> None:
        self.spec = spec
        self._rotation = rotation
        self.log = logs / f"{spec.name}.log"
        self.failures = 0
        self._failures_in_a_row = 0
        self._restart_at: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._log_from = 0
        """Where the output since the last start begins."""
        self._exit_reported = False
        self.start()

    def start(self) -> None:
        """Start the process. It ends with this one, which closes its standard input.

        Its own session keeps the terminal's Ctrl-C from it: it is stopped orderly instead.
        """
        self._restart_at = None
        self._started_at = monotonic()
        with self.log.open("ab") as out:
            out.write(f"=== {strftime(TIME)} {self.spec.name} begins\n".encode())
            out.flush()
            self._log_from = out.tell()
            self._process = subprocess.Popen(  # noqa: S603  our own commands
                list(self.spec.command),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def pid(self) -> int | None:
        """The process id since the last start."""
        return self._process.pid if self._process is not None else None

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_gone(self) -> bool:
        """Whether it has exited by itself without an error."""
        return self._process is not None and self._process.poll() == 0

    @property
    def is_refused(self) -> bool:
        """Whether it has exited because its arguments are wrong."""
        return self._process is not None and self._process.poll() == USAGE

    def supervise(self) -> str | None:
        """Restart it if it has failed and its pause is over; a description of a new event."""
        if self._rotation.apply(self.log):
            self._log_from = 0
        if self.is_alive:
            return None
        if self.is_gone:
            return self._report_exit()
        now = monotonic()
        if self._restart_at is None:
            return self._record_failure(now)
        if now >= self._restart_at:
            self.start()
        return None

    def last_output(self) -> str:
        """The error in the log since the last start, or the end of that log."""
        output = self._output()
        return last_error(output) or output[-TAIL:].strip() or "nothing"

    def _output(self) -> str:
        """The end of the log since the last start."""
        with self.log.open("rb") as log:
            end = log.seek(0, SEEK_END)
            log.seek(max(self._log_from, end - READ))
            return log.read(READ).decode(errors="replace")

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(sent)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.stop(signal.SIGKILL)

    def wait(self, timeout: float) -> bool:
        """Whether it ends in time."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        _close_stdin(self._process)
        return True

    def _report_exit(self) -> str | None:
        if self._exit_reported:
            return None
        self._exit_reported = True
        return f"{self.spec.name} (pid {self.pid}) has exited and is not restarted"

    def _record_failure(self, now: float) -> str:
        assert self._process is not None
        _close_stdin(self._process)
        self.failures += 1
        is_early = now - self._started_at < STABLE
        self._failures_in_a_row = self._failures_in_a_row + 1 if is_early else 1
        pause = RESTARTS.pause(self._failures_in_a_row)
        self._restart_at = now + pause
        error = last_error(self._output())
        return (
            f"{self.spec.name} (pid {self._process.pid}) failed with"
            f" {describe_exit(self._process.returncode)}{f' ({error})' if error else ''};"
            f" restarting in {pause:g} s"
        )


def _close_stdin(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe that signals the end of this process to the other."""
    if process.stdin is not None:
        process.stdin.close()


class ProcessSupervisor:
    """Supervises a set of processes."""

    def __init__(self, logs: Path, rotation: Rotation = UNROTATED) -> None:
        private_folder(logs)
        self._logs = logs
        self._rotation = rotation
        self.processes: dict[str, SupervisedProcess] = {}

    def start(self, specs: Iterable[ProcessSpec]) -> None:
        """Start processes."""
        for spec in specs:
            self.processes[spec.name] = SupervisedProcess(spec, self._logs, self._rotation)

    def supervise(self) -> dict[str, str]:
        """Restart failed processes; by name what happened since the last call."""
        events = {name: process.supervise() for name, process in self.processes.items()}
        return {name: event for name, event in events.items() if event is not None}

    @property
    def is_gone(self) -> bool:
        """Whether all have exited without an error."""
        return all(process.is_gone for process in self.processes.values())

    def close(self, bound: float) -> list[str]:
        """Stop all; the names of those that were killed because they did not end in time."""
        for process in self.processes.values():
            process.stop()
        until = monotonic() + bound
        killed = []
        for process in self.processes.values():
            if not process.wait(max(0.0, until - monotonic())):
                process.kill()
                process.wait(KILL_BOUND)
                killed.append(process.spec.name)
        return killed
