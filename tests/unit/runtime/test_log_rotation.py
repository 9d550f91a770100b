"""A log that a process appends to is put aside when it is too large."""

from __future__ import annotations

from pathlib import Path

from tidegate.runtime.cluster.log_rotation import Rotation


def test_a_log_is_rotated_and_its_writer_goes_on_in_it(tmp_path: Path) -> None:
    log = tmp_path / "worker-1.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(5):
            writer.write(f"line {number}\n".encode())
            assert Rotation(bytes=5, files=2).apply(log)
        writer.write(b"last\n")
    texts = {it.name: it.read_text() for it in tmp_path.iterdir()}
    assert texts == {
        "worker-1.log": "last\n",
        "worker-1.log.1": "line 4\n",
        "worker-1.log.2": "line 3\n",
    }


def test_a_small_log_and_one_that_is_not_there_stay_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "worker-1.log"
    assert not Rotation(bytes=5, files=2).apply(log)
    log.write_text("abc")
    assert not Rotation(bytes=5, files=2).apply(log)
    assert not Rotation(bytes=0, files=2).apply(log)
    assert log.read_text() == "abc"


def test_without_files_to_keep_a_large_log_is_emptied(tmp_path: Path) -> None:
    log = tmp_path / "worker-1.log"
    log.write_text("too long")
    assert Rotation(bytes=5, files=0).apply(log)
    assert [it.name for it in tmp_path.iterdir()] == ["worker-1.log"]
    assert not log.stat().st_size
