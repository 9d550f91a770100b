"""The gate: who a request is from.

With tokens, the client that has the request's token. Without, every program of this machine is one
client, so a request is refused that may come from elsewhere: through a proxy, from a web page in a
browser of this machine, or under a host name that is not this machine's (DNS rebinding).
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
"""Values of Sec-Fetch-Site for a page of this server, and for an address that was typed in."""
HTTP_PORT = 80


class ClientLookup(Protocol):
    """Finds the client of a token."""

    def client_of(self, authorization: str | None) -> str:
        """The client that sends this header; raises `UnknownToken`."""
        ...


class Authenticator:
    """Lets clients in."""

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
        """Whether a request that was let in before would be let in as the same client."""
        try:
            return self.client_of(request) == client
        except UnknownToken:
            return False


def check_local_request(headers: Headers, port: int | None) -> None:
    """Raise unless a request comes from a program of this machine, to its port, without a token."""
    if "authorization" in headers:
        raise UnexpectedToken
    for name in headers:
        if name in PROXY_HEADERS or name.startswith(PROXY_PREFIX):
            raise ProxiedRequest(name)
    host, origins = headers.get("host", ""), headers.getlist("origin")
    # A name of another site may lead here too, and then its pages are "of the same host".
    if not _is_here(host, port):
        raise ForeignOrigin(origins[0] if origins else host)
    for origin in origins:
        if origin.lower() != f"http://{host}".lower():
            raise ForeignOrigin(origin)
    # Browsers send no Origin with what they only read, such as an image.
    if headers.get("sec-fetch-site", "none") not in OWN_SITE:
        raise ForeignOrigin("a page of another site")


def _is_here(host: str, port: int | None) -> bool:
    """Whether a Host header names this machine and the port that is listened on."""
    try:
        asked = urlsplit(f"//{host}")
        return is_loopback(asked.hostname or "") and (asked.port or HTTP_PORT) == port
    except ValueError:
        return False
