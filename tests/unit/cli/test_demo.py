"""`tidegate demo` finds what packages registered; `tests/integration` runs what it shows."""

from __future__ import annotations

from importlib.metadata import entry_points

from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.cli.demo import GROUP

runner = CliRunner()


def test_a_demo_that_is_not_registered_is_a_usage_error_that_names_those_that_are() -> None:
    said = runner.invoke(app, ["demo", "tea"])
    assert said.exit_code == 2
    assert "coffee" in said.output


def test_the_coffee_demo_is_registered_and_can_be_loaded() -> None:
    (coffee,) = (point for point in entry_points(group=GROUP) if point.name == "coffee")
    assert callable(coffee.load())
