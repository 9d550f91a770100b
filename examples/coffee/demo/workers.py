"""Workers of the demo: `tidegate worker` as a separate process that can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

STOP_BOUND = 30.0
LAST_LINES = 30


def worker_command(deployment: Path) -> list[str]:
    """The command that starts a worker of the coffee pipeline."""
    command = [sys.executable, "-m", "tidegate", "worker", "coffee"]
    return [*command, "--deployment", str(deployment)]


class WorkerProcess:
    """A process that is expected to run until it is killed or stopped here.

    Its output goes to a file, whose end is printed when the process ends unexpectedly.
    """

    def __init__(self, number: int, command: Sequence[str], log: Path) -> None:
        self.name = f"worker {number}"
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(  # noqa: S603  our own command
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def check_alive(self) -> None:
        """End the demo with the worker's last output, if the worker has ended."""
        if not self.is_alive:
            last_lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            reason = f"{self.name} ended unexpectedly with {self._process.returncode}:"
            raise SystemExit("\n".join([reason, *last_lines]))

    def kill(self) -> None:
        """Kill it by SIGKILL: it cannot finish or clean up anything."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Terminate it gracefully; kill it after `STOP_BOUND` seconds."""
        self._process.terminate()
        try:
            self._process.wait(STOP_BOUND)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self.is_alive:
            return
        if kind is None:
            self.stop()
        else:
            self.kill()
