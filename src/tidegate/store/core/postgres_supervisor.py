"""The process that runs one embedded PostgreSQL while it has users.

`embedded_postgres` starts it as a plain script, so it imports nothing but the standard library. It
holds `supervisor.lock`, inherited from its starter, runs the server as its child, restarts it when
it has ended, and stops it when the last user has released `users.lock`. The kernel releases the
locks of a killed process: a killed user no longer counts, and a killed supervisor is replaced by
the next user that checks, which adopts the orphaned server.

PostgreSQL refuses to run as root, and the user it runs as instead may not be able to enter the
folders above the deployment. Their permissions stay as they are: the server inherits its folder as
an open file and accesses it below `/proc/self/fd`.
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
"""Seconds between two checks whether the server has users."""

RESTART_PAUSE = 0.2
"""Seconds before a restart: child processes of the ended server may still use its memory."""

STOP_BOUNDS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
"""Signals that stop a server, in order of escalation, and how long to wait for each."""


@dataclass(frozen=True, slots=True)
class SupervisorOptions:
    """The options of the supervisor, passed on the command line."""

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
    """The system user to run the server as, when started by root; else None."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> SupervisorOptions:
        fields = json.loads(text)
        return cls(**{**fields, "options": tuple(fields["options"])})


class PostgresSupervisor:
    """Starts, watches, restarts and stops one server."""

    def __init__(self, options: SupervisorOptions) -> None:
        self._options = options
        self._data = Path(options.data)
        self._users = os.open(options.users, os.O_RDWR | os.O_CLOEXEC)

    def run(self) -> None:
        """Run the server until no process holds the users' lock."""
        while not self._is_unused():
            self._initialise()
            pid = running_postmaster(self._data)
            self._watch_adopted(pid) if pid else self._watch_child()
            self._pause()
        if pid := running_postmaster(self._data):
            with _watch(pid) as has_ended:
                _stop(pid, has_ended)

    def _watch_child(self) -> None:
        _remove_stale_locks(self._data, Path(self._options.socket))
        child = self._spawn("postgres", "-D", str(self._data), *self._options.options)
        with _watch(child.pid) as has_ended:
            while not has_ended(LOOK):
                if self._is_unused():
                    _stop(child.pid, has_ended)
        child.wait()

    def _watch_adopted(self, pid: int) -> None:
        with _watch(pid) as has_ended:
            while not has_ended(LOOK) and not self._is_unused():
                pass

    def _pause(self) -> None:
        if not self._is_unused():
            time.sleep(RESTART_PAUSE)

    def _is_unused(self) -> bool:
        """Once true, the lock is held until exit: new users wait and start another supervisor."""
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _initialise(self) -> None:
        """Create the data folder; an incomplete one, after a crash, is discarded."""
        if self._data.exists():
            return
        fresh = self._data.with_name("data.fresh")
        subprocess.run(["rm", "-rf", str(fresh)], check=True)  # noqa: S603, S607
        self._run(
            "initdb",
            *("--pgdata", str(fresh), "--username", "tidegate", "--encoding", "UTF8"),
            *("--locale", "C", "--auth-local", "trust", "--auth-host", "scram-sha-256"),
            *("--pwfile", self._options.password),
        )
        fresh.rename(self._data)

    def _run(self, program: str, *arguments: str) -> None:
        if self._spawn(program, *arguments).wait() != 0:
            time.sleep(RESTART_PAUSE)  # the next user that checks retries, until its bound
            raise SystemExit(f"{program} failed, see {self._options.log}")

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        folder = os.open(self._data.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._options.user is not None:
            inherited = f"/proc/self/fd/{folder}"
            arguments = tuple(it.replace(str(self._data.parent), inherited) for it in arguments)
        try:
            return self._start(program, arguments, folder)
        finally:
            os.close(folder)

    def _start(
        self, program: str, arguments: tuple[str, ...], folder: int
    ) -> subprocess.Popen[bytes]:
        with Path(self._options.log).open("ab") as log:
            return subprocess.Popen(  # noqa: S603  our own programs
                [str(Path(self._options.programs) / program), *arguments],
                pass_fds=(folder,) if self._options.user else (),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._options.user,
                group=self._options.user,
                extra_groups=() if self._options.user else None,
                cwd="/",
            )


def running_postmaster(data: Path) -> int | None:
    """The server process of this data folder, if one is running."""
    pid = _recorded_pid(data)
    return pid if pid is not None and _serves(pid, data) else None


def _recorded_pid(data: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int((data / "postmaster.pid").read_text().splitlines()[0])
    return None


def _serves(pid: int, data: Path) -> bool:
    """Whether the process is the server of this folder; its pid may have been reused."""
    command = _command(pid).split(b"\0")
    return command[0].endswith(b"postgres") and (os.fsencode(data) in command or _is_in(pid, data))


def _is_in(pid: int, folder: Path) -> bool:
    """Whether this is the working directory of a process, as for a server its data folder."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    return False


def _command(pid: int) -> bytes:
    """A process's command line; empty when it has ended or is a zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _remove_stale_locks(data: Path, socket: Path) -> None:
    """Remove lock files of a server that was killed, where PostgreSQL would refuse to start.

    It refuses an empty lock file, left by a server that was killed while writing it, and one whose
    pid belongs to another process. Any other postmaster.pid stays: PostgreSQL uses it to wait for
    processes of the killed server that still write.
    """
    for lock in socket.glob(".s.PGSQL.*.lock"):
        lock.unlink(missing_ok=True)
    pid_file = data / "postmaster.pid"
    pid = _recorded_pid(data)
    is_reused = pid is not None and _command(pid) and not _serves(pid, data)
    if is_reused or (pid_file.exists() and not pid_file.stat().st_size):
        pid_file.unlink(missing_ok=True)


@contextmanager
def _watch(pid: int) -> Iterator[Callable[[float], bool]]:
    """A function that waits up to some seconds and returns whether the process has ended."""
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


def _stop(pid: int, has_ended: Callable[[float], bool]) -> None:
    for how, bound in STOP_BOUNDS:
        with suppress(ProcessLookupError):
            os.kill(pid, how)
        if has_ended(bound):
            return


if __name__ == "__main__":
    PostgresSupervisor(SupervisorOptions.decode(sys.argv[1])).run()
