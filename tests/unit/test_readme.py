"""The README's own example works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.pipeline import Pipeline
from tidegate.plan import explain_physical, physical_plan

README = Path(__file__).parents[2] / "README.md"


def test_the_declaration_in_the_readme_can_be_planned_and_explained() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        names: dict[str, object] = {}
        exec(compile(block, str(README), "exec"), names)
        declared = [value for value in names.values() if isinstance(value, Pipeline)]
        assert declared
        assert "PhysicalBarrier" in explain_physical(physical_plan(declared[0]))
