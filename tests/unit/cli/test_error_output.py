"""How errors are told."""

from __future__ import annotations

import json

import pytest
import typer

from tidegate.cli.output.error_output import reported_errors
from tidegate.errors import MissingColumns

RAW = MissingColumns("sales", "1.csv", ("id",), ("\x1b[2J\x00\x9b1m", "caf\xe9", "\udcff"))


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), reported_errors(as_json=False):
        raise RAW
    told = capsys.readouterr().err
    assert r"\x1b[2J\x00\x9b1m, café, \udcff" in told
    assert told.rstrip("\n").isprintable()


def test_programs_get_what_is_not_printable_as_json_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit), reported_errors(as_json=True):
        raise RAW
    told = capsys.readouterr().out
    assert told.rstrip("\n").isprintable()
    assert json.loads(told)["error"]["found"] == list(RAW.found)


def test_a_long_message_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), reported_errors(as_json=False):
        raise MissingColumns("sales", "1.csv", ("id",), ("x" * 1_000_000,))
    assert len(capsys.readouterr().err) < 10_000


def test_an_interrupted_command_prints_how_to_resume(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended, reported_errors(as_json=False, interrupted="gone"):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "gone\n"
