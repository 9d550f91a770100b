"""constraints.txt pins the whole development environment by name and version, and only so."""

from __future__ import annotations

import re
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LINES = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()


def needed_by(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> set[str]:
    """Names of all packages that `name[extras]` brings along on this machine."""
    if (name, extras) in seen:
        return set()
    seen.add((name, extras))
    needed: set[str] = set()
    for text in requires(name) or []:
        requirement = Requirement(text)
        if applies(requirement, extras):
            child = canonicalize_name(requirement.name)
            needed |= {child} | needed_by(child, frozenset(requirement.extras), seen)
    return needed


def applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""})


def test_every_line_is_a_name_and_a_version() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_every_package_of_the_development_environment_is_pinned_as_installed() -> None:
    names_and_pins = (line.split("==") for line in LINES)
    pins: dict[str, str] = {canonicalize_name(name): pin for name, pin in names_and_pins}
    needed = needed_by("tidegate", frozenset({"dev"}), set())

    assert {name: version(name) for name in needed} == {name: pins.get(name) for name in needed}
