"""Builds `tidegate.dataflow` as it is compiled into wheels, in a folder of its own.

`src/` stays as it is: the package is copied, compiled beside its sources, and used by processes
that find the copy first. Loops that are to be part of the compiled code are built into the same
library, where calls between modules cost least.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTER = Path(__file__).with_name("_allocations.c")
BOUND = 600
"""Seconds; it takes about ten on an idle machine."""

BUILD = """
import runpy, sys
from setuptools import Distribution, Extension

recipe = runpy.run_path("setup.py")
modules = recipe["extensions"](sys.argv[1:], group="tidegate_dataflow")
command = Distribution({
    "name": "tidegate", "ext_modules": [*modules, Extension("allocations", ["allocations.c"])],
}).get_command_obj("build_ext")
command.build_lib, command.build_temp = "src", "build"
command.ensure_finalized()
command.run()
"""


def why_not() -> str | None:
    """Why nothing can be compiled here, if so."""
    for module in ("setuptools", "mypyc"):
        if find_spec(module) is None:
            return f"there is no {module}"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "there are no headers of Python"
    return None


def compile_package(folder: Path, loops: Sequence[Path] = ()) -> Path:
    """Compile a copy of the package, and these modules with it; what to put on the path."""
    plain = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "src/tidegate", folder / "src/tidegate", ignore=plain)
    shutil.copy(ROOT / "setup.py", folder)
    shutil.copy(COUNTER, folder / "allocations.c")
    for loop in loops:
        shutil.copy(loop, folder / "src")
    names = [f"src/{loop.name}" for loop in loops]
    command = [sys.executable, "-c", BUILD, *names]
    built = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=BOUND, check=False
    )
    if built.returncode != 0:
        raise RuntimeError(f"tidegate.dataflow was not compiled:\n{built.stdout}{built.stderr}")
    return folder / "src"


def on_path(compiled: Path) -> dict[str, str]:
    """The environment of a process that finds the compiled copy first."""
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(compiled), before)))}
