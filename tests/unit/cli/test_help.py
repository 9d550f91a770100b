"""The help of all commands: one style, and no words that were given up."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from tidegate.cli.commands import COMMANDS, app

GIVEN_UP = re.compile(
    r"\b(cuts?|lanes?|whoever|whatever|nobody|somebody|everybody|told|tells?|says?|dies?|lives?"
    r"|at work|quiet|who)\b"
)


def help_of(command: str) -> str:
    return CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output


@pytest.mark.parametrize("command", [it.__name__ for it in COMMANDS])
def test_arguments_are_named_in_upper_case(command: str) -> None:
    (usage,) = re.findall(r"Usage: .* \[OPTIONS\](.*)", help_of(command))
    assert usage == usage.upper()


@pytest.mark.parametrize("command", [it.__name__ for it in COMMANDS])
def test_help_has_no_words_that_were_given_up(command: str) -> None:
    assert GIVEN_UP.findall(help_of(command)) == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda it: it.__name__)
def test_help_begins_with_one_sentence(command: Callable[..., None]) -> None:
    first, *_ = (inspect.getdoc(command) or "").splitlines()
    assert re.fullmatch(r"[A-Z][^.]*\.", first)
