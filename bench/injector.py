"""What injecting a checkpoint barrier costs, in the compiled package and from interpreted Python.

The package and the loops around it are compiled into a temporary folder. Each figure is the CPU
time of one turn of its loop, the loop included; the floor is a loop that calls something that does
nothing. Beside it: the same loop interpreted over the compiled package, and all of it interpreted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench._compiled import ROOT, compile_package, on_path, why_not
from bench._injector_figures import POLLS
from bench._measure import _print_table

LOOPS = Path(__file__).with_name("_injector_loops.py")
MOST_BYTES = 128
LEAST_RATE = 50

GOALS = (
    ("a turn that does nothing (the floor)", "floor", None),
    ("empty poll, no timer", "empty poll", 10.0),
    ("empty poll, clock every 32 turns", "empty poll, timed", 10.0),
    ("empty poll, clock on each turn", "empty poll, clock", None),
    ("inject", "inject", None),
    ("inject, and poll what is pending", "inject and poll", None),
    ("poll what is pending (the difference)", "poll pending", 30.0),
    ("receive and forward a barrier", "receive and forward", 50.0),
    ("push and pop through a channel", "push and pop", 60.0),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what was measured, what it should be, and whether it is."""

    title: str
    measured: str
    spread: str
    goal: str
    met: str
    from_python: str = ""
    all_python: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of the table."""
        return (
            self.title,
            self.measured,
            self.spread,
            self.from_python,
            self.all_python,
            self.goal,
            self.met,
        )


HEADER = ("", "compiled", "half of all rounds", "called from Python", "all in Python", "goal", "")


def figures(environment: dict[str, str], *arguments: str) -> Any:
    """What another process measures, which finds the package by its environment."""
    command = [sys.executable, "-m", "bench._injector_figures", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def with_difference(nanoseconds: dict[str, list[float]]) -> dict[str, list[float]]:
    both, alone = nanoseconds["inject and poll"], nanoseconds["inject"]
    pending = [max(0.0, together - alone[1]) for together in both]
    return {**nanoseconds, "poll pending": pending}


def timings(compiled: Any, called: Any, plain: Any) -> list[Row]:
    sides = [with_difference(side["nanoseconds"]) for side in (compiled, called, plain)]
    ours, from_python, all_python = sides
    return [
        Row(
            title,
            f"{ours[key][1]:.1f} ns",
            f"{ours[key][0]:.1f} – {ours[key][2]:.1f}",
            "" if goal is None else f"< {goal:g} ns",
            "" if goal is None else met(ours[key][1] < goal),
            f"{from_python[key][1]:.0f} ns",
            f"{all_python[key][1]:.0f} ns",
        )
        for title, key, goal in GOALS
    ]


def throughput(compiled: Any, called: Any, plain: Any) -> Row:
    ours, from_python, all_python = (
        [1e3 / turn for turn in side["nanoseconds"]["inject and poll"]]
        for side in (compiled, called, plain)
    )
    return Row(
        "injected and taken per second",
        f"{ours[1]:.1f} M",
        f"{ours[2]:.1f} – {ours[0]:.1f}",
        f"> {LEAST_RATE} M",
        met(ours[1] > LEAST_RATE),
        f"{from_python[1]:.1f} M",
        f"{all_python[1]:.1f} M",
    )


def weights(compiled: Any, plain: Any) -> list[Row]:
    return [
        Row(
            f"size of {kind}",
            f"{size} bytes",
            "",
            f"≤ {MOST_BYTES}",
            met(size <= MOST_BYTES),
            all_python=f"{plain['sizes'][kind]} bytes",
        )
        for kind, size in compiled["sizes"].items()
    ]


def memory(compiled: Any) -> list[Row]:
    return [
        Row(f"allocations in {POLLS:,} polls: {name}", str(asked), "", "0", met(asked == 0))
        for name, asked in compiled["allocations"].items()
    ]


def met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def measure() -> list[Row]:
    """Everything, in processes of their own."""
    with TemporaryDirectory(prefix="tidegate-") as folder:
        here = on_path(compile_package(Path(folder), [LOOPS]))
        compiled, called = figures(here, "compiled"), figures(here)
    plain = figures(dict(os.environ))
    assert compiled["compiled"], "the loops were not compiled"
    rows = [*timings(compiled, called, plain), throughput(compiled, called, plain)]
    return [*rows, *weights(compiled, plain), *memory(compiled)]


def main(arguments: Sequence[str]) -> None:
    if (reason := why_not()) is not None:
        print(f"not measured: {reason}")
        return
    rows = measure()
    if "--json" in arguments:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print_table([HEADER, *(row.cells for row in rows)])


if __name__ == "__main__":
    main(sys.argv[1:])
