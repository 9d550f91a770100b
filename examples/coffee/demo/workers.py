"""Workers of the demo: `tidegate worker` as a process of its own, that can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

STOP_BOUND = 30.0
LAST_LINES = 30


def worker_command(deployment: Path) -> list[str]:
    """What starts a worker for the coffee pipeline."""
    command = [sys.executable, "-m", "tidegate", "worker", "coffee"]
    return [*command, "--deployment", str(deployment)]


class WorkerProcess:
    """A process that is expected to live until it is killed or stopped here.

    What it says goes to a file, which is shown when it dies unasked.
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
        """The number of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def check_alive(self) -> None:
        """End the demo with what the worker said last, unless it lives."""
        if not self.is_alive:
            said = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            how = f"{self.name} ended by itself with {self._process.returncode}:"
            raise SystemExit("\n".join([how, *said]))

    def kill(self) -> None:
        """SIGKILL: it can neither finish nor clean up anything."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ask it to finish its steps; kill it when that takes too long, or when it is deaf."""
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
