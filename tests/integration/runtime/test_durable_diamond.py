"""A diamond of tasks over durable channels: whatever is killed, the output is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from tests.integration.runtime import diamond
from tidegate.faults import VARIABLE
from tidegate.store import Database, EmbeddedPostgres

SCRIPT = Path(diamond.__file__)
TAGGED = {n: [f"left split {n}", f"right split {n}"] for n in range(1, 9)}
EXPECTED = [
    ("event", sorted(TAGGED[1] + TAGGED[2] + TAGGED[3])),
    ("barrier", 3),
    ("event", sorted(TAGGED[4] + TAGGED[5] + TAGGED[6])),
    ("barrier", 6),
    ("event", sorted(TAGGED[7] + TAGGED[8])),
    ("barrier", 99),
]
"""What arrives at the end, in order: a checkpoint has exactly what was sent before it."""


def run_process(url: str, crash_at: str = "") -> int:
    command = [sys.executable, "-m", diamond.__spec__.name, url, "march"]
    environment = os.environ | {VARIABLE: crash_at}
    return subprocess.run(command, env=environment, timeout=100, check=False).returncode


def arrived(url: str) -> list[tuple[str, object]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT kind, coalesce(payload -> 'payload', payload -> 'id')"
            " FROM tidegate.message JOIN tidegate.channel ON channel.id = channel_id"
            " WHERE to_task = 'end' ORDER BY seq"
        )
        return [(kind, value) for kind, value in rows]


def check_every_channel(url: str) -> None:
    """Numbers are dense, ENDs count what came before, cursors stand at the end, the run is over."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT array_agg(message.seq ORDER BY message.seq), channel.sent, cursor.seq,"
            " max((payload ->> 'count')::int)"
            " FROM tidegate.channel JOIN tidegate.cursor ON cursor.channel_id = channel.id"
            " JOIN tidegate.message ON message.channel_id = channel.id"
            " GROUP BY channel.id, cursor.seq"
        ).fetchall()
        states = connection.execute("SELECT state FROM tidegate.run").fetchall()
    assert len(rows) == len(diamond.EDGES) + 1
    for seqs, sent, cursor, count in rows:
        assert seqs == list(range(1, sent + 1))
        assert cursor == sent == count + 1
    assert states == [("ended",)]


def test_an_undisturbed_run_ends_with_the_expected_outcome(database: Database, url: str) -> None:
    diamond.submit(database, "march")
    assert run_process(url) == 0
    assert arrived(url) == EXPECTED
    check_every_channel(url)


@pytest.mark.parametrize("point", ["step.before_commit", "step.after_commit"])
@pytest.mark.parametrize("nth", [1, 4, 9])
def test_a_run_whose_process_was_killed_once_ends_as_if_it_had_not(
    database: Database, url: str, point: str, nth: int
) -> None:
    diamond.submit(database, "march")
    assert run_process(url, f"{point}:{nth}") == -signal.SIGKILL
    assert run_process(url) == 0
    assert arrived(url) == EXPECTED
    check_every_channel(url)


def test_a_run_whose_process_is_killed_repeatedly_ends_as_if_it_had_not(
    database: Database, url: str
) -> None:
    diamond.submit(database, "march")
    kills = 0
    while run_process(url, f"step.{'before' if kills % 2 else 'after'}_commit:5") != 0:
        kills += 1
        assert kills < 60
    assert kills > 2
    assert arrived(url) == EXPECTED
    check_every_channel(url)


def test_a_run_whose_database_is_killed_ends_as_if_it_had_not(
    database: Database, url: str, server: EmbeddedPostgres
) -> None:
    diamond.submit(database, "march")
    worker = Thread(target=diamond.work, args=(url, "march"))
    worker.start()
    while worker.is_alive():
        pid = server.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        server.ensure_running()
        worker.join(0.3)
    assert arrived(url) == EXPECTED
    check_every_channel(url)
