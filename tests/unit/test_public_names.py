"""What `import tidegate` offers, and what it must not load for that."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate


@pytest.mark.parametrize("name", tidegate.__all__)
def test_every_public_name_can_be_used_from_the_top(name: str) -> None:
    assert getattr(tidegate, name) is not None
    assert name in dir(tidegate)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="dance"):
        tidegate.dance  # noqa: B018


def test_declaring_a_pipeline_loads_neither_spark_nor_postgresql() -> None:
    code = (
        "import sys, tidegate as tg; tg.Pipeline('shop').source('sales', 'id bigint').sink('all');"
        "sys.exit(bool({'pyspark', 'psycopg'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


PUBLIC = ("flows", "group", "cutover", "testing", "errors")
COFFEE = Path(__file__).parents[2] / "examples" / "coffee"


@pytest.mark.parametrize("file", sorted(COFFEE.rglob("*.py")), ids=lambda file: file.name)
def test_the_coffee_example_imports_public_packages_only(file: Path) -> None:
    imported = [
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    ]
    private = [
        name
        for name in imported
        if name.startswith("tidegate.") and name.removeprefix("tidegate.") not in PUBLIC
    ]
    assert private == []
