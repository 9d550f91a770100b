"""`tidegate data`: files to try a pipeline with."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from tidegate.cli import app

runner = CliRunner()


def test_every_source_of_the_example_gets_its_files(tmp_path: Path) -> None:
    said = runner.invoke(app, ["data", "coffee", str(tmp_path / "data")])

    assert said.exit_code == 0
    sources = {path.parent.name for path in (tmp_path / "data").rglob("*.csv")}
    assert sources == {"menu_items", "stores", "transaction_items", "transactions", "users"}


def test_a_pipeline_without_a_generator_is_refused(tmp_path: Path) -> None:
    said = runner.invoke(app, ["data", "tea", str(tmp_path)])

    assert said.exit_code == 2
    assert "tea" in said.stderr
