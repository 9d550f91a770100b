"""Steps that wait for each other in a circle, by what they depend on and by keys of the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.pipeline.graph import CycleFound, upstream_first


@dataclass(frozen=True, slots=True)
class Waits:
    """What a step waits for before it begins, and what others may wait for."""

    depends_on: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Keys of the state; one that no step writes comes from outside."""
    writes: tuple[str, ...] = ()
    may_be_skipped: bool = False


@dataclass(frozen=True, slots=True)
class Circle:
    """Steps of which each waits for the next, the last for the first: that waits for `key`."""

    key: str
    steps: tuple[str, ...]


def circle_of_waits(steps: Mapping[str, Waits]) -> Circle | None:
    """Why a step with a gate can never begin, if there is such a step.

    A step that may be skipped holds up nobody else, once those that it depends on have ended.

    >>> circle_of_waits({"a": Waits(needs=("k",)), "b": Waits(depends_on=("a",), writes=("k",))})
    Circle(key='k', steps=('a', 'b'))
    """
    for name, step in steps.items():
        stuck = _stuck(steps, name) if step.needs else {}
        if name in stuck:
            return _circle(stuck, name)
    return None


def _stuck(steps: Mapping[str, Waits], kept: str) -> dict[str, Waits]:
    """Whoever cannot begin in any order while `kept` is not skipped, with what it lacks."""
    written = {key for it in steps.values() for key in it.needs}
    written -= {key for it in steps.values() for key in it.writes}
    waiting, ended = dict(steps), set[str]()
    before = -1
    while len(ended) - len(waiting) != before:
        before = len(ended) - len(waiting)
        for name, it in list(waiting.items()):
            is_open = written.issuperset(it.needs)
            if ended.issuperset(it.depends_on) and (
                is_open or (it.may_be_skipped and name != kept)
            ):
                ended.add(name)
                written.update(waiting.pop(name).writes if is_open else ())
    return {name: _lacking(it, ended, written) for name, it in waiting.items()}


def _lacking(step: Waits, ended: set[str], written: set[str]) -> Waits:
    depends_on = tuple(it for it in step.depends_on if it not in ended)
    return Waits(depends_on, tuple(it for it in step.needs if it not in written), step.writes)


def _circle(stuck: Mapping[str, Waits], name: str) -> Circle:
    def waits_for(name: str) -> list[str]:
        needs = set(stuck[name].needs)
        writers = [it for it, other in stuck.items() if not needs.isdisjoint(other.writes)]
        return [*stuck[name].depends_on, *writers]

    try:
        upstream_first([name], waits_for)
    except CycleFound as found:
        return _from_a_gate(stuck, found.nodes)
    raise AssertionError("whoever is stuck waits for somebody who is")


def _from_a_gate(stuck: Mapping[str, Waits], nodes: tuple[str, ...]) -> Circle:
    """The circle as told from a step that does not depend on the next one, but needs its key."""
    at = next(at for at, it in enumerate(nodes) if _next(nodes, at) not in stuck[it].depends_on)
    key = next(it for it in stuck[nodes[at]].needs if it in stuck[_next(nodes, at)].writes)
    return Circle(key, (*nodes[at:], *nodes[:at]))


def _next(nodes: tuple[str, ...], at: int) -> str:
    return nodes[(at + 1) % len(nodes)]
