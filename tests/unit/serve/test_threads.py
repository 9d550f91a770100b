"""The threads of the interface: bounded, apart from each other, and refused once it closes."""

from __future__ import annotations

import asyncio
from threading import Event, Lock

import pytest

from tidegate.errors import ServerStopping
from tidegate.serve.threads import Limits, Threads

LONG = 30


def test_however_many_chunks_wait_a_question_is_answered_and_only_some_work_at_once() -> None:
    released, counting = Event(), Lock()
    at_work, most = 0, 0

    def chunk() -> None:
        nonlocal at_work, most
        with counting:
            at_work += 1
            most = max(most, at_work)
        assert released.wait(LONG)
        with counting:
            at_work -= 1

    async def ask() -> str:
        chunks = [asyncio.ensure_future(threads.deliver(chunk)) for _ in range(20)]
        answer = await asyncio.wait_for(threads.call(lambda: "here"), LONG)
        released.set()
        await asyncio.gather(*chunks)
        return answer

    with Threads(Limits(deliveries=3)) as threads:
        assert asyncio.run(ask()) == "here"
    assert 1 <= most <= 3


def test_a_server_that_closes_takes_nothing_more() -> None:
    async def ask(threads: Threads) -> None:
        await threads.call(lambda: "here")

    with Threads(Limits()) as threads:
        pass
    with pytest.raises(ServerStopping):
        asyncio.run(ask(threads))
