"""Shows in the report header which modules of the package are compiled."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import tidegate.dataflow


def pytest_report_header() -> str:
    names = [module.name for module in iter_modules(tidegate.dataflow.__path__)]
    files = {name: str(import_module(f"tidegate.dataflow.{name}").__file__) for name in names}
    compiled = [name for name, file in files.items() if file.endswith(".so")]
    return f"tidegate.dataflow: compiled: {', '.join(compiled) or 'nothing'}"
