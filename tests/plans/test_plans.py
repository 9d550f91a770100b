"""One file per pipeline, and beside it the text of EXPLAIN or of its error."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tidegate.cli.output.error_output import error_text
from tidegate.errors import DeclarationError
from tidegate.plan import explain_logical, explain_physical, logical_plan, physical_plan

HERE = Path(__file__).parent
PIPELINES = sorted((HERE / "pipelines").glob("*.py"))
MISTAKES = sorted((HERE / "mistakes").glob("*.py"))


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("declaration", PIPELINES, ids=name)
def test_a_pipeline_is_explained_as_expected(declaration: Path, update_plans: bool) -> None:
    pipeline = runpy.run_path(str(declaration))["pipeline"]
    physical = explain_physical(physical_plan(pipeline))
    logical = explain_logical(logical_plan(pipeline))
    compare(declaration, f"{physical}\n\n{logical}\n", update_plans)


@pytest.mark.parametrize("declaration", MISTAKES, ids=name)
def test_a_mistake_is_reported_as_expected(
    declaration: Path, update_plans: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(declaration.parent)
    with pytest.raises(DeclarationError) as raised:
        physical_plan(runpy.run_path(str(declaration))["pipeline"])
    rendered = error_text(raised.value).replace(f"{declaration.parent}/", "")
    compare(declaration, f"{raised.value.condition}\n{rendered}\n", update_plans)


def compare(declaration: Path, text: str, update: bool) -> None:
    expected = declaration.with_suffix(".txt")
    if update:
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


def test_every_expected_text_belongs_to_a_declaration() -> None:
    texts = {path for folder in ("pipelines", "mistakes") for path in (HERE / folder).glob("*.txt")}
    assert {path.with_suffix(".py") for path in texts} == {*PIPELINES, *MISTAKES}
