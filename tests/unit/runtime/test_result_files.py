"""Results are written two at a time, with progress reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Barrier

import pytest

from tidegate.runtime.ingestion.folder_run import ProgressListener
from tidegate.runtime.ingestion.result_files import ResultFile, write_all

BOUND = 60.0


class Recorder(ProgressListener):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.how_far: Callable[[], str] = str

    def report(self, what: str) -> None:
        self.lines.append(what)

    @contextmanager
    def during(self, what: Callable[[], str]) -> Iterator[None]:
        self.how_far = what
        yield


def test_two_results_are_written_concurrently_and_reported_in_order() -> None:
    recorder, both = Recorder(), Barrier(2)

    def write(_: ResultFile) -> None:
        both.wait(BOUND)

    write_all(recorder, {"best": 1, "bulk": 355_000, "most": 2, "rest": 0}, write)
    assert recorder.lines == [
        "best: 1 row written",
        "bulk: 355,000 rows written",
        "most: 2 rows written",
        "rest: 0 rows written",
    ]


def test_the_progress_of_a_running_result_is_reported() -> None:
    recorder, progress = Recorder(), list[str]()

    def write(file: ResultFile) -> None:
        progress.append(recorder.how_far())
        file.received(12_340_000)
        progress.append(recorder.how_far())

    write_all(recorder, {"bulk": 355_000}, write)
    assert progress == [
        "bulk: ordering 355,000 rows",
        "bulk: 12.3 MB of 355,000 rows received",
    ]


def test_what_is_wrong_with_one_result_is_raised() -> None:
    def write(file: ResultFile) -> None:
        if file.sink == "bulk":
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        write_all(Recorder(), {"best": 1, "bulk": 2}, write)
