"""A chunk on its way in: whole, or given up in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive

from tidegate.errors import OpenBytesExceeded, TooManyUploads, UploadTooSlow
from tidegate.http.limits.executors import Executors
from tidegate.http.limits.limits import HttpLimits
from tidegate.http.spool import open_spool
from tidegate.http.uploads import NO_CHECKS, Admission, Uploads

PIECES = [b"item_id,quantity\n", b"1,2\n", b"1,3\n"]


def received(
    root: Path, limits: HttpLimits, pause: float = 0.0, admission: Admission = NO_CHECKS
) -> bytes:
    """What is spooled of a chunk that comes in pieces, with a pause before each."""
    pieces: Iterator[bytes] = iter(PIECES)

    async def receive() -> Message:
        await asyncio.sleep(pause)
        piece = next(pieces, b"")
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    async def take() -> bytes:
        uploads = Uploads(spool, executors, limits, admission)
        request = Request({"type": "http", "headers": []}, receive)
        async with uploads.received("ann", request, "sales", 1, ".csv") as file:
            return await executors.write(Path(file).read_bytes)

    with open_spool(str(root)) as spool, Executors(limits) as executors:
        try:
            return asyncio.run(take())
        finally:
            assert [*root.rglob("*.csv")] == []


def test_a_chunk_is_spooled_whole(tmp_path: Path) -> None:
    assert received(tmp_path, HttpLimits()) == b"".join(PIECES)


def test_a_chunk_whose_size_is_not_announced_counts_against_the_quota(tmp_path: Path) -> None:
    def quota(_client: str, incoming: int) -> None:
        if incoming > 10:
            raise OpenBytesExceeded(0, incoming, 10)

    with pytest.raises(OpenBytesExceeded) as refused:
        received(tmp_path, HttpLimits(), admission=Admission(quota, lambda _: None))
    assert refused.value.incoming == len(b"".join(PIECES))


def test_a_chunk_that_trickles_in_is_given_up_although_it_goes_on(tmp_path: Path) -> None:
    with pytest.raises(UploadTooSlow):
        received(tmp_path, HttpLimits(patience=0, least_rate=1 << 20), pause=0.01)


def test_a_slow_beginning_is_forgiven(tmp_path: Path) -> None:
    limits = HttpLimits(patience=60, least_rate=1 << 20)
    assert received(tmp_path, limits, pause=0.01) == b"".join(PIECES)


def test_slow_chunks_of_one_client_do_not_block_others(tmp_path: Path) -> None:
    limits = HttpLimits(uploads=1)
    arrived = asyncio.Event()

    async def never() -> Message:
        arrived.set()
        await asyncio.sleep(60)
        raise AssertionError("it was waited for")

    async def at_once() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def race() -> None:
        uploads = Uploads(spool, executors, limits)

        async def take(client: str, receive: Receive) -> None:
            request = Request({"type": "http", "headers": []}, receive)
            async with uploads.received(client, request, "sales", 1, ".csv"):
                pass

        slow = asyncio.create_task(take("slow", never))
        await arrived.wait()
        await asyncio.wait_for(take("quick", at_once), 10)
        assert not slow.done()
        slow.cancel()

    with open_spool(str(tmp_path)) as spool, Executors(limits) as executors:
        asyncio.run(race())


def test_chunks_of_one_client_wait_to_be_read_in_a_bounded_number(tmp_path: Path) -> None:
    limits = HttpLimits(uploads=1, uploads_waiting=1)
    arrived = asyncio.Event()

    async def never() -> Message:
        arrived.set()
        await asyncio.sleep(60)
        raise AssertionError("it was waited for")

    async def race() -> None:
        uploads = Uploads(spool, executors, limits)

        async def take() -> None:
            request = Request({"type": "http", "headers": []}, never)
            async with uploads.received("ann", request, "sales", 1, ".csv"):
                pass

        held = [asyncio.create_task(take()) for _ in range(2)]
        await arrived.wait()
        with pytest.raises(TooManyUploads):
            await asyncio.wait_for(take(), 10)
        for it in held:
            it.cancel()

    with open_spool(str(tmp_path)) as spool, Executors(limits) as executors:
        asyncio.run(race())
