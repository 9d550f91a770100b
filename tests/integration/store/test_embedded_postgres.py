"""The embedded server: one for many processes whoever is killed, and none without users."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.waiting import wait_until
from tidegate.errors import EmbeddedServerElsewhere, EmbeddedServerFailed
from tidegate.store import EmbeddedPostgres
from tidegate.store.core.embedded_postgres import Listen

USER = (
    "import sys\n"
    "from pathlib import Path\n"
    "from tidegate.store import EmbeddedPostgres\n"
    "with EmbeddedPostgres(Path(sys.argv[1])) as server:\n"
    "    print(server.pid, flush=True)\n"
    "    sys.stdin.read()\n"
)


class User:
    """Another process that uses the server until it is told to stop, or killed."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", USER, str(folder)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def server_pid(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def leave(self) -> None:
        self.process.communicate(timeout=30)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)


@pytest.fixture
def folder(deployment: Path, initialised: Path) -> Path:
    subprocess.run(["cp", "-a", str(initialised), str(deployment)], check=True)
    return deployment / "postgres"


@contextmanager
def users(folder: Path, number: int) -> Iterator[list[User]]:
    started = [User(folder) for _ in range(number)]
    try:
        yield started
    finally:
        for user in started:
            user.kill()


def answer(server: EmbeddedPostgres) -> int | None:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT 42").fetchone()
        return row[0] if row else None


def test_racing_starters_share_one_server_that_goes_with_the_last(deployment: Path) -> None:
    folder = deployment / "postgres"
    with users(folder, 3) as (first, second, third):
        pids = {user.server_pid() for user in (first, second, third)}
        assert len(pids) == 1
        first.leave()
        second.leave()
        assert EmbeddedPostgres(folder).pid in pids
        third.leave()
    EmbeddedPostgres(folder).wait_stopped()
    assert EmbeddedPostgres(folder).pid is None


def test_a_killed_user_counts_as_gone(folder: Path) -> None:
    with users(folder, 2) as (first, second):
        pid = first.server_pid()
        assert second.server_pid() == pid
        first.kill()
        assert EmbeddedPostgres(folder).pid == pid
        second.kill()
    EmbeddedPostgres(folder).wait_stopped()


def test_a_killed_server_is_started_again_without_anybody_asking(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        first = server.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: server.pid not in {None, first})
        server.ensure_running()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT n FROM kept").fetchall() == [(7,)]


def test_a_server_whose_supervisor_was_killed_gets_another_from_the_next_user(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        first = server.pid
        assert first is not None
        kill_and_wait(_parent(first))
        with EmbeddedPostgres(folder) as other:
            assert other.pid == first
    server.wait_stopped()


def test_a_server_is_started_again_also_after_its_supervisor_was_killed(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        first = server.pid
        assert first is not None
        kill_and_wait(_parent(first))
        kill_and_wait(first)
        server.ensure_running()
        assert answer(server) == 42


def kill_and_wait(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not _command(pid))


def _command(pid: int) -> bytes:
    path = Path(f"/proc/{pid}/cmdline")
    return path.read_bytes() if path.exists() else b""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_pid_file_whose_number_went_to_another_process_does_not_keep_the_server_down(
    folder: Path,
) -> None:
    stale = folder / "data" / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{folder}/data\n1\n5432\n{folder}/socket\n\n1 1\nready\n")
    with EmbeddedPostgres(folder) as server:
        assert answer(server) == 42


@pytest.mark.parametrize("lock", ["data/postmaster.pid", "socket/.s.PGSQL.5432.lock"])
def test_a_server_that_was_killed_while_it_wrote_a_lock_file_is_started_again(
    lock: str, folder: Path
) -> None:
    (folder / lock).parent.mkdir(exist_ok=True)
    (folder / lock).touch()
    with EmbeddedPostgres(folder, bound=20) as server:
        assert answer(server) == 42


def test_it_listens_on_tcp_only_when_asked_and_wants_the_password_there(folder: Path) -> None:
    with EmbeddedPostgres(folder, Listen("127.0.0.1")) as server:
        psycopg.connect(server.tcp_url).close()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.tcp_url, password="guessed")
        with EmbeddedPostgres(folder) as other:
            assert answer(other) == 42


def test_a_running_server_is_not_moved_to_another_address(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        with pytest.raises(EmbeddedServerElsewhere) as refused:
            EmbeddedPostgres(folder, Listen("127.0.0.1", 1)).open()
        assert refused.value.wanted == "127.0.0.1:1"
        assert answer(server) == 42


def test_a_folder_with_a_long_path_gets_a_socket_elsewhere(deployment: Path) -> None:
    folder = deployment / ("deep" * 20) / ("deeper" * 10)
    with EmbeddedPostgres(folder) as server:
        assert answer(server) == 42
    server.wait_stopped()


def test_a_server_that_cannot_start_is_an_error_that_shows_its_log(folder: Path) -> None:
    server = EmbeddedPostgres(folder, settings={"shared_buffers": "a lot"}, bound=3)
    with pytest.raises(EmbeddedServerFailed) as failed:
        server.open()
    assert failed.value.doing == "accept connections"
    assert "shared_buffers" in failed.value.log
