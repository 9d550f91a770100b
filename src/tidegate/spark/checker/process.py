"""Starts one chunk checker process, sends requests to it, and ends it."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from tidegate.spark.checker.process_memory import data_bytes
from tidegate.spark.checker.protocol import Answer, ChunkRefused, Copied, Ready, receive, send

if TYPE_CHECKING:
    from tidegate.spark.checker.limits import ChunkLimits
    from tidegate.spark.checker.protocol import Check

START_SECONDS = 60.0
"""The time limit for a checker to be ready; importing Arrow takes 0.5 s on an idle machine."""
END_SECONDS = 5.0
LONG_SECONDS, LONG_NICENESS = 2.0, 10
"""A chunk that takes longer is checked at lower priority than other clients' work."""
PROGRAM = Path(__file__).with_name("main.py")
_WITHHELD = ("TIDEGATE_", "PG")
"""Settings and addresses of a deployment that no checker needs."""
_LAST_BYTES = 300


class NoChecker(Exception):
    """A checker could not be started, or ended before its first request; with the reason."""


class CheckerLost(Exception):
    """A checker crashed, or sent an invalid answer; with the signal, status or error."""


class CheckerSlow(Exception):
    """A checker did not answer in time."""


class Checker:
    """A process that checks one chunk at a time."""

    def __init__(self, limits: ChunkLimits, program: Path = PROGRAM) -> None:
        """Start the process, without waiting until it is ready."""
        self.chunks = 0
        """The number of chunks it has checked."""
        self.is_slowed = False
        """Whether its priority was lowered, permanently: only root may raise it again."""
        self._is_ready = False
        self._at_first = 0
        self._errors = TemporaryFile()  # noqa: SIM115  until `end`
        self._connection, remote = socket.socketpair()
        try:
            with remote:
                self._process = self._started(program, remote)
            self._connection.settimeout(START_SECONDS)
            send(self._connection, limits)
        except OSError as error:
            self._connection.close()
            self._errors.close()
            raise NoChecker(f"a process that checks chunks cannot be started: {error}") from error

    def _started(self, program: Path, connection: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603  our own program
            [sys.executable, "-P", str(program)],
            stdin=connection.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            cwd="/",
            env=_environment(),
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, request: Check, seconds: float) -> Answer:
        """The answer. Raises `NoChecker`, `CheckerLost` or `CheckerSlow`: it must then end."""
        self._wait_ready()
        self.chunks += 1
        try:
            deadline = monotonic() + seconds
            self._connection.settimeout(seconds)
            send(self._connection, request)
            self._lower_priority_after(min(seconds, LONG_SECONDS))
            answer: Answer = receive(self._connection, Answer, deadline)
            return _validated(request, answer)
        except TimeoutError:
            raise CheckerSlow from None
        except msgspec.MsgspecError as error:
            raise CheckerLost(f"an invalid answer: {error}") from None
        except (EOFError, OSError, ValueError):  # the last from a connection that `end` has closed
            raise CheckerLost(self._how_it_ended()) from None

    def _lower_priority_after(self, seconds: float) -> None:
        answered = select.poll()
        answered.register(self._connection, select.POLLIN)
        if not answered.poll(1000 * seconds):
            self.is_slowed = True
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, self.pid, LONG_NICENESS)

    def grown(self) -> int:
        """Bytes of memory allocated or reserved since it was ready."""
        return self._memory() - self._at_first

    def _memory(self) -> int:
        """The memory that its limit counts."""
        try:
            return data_bytes(self.pid)
        except OSError:
            return 0

    def end(self) -> None:
        """Kill the process and wait for its end."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._connection.close()
        self._errors.close()

    def _wait_ready(self) -> None:
        if self._is_ready:
            return
        try:
            receive(self._connection, Ready, monotonic() + START_SECONDS)
        except TimeoutError:
            raise NoChecker(f"it was not ready after {START_SECONDS:g} s") from None
        except (EOFError, OSError, msgspec.MsgspecError):
            raise NoChecker(f"it started and ended by {self._how_it_ended()}") from None
        self._is_ready = True
        self._at_first = self._memory()

    def _how_it_ended(self) -> str:
        """The signal or status, and the last line that it wrote."""
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closing its connection"
        how = signal.Signals(-code).name if code < 0 else f"status {code}"
        line = self._last_line()
        return f"{how} ({line})" if line else how

    def _last_line(self) -> str:
        if self._errors.closed:
            return ""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LAST_BYTES))
        lines = self._errors.read().decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


def _environment() -> dict[str, str]:
    inherited = {name: it for name, it in os.environ.items() if not name.startswith(_WITHHELD)}
    ours = str(Path(__file__).parents[3])
    # The system's allocator does not reserve more than requested, which the limit would count.
    return {"ARROW_DEFAULT_MEMORY_POOL": "system", **inherited, "PYTHONPATH": ours}


def _validated(request: Check, answer: Answer) -> Answer:
    """The answer, if it is valid for this request; raises `msgspec.ValidationError`."""
    if isinstance(answer, ChunkRefused):
        _ = answer.error
    if isinstance(answer, Copied):
        for file in answer.files:
            if not file.startswith(request.name) or "/" in file[len(request.name) :]:
                raise msgspec.ValidationError(f"it names the file {file[:200]!r}")
    return answer
