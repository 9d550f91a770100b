"""SQL files and the modules beside them name the same statements."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidegate.store
from tidegate.store.core.queries import parse

STORE = Path(tidegate.store.__file__).parent
FILES = sorted(
    path
    for path in STORE.rglob("*.sql")
    if path.name != "schema.sql" and path.parent.name not in {"functions", "migrations"}
)


def module_text(sql_file: Path) -> str:
    """The source of the module whose statements a file holds."""
    if sql_file.name == "migrations.sql":
        packages = (sql_file.parent / name / "__init__.py" for name in ("migrations", "functions"))
        return "".join(path.read_text() for path in packages)
    return sql_file.with_suffix(".py").read_text()


@pytest.mark.parametrize("sql_file", FILES, ids=lambda path: str(path.relative_to(STORE)))
def test_every_statement_is_used_and_every_used_statement_exists(sql_file: Path) -> None:
    statements, source = parse(sql_file.read_text()).keys(), module_text(sql_file)
    quoted = set(re.findall(r'"([a-z_]+)"', source))
    used = set(re.findall(r'(?:_SQL|\bsql|asked)\["([a-z_]+)"', source))
    assert statements <= quoted
    assert used <= statements
