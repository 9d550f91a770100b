"""Who is let in where there are no tokens."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from tidegate.errors import ForeignOrigin
from tidegate.serve.gate import Gate


def request(**headers: str) -> Request:
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": given})


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8420"},
        {"host": "localhost"},
        {"host": "[::1]:8420"},
        {"host": "localhost:8420", "origin": "http://localhost:8420"},
    ],
)
def test_programs_of_this_machine_are_the_local_client(headers: dict[str, str]) -> None:
    assert Gate(None).client_of(request(**headers)) == "local"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "evil.example:8420"},
        {"host": "127.0.0.1:8420", "origin": "https://evil.example"},
        {"host": "127.0.0.1:8420", "origin": "null"},
        {"host": "[::1", "origin": "http://localhost"},
    ],
)
def test_pages_of_other_sites_in_a_browser_of_this_machine_are_not(headers: dict[str, str]) -> None:
    with pytest.raises(ForeignOrigin):
        Gate(None).client_of(request(**headers))
