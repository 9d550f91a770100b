"""The embedded PostgreSQL: a server in a folder, shared by all processes that use the folder.

    with EmbeddedPostgres(folder) as server:
        psycopg.connect(server.url)

The first user starts it; it is stopped when the last user has closed it or has ended. A user holds
a kernel lock, which a crash releases. The server is run by a small supervisor process (see
`postgres_supervisor`), which users start if there is none. In the folder:

    data/             PostgreSQL's data folder
    socket/           its Unix socket, reachable by the owner of the folder alone
    server.log        output of server and supervisor
    password          for TCP; the socket is protected by file permissions
    users.lock        held by every user
    supervisor.lock   held by the supervisor
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Self
from urllib.parse import quote

import psycopg

from tidegate.errors import EmbeddedServerElsewhere, EmbeddedServerFailed
from tidegate.store.core import postgres_supervisor
from tidegate.store.core.postgres_binaries import (
    give_to,
    programs_for,
    refuse_foreign,
    unprivileged_user,
)

START_BOUND = 60.0
STOP_BOUND = 45.0
LOG_TAIL = 2_000
LOOK = 0.02
SOCKET_PORT = 5432
LONGEST_SOCKET = 100
"""A Unix socket's path must fit into 108 bytes on Linux, 104 elsewhere."""


@dataclass(frozen=True, slots=True)
class Listen:
    """A TCP address for the server; port 0 takes a free one."""

    address: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


