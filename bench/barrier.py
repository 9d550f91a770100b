"""What a barrier costs: to align it, to wait for it, and to the data around it."""

from __future__ import annotations

from functools import partial

from bench._measure import Case, main
from bench._queues import Queue, QueueDiamond, Token
from tidegate.dataflow import Aligner, BarrierKind, Carrier, Edge
from tidegate.runtime import BarrierProcessor, Link, LivePipeline, Operator, Processor, edges_into

MESSAGES = 12_000
NEVER = 1_000_000_000
LINKS = (
    Link("source", "left"),
    Link("source", "right"),
    Link("left", "barrier"),
    Link("right", "barrier"),
    Link("barrier", "end"),
)


def align(upstreams: int, count: int) -> None:
    edges = [Edge(index, f"upstream{index}") for index in range(upstreams)]
    aligner = Aligner(edges, "march")
    for id in range(1, count + 1):
        barrier = BarrierKind.SYNC_TEST.with_id(id, "march")
        for edge in edges:
            aligner.accept(edge, barrier)


def gather_tokens(upstreams: int, count: int) -> None:
    queues = [Queue() for _ in range(upstreams)]
    for _ in range(count):
        token = object()
        for queue in queues:
            queue.put(token)
        for queue in queues:
            queue.get()


def wait_for_each(count: int) -> None:
    with diamond() as live:
        for _ in range(count):
            live.send_barrier(BarrierKind.SYNC_TEST, Carrier.DATA, "march").wait()
        live.end("march").wait()


def wait_for_each_token(count: int) -> None:
    queues = QueueDiamond()
    for _ in range(count):
        token = Token()
        queues.put(token)
        token.wait()
    queues.end()


def send_with_barriers(every: int, count: int) -> None:
    with diamond() as live:
        for number in range(1, count + 1):
            live.send("source", number, "march")
            if number % every == 0:
                live.send_barrier(BarrierKind.SYNC_TEST, Carrier.DATA, "march")
        live.end("march").wait()


def put_with_tokens(every: int, count: int) -> None:
    queues = QueueDiamond()
    for number in range(1, count + 1):
        queues.put(number)
        if number % every == 0:
            queues.put(Token())
    queues.end()


def diamond() -> LivePipeline:
    node = BarrierProcessor("barrier", edges_into(LINKS, "barrier"))
    workers = [Operator(name) for name in ("source", "left", "right", "end")]
    processors: list[Processor] = [*workers, node]
    live = LivePipeline("diamond", processors, LINKS)
    live.begin("march")
    return live


def aligning(upstreams: int) -> Case:
    ours, peer = partial(align, upstreams), partial(gather_tokens, upstreams)
    return Case(f"align over {upstreams} upstreams", "barriers", 40_000 // upstreams, ours, peer)


def around(title: str, every: int) -> Case:
    ours, peer = partial(send_with_barriers, every), partial(put_with_tokens, every)
    return Case(title, "messages", MESSAGES, ours, peer)


def against_none(title: str, every: int) -> Case:
    ours, peer = partial(send_with_barriers, every), partial(send_with_barriers, NEVER)
    return Case(title, "messages", MESSAGES, ours, peer, "Tidegate without barriers", effort=1)


CASES = (
    aligning(2),
    aligning(16),
    Case("send and wait, through a diamond", "barriers", 1_000, wait_for_each, wait_for_each_token),
    around("diamond, no barriers", NEVER),
    around("diamond, one every 1,000 messages", every=1_000),
    against_none("the same", every=1_000),
    against_none("diamond, one every 100 messages", every=100),
)

if __name__ == "__main__":
    main(CASES)
