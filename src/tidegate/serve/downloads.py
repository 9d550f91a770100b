"""Results on their way out, piece by piece: never a whole one in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tidegate.serve.closing import ClosingResponse

if TYPE_CHECKING:
    from starlette.responses import Response

    from tidegate.serve.account import Account
    from tidegate.serve.asking import WantedCut
    from tidegate.serve.formats import ResultFormat
    from tidegate.serve.spool import Spool
    from tidegate.serve.threads import Threads


async def download(
    account: Account,
    run: str,
    sink: str,
    wanted: ResultFormat,
    of: WantedCut | None,
    *,
    spool: Spool,
    threads: Threads,
) -> Response:
    """The result of a sink, at its end or at a cut. What is wrong shows before the first byte."""
    with ExitStack() as held:
        folder = await threads.give(held.enter_context, spool.folder())
        pieces = await threads.give(account.result, run, sink, wanted, folder, of)
        first = await threads.give(_next, pieces)
        name = f'attachment; filename="{sink}.{wanted.value}"'
        headers = {"content-disposition": name}
        sent = _sent(first, pieces, threads)
        return ClosingResponse(sent, held.pop_all(), wanted.media_type, headers)


async def _sent(
    first: bytes | None, pieces: Iterator[bytes], threads: Threads
) -> AsyncIterator[bytes]:
    piece = first
    while piece is not None:
        yield piece
        piece = await threads.give(_next, pieces)


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)
