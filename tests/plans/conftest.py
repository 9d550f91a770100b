"""`pytest tests/plans --update-plans` rewrites the expected EXPLAIN texts."""

from __future__ import annotations

import pytest

# Mistakes raise when they are imported, which looking for doctests would do.
collect_ignore = ["mistakes", "pipelines"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-plans", action="store_true", help="rewrite the expected texts")


@pytest.fixture
def update_plans(pytestconfig: pytest.Config) -> bool:
    # The option exists only when this folder is named on the command line.
    return bool(pytestconfig.getoption("--update-plans", default=False))
