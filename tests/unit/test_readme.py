"""The README's declaration works as it stands there; `tests/integration` runs the rest of it."""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.pipeline import Pipeline
from tidegate.plan import explain_physical, physical_plan

README = Path(__file__).parents[2] / "README.md"


def test_the_declaration_in_the_readme_can_be_planned_and_explained() -> None:
    declaration, *_ = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    declaration = declaration.partition("results =")[0]
    names: dict[str, object] = {}
    exec(compile(declaration, str(README), "exec"), names)
    pipeline = names["p"]
    assert isinstance(pipeline, Pipeline)
    assert "PhysicalBarrier" in explain_physical(physical_plan(pipeline))
