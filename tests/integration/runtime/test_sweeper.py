"""Orphans are removed, committed files are kept, and lost writers stay fenced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import time

import pytest

from tests.integration.runtime.shop import Client, ask, files_of
from tests.waiting import wait_until
from tidegate.errors import Fenced
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.monitor.sweeper import Sweeper, Swept, needs_sweep, sweep
from tidegate.runtime.worker.task_worker import WORKER
from tidegate.store import (
    ClockWatch,
    Lease,
    RunFailure,
    StepCommit,
    acquire,
    commit_step,
    fail_runs,
)
from tidegate.store.core.leases import release

HOUR = 3600.0


@pytest.fixture
def client(counter: RunService, tmp_path: Path) -> Client:
    client = Client(counter, "march", tmp_path)
    client.sales(1, (1, 1))
    client.items(1, (1, "tea"))
    return client


def sweep_once(place: Deployment) -> Swept:
    return sweep(place.database, FileStorage(place.root))


def is_news(place: Deployment) -> bool:
    return needs_sweep(place.database, FileStorage(place.root))


def grow_old(file: Path) -> None:
    """As if it had been written a week ago."""
    week_ago = time() - 7 * 24 * HOUR
    os.utime(file, (week_ago, week_ago))


def output(place: Deployment, writer: str, run: int) -> Path:
    """A file as a stage writes it, which no commit has named."""
    folder = Path(place.root, "batches", writer, "attempt", f"run={run}", "from=0", "to=0")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "part-0.parquet"
    file.write_bytes(b"rows")
    return file


def late_chunk(place: Deployment, run: int) -> Path:
    """The copy of a chunk that was not recorded yet."""
    file = Path(place.root, "chunks", f"run={run}", "to=0", "sales", "2-late.parquet")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"rows")
    return file


def register(place: Deployment, writer: str, seconds: float = HOUR) -> Lease:
    lease = place.database.transact(lambda c: acquire(c, WORKER, writer, writer, seconds))
    assert lease is not None
    return lease


@pytest.fixture
def alive(place: Deployment) -> Iterator[Lease]:
    lease = register(place, "alive")
    yield lease
    place.database.transact(lambda c: release(c, lease))


def test_orphans_of_a_lost_writer_are_removed_and_committed_files_are_kept(
    place: Deployment, client: Client, alive: Lease
) -> None:
    named = files_of(place, client.id)
    at_work, orphan = output(place, "alive", client.id), output(place, "lost", client.id)
    assert sweep_once(place) == Swept(runs=0, files=1)
    assert not orphan.exists()
    assert not Path(place.root, "batches", "lost").exists()
    assert at_work.exists()
    assert set(named) < set(files_of(place, client.id))


def test_the_checksum_of_a_file_stays_and_goes_with_it(
    place: Deployment, client: Client, alive: Lease
) -> None:
    named, orphan = (
        Path(place.root, files_of(place, client.id)[0]),
        output(place, "lost", client.id),
    )
    sums = [file.with_name(f".{file.name}.crc") for file in (named, orphan)]
    for checksum in sums:
        checksum.touch()
    sweep_once(place)
    assert [checksum.exists() for checksum in sums] == [True, False]


def test_files_of_a_running_writer_are_kept_until_their_run_is_closed(
    place: Deployment, client: Client, alive: Lease
) -> None:
    """By their age files once went, and with them the first rows of any job of some length.

    Spark puts what a task wrote where it stays, while other tasks of the job are still at work:
    whether an attempt has failed or just takes its time, only its writer knows.
    """
    written = output(place, "alive", client.id)
    grow_old(written)
    assert sweep_once(place).files == 0
    assert written.exists()
    client.server.cancel("march")
    sweep_once(place)
    assert not written.exists()


def test_files_of_failed_attempts_are_removed_after_the_writer_is_lost(
    place: Deployment, client: Client
) -> None:
    lease = register(place, "failing")
    written = output(place, "failing", client.id)
    assert sweep_once(place).files == 0
    place.database.transact(lambda c: release(c, lease))
    assert sweep_once(place).files == 1
    assert not written.exists()
    assert len(files_of(place, client.id)) == 2


def test_the_copy_of_an_unrecorded_chunk_is_kept_until_its_run_is_closed(
    place: Deployment, client: Client
) -> None:
    """Its client may be asleep between the copy and the commit that names it."""
    copied = late_chunk(place, client.id)
    grow_old(copied)
    assert sweep_once(place).files == 0
    client.server.cancel("march")
    assert sweep_once(place).files == 3
    assert files_of(place, client.id) == []


def test_a_suspended_writer_cannot_commit_after_its_files_were_swept(
    place: Deployment, client: Client
) -> None:
    own = register(place, "asleep", seconds=-1.0)
    task = place.database.transact(lambda c: acquire(c, "task", "shop/s1/0", "asleep", HOUR))
    assert task is not None
    step = StepCommit(lease=task, also=(own,), failed=(RunFailure(client.id, "it woke up"),))
    file = output(place, "asleep", client.id)
    assert sweep_once(place).files == 1
    assert not file.exists()
    with pytest.raises(Fenced):
        place.database.transact(lambda c: commit_step(c, step))
    again = partial(acquire, kind=WORKER, key="asleep", owner="asleep", seconds=HOUR)
    assert place.database.transact(again) is None
    assert ask(place.database, "SELECT state FROM tidegate.run") == [("open",)]


@pytest.mark.parametrize("way", ["cancelled", "failed"])
def test_the_space_of_a_run_that_was_given_up_comes_back_on_disk_and_in_postgresql(
    way: str, place: Deployment, client: Client, counter: RunService, tmp_path: Path, alive: Lease
) -> None:
    other = Client(counter, "april", tmp_path)
    other.sales(1, (1, 1))
    output(place, "alive", client.id)
    if way == "cancelled":
        counter.cancel("march")
    else:
        place.database.transact(lambda c: fail_runs(c, [RunFailure(client.id, "no reason")]))
    assert sweep_once(place) == Swept(runs=1, files=3)
    assert files_of(place, client.id) == []
    assert not Path(place.root, "chunks", f"run={client.id}").exists()
    assert rows_of_channels(place, client.id) == (0, 0, 0)
    assert len(files_of(place, other.id)) == 1
    assert rows_of_channels(place, other.id) > (0, 0, 0)
    assert sweep_once(place) == Swept(runs=0, files=0)


def test_a_chunk_that_arrives_while_its_run_is_cancelled_is_swept_too(
    place: Deployment, client: Client, counter: RunService
) -> None:
    counter.cancel("march")
    sweep_once(place)
    late = late_chunk(place, client.id)
    assert sweep_once(place).files == 1
    assert not late.exists()


def rows_of_channels(place: Deployment, run: int) -> tuple[object, ...]:
    """How many channels, cursors and messages a run has."""
    (counts,) = ask(
        place.database,
        """
        SELECT count(DISTINCT channel.id), count(DISTINCT cursor.channel_id), count(message.id)
        FROM tidegate.channel
        LEFT JOIN tidegate.cursor ON cursor.channel_id = channel.id
        LEFT JOIN tidegate.message ON message.channel_id = channel.id
        WHERE channel.run_id = %s
        """,
        run,
    )
    return counts


@pytest.mark.parametrize(
    "folder", ["tidegate_run={run}/from=0", "_temporary/0", "run={run}/from=0"]
)
def test_what_a_living_writer_is_writing_for_an_open_run_stays(
    place: Deployment, alive: Lease, client: Client, folder: str
) -> None:
    run = client.server.known("march").id
    file = Path(
        place.root, "batches", alive.key, "attempt", folder.format(run=run), "part-0.parquet"
    )
    file.parent.mkdir(parents=True)
    file.write_bytes(b"rows")
    sweep_once(place)
    assert file.exists()


# --- when to sweep ---------------------------------------------------------------------------


def test_no_sweep_is_needed_while_all_writers_run_and_all_runs_are_open(
    place: Deployment, client: Client, alive: Lease
) -> None:
    output(place, "alive", client.id)
    assert not is_news(place)


def test_a_closed_run_needs_a_sweep(place: Deployment, client: Client) -> None:
    client.server.cancel("march")
    assert is_news(place)
    sweep_once(place)
    assert not is_news(place)


@pytest.mark.parametrize("has_files", [True, False])
def test_a_lost_writer_needs_a_sweep_whether_or_not_files_of_it_are_kept(
    place: Deployment, client: Client, has_files: bool
) -> None:
    left = output(place, "lost", client.id)
    if not has_files:
        left.unlink()
    assert is_news(place)
    sweep_once(place)
    assert not is_news(place)


def test_a_sweeper_sweeps_at_first_and_when_needed(
    place: Deployment, client: Client, alive: Lease
) -> None:
    late = output(place, "alive", 999)
    with Sweeper(place, every=0.01):
        wait_until(lambda: not late.exists())
        client.server.cancel("march")
        wait_until(lambda: files_of(place, client.id) == [])


def test_files_written_for_a_run_after_it_was_swept_are_removed_periodically(
    place: Deployment, client: Client, alive: Lease
) -> None:
    client.server.cancel("march")
    sweep_once(place)
    first, second = output(place, "alive", client.id), late_chunk(place, client.id)
    with Sweeper(place, every=0.01, all_every=0.05):
        wait_until(lambda: not first.exists() and not second.exists())
        third = late_chunk(place, client.id + 1)
        assert not is_news(place)
        wait_until(lambda: not third.exists())


# --- a clock that jumps ----------------------------------------------------------------------


def test_a_clock_that_jumps_far_ahead_lets_the_sweeper_remove_no_closed_run(
    place: Deployment, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.server.cancel("march")
    later(place, "40 days")
    sweep_once(place)
    assert is_known(place, client.id)
    assert "the database's clock has jumped by +" in caplog.text

    settled = ClockWatch(place.database, settle=0)
    sweep(place.database, FileStorage(place.root), settled)
    assert not is_known(place, client.id)


def test_runs_closed_long_ago_go_while_the_clock_is_steady(
    place: Deployment, client: Client
) -> None:
    client.server.cancel("march")
    later(place, "40 days", is_jump=False)
    sweep_once(place)
    assert not is_known(place, client.id)


def later(place: Deployment, by: str, *, is_jump: bool = True) -> None:
    """As if it were later: everything was closed, and the clock last seen, so long ago."""
    for what in ["run SET closed_at", *(["clock SET seen_at"] if is_jump else [])]:
        shift = f"UPDATE tidegate.{what} = clock_timestamp() - %s::interval RETURNING 1"
        ask(place.database, shift, by)


def is_known(place: Deployment, run: int) -> bool:
    return bool(ask(place.database, "SELECT 1 FROM tidegate.run WHERE id = %s", run))
