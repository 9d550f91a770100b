"""Says in the head of the report which form of the room is tested."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import tidegate.dataflow


def pytest_report_header() -> str:
    names = [module.name for module in iter_modules(tidegate.dataflow.__path__)]
    files = {name: str(import_module(f"tidegate.dataflow.{name}").__file__) for name in names}
    compiled = [name for name, file in files.items() if file.endswith(".so")]
    return f"tidegate.dataflow: compiled: {', '.join(compiled) or 'nothing'}"
