"""The embedded PostgreSQL: a server in a folder, shared by all processes that use the folder.

    with EmbeddedPostgres(folder) as server:
        psycopg.connect(server.url)

Whoever comes first starts it; it is stopped when the last user is gone, however it went. Being a
user means holding a kernel lock, which no crash leaves behind. The server itself is the business
of a small `supervisor` process; users only see to it that there is one. In the folder:

    data/             PostgreSQL's own
    socket/           its Unix socket, reachable by the owner of the folder alone
    server.log        what server and supervisor had to say
    password          for TCP; on the socket, the file permissions decide
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
    """One use of the server in a folder. It runs at least until `close`."""

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

    # ── using it ──

    def open(self) -> Self:
        """Become a user and wait until the server takes connections."""
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
        """Wait until the server takes connections, starting its supervisor if it has none."""
        deadline = monotonic() + self._bound
        self._see_to_a_supervisor()
        while not self._answers():
            self._pause(deadline, "take connections")
            self._see_to_a_supervisor()
        self._check_address()

    def close(self) -> None:
        """Stop being a user. The last one's leaving stops the server, shortly after."""
        if self._users >= 0:
            with suppress(OSError):  # the folder may be gone
                self._leave_it_supervised()
            os.close(self._users)
            self._users = -1

    def wait_stopped(self, bound: float = STOP_BOUND) -> None:
        """Wait until the server and its supervisor are gone; for those who remove the folder."""
        deadline = monotonic() + bound
        while self._is_supervised() or self.pid is not None:
            self._pause(deadline, "stop")

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── what it is like ──

    @property
    def pid(self) -> int | None:
        """The server's main process."""
        return postgres_supervisor.running_postmaster(self._data)

    @property
    def url(self) -> str:
        """Where to connect on this machine, through the Unix socket."""
        where = quote(str(self._socket_folder), safe="")
        return f"postgresql://tidegate@/postgres?host={where}&port={self._port}"

    @property
    def tcp_url(self) -> str:
        """Where to connect through TCP, password included; only when it listens there."""
        password = (self.folder / "password").read_text()
        return f"postgresql://tidegate:{password}@{self._address}:{self._port}/postgres"

    @property
    def log_tail(self) -> str:
        """The end of what server and supervisor had to say."""
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
        """In the folder, or where the folder's path is too long for a socket, a short one."""
        inside = self.folder / "socket"
        if len(os.fsencode(inside)) <= LONGEST_SOCKET - len(f"/.s.PGSQL.{SOCKET_PORT}"):
            return inside
        name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"tidegate-{os.geteuid()}-{name}"

    @property
    def _port(self) -> int:
        return int(self._noted(3) or SOCKET_PORT)

    @property
    def _address(self) -> str:
        return self._noted(5)

    def _noted(self, line: int) -> str:
        """A line of what the running server has noted about itself."""
        with suppress(OSError, IndexError):
            return (self._data / "postmaster.pid").read_text().splitlines()[line].strip()
        return ""

    # ── locks ──

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in ("users.lock", "supervisor.lock"):
            (self.folder / name).touch(mode=0o600)

    def _join(self) -> int:
        """Hold the users' lock; waits while a supervisor is just stopping the server."""
        users = os.open(self.folder / "users.lock", os.O_RDWR | os.O_CLOEXEC)
        deadline = monotonic() + STOP_BOUND
        while not _locked(users, fcntl.LOCK_SH):
            try:
                self._pause(deadline, "finish stopping")
            except BaseException:
                os.close(users)
                raise
        return users

    def _see_to_a_supervisor(self) -> None:
        with self._supervisor_lock() as lock:
            if lock is not None:
                self._start_supervisor(lock)

    def _leave_it_supervised(self) -> None:
        """Somebody has to stop the server when we are the last, also if its supervisor died."""
        if self.pid is not None:
            self._see_to_a_supervisor()

    def _is_supervised(self) -> bool:
        with self._supervisor_lock() as lock:
            return lock is None

    @contextmanager
    def _supervisor_lock(self) -> Iterator[int | None]:
        """The lock, held; None while somebody else holds it."""
        lock = os.open(self.folder / "supervisor.lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            yield lock if _locked(lock, fcntl.LOCK_EX) else None
        finally:
            os.close(lock)

    # ── starting it ──

    def _start_supervisor(self, lock: int) -> None:
        """The child keeps the lock: it belongs to the open file, which both now share."""
        orders = self._orders()
        with self._log.open("ab") as log:
            child = subprocess.Popen(  # noqa: S603  our own script
                [sys.executable, "-P", str(Path(postgres_supervisor.__file__)), orders.encode()],
                pass_fds=(lock,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for us, not for the server
                cwd="/",
            )
        _reap_later(child)

    def _orders(self) -> postgres_supervisor.SupervisorOptions:
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

    # ── waiting for it ──

    def _answers(self) -> bool:
        if self.pid is None:
            return False
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _check_address(self) -> None:
        wanted = self._listen
        if wanted is None:
            return
        same_port = wanted.port in {0, self._port}
        if self._address != wanted.address or not same_port:
            listens = f"{self._address}:{self._port}" if self._address else "its Unix socket only"
            raise EmbeddedServerElsewhere(str(self.folder), str(wanted), listens)

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
    """The supervisor outlives most of us; whoever sees it end must not keep it as a zombie."""
    Thread(target=child.wait, name="tidegate-supervisor-reaper", daemon=True).start()
