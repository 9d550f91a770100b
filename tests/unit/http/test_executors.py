"""The threads of the interface: bounded, apart from each other, and refused once it closes."""

from __future__ import annotations

import asyncio
from threading import Event, Lock
from time import monotonic

import pytest

from tidegate.errors import ServerStopping
from tidegate.http.limits.executors import Executors
from tidegate.http.limits.limits import HttpLimits

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
        clients = ["ann", "ben"] * 10
        chunks = [asyncio.ensure_future(executors.deliver(it, chunk)) for it in clients]
        answer = await asyncio.wait_for(executors.call("ann", lambda: "here"), LONG)
        released.set()
        await asyncio.gather(*chunks)
        return answer

    with Executors(HttpLimits(deliveries=3)) as executors:
        assert asyncio.run(ask()) == "here"
    assert 1 <= most <= 3


def test_chunks_of_one_client_that_take_for_ever_do_not_delay_those_of_another() -> None:
    released = Event()

    async def ask() -> str:
        slow = [
            asyncio.create_task(executors.deliver("ann", released.wait, LONG)) for _ in range(9)
        ]
        await asyncio.sleep(0)  # they have asked first
        try:
            await asyncio.wait_for(executors.write(lambda: None), LONG)
            return await asyncio.wait_for(executors.deliver("ben", lambda: "taken"), LONG / 2)
        finally:
            released.set()
            await asyncio.gather(*slow)

    with Executors(HttpLimits()) as executors:
        assert asyncio.run(ask()) == "taken"


def test_questions_of_one_client_that_take_for_ever_do_not_delay_those_of_another() -> None:
    released = Event()

    async def ask() -> str:
        slow = [asyncio.create_task(executors.call("ann", released.wait, LONG)) for _ in range(9)]
        await asyncio.sleep(0)  # they have asked first
        try:
            return await asyncio.wait_for(executors.call("ben", lambda: "here"), LONG / 2)
        finally:
            released.set()
            await asyncio.gather(*slow)

    with Executors(HttpLimits()) as executors:
        assert asyncio.run(ask()) == "here"


def test_a_chunk_whose_caller_is_gone_before_its_turn_is_never_begun_and_frees_it() -> None:
    released = Event()
    begun: list[str] = []

    async def ask() -> None:
        first = asyncio.create_task(executors.deliver("ann", released.wait, LONG))
        gone = asyncio.create_task(executors.deliver("ann", begun.append, "gone"))
        last = asyncio.create_task(executors.deliver("ann", begun.append, "last"))
        await asyncio.sleep(0)
        gone.cancel()
        released.set()
        await asyncio.gather(first, last)

    with Executors(HttpLimits(deliveries=1)) as executors:
        asyncio.run(ask())
    assert begun == ["last"]


def test_a_chunk_that_takes_for_ever_does_not_keep_the_server_from_closing() -> None:
    at_work, released = Event(), Event()

    def chunk() -> None:
        at_work.set()
        released.wait(LONG)

    async def ask() -> None:
        asked = asyncio.create_task(executors.deliver("ann", chunk))
        await executors.call("ann", at_work.wait, LONG)
        asked.cancel()

    executors = Executors(HttpLimits())
    asyncio.run(ask())
    began = monotonic()
    executors.close(0.1)
    assert monotonic() - began < LONG / 2
    released.set()


def test_a_server_that_closes_takes_nothing_more() -> None:
    async def ask(executors: Executors) -> None:
        await executors.call("ann", lambda: "here")

    with Executors(HttpLimits()) as executors:
        pass
    with pytest.raises(ServerStopping):
        asyncio.run(ask(executors))
