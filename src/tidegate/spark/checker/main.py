"""The program of a chunk checker; `process.py` starts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType


def without_pyspark() -> None:
    """Make modules of `tidegate.spark` importable without its `__init__`.

    That imports pyspark, which needs more time and memory than all the rest of a checker.
    """
    package = ModuleType("tidegate.spark")
    package.__path__ = [str(Path(__file__).parents[1])]
    sys.modules[package.__name__] = package


if __name__ == "__main__":
    without_pyspark()
    from tidegate.spark.checker.checker import main

    try:
        main()
    except (EOFError, ConnectionError):
        os._exit(0)  # the server has ended; open files of Arrow need not be closed
