"""Results on their way out, piece by piece: never a whole one in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from starlette.responses import Response

    from tidegate.serve.account import Account
    from tidegate.serve.formats import ResultFormat
    from tidegate.serve.spool import Spool
    from tidegate.serve.threads import Threads


async def download(
    account: Account, run: str, sink: str, wanted: ResultFormat, spool: Spool, threads: Threads
) -> Response:
    """The result of a sink. What is wrong shows before the first byte is sent."""
    held = ExitStack()
    try:
        folder = await threads.give(held.enter_context, spool.folder())
        pieces = await threads.give(account.result, run, sink, wanted, folder)
        first = await threads.give(_next, pieces)
    except BaseException:
        held.close()
        raise
    name = f'attachment; filename="{sink}.{wanted.value}"'
    return StreamingResponse(
        _sent(first, pieces, held, threads),
        media_type=wanted.media_type,
        headers={"content-disposition": name},
    )


async def _sent(
    first: bytes | None, pieces: Iterator[bytes], held: ExitStack, threads: Threads
) -> AsyncIterator[bytes]:
    try:
        piece = first
        while piece is not None:
            yield piece
            piece = await threads.give(_next, pieces)
    finally:
        held.close()


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
