"""Random graphs of processors under random traffic; the seed of a failure is in the test's name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from threading import Thread
from time import sleep

import pytest

from tests.integration.traffic import (
    LONG,
    Client,
    Collector,
    Mark,
    Path,
    close_and_check,
    join_all,
    wait_until_sent,
)
from tidegate.dataflow import Event
from tidegate.runtime import BarrierProcessor, Link, LivePipeline, Operator, Processor, edges_into

END = "end"
MOST_PATHS = 12
MESSAGES = 600


@dataclass(frozen=True)
class Graph:
    """Who feeds whom. A name listed twice feeds by two edges."""

    sources: tuple[str, ...]
    upstreams: dict[str, tuple[str, ...]]

    def links(self) -> Iterator[Link]:
        """Every edge, with a barrier node in front of every fan-in."""
        for name, feeds in self.upstreams.items():
            into = f"{name}!" if len(feeds) > 1 else name
            yield from (Link(feed, into) for feed in feeds)
            if into != name:
                yield Link(into, name)

    def paths_into(self, name: str) -> Iterator[Path]:
        """Every way by which an event can reach a processor, as its `Tracing`s write it."""
        feeds = self.upstreams.get(name, ())
        for index, feed in enumerate(feeds):
            port = index if len(feeds) > 1 else 0
            yield from ((*path, (name, port)) for path in self.paths_into(feed))
        if not feeds:
            yield ((name, 0),)


class Tracing(Operator):
    """Writes itself into every event, and now and then is slow."""

    def __init__(self, name: str, random: Random, slow_every: int) -> None:
        super().__init__(name)
        self._random = random
        self._slow_every = slow_every

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        mark = event.payload
        assert isinstance(mark, Mark)
        if self._slow_every and not self._random.randrange(self._slow_every):
            sleep(self._random.random() / 1_000)
        path = (*mark.path, (self.name, event.port))
        yield Event(mark._replace(path=path), event.run)


def random_graph(random: Random) -> Graph:
    """A graph whose collecting end joins whatever nobody else reads."""
    sources = tuple(f"source{number}" for number in range(random.randint(1, 3)))
    while True:
        names, upstreams = list(sources), dict[str, tuple[str, ...]]()
        for number in range(random.randint(1, 6)):
            feeds = random.choices(names, k=random.choice((1, 1, 2, 3)))
            upstreams[f"op{number}"] = tuple(feeds)
            names.append(f"op{number}")
        read = {feed for feeds in upstreams.values() for feed in feeds}
        upstreams[END] = tuple(name for name in names if name not in read)
        graph = Graph(sources, upstreams)
        if len(list(graph.paths_into(END))) <= MOST_PATHS:
            return graph


def processors_of(graph: Graph, random: Random) -> list[Processor]:
    links = list(graph.links())
    fan_ins = [f"{name}!" for name, feeds in graph.upstreams.items() if len(feeds) > 1]
    workers = [name for name in (*graph.sources, *graph.upstreams) if name != END]
    hold = random.choice((1, 4, 64))
    return [
        *(BarrierProcessor(name, edges_into(links, name), hold) for name in fan_ins),
        *(Tracing(name, Random(name), random.choice((0, 0, 0, 200))) for name in workers),
    ]


def start(live: LivePipeline, graph: Graph, random: Random) -> dict[Client, Thread]:
    """Clients of several runs; some with bounds so short that barriers are withdrawn often."""
    started = {}
    for number in range(random.randint(2, 4)):
        name = f"run{number}"
        client = Client(live, name, name, random.randrange(1_000_000))
        bound = random.choice((LONG, LONG, 0.002, 0.02))
        every = random.choice((5, 50, 200))
        started[client] = client.start(list(graph.sources), MESSAGES, every, bound)
    return started


def cancel_and_begin_again(live: LivePipeline, graph: Graph, random: Random) -> list[Client]:
    """Cancel a run at some moment, also while it ends, and use its name at once again."""
    clients = []
    count = MESSAGES // 10
    for life in range(4):
        client = Client(live, "reborn", f"life{life}", random.randrange(1_000_000))
        thread = client.start(list(graph.sources), count, every=20)
        clients.append(client)
        wait_until_sent(client, random.choice((random.randint(1, count), count)))
        client.cancel()
        join_all([thread])
    last = Client(live, "reborn", "last life", random.randrange(1_000_000))
    join_all([last.start(list(graph.sources), count, every=20)])
    return [*clients, last]


@pytest.mark.parametrize("seed", range(20))
def test_a_random_graph_keeps_counts_order_and_cuts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.runtime.task.task_loop.IDLE_NET", LONG)
    random = Random(seed)
    graph = random_graph(random)
    collector = Collector(END)
    processors = [*processors_of(graph, random), collector]
    live = LivePipeline(f"seed {seed}", processors, list(graph.links()), capacity=8)
    started = start(live, graph, random)
    reborn = cancel_and_begin_again(live, graph, random)
    join_all(started.values())
    everybody = [*started, *reborn]
    for receipt in (receipt for client in everybody for receipt in client.receipts):
        assert receipt.settled_within(LONG)
    close_and_check(live, processors)

    paths: dict[str, list[Path]] = {source: [] for source in graph.sources}
    for path in graph.paths_into(END):
        paths[path[0][0]].append(path)
    for client in everybody:
        client.check(collector, paths)
    assert collector.out_of_order == []
    assert collector.ended == {**dict.fromkeys((c.run for c in started), 1), "reborn": len(reborn)}
