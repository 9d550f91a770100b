"""Wiring: from a graph of processors to the lanes between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.dataflow import Bell, Channel, Edge
from tidegate.dataflow.channel import DEFAULT_CAPACITY, DEFAULT_RESERVE
from tidegate.errors import BadWiring
from tidegate.runtime.in_memory.head import SourceInlet
from tidegate.runtime.in_memory.memory import Lane
from tidegate.store import LaneName

HEAD = "head"
HEAD_RESERVE = 4096
"""Places for signals on a lane from the head: an END of each run that is open at one time."""


@dataclass(frozen=True, slots=True)
class Link:
    """One edge of the graph. The order of a processor's links numbers its inputs."""

    upstream: str
    downstream: str
    shard: int | None = None
    """The downstream's shard when the link is part of an exchange; it gets those events only."""
    input: int | None = None
    """Which input of the plan's node it belongs to; by default every link is an input."""


def edges_into(links: Iterable[Link], name: str) -> tuple[Edge, ...]:
    """The input edges of a processor, in order."""
    feeding = (link for link in links if link.downstream == name)
    return tuple(Edge(index, link.upstream, link.input) for index, link in enumerate(feeding))


class Wiring:
    """The lanes of a graph that has one collecting end, ready for one processor per name."""

    def __init__(
        self,
        names: Sequence[str],
        links: Sequence[Link],
        sources: Mapping[str, Sequence[Sequence[str]]] | None = None,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        self.bells = {name: Bell() for name in names}
        self.inputs: dict[str, list[Lane]] = {name: [] for name in names}
        self.outputs: dict[str, list[Lane]] = {name: [] for name in names}
        self._capacity = capacity
        _check(names, links)
        for link in links:
            self._connect(link)
        self.upstreams = {
            name: tuple(lane.edge.upstream for lane in lanes) for name, lanes in self.inputs.items()
        }
        self.end = _only_end(self.outputs)
        sources = sources or {
            name: ((name,),) for name, feeds in self.upstreams.items() if not feeds
        }
        self.inlets = [self._open_inlet(name, readers) for name, readers in sources.items()]

    @property
    def lanes(self) -> list[Lane]:
        """Every lane, those from the head included."""
        return [lane for lanes in self.inputs.values() for lane in lanes]

    def close(self) -> None:
        """Close every lane, which wakes whoever sleeps at either end."""
        for lane in self.lanes:
            lane.close()

    def _connect(self, link: Link) -> None:
        edge = Edge(len(self.inputs[link.downstream]), link.upstream, link.input)
        lane = self._lane(edge, link, self.bells[link.upstream], DEFAULT_RESERVE)
        self.inputs[link.downstream].append(lane)
        self.outputs[link.upstream].append(lane)

    def _open_inlet(self, source: str, readers: Sequence[Sequence[str]]) -> SourceInlet:
        room = Bell()
        lanes = [[self._inlet_lane(task, room) for task in tasks] for tasks in readers]
        return SourceInlet(source, lanes, room)

    def _inlet_lane(self, task: str, room: Bell) -> Lane:
        lane = self._lane(Edge(0, HEAD), Link(HEAD, task), room, HEAD_RESERVE)
        self.inputs[task].append(lane)
        return lane

    def _lane(self, edge: Edge, link: Link, room: Bell, reserve: int) -> Lane:
        arrivals = self.bells[link.downstream]
        name = f"{link.upstream} → {link.downstream}"
        data = Channel(name, self._capacity, reserve, arrivals, room)
        control = Channel(f"{name} (control)", self._capacity, reserve, arrivals, room)
        return Lane(edge, data, control, link.shard)


def _check(names: Sequence[str], links: Sequence[Link]) -> None:
    if len(set(names)) != len(names):
        raise BadWiring(reason="two processors have the same name")
    for link in links:
        for name in (link.upstream, link.downstream):
            if name not in names:
                raise BadWiring(reason=f"{link} names {name!r}, which is no processor")
    if _has_cycle(links):
        raise BadWiring(reason="the links form a cycle, in which a barrier would never arrive")


def _has_cycle(links: Sequence[Link]) -> bool:
    downstreams: dict[str, list[str]] = defaultdict(list)
    waiting: dict[str, int] = defaultdict(int)
    for link in links:
        downstreams[link.upstream].append(link.downstream)
        waiting[link.downstream] += 1
    ready = [name for name in downstreams if not waiting[name]]
    seen = 0
    while ready:
        for downstream in downstreams[ready.pop()]:
            seen += 1
            waiting[downstream] -= 1
            if not waiting[downstream]:
                ready.append(downstream)
    return seen != len(links)


def _only_end(outputs: Mapping[str, Sequence[Lane]]) -> str:
    ends = [name for name, lanes in outputs.items() if not lanes]
    if len(ends) != 1:
        raise BadWiring(reason=f"a pipeline has one collecting end, this one has: {ends}")
    return ends[0]


def lane_names(links: Iterable[Link], sources: Iterable[str]) -> list[LaneName]:
    """The lanes of one run of a graph, those from the head to its source tasks included."""
    links = tuple(links)
    receivers = {link.downstream for link in links}
    between = [
        LaneName(edge.upstream, task, edge.index)
        for task in sorted(receivers)
        for edge in edges_into(links, task)
    ]
    return [*between, *(LaneName(HEAD, source) for source in sources)]


def shards_by_lane(links: Sequence[Link], task: str) -> dict[tuple[str, int], int | None]:
    """For each lane out of a task, the shard it leads to."""
    shards: dict[tuple[str, int], int | None] = {}
    for receiver in {link.downstream for link in links}:
        arriving = [link for link in links if link.downstream == receiver]
        for index, link in enumerate(arriving):
            if link.upstream == task:
                shards[receiver, index] = link.shard
    return shards
