"""Wheels are compiled, editable installations are not, and an environment variable decides."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("setuptools")
RECIPE: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[3] / "setup.py"))


@pytest.mark.parametrize(
    ("command", "variable", "is_compiled"),
    [
        ("bdist_wheel", None, True),
        ("bdist_wheel", "1", True),
        ("bdist_wheel", "0", False),
        ("editable_wheel", None, False),
        ("editable_wheel", "1", True),
        ("editable_wheel", "0", False),
        ("egg_info", None, False),
        ("sdist", "1", False),
    ],
)
def test_the_kind_of_build_and_the_user_decide(
    command: str, variable: str | None, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["setup.py", command])
    if variable is None:
        monkeypatch.delenv("TIDEGATE_COMPILE", raising=False)
    else:
        monkeypatch.setenv("TIDEGATE_COMPILE", variable)
    decide: Callable[[], bool] = RECIPE["is_to_be_compiled"]
    assert decide() is is_compiled


def test_every_compiled_module_exists() -> None:
    files = [RECIPE["PACKAGE"] / f"{name}.py" for name in RECIPE["COMPILED"]]
    root = Path(__file__).parents[3]
    assert [file for file in [*files, *RECIPE["READ"]] if not (root / file).exists()] == []
