"""Removing files never removes others, whenever those come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.runtime.file_storage import FileStorage

FOLDER = "chunks/run=1/to=0/sales"


def put(root: Path, file: str) -> str:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return file


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_empty_folders_are_removed_except_the_first_level(tmp_path: Path, scheme: str) -> None:
    gone, kept = put(tmp_path, f"{FOLDER}/1"), put(tmp_path, "chunks/run=2/to=0/sales/1")
    storage = FileStorage(f"{scheme}{tmp_path}")
    assert storage.clear([gone, f"{FOLDER}/was-never-there"]) == 1
    assert storage.folders("chunks") == ["run=2"]
    assert storage.clear([kept]) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "chunks"]
    assert storage.folders("chunks") == storage.folders("batches") == []


def test_a_file_written_while_its_folder_is_removed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, late = put(tmp_path, f"{FOLDER}/1"), tmp_path / FOLDER / "2"
    rmdir = Path.rmdir

    def landing(folder: Path) -> None:
        if folder == late.parent:
            late.touch()
        rmdir(folder)

    monkeypatch.setattr(Path, "rmdir", landing)
    assert FileStorage(str(tmp_path)).clear([gone]) == 1
    assert late.exists()


def test_the_folder_of_a_file_that_is_taken_back_stays_for_others(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path))
    assert storage.remove([put(tmp_path, f"{FOLDER}/1"), "chunks/nowhere"]) == 1
    assert (tmp_path / FOLDER).is_dir()
    assert storage.files("chunks") == []
