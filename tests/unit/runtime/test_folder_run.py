"""What is said while a folder is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest

from tidegate.checkpoint import Checkpoints
from tidegate.runtime.ingestion.folder_run import ProgressListener, RunOptions, chunks_of, send
from tidegate.store import RunFacts, RunInfo, RunState


class Recorder(ProgressListener):
    """Records what is reported."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def report(self, what: str) -> None:
        self.lines.append(what)


def march(state: RunState, incarnation: int = 1) -> RunInfo:
    return RunInfo(incarnation, "shop", "march", incarnation, state)


@dataclass
class Shelf:
    """Takes everything, and computes nothing."""

    last: RunInfo | None = None
    had: dict[str, list[str]] = field(default_factory=dict)
    is_same_plan: bool = True
    ended: dict[str, int] = field(default_factory=dict)

    def find(self, run: str) -> RunInfo | None:
        return self.last

    def begin(
        self, run: str, *, deadline: float | None = None, checkpoints: Checkpoints | None = None
    ) -> RunInfo:
        self.last = march(RunState.OPEN, 2)
        return self.last

    def deliver(self, run: str, source: str, number: int, file: str) -> bool:
        return True

    def end(self, run: str, source: str, chunks: int) -> None:
        self.ended[source] = chunks

    def has_this_plan(self, run: RunInfo) -> bool:
        return self.is_same_plan

    def digests(self, run: RunInfo) -> Mapping[str, Sequence[str]]:
        return self.had

    def facts(self, run: str) -> RunFacts:
        raise AssertionError("nothing waits here")

    def wait(self, run: str, timeout: float) -> None:
        raise AssertionError("nothing waits here")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "sales").mkdir()
    (tmp_path / "sales" / "1.csv").write_bytes(b"id\n1\n")
    (tmp_path / "stores").mkdir()
    return tmp_path


def sent(server: Shelf, data: Path) -> list[str]:
    listener = Recorder()
    send(server, chunks_of(data, ["sales", "stores"]), RunOptions("march"), listener)
    return listener.lines


def test_a_source_without_chunks_is_named_and_closed(data: Path) -> None:
    server = Shelf()
    assert sent(server, data) == ["stores: no chunks", "1 chunk delivered, END follows"]
    assert server.ended == {"sales": 1, "stores": 0}


@pytest.mark.parametrize(
    ("state", "is_same_plan", "why"),
    [
        (RunState.ENDED, True, "had other data"),
        (RunState.ENDED, False, "had another plan"),
        (RunState.FAILED, True, "has failed"),
        (RunState.CANCELLED, True, "was cancelled"),
    ],
)
def test_a_reused_name_is_reported_with_the_reason(
    state: RunState, is_same_plan: bool, why: str, data: Path
) -> None:
    had = {"sales": ["0" * 64], "stores": []}
    lines = sent(Shelf(march(state), had, is_same_plan), data)
    assert lines[0] == f"starting run 'march' again (the last one of this name {why})"


def test_a_run_with_exactly_these_chunks_is_not_started_again(data: Path) -> None:
    digest = sha256((data / "sales" / "1.csv").read_bytes()).hexdigest()
    server = Shelf(march(RunState.ENDED), {"sales": [digest], "stores": []})
    (line,) = sent(server, data)
    assert "processed before" in line
    assert server.ended == {}


def test_an_open_run_goes_on_without_a_word(data: Path) -> None:
    server = Shelf(march(RunState.OPEN))
    assert not any("anew" in line for line in sent(server, data))
    assert server.last == march(RunState.OPEN)
