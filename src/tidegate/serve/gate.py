"""The gate: who a request is from.

With tokens, whoever has one. Without, whoever is on this machine; a web page that a user of it
happens to look at is not meant, though its browser runs here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidegate.errors import ForeignOrigin
from tidegate.serve.access import LOCAL

if TYPE_CHECKING:
    from starlette.requests import Request

    from tidegate.serve.access import Tokens

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Gate:
    """Lets clients in."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens

    def client_of(self, request: Request) -> str:
        """The client's name; raises `UnknownToken` or `ForeignOrigin`."""
        if self._tokens is not None:
            return self._tokens.client_of(request.headers.get("authorization"))
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        # A name of somebody else's may lead here too, and then its pages are "of the same host".
        for asked in (f"//{host}", *([] if origin is None else [origin])):
            if not _is_here(asked):
                raise ForeignOrigin(origin or host)
        return LOCAL


def _is_here(url: str) -> bool:
    try:
        return urlsplit(url).hostname in LOOPBACK
    except ValueError:
        return False
