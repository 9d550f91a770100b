"""The process that keeps one embedded PostgreSQL alive while somebody uses it.

`embedded` starts it as a plain script, so it imports nothing but the standard library and stays
small. It holds `supervisor.lock` (handed over, already locked, by whoever started it), runs the
server as its child, starts it again when it died, and stops it when the last user has let go of
`users.lock`. The kernel drops the locks of a killed process, so a killed user counts as gone and
a killed supervisor is replaced by the next user that looks; its orphaned server is adopted.

PostgreSQL refuses to be root, and the user it then runs as may not be able to enter the folders
above the deployment. They are not opened for it: it inherits its own folder as an open file, and
finds everything below `/proc/self/fd`.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

LOOK = 0.1
"""Seconds between two looks at whether anybody still uses the server."""

RESTART_PAUSE = 0.2
"""Seconds before a server that died is started again: its orphans may still hold its memory."""

STOP_BOUNDS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
"""How to ask a server to stop, ever less politely, and how long to wait each time."""


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """Everything the supervisor has to know, as it travels on the command line."""

    programs: str
    data: str
    socket: str
    """The folder of the server's Unix socket."""
    log: str
    users: str
    """The lock file that every user of the server holds."""
    password: str
    """The file that holds the superuser's password."""
    options: tuple[str, ...]
    user: str | None
    """The system user to run the server as, when we are root; PostgreSQL refuses to be root."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> SupervisorOptions:
        fields = json.loads(text)
        return cls(**{**fields, "options": tuple(fields["options"])})


class PostgresSupervisor:
    """Starts, watches, restarts and stops one server."""

    def __init__(self, orders: SupervisorOptions) -> None:
        self._orders = orders
        self._data = Path(orders.data)
        self._users = os.open(orders.users, os.O_RDWR | os.O_CLOEXEC)

    def run(self) -> None:
        """Keep the server alive until nobody holds the users' lock."""
        while not self._is_deserted():
            self._initialise()
            pid = running_postmaster(self._data)
            self._watch_adopted(pid) if pid else self._watch_child()
            self._pause()
        if pid := running_postmaster(self._data):
            with _watch(pid) as died:
                _stop(pid, died)

    def _watch_child(self) -> None:
        _remove_stale_locks(self._data, Path(self._orders.socket))
        child = self._spawn("postgres", "-D", str(self._data), *self._orders.options)
        with _watch(child.pid) as died:
            while not died(LOOK):
                if self._is_deserted():
                    _stop(child.pid, died)
        child.wait()

    def _watch_adopted(self, pid: int) -> None:
        with _watch(pid) as died:
            while not died(LOOK) and not self._is_deserted():
                pass

    def _pause(self) -> None:
        if not self._is_deserted():
            time.sleep(RESTART_PAUSE)

    def _is_deserted(self) -> bool:
        """Once true, the lock stays ours until we exit: a newcomer waits and starts afresh."""
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _initialise(self) -> None:
        """Make the data folder; half of one, from a crash in here, does not count."""
        if self._data.exists():
            return
        fresh = self._data.with_name("data.fresh")
        subprocess.run(["rm", "-rf", str(fresh)], check=True)  # noqa: S603, S607
        self._run(
            "initdb",
            *("--pgdata", str(fresh), "--username", "tidegate", "--encoding", "UTF8"),
            *("--locale", "C", "--auth-local", "trust", "--auth-host", "scram-sha-256"),
            *("--pwfile", self._orders.password),
        )
        fresh.rename(self._data)

    def _run(self, program: str, *arguments: str) -> None:
        if self._spawn(program, *arguments).wait() != 0:
            time.sleep(RESTART_PAUSE)  # the next user that looks tries again, until its bound
            raise SystemExit(f"{program} failed, see {self._orders.log}")

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        folder = os.open(self._data.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._orders.user is not None:
            inherited = f"/proc/self/fd/{folder}"
            arguments = tuple(it.replace(str(self._data.parent), inherited) for it in arguments)
        try:
            return self._start(program, arguments, folder)
        finally:
            os.close(folder)

    def _start(
        self, program: str, arguments: tuple[str, ...], folder: int
    ) -> subprocess.Popen[bytes]:
        with Path(self._orders.log).open("ab") as log:
            return subprocess.Popen(  # noqa: S603  our own programs
                [str(Path(self._orders.programs) / program), *arguments],
                pass_fds=(folder,) if self._orders.user else (),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._orders.user,
                group=self._orders.user,
                extra_groups=() if self._orders.user else None,
                cwd="/",
            )


def running_postmaster(data: Path) -> int | None:
    """The process that serves this data folder, if one does."""
    pid = _noted_pid(data)
    return pid if pid is not None and _serves(pid, data) else None


def _noted_pid(data: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int((data / "postmaster.pid").read_text().splitlines()[0])
    return None


def _serves(pid: int, data: Path) -> bool:
    """Whether the process is a server of ours; its number may have gone to a stranger since."""
    command = _command(pid).split(b"\0")
    return command[0].endswith(b"postgres") and (os.fsencode(data) in command or _is_in(pid, data))


def _is_in(pid: int, folder: Path) -> bool:
    """Whether a process works in this folder, as a server does in its data."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    return False


def _command(pid: int) -> bytes:
    """A process's command line; empty when it is gone, or dead and not yet buried."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _remove_stale_locks(data: Path, socket: Path) -> None:
    """Remove lock files of a server that was killed, where PostgreSQL would refuse to start.

    It refuses a lock file that is empty, which a server leaves that was killed while it wrote it,
    and one whose number belongs to another process by now. Any other postmaster.pid stays: by it
    PostgreSQL knows whether processes of the killed server still write, and waits for their end.
    """
    for lock in socket.glob(".s.PGSQL.*.lock"):
        lock.unlink(missing_ok=True)
    pid_file = data / "postmaster.pid"
    pid = _noted_pid(data)
    is_reused = pid is not None and _command(pid) and not _serves(pid, data)
    if is_reused or (pid_file.exists() and not pid_file.stat().st_size):
        pid_file.unlink(missing_ok=True)


@contextmanager
def _watch(pid: int) -> Iterator[Callable[[float], bool]]:
    """A question that sleeps up to some seconds and says whether the process has died."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        yield lambda _: True
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        yield lambda seconds: bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)


def _stop(pid: int, died: Callable[[float], bool]) -> None:
    for how, bound in STOP_BOUNDS:
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        if died(bound):
            return


if __name__ == "__main__":
    PostgresSupervisor(SupervisorOptions.decode(sys.argv[1])).run()
