"""Who is let in where there are no tokens."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from tidegate.errors import ForeignOrigin, ProxiedRequest, UnexpectedToken
from tidegate.http.auth.authenticator import Authenticator

PORT = 8420


def request(*headers: tuple[str, str], **named: str) -> Request:
    return request_at(PORT, *headers, **named)


def request_at(port: int, *headers: tuple[str, str], **named: str) -> Request:
    every = [*headers, *((name.replace("_", "-"), value) for name, value in named.items())]
    given = [(name.encode(), value.encode()) for name, value in every]
    at = ("127.0.0.1", port)
    return Request({"type": "http", "method": "GET", "path": "/", "headers": given, "server": at})


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8420"},
        {"host": "127.0.0.2:8420"},
        {"host": "LOCALHOST:8420"},
        {"host": "[::1]:8420"},
        {"host": "localhost:8420", "origin": "http://localhost:8420"},
        {"host": "[::1]:8420", "origin": "http://[::1]:8420", "sec_fetch_site": "same-origin"},
        {"host": "localhost:8420", "sec_fetch_site": "none"},
    ],
)
def test_programs_of_this_machine_are_the_local_client(headers: dict[str, str]) -> None:
    assert Authenticator(None).client_of(request(**headers)) == "local"


def test_the_port_of_http_need_not_be_named() -> None:
    assert Authenticator(None).client_of(request_at(80, host="localhost")) == "local"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "evil.example:8420"},
        {"host": "127.0.0.1:8420", "origin": "https://evil.example"},
        {"host": "127.0.0.1:8420", "origin": "null"},
        {"host": "127.0.0.1:8420", "origin": ""},
        {"host": "[::1", "origin": "http://localhost"},
    ],
)
def test_pages_of_other_sites_in_a_browser_of_this_machine_are_not(headers: dict[str, str]) -> None:
    with pytest.raises(ForeignOrigin):
        Authenticator(None).client_of(request(**headers))


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost:3000"},
        {"origin": "http://127.0.0.1:8420"},
        {"origin": "https://localhost:8420"},
        {"origin": "http://localhost"},
        {"origin": "http://localhost:8420/"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site"},
    ],
)
def test_a_page_that_another_program_of_this_machine_serves_is_of_another_site(
    headers: dict[str, str],
) -> None:
    with pytest.raises(ForeignOrigin):
        Authenticator(None).client_of(request(host="localhost:8420", **headers))


def test_a_second_origin_does_not_hide_behind_the_first() -> None:
    origins = [("origin", "http://localhost:8420"), ("origin", "https://evil.example")]
    with pytest.raises(ForeignOrigin):
        Authenticator(None).client_of(request(("host", "localhost:8420"), *origins))


@pytest.mark.parametrize("host", ["localhost", "localhost:80", "localhost:9000", "127.0.0.1:x"])
def test_a_request_for_another_port_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(ForeignOrigin):
        Authenticator(None).client_of(request(host=host))


@pytest.mark.parametrize(
    "header",
    ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip", "via"],
)
def test_a_request_that_came_through_a_proxy_is_refused_without_tokens(header: str) -> None:
    with pytest.raises(ProxiedRequest) as refused:
        Authenticator(None).client_of(request(("host", "localhost:8420"), (header, "203.0.113.7")))
    assert refused.value.header == header


@pytest.mark.parametrize("token", ["Bearer secret", "Basic YTpi", ""])
def test_a_token_is_refused_where_there_are_none(token: str) -> None:
    with pytest.raises(UnexpectedToken):
        Authenticator(None).client_of(request(host="localhost:8420", authorization=token))
