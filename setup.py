"""Compiles `tidegate.dataflow` into what is installed; everything else is in pyproject.toml.

TIDEGATE_COMPILE decides: 1 insists on compiling, 0 never compiles. By default wheels and plain
installations are compiled if that works here, and are plain Python otherwise. Editable ones stay
plain: a compiled module would hide its edited source.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGE = Path("src/tidegate/dataflow")
COMPILED = (
    "aligner",
    "bell",
    "channel",
    "checkpoint_barrier",
    "control",
    "emitter",
    "ids",
    "injector",
    "value",
)
"""Not `messages`: generic classes lose their slots. Not `checkpoint_id`, which extends `UUID`, nor
`batch`, whose frozen dataclasses would not stay frozen."""

READ = (*map(str, sorted(Path("src/tidegate/errors").glob("*.py"))), str(PACKAGE / "messages.py"))
"""What the compiled modules import: read for its types."""

OPTIONS = ("--config-file=", "--follow-imports=skip")
"""The compiler ignores the rest of the package and its dependencies."""

FLAGS = ("-fvisibility=hidden",)
"""Lets the C compiler inline calls between the modules, which all are in one library."""

BUILDS = frozenset({"bdist_wheel", "build", "build_ext", "install"})


def extensions(more: Iterable[str] = (), group: str = "tidegate_dataflow") -> list[Extension]:
    """The package as extension modules, together with the Python files `more`."""
    from mypyc.build import mypycify

    paths = [*(str(PACKAGE / f"{name}.py") for name in COMPILED), *more]
    built = mypycify([*OPTIONS, *paths, *READ], only_compile_paths=paths, group_name=group)
    for extension in built:
        extension.extra_compile_args.extend(FLAGS)
    return built


class BuildIfPossible(build_ext):
    """Builds all extensions, or none with a message."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as cause:
            if insists():
                raise
            leave_plain(cause)
            for output in self.get_outputs():
                Path(output).unlink(missing_ok=True)
            self.extensions = []


def insists() -> bool:
    """Whether a package that is not compiled would be a failure."""
    return os.environ.get("TIDEGATE_COMPILE") == "1"


def is_to_be_compiled() -> bool:
    """Whether this is a build whose result is compiled."""
    if os.environ.get("TIDEGATE_COMPILE") == "0":
        return False
    return bool(BUILDS & set(sys.argv)) or (insists() and "editable_wheel" in sys.argv)


def extensions_if_possible() -> list[Extension]:
    """None if this is no build, or nothing here translates Python to C."""
    if not is_to_be_compiled():
        return []
    try:
        return extensions()
    except (Exception, SystemExit) as cause:  # mypyc exits the process on an error
        if insists():
            raise
        leave_plain(cause)
        return []


def leave_plain(cause: BaseException) -> None:
    """Report why the package is not compiled."""
    sys.stderr.write(f"tidegate.dataflow stays plain Python, which is slower: {cause!r}\n")


if __name__ == "__main__":
    setup(ext_modules=extensions_if_possible(), cmdclass={"build_ext": BuildIfPossible})
