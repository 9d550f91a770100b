"""The processes of a deployment on one machine: started, started again when they die, stopped.

One that ends by itself without trouble was told to go, and stays away. One that dies is started
again, after a pause that grows while it lives only briefly.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from time import monotonic, strftime

from tidegate.permissions import private_folder
from tidegate.runtime.cluster.exit_reason import last_error
from tidegate.runtime.cluster.log_rotation import Rotation

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before one that died is started again."""
LONG_LIFE = 60.0
"""Seconds of a life after which a death says nothing about the next."""
USAGE = 2
"""The exit code of a command that makes no sense, however often it is given."""
TIME = "%Y-%m-%d %H:%M:%S"
UNROTATED = Rotation(bytes=0, files=0)
READ = 64 << 10
"""Bytes at the end of a log that are searched for an error."""
TAIL = 1500
"""Characters at the end of a log that are shown where it has no error."""


@dataclass(frozen=True)
class ProcessSpec:
    """A process that is wanted."""

    name: str
    role: str
    command: Sequence[str]


def pause_after(failures: int) -> float:
    """Seconds before the next life, after so many short ones.

    >>> [pause_after(deaths) for deaths in (1, 2, 3, 10)]
    [0.5, 1.0, 2.0, 30.0]
    """
    return float(min(SHORTEST_PAUSE * 2 ** (failures - 1), LONGEST_PAUSE))


def describe_exit(code: int) -> str:
    """What the code of a process that died means.

    >>> describe_exit(-9), describe_exit(2)
    ('signal 9', 'exit code 2')
    """
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class SupervisedProcess:
    """One process, in all of its lives."""

    def __init__(self, spec: ProcessSpec, logs: Path, rotation: Rotation = UNROTATED) -> None:
        self.spec = spec
        self._rotation = rotation
        self.log = logs / f"{spec.name}.log"
        self.failures = 0
        self._short_lives = 0
        self._again_at: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_at = 0.0
        self._log_from = 0
        """Where what it says in its present life begins."""
        self._is_known_to_be_gone = False
        self.start()

    def start(self) -> None:
        """Begin a life. It ends when this process does: its standard input is closed then.

        A session of its own keeps the terminal's Ctrl-C from it: stopping is told in good order.
        """
        self._again_at = None
        self._begun_at = monotonic()
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
        """Of its present life."""
        return self._process.pid if self._process is not None else None

    @property
    def is_alive(self) -> bool:
        """Whether it runs at this moment."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_gone(self) -> bool:
        """Whether it has ended by itself, in good order."""
        return self._process is not None and self._process.poll() == 0

    @property
    def is_refused(self) -> bool:
        """Whether it has ended because what it was asked to do makes no sense, as ever."""
        return self._process is not None and self._process.poll() == USAGE

    def look(self) -> str | None:
        """Start it again if it has died and its pause is over; what became of it, if it is news."""
        if self._rotation.apply(self.log):
            self._log_from = 0
        if self.is_alive:
            return None
        if self.is_gone:
            return self._say_goodbye()
        now = monotonic()
        if self._again_at is None:
            return self._mourn(now)
        if now >= self._again_at:
            self.start()
        return None

    def last_output(self) -> str:
        """The error in what the process has logged since its last start, or the end of that."""
        said = self._said()
        return last_error(said) or said[-TAIL:].strip() or "nothing"

    def _said(self) -> str:
        """The end of what the process has logged since its last start."""
        with self.log.open("rb") as log:
            end = log.seek(0, SEEK_END)
            log.seek(max(self._log_from, end - READ))
            return log.read(READ).decode(errors="replace")

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(sent)

    def kill(self) -> None:
        """End it at once."""
        self.stop(signal.SIGKILL)

    def wait(self, timeout: float) -> bool:
        """Whether it ends in time."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        self._let_go(self._process)
        return True

    @staticmethod
    def _let_go(process: subprocess.Popen[bytes]) -> None:
        """Close the pipe by which it would have heard of our end."""
        if process.stdin is not None:
            process.stdin.close()

    def _say_goodbye(self) -> str | None:
        if self._is_known_to_be_gone:
            return None
        self._is_known_to_be_gone = True
        return f"{self.spec.name} (pid {self.pid}) has ended in good order and stays away"

    def _mourn(self, now: float) -> str:
        assert self._process is not None
        self._let_go(self._process)
        self.failures += 1
        is_short = now - self._begun_at < LONG_LIFE
        self._short_lives = self._short_lives + 1 if is_short else 1
        pause = pause_after(self._short_lives)
        self._again_at = now + pause
        why = last_error(self._said())
        return (
            f"{self.spec.name} (pid {self._process.pid}) has died with"
            f" {describe_exit(self._process.returncode)}{f' ({why})' if why else ''};"
            f" started again in {pause:g} s"
        )


class ProcessSupervisor:
    """All of them."""

    def __init__(self, logs: Path, rotation: Rotation = UNROTATED) -> None:
        private_folder(logs)
        self._logs = logs
        self._rotation = rotation
        self.processes: dict[str, SupervisedProcess] = {}

    def start(self, process_specs: Iterable[ProcessSpec]) -> None:
        """Begin their first lives."""
        for spec in process_specs:
            self.processes[spec.name] = SupervisedProcess(spec, self._logs, self._rotation)

    def look(self) -> dict[str, str]:
        """Start those again that have died; what became of whom since the last look."""
        news = {name: process.look() for name, process in self.processes.items()}
        return {name: what for name, what in news.items() if what is not None}

    @property
    def is_gone(self) -> bool:
        """Whether all have left in good order."""
        return all(process.is_gone for process in self.processes.values())

    def close(self, bound: float) -> list[str]:
        """End all; the names of those that had to be killed."""
        for process in self.processes.values():
            process.stop()
        until = monotonic() + bound
        stubborn = []
        for process in self.processes.values():
            if not process.wait(max(0.0, until - monotonic())):
                process.kill()
                process.wait(5.0)
                stubborn.append(process.spec.name)
        return stubborn
