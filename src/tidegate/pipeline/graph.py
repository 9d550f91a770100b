"""Depth-first topological order of graphs of any depth, without recursion.

Not `graphlib`: its order is that of readiness, which interleaves branches of a graph. Stages are
numbered in this order, so that those of one branch stand together in EXPLAIN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

T = TypeVar("T", bound="Hashable")


class CycleFound(Exception, Generic[T]):
    """`nodes` form a cycle: each reads the next one, and the last reads the first."""

    def __init__(self, nodes: Sequence[T]) -> None:
        super().__init__(f"a cycle of {len(nodes)} nodes")
        self.nodes = tuple(nodes)


def upstream_first(roots: Iterable[T], inputs_of: Callable[[T], Iterable[T]]) -> list[T]:
    """Every node that `roots` reach, once each, after everything it reads.

    The order depends only on the order of roots and inputs. Raises `CycleFound`.

    >>> reads = {"join": ["left", "right"], "left": ["source"], "right": ["source"]}
    >>> upstream_first(["join"], lambda node: reads.get(node, []))
    ['source', 'left', 'right', 'join']
    """
    done: dict[T, None] = {}
    for root in roots:
        _visit(root, inputs_of, done)
    return list(done)


def _visit(root: T, inputs_of: Callable[[T], Iterable[T]], done: dict[T, None]) -> None:
    """Add `root` to `done`, after all it reads; `path` leads from the root to the current node."""
    if root in done:
        return
    path: dict[T, Iterator[T]] = {root: iter(inputs_of(root))}
    while path:
        node, remaining = next(reversed(path.items()))
        upstream = next((it for it in remaining if it not in done), None)
        if upstream is None:
            done[node] = None
            del path[node]
        elif upstream in path:
            nodes = list(path)
            raise CycleFound(nodes[nodes.index(upstream) :])
        else:
            path[upstream] = iter(inputs_of(upstream))
