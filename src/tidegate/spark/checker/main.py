"""The program of a chunk checker; `process.py` starts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType


def without_pyspark() -> None:
    """Let modules of `tidegate.spark` be loaded without the package's own names.

    Those load pyspark, which takes longer and more memory than all that a checker needs.
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
        os._exit(0)  # the server is gone, and what Arrow has open need not be closed
