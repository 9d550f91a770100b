"""Clients and their tokens.

A server stores no token, only its SHA-256: a file of lines `client: digest`. Several lines may name
one client, so that a token can be replaced without a gap. Runs are stored under names that begin
with the client, so two clients may use the same name and neither can name a run of the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from tidegate.errors import InvalidRunName, InvalidTokens, UnknownToken

LOCAL = "local"
"""The one client of a server without tokens."""
SEPARATOR = "/"
"""Between a client and a run's name; neither can contain it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LINE = re.compile(r"(?P<client>[^:]*):\s*(?P<digest>\S*)")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Clients, and the SHA-256 of the token of each."""

    clients: tuple[tuple[str, str], ...]

    def client_of(self, authorization: str | None) -> str:
        """The client with this Authorization header; raises `UnknownToken`.

        Every digest is compared in constant time, so that response times reveal nothing about
        tokens.
        """
        scheme, _, token = (authorization or "").partition(" ")
        given = digest_of(token.strip())
        found = [client for client, digest in self.clients if compare_digest(digest, given)]
        if scheme.lower() != "bearer" or not found:
            raise UnknownToken
        return found[0]


def digest_of(token: str) -> str:
    """The SHA-256 of a token, as a file of tokens has it."""
    return sha256(token.encode(errors="surrogateescape")).hexdigest()


def read_tokens(file: Path, *, may_be_empty: bool = False) -> Tokens:
    """The clients in a file; raises `InvalidTokens` with the number of the invalid line."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTokens(str(file), 0, f"the file cannot be read ({error})") from error
    found = tuple(_clients(file, lines))
    if not found and not may_be_empty:
        raise InvalidTokens(str(file), len(lines), "the file names no client")
    return Tokens(found)


def _clients(file: Path, lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            yield _client(file, number, text)


def _client(file: Path, number: int, text: str) -> tuple[str, str]:
    found = _LINE.fullmatch(text)
    client = found["client"].strip() if found else ""
    digest = found["digest"].lower() if found else ""
    if not _NAME.fullmatch(client):
        raise InvalidTokens(str(file), number, f"{client!r} cannot be the name of a client")
    # A value that is not a digest may be a token by mistake, so the message does not repeat it.
    if not _DIGEST.fullmatch(digest):
        raise InvalidTokens(str(file), number, f"the value of {client} is not a SHA-256")
    return client, digest


def stored_name(client: str, run: str) -> str:
    """The name of a client's run in the deployment; raises `InvalidRunName`.

    >>> stored_name("ann", "march")
    'ann/march'
    """
    if not _NAME.fullmatch(run):
        raise InvalidRunName(run)
    return beginning_of(client) + run


def beginning_of(client: str) -> str:
    """The prefix of the stored names of a client's runs; no other client's names have it."""
    return client + SEPARATOR
