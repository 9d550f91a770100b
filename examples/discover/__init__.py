"""Reads a site of unknown size: lists of articles, page after page.

    discover ──▶ summarise (one task per article, while lists are still being read) ──▶ report

`discover` reads one list at a time and saves the address of the next one, where another worker
resumes after a failure; an article is identified by its address, even if the lists change. A busy
article is retried; a missing one is not, and some missing ones are tolerated.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec

from tidegate.flows import Backoff, Context, FinalFailure, Flow, Tolerate

TIMEOUT = 10.0
"""Seconds for a response of the site."""
MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
MAX_BYTES = 1_000_000
"""Bytes of a response that are read."""


class Listing(msgspec.Struct, frozen=True):
    """One page of the list of articles."""

    articles: list[str]
    next: str | None


class Article(msgspec.Struct, frozen=True):
    """The summary of an article."""

    address: str
    words: int


class Report(msgspec.Struct, frozen=True):
    """The totals of all articles."""

    articles: int
    words: int


library = Flow("library")


@library.generator(key=str, max_in_flight=500, on_fail=Tolerate(share=0.05))
def discover(context: Context, site: str) -> Iterator[str]:
    """The addresses of all articles, from list to list."""
    at: str | None = context.cursor or f"{site}/articles"
    while at is not None:
        page = msgspec.json.decode(_fetch(at), type=Listing)
        yield from page.articles
        at = page.next
        if at is not None:
            context.save_cursor(at)


@discover.handler(retries=5, backoff=Backoff(first=0.1, longest=1.0), timeout=30)
def summarise(_: Context, address: str) -> Article:
    """Read one article."""
    return Article(address, len(_fetch(address).split()))


@library.reduce(discover)
def report(_: Context, articles: Iterator[Article]) -> Report:
    """Sum them up."""
    number = words = 0
    for article in articles:
        number += 1
        words += article.words
    return Report(number, words)


def _fetch(address: str) -> bytes:
    if not address.startswith(("http://", "https://")):
        raise FinalFailure(f"{address} is not the address of a site")
    try:
        with urlopen(address, timeout=TIMEOUT) as response:  # noqa: S310  checked above
            body: bytes = response.read(MAX_BYTES)
            return body
    except HTTPError as error:
        if error.code in MISSING:
            raise FinalFailure(f"{address} does not exist") from error
        raise
