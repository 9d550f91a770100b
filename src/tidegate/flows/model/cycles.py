"""Finds cycles of steps that wait for each other, by dependencies and by state keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.pipeline.graph import CycleFound, upstream_first


@dataclass(frozen=True, slots=True)
class Waits:
    """What a step waits for before it starts, and what it writes."""

    depends_on: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """State keys; a key that no step writes comes from outside."""
    writes: tuple[str, ...] = ()
    may_be_skipped: bool = False


@dataclass(frozen=True, slots=True)
class Cycle:
    """Steps that each wait for the next, and the last for the first; the first waits for `key`."""

    key: str
    steps: tuple[str, ...]


def find_cycle(steps: Mapping[str, Waits]) -> Cycle | None:
    """The cycle in which a step with a gate waits for itself, if there is one.

    A step that may be skipped blocks no other step once its dependencies have ended.

    >>> find_cycle({"a": Waits(needs=("k",)), "b": Waits(depends_on=("a",), writes=("k",))})
    Cycle(key='k', steps=('a', 'b'))
    """
    for name, step in steps.items():
        stuck = _stuck(steps, name) if step.needs else {}
        if name in stuck:
            return _cycle(stuck, name)
    return None


def _stuck(steps: Mapping[str, Waits], kept: str) -> dict[str, Waits]:
    """The steps that can start in no order while `kept` is not skipped, with what they lack."""
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


def _cycle(stuck: Mapping[str, Waits], name: str) -> Cycle:
    def waits_for(name: str) -> list[str]:
        needs = set(stuck[name].needs)
        writers = [it for it, other in stuck.items() if not needs.isdisjoint(other.writes)]
        return [*stuck[name].depends_on, *writers]

    try:
        upstream_first([name], waits_for)
    except CycleFound as found:
        return _from_a_gate(stuck, found.nodes)
    raise AssertionError("a stuck step waits for a stuck step")


def _from_a_gate(stuck: Mapping[str, Waits], nodes: tuple[str, ...]) -> Cycle:
    """The cycle, beginning at a step that does not depend on the next one but needs its key."""
    at = next(at for at, it in enumerate(nodes) if _next(nodes, at) not in stuck[it].depends_on)
    key = next(it for it in stuck[nodes[at]].needs if it in stuck[_next(nodes, at)].writes)
    return Cycle(key, (*nodes[at:], *nodes[:at]))


def _next(nodes: tuple[str, ...], at: int) -> str:
    return nodes[(at + 1) % len(nodes)]
