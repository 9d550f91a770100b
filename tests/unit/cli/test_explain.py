"""`tidegate explain`: plans for people and programs, errors without a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidegate.cli import app

SHOP = """
import tidegate as tg

pipeline = tg.Pipeline("shop", shards=2)
sales = pipeline.source("sales", "store_id bigint, amount decimal(10,2)")
sales.aggregate(by="store_id", total="sum(amount)").sink("totals")
number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, forgotten by the importer afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for module in ("shop", "broken"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


def tidegate(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_registered_pipeline_is_explained_by_its_name() -> None:
    result = tidegate("explain", "coffee")
    assert result.exit_code == 0
    assert result.output.startswith("Physical plan of coffee:")
    assert "PhysicalBarrier bc  upstream_count=5" in result.output


def test_a_pipeline_is_found_in_a_module_of_the_current_folder(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP)
    result = tidegate("explain", "shop:pipeline", "--logical")
    assert result.exit_code == 0
    assert result.output.startswith("Logical plan of shop: 3 operators, shards=2")


def test_the_number_of_shards_can_be_tried_out(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP)
    assert "upstream_count=9" in tidegate("explain", "shop:pipeline", "--shards", "9").output


@pytest.mark.parametrize("form", ["--logical", "--physical"])
def test_a_plan_for_programs_is_json(form: str) -> None:
    result = tidegate("explain", "coffee", form, "--json")
    assert result.exit_code == 0
    shown = json.loads(result.output)
    assert shown["plan"] == form.removeprefix("--")
    assert shown["nodes"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", "not registered"),
        ("no_such_module:pipeline", "no module 'no_such_module'"),
        ("shop:missing", "no attribute 'missing'"),
        ("shop:number", "'number' is a int, not a Pipeline"),
        ("shop:", "not registered"),
    ],
)
def test_an_unknown_pipeline_is_an_error_of_usage(folder: Path, name: str, reason: str) -> None:
    (folder / "shop.py").write_text(SHOP)
    result = tidegate("explain", name)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert "coffee" in result.stderr


def test_an_invalid_declaration_is_reported_with_its_line(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP + 'sales.sink("totals")\n')
    result = tidegate("explain", "shop:pipeline")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: there already is a sink 'totals', declared at ")
    assert '  shop.py:8\n    sales.sink("totals")\n' in result.stderr
    assert "Give one of the two another name" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_mistake_for_programs_is_one_object(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP + 'sales.sink("totals")\n')
    result = tidegate("explain", "shop:pipeline", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["condition"] == "DuplicateName"
    assert (error["kind"], error["name"]) == ("sink", "totals")
    assert (error["at"]["line"], error["first"]["line"]) == (8, 6)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("raise SystemExit(5)", "SystemExit: 5"),
    ],
)
def test_a_module_that_raises_is_reported_with_its_line(
    folder: Path, code: str, reason: str
) -> None:
    (folder / "broken.py").write_text(f"import tidegate\n{code}\n")
    result = tidegate("explain", "broken:pipeline")
    assert result.exit_code == 1
    assert reason in result.stderr
    assert f"broken.py:2\n    {code}" in result.stderr


def test_explaining_never_loads_spark() -> None:
    code = (
        "import sys; from tidegate.cli import app;"
        "app(['explain', 'coffee'], standalone_mode=False);"
        "sys.exit('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["explain", "coffee", "--analyze-schema"], ["demo"]])
def test_without_java_the_error_names_what_to_install(arguments: list[str]) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("tidegate"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: there is no Spark on local[*]: JAVA_HOME is /nonexistent, which has no bin/java."
        " Install a Java 17+ runtime (`make setup` does), or let JAVA_HOME point at one.\n"
    )


def test_the_command_is_installed_and_prints_its_version() -> None:
    command = Path(sys.executable).with_name("tidegate")
    done = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("tidegate 0.")


def test_a_command_that_does_not_exist_is_an_error_of_usage() -> None:
    assert tidegate("dance").exit_code == 2
