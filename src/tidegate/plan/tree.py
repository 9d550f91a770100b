"""Drawing a graph as text: what is read stands below its reader.

A chain goes straight down; only where several inputs meet does the drawing branch and indent. A
shared node is drawn once and pointed at afterwards, and a branch that would get too far to the
right is drawn as a tree of its own further down.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_DEEPEST = 12
"""Branches inside branches that still fit on a screen."""


class _Place(NamedTuple):
    node: str
    first: str
    rest: str
    depth: int


def draw(
    root: str,
    describe: Callable[[str], Sequence[str]],
    inputs_of: Callable[[str], Sequence[str]],
) -> Iterator[str]:
    """The lines of a drawing; `describe` gives a node's lines, the first one with its id.

    >>> reads = {"join": ["a", "b"], "a": ["source"], "b": ["source"], "source": []}
    >>> print("\\n".join(draw("join", lambda node: [node], reads.__getitem__)))
    join
    ├─ a
    │  source
    └─ b
       ↑ source (drawn above)
    """
    drawn: set[str] = set()
    waiting = deque([root])
    while waiting:
        tree = waiting.popleft()
        if tree in drawn:
            continue
        if drawn:
            yield ""
        stack = [_Place(tree, "", "", 0)]
        while stack:
            place = stack.pop()
            if place.node in drawn:
                yield f"{place.first}↑ {place.node} (drawn above)"
            elif place.depth > _DEEPEST:
                yield f"{place.first}↓ {place.node} (drawn below)"
                waiting.append(place.node)
            else:
                drawn.add(place.node)
                yield from _lines(place, describe(place.node))
                stack += reversed(_below(place, inputs_of(place.node)))


def _lines(place: _Place, lines: Sequence[str]) -> Iterator[str]:
    yield place.first + lines[0]
    yield from (f"{place.rest}    {line}" for line in lines[1:])


def _below(place: _Place, inputs: Sequence[str]) -> list[_Place]:
    if len(inputs) == 1:
        return [_Place(inputs[0], place.rest, place.rest, place.depth)]
    last = len(inputs) - 1
    return [
        _Place(
            node,
            place.rest + ("└─ " if position == last else "├─ "),
            place.rest + ("   " if position == last else "│  "),
            place.depth + 1,
        )
        for position, node in enumerate(inputs)
    ]
