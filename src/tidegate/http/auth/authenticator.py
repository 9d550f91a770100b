"""Authentication: the client of a request.

With tokens, the client of the request's token. Without tokens, all programs on this machine are one
client, and a request that may come from elsewhere is refused: through a proxy, from a web page in a
browser on this machine, or with a host name that is not this machine's (DNS rebinding).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from tidegate.errors import ForeignOrigin, ProxiedRequest, UnexpectedToken, UnknownToken
from tidegate.http.auth.tokens import LOCAL
from tidegate.http.client.trust import is_loopback

if TYPE_CHECKING:
    from starlette.datastructures import Headers
    from starlette.requests import Request

PROXY_HEADERS = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip"})
PROXY_PREFIX = "x-forwarded-"
OWN_SITE = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for a page of this server, and for an address that a user typed."""
HTTP_PORT = 80


class ClientLookup(Protocol):
    """Finds the client of a token."""

    def client_of(self, authorization: str | None) -> str:
        """The client with this Authorization header; raises `UnknownToken`."""
        ...


class Authenticator:
    """Identifies the client of a request."""

    def __init__(self, tokens: ClientLookup | None) -> None:
        self._tokens = tokens

    def client_of(self, request: Request) -> str:
        """The client's name.

        Raises `UnknownToken`; without tokens `UnexpectedToken`, `ProxiedRequest`, `ForeignOrigin`.
        """
        if self._tokens is not None:
            return self._tokens.client_of(request.headers.get("authorization"))
        _, port = request.scope.get("server") or ("", None)
        check_local_request(request.headers, port)
        return LOCAL

    def is_still(self, client: str, request: Request) -> bool:
        """Whether a request that was accepted before still belongs to the same client."""
        try:
            return self.client_of(request) == client
        except UnknownToken:
            return False


def check_local_request(headers: Headers, port: int | None) -> None:
    """Raise unless a request comes from a program on this machine, to its port, without a token."""
    if "authorization" in headers:
        raise UnexpectedToken
    for name in headers:
        if name in PROXY_HEADERS or name.startswith(PROXY_PREFIX):
            raise ProxiedRequest(name)
    host, origins = headers.get("host", ""), headers.getlist("origin")
    # Another site's name may resolve to this host (DNS rebinding): its pages are then same-origin.
    if not _is_here(host, port):
        raise ForeignOrigin(origins[0] if origins else host)
    for origin in origins:
        if origin.lower() != f"http://{host}".lower():
            raise ForeignOrigin(origin)
    # Browsers send no Origin when they load a resource such as an image.
    if headers.get("sec-fetch-site", "none") not in OWN_SITE:
        raise ForeignOrigin("a page of another site")


def _is_here(host: str, port: int | None) -> bool:
    """Whether a Host header names this machine and the server's port."""
    try:
        address = urlsplit(f"//{host}")
        return is_loopback(address.hostname or "") and (address.port or HTTP_PORT) == port
    except ValueError:
        return False
