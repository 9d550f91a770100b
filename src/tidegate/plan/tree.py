"""Draws a graph as text, each input below its reader.

A chain is drawn without indentation; only nodes with several inputs branch and indent. A shared
node is drawn once and referred to afterwards, and a branch that is nested too deeply is drawn as a
tree of its own further down.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_DEEPEST = 12
"""The number of nested branches that fit on a screen."""


class _Branch(NamedTuple):
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
        stack = [_Branch(tree, "", "", 0)]
        while stack:
            branch = stack.pop()
            if branch.node in drawn:
                yield f"{branch.first}↑ {branch.node} (drawn above)"
            elif branch.depth > _DEEPEST:
                yield f"{branch.first}↓ {branch.node} (drawn below)"
                waiting.append(branch.node)
            else:
                drawn.add(branch.node)
                yield from _lines(branch, describe(branch.node))
                stack += reversed(_below(branch, inputs_of(branch.node)))


def _lines(branch: _Branch, lines: Sequence[str]) -> Iterator[str]:
    yield branch.first + lines[0]
    yield from (f"{branch.rest}    {line}" for line in lines[1:])


def _below(branch: _Branch, inputs: Sequence[str]) -> list[_Branch]:
    if len(inputs) == 1:
        return [_Branch(inputs[0], branch.rest, branch.rest, branch.depth)]
    last = len(inputs) - 1
    return [
        _Branch(
            node,
            branch.rest + ("└─ " if position == last else "├─ "),
            branch.rest + ("   " if position == last else "│  "),
            branch.depth + 1,
        )
        for position, node in enumerate(inputs)
    ]
