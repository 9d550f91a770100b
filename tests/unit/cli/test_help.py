"""What the help of the commands has in common."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from tidegate.cli.commands import COMMANDS, app


@pytest.mark.parametrize("command", [it.__name__ for it in COMMANDS])
def test_arguments_are_named_in_upper_case(command: str) -> None:
    said = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    (usage,) = re.findall(r"Usage: .* \[OPTIONS\](.*)", said.output)
    assert usage == usage.upper()