class EmbeddedPostgres:
    """A user of the server in a folder, which runs at least until `close`."""

    def __init__(
        self,
        folder: Path,
        listen: Listen | None = None,
        settings: Mapping[str, str] | None = None,
        bound: float = START_BOUND,
    ) -> None:
        self.folder = folder.absolute()
        self._listen = listen
        self._settings = dict(settings or {})
        self._bound = bound
        self._users = -1

    # ── use ──

    def open(self) -> Self:
        """Become a user and wait until the server accepts connections."""
        if self._users < 0:
            self._prepare()
            self._users = self._join()
            try:
                self.ensure_running()
            except BaseException:
                self.close()
                raise
        return self

    def ensure_running(self) -> None:
        """Wait until the server accepts connections; start its supervisor if there is none."""
        deadline = monotonic() + self._bound
        self._ensure_supervisor()
        while not self._answers():
            self._pause(deadline, "accept connections")
            self._ensure_supervisor()
        self._check_address()

    def close(self) -> None:
        """Stop being a user. The server is stopped shortly after its last user has closed it."""
        if self._users >= 0:
            with suppress(OSError):  # the folder may be removed
                self._ensure_supervised()
            os.close(self._users)
            self._users = -1

    def wait_stopped(self, bound: float = STOP_BOUND) -> None:
        """Wait until the server and its supervisor have ended, before the folder is removed."""
        deadline = monotonic() + bound
        while self._is_supervised() or self.pid is not None:
            self._pause(deadline, "stop")

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── properties ──

    @property
    def pid(self) -> int | None:
        """The server's main process."""
        return postgres_supervisor.running_postmaster(self._data)

    @property
    def url(self) -> str:
        """The URL for processes on this machine, through the Unix socket."""
        where = quote(str(self._socket_folder), safe="")
        return f"postgresql://tidegate@/postgres?host={where}&port={self._port}"

    @property
    def tcp_url(self) -> str:
        """The URL through TCP, with the password; only when the server listens there."""
        password = (self.folder / "password").read_text()
        return f"postgresql://tidegate:{password}@{self._address}:{self._port}/postgres"

    @property
    def log_tail(self) -> str:
        """The end of the log of server and supervisor."""
        with suppress(OSError):
            return self._log.read_text(errors="replace")[-LOG_TAIL:].strip()
        return "(no log)"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    @property
    def _socket_folder(self) -> Path:
        """In the folder, or a short temporary one where the path is too long for a socket."""
        inside = self.folder / "socket"
        if len(os.fsencode(inside)) <= LONGEST_SOCKET - len(f"/.s.PGSQL.{SOCKET_PORT}"):
            return inside
        name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"tidegate-{os.geteuid()}-{name}"

    @property
    def _port(self) -> int:
        return int(self._pid_file_line(3) or SOCKET_PORT)

    @property
    def _address(self) -> str:
        return self._pid_file_line(5)

    def _pid_file_line(self, line: int) -> str:
        """A line of the running server's postmaster.pid."""
        with suppress(OSError, IndexError):
            return (self._data / "postmaster.pid").read_text().splitlines()[line].strip()
        return ""

    # ── locks ──

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("users.lock", "supervisor.lock"):
            (self.folder / name).touch(mode=0o600)

    def _join(self) -> int:
        """Acquire the users' lock; waits while a supervisor is stopping the server."""
        users = os.open(self.folder / "users.lock", os.O_RDWR | os.O_CLOEXEC)
        deadline = monotonic() + STOP_BOUND
        while not _locked(users, fcntl.LOCK_SH):
            try:
                self._pause(deadline, "finish stopping")
            except BaseException:
                os.close(users)
                raise
        return users

    def _ensure_supervisor(self) -> None:
        with self._supervisor_lock() as lock:
            if lock is not None:
                self._start_supervisor(lock)

    def _ensure_supervised(self) -> None:
        """Ensure that a supervisor stops the server after the last user."""
        if self.pid is not None:
            self._ensure_supervisor()

    def _is_supervised(self) -> bool:
        with self._supervisor_lock() as lock:
            return lock is None

    @contextmanager
    def _supervisor_lock(self) -> Iterator[int | None]:
        """The acquired lock; None while another process holds it."""
        lock = os.open(self.folder / "supervisor.lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            yield lock if _locked(lock, fcntl.LOCK_EX) else None
        finally:
            os.close(lock)

    # ── starting ──

    def _start_supervisor(self, lock: int) -> None:
        """Start a supervisor, which inherits the lock with the open file."""
        options = self._supervisor_options()
        with self._log.open("ab") as log:
            child = subprocess.Popen(  # noqa: S603  our own script
                [sys.executable, "-P", str(Path(postgres_supervisor.__file__)), options.encode()],
                pass_fds=(lock,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal must not stop the server
                cwd="/",
            )
        _reap_later(child)

    def _supervisor_options(self) -> postgres_supervisor.SupervisorOptions:
        user = unprivileged_user()
        for path in (self.folder, self._socket_folder):
            path.mkdir(exist_ok=True, mode=0o700)
            if self.folder not in {path, path.parent}:
                refuse_foreign(path, user)
            give_to(user, path, 0o700)
        password = self.folder / "password"
        if not password.exists():
            password.touch(mode=0o600)
            password.write_text(secrets.token_hex(16))
        give_to(user, password, 0o600)
        return postgres_supervisor.SupervisorOptions(
            programs=str(programs_for(user)),
            data=str(self._data),
            socket=str(self._socket_folder),
            log=str(self._log),
            users=str(self.folder / "users.lock"),
            password=str(password),
            options=tuple(self._options()),
            user=user,
        )

    def _options(self) -> Iterator[str]:
        listen = self._listen
        defaults = {
            "listen_addresses": listen.address if listen else "",
            "port": str(_free_port(listen) if listen else SOCKET_PORT),
            "unix_socket_directories": str(self._socket_folder),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
        }
        for name, value in (defaults | self._settings).items():
            yield from ("-c", f"{name}={value}")

    # ── waiting ──

    def _answers(self) -> bool:
        if self.pid is None:
            return False
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _check_address(self) -> None:
        requested = self._listen
        if requested is None:
            return
        same_port = requested.port in {0, self._port}
        if self._address != requested.address or not same_port:
            listens = f"{self._address}:{self._port}" if self._address else "its Unix socket only"
            raise EmbeddedServerElsewhere(str(self.folder), str(requested), listens)

    def _pause(self, deadline: float, doing: str) -> None:
        if monotonic() > deadline:
            raise EmbeddedServerFailed(str(self.folder), doing, self._bound, self.log_tail)
        sleep(LOOK)


def _locked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _free_port(listen: Listen) -> int:
    if listen.port:
        return listen.port
    family = socket.AF_INET6 if ":" in listen.address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((listen.address, 0))
        return int(probe.getsockname()[1])


def _reap_later(child: subprocess.Popen[bytes]) -> None:
    """Wait for the supervisor on a thread, so that it does not remain as a zombie."""
    Thread(target=child.wait, name="tidegate-supervisor-reaper", daemon=True).start()
