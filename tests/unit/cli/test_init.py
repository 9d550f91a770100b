"""`tidegate init` only writes to a new or empty folder."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from tidegate.cli import app


def test_a_folder_with_files_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert done.exit_code == 2
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert {file.name for file in tmp_path.iterdir()} == {
        "README.md",
        "data",
        "shop.py",
        "test_shop.py",
    }
