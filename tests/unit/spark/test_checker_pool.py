"""Chunks are checked by processes that may be lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copy

import pytest

from tests.unit.spark import hostile_files as hostile
from tests.waiting import wait_until
from tidegate.errors import (
    CheckerUnavailable,
    ChunkCrashedChecker,
    ChunkNeedsMemory,
    ChunkNotCopied,
    ChunkTooSlow,
    MissingColumns,
    NoSuchChunk,
    RowGroupTooLarge,
    UnreadableChunk,
)
from tidegate.settings import Settings
from tidegate.spark import CheckerPool
from tidegate.spark.checker import process
from tidegate.spark.checker.process import PROGRAM
from tidegate.spark.checker.protocol import Check, Copied, DeclaredField, NeedsSpark
from tidegate.spark.ingest.layouts import Layout

FAILING = Path(__file__).with_name("checker_that_fails.py")
SMALL = Settings(chunk_seconds=2.0, chunk_memory_bytes=512 << 20)
FIELDS = (DeclaredField("item_id", "bigint"), DeclaredField("item_name", "string"))
TEXT = "item_id,item_name\n1,tea\n2,coffee\n"


class Checking:
    """A pool, and chunks for it."""

    def __init__(self, folder: Path, settings: Settings, program: Path = PROGRAM) -> None:
        self.pool = CheckerPool(settings, program)
        self.folder = folder

    def __call__(self, name: str = "plain", text: str = TEXT) -> Copied | NeedsSpark:
        file = self.folder / f"{name}.csv"
        file.write_text(text)
        return self.pool.check(self.request(file))

    def request(self, file: Path) -> Check:
        return Check("items", FIELDS, str(file), str(self.folder / "root"), f"chunks/{file.stem}")

    @property
    def stored(self) -> list[str]:
        return sorted(it.name for it in (self.folder / "root").rglob("*") if it.is_file())

    @property
    def pids(self) -> set[int]:
        return {it.pid for it in self.pool.checkers}


@pytest.fixture
def checking(tmp_path: Path) -> Iterator[Checking]:
    made = Checking(tmp_path, Settings())
    with made.pool:
        yield made


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Checking]:
    made = Checking(tmp_path, SMALL, FAILING)
    with made.pool:
        yield made


def test_a_checker_copies_one_chunk_after_another(checking: Checking) -> None:
    assert checking.pids == set()
    taken = checking("first")
    assert isinstance(taken, Copied)
    assert (taken.files, taken.rows) == (("chunks/first.parquet",), 2)
    first = checking.pids
    checking("second")
    assert checking.pids == first
    assert checking.stored == ["first.parquet", "second.parquet"]


def test_a_checker_refuses_a_chunk_as_it_is_refused_here(checking: Checking) -> None:
    with pytest.raises(MissingColumns) as missing:
        checking(text="item_id\n1\n")
    assert (missing.value.missing, missing.value.found) == (("item_name",), ("item_id",))
    broken = checking.folder / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(UnreadableChunk):
        checking.pool.check(checking.request(broken))
    with pytest.raises((NoSuchChunk, UnreadableChunk)):
        checking.pool.check(checking.request(checking.folder / "gone.csv"))
    assert checking.stored == []


def test_a_chunk_that_takes_long_is_checked_at_a_low_priority(
    failing: Checking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LONG_SECONDS", 0.05)
    with ThreadPoolExecutor(1) as thread:
        slow = thread.submit(failing, "hang")
        wait_until(lambda: [os.getpriority(os.PRIO_PROCESS, it) for it in failing.pids] == [10])
        assert isinstance(slow.exception(), ChunkTooSlow)
    assert failing.pids == set()


def test_a_dictionary_beyond_the_memory_for_spark_is_refused_although_no_row_has_it(
    tmp_path: Path,
) -> None:
    as_double = (DeclaredField("item_id", "double"), FIELDS[1])
    with Checking(tmp_path, Settings(chunk_spark_bytes=32 << 20)).pool as pool:
        request = [
            Check("items", as_double, str(file), str(tmp_path / "root"), f"chunks/{file.stem}")
            for file in (
                hostile.unused_value(tmp_path / "small.parquet", 1 << 20),
                hostile.unused_value(tmp_path / "large.parquet", 100 << 20),
            )
        ]
        assert isinstance(pool.check(request[0]), NeedsSpark)
        with pytest.raises(RowGroupTooLarge) as refused:
            pool.check(request[1])
        assert refused.value.limit == 32 << 20
        assert isinstance(pool.check(request[0]), NeedsSpark), "the bound ends with the chunk"


def test_what_only_spark_can_judge_comes_back_with_its_columns(checking: Checking) -> None:
    answer = checking(text="item_id,item_name\nx,tea\n")
    assert answer == NeedsSpark(Layout("csv", ("item_id", "item_name")))
    assert checking.stored == []


def test_files_and_roots_may_be_uris(checking: Checking) -> None:
    file = checking.folder / "1.csv"
    file.write_text(TEXT)
    root = (checking.folder / "root").as_uri()
    request = Check("items", FIELDS, file.as_uri(), root, "chunks/1")
    assert checking.pool.check(request).rows == 2  # type: ignore[union-attr]
    assert checking.stored == ["1.parquet"]


def test_a_chunk_that_ends_two_checkers_is_refused_and_leaves_nothing(failing: Checking) -> None:
    with pytest.raises(ChunkCrashedChecker) as refused:
        failing("abort")
    assert refused.value.how.startswith("SIGABRT")
    assert failing.stored == []
    assert failing.pids == set()
    assert failing("plain").rows == 2  # type: ignore[union-attr]


def test_a_chunk_is_not_blamed_for_what_another_has_left_in_a_checker(failing: Checking) -> None:
    failing("plain")
    assert failing("abort-if-used").rows == 2  # type: ignore[union-attr]
    failing("keep")  # a third of its memory
    assert failing("need-what-was-kept").rows == 2  # type: ignore[union-attr]


def test_a_chunk_is_not_blamed_for_a_checker_that_was_killed(checking: Checking) -> None:
    checking.pool.warm()
    (killed,) = checking.pids
    os.kill(killed, signal.SIGKILL)
    assert checking("first").rows == 2  # type: ignore[union-attr]
    (killed,) = checking.pids
    os.kill(killed, signal.SIGKILL)
    assert checking("second").rows == 2  # type: ignore[union-attr]
    assert killed not in checking.pids


def test_a_chunk_that_takes_too_long_is_refused_and_its_checker_ends(failing: Checking) -> None:
    with pytest.raises(ChunkTooSlow):
        failing("hang")
    assert failing.pids == set()


def test_a_chunk_that_needs_too_much_memory_is_refused(failing: Checking) -> None:
    with pytest.raises(ChunkNeedsMemory) as refused:
        failing("need-memory")
    assert refused.value.limit == SMALL.chunk_memory_bytes


def test_an_answer_that_names_other_files_is_rejected(failing: Checking) -> None:
    with pytest.raises(ChunkCrashedChecker) as refused:
        failing("lie")
    assert "elsewhere" in refused.value.how


def test_what_is_not_the_chunks_fault_may_be_tried_again(failing: Checking) -> None:
    with pytest.raises(ChunkNotCopied) as failed:
        failing("break")
    assert failed.value.spark_condition == "PermissionError"
    assert failed.value.retryable


def test_a_checker_that_cannot_start_is_no_fault_of_a_chunk(tmp_path: Path) -> None:
    program = tmp_path / "start-failing.py"
    copy(FAILING, program)
    broken = Checking(tmp_path, Settings(), program)
    with broken.pool, pytest.raises(CheckerUnavailable) as failed:
        broken()
    assert "it cannot start" in failed.value.reason


def test_as_many_chunks_are_checked_at_a_time_as_are_set(tmp_path: Path) -> None:
    made = Checking(tmp_path, Settings(chunk_checkers=2, http_deliveries=2))
    with made.pool, ThreadPoolExecutor(6) as threads:
        taken = list(threads.map(made, map(str, range(30))))
        assert len(made.pids) <= 2
    assert len(made.stored) == len(taken) == 30


def test_a_chunk_at_work_may_be_delivered_again_after_the_pool_has_closed(tmp_path: Path) -> None:
    made = Checking(tmp_path, Settings(), FAILING)
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(made, "hang")
        wait_until(lambda: any(it.chunks for it in made.pool.checkers))
        pids = made.pids
        made.pool.close()
        assert isinstance(hanging.exception(10), CheckerUnavailable)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(CheckerUnavailable):
        made("late")


def test_checkers_end_with_their_server(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from tests.unit.spark.test_checker_pool import Checking, FAILING, Settings
from threading import Thread
from tests.waiting import wait_until
made = Checking(Path({str(tmp_path)!r}), Settings(), FAILING)
made("plain")
Thread(target=made, args=("hang",), daemon=True).start()
wait_until(lambda: any(it.chunks == 2 for it in made.pool.checkers))
print(*made.pids, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    pids = done.stdout.split()
    assert pids, done.stderr
    wait_until(lambda: not any(_is_running(pid) for pid in pids))


def test_a_pool_that_is_not_closed_ends_its_checkers(tmp_path: Path) -> None:
    made = Checking(tmp_path, Settings())
    made()
    pids = made.pids
    del made
    wait_until(lambda: not any(_is_running(str(pid)) for pid in pids))


def test_checkers_do_without_pyspark_and_without_the_servers_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_TOKENS", "hush-hush")
    made = Checking(tmp_path, Settings())
    with made.pool:
        made()
        (pid,) = made.pids
        assert b"hush-hush" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert "pyspark" not in Path(f"/proc/{pid}/maps").read_text()
        opened = [str(it.readlink()) for it in Path(f"/proc/{pid}/fd").iterdir()]
        assert sum(it.startswith("socket:") for it in opened) == 1


def _is_running(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
