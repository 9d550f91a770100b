"""A library reads a site that nobody knows the size of: lists of articles, page after page.

    discover ──▶ summarise (one task per article, while lists are still being read) ──▶ report

`discover` holds one list at a time and saves where the next one is, so a worker that takes over
goes on there; an article is known by its address, whatever the lists look like by then. One that
is busy is tried again; one that is gone is not, and some such are borne.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec

from tidegate.flows import Backoff, Context, FinalFailure, Flow, Tolerate

PATIENCE = 10.0
"""Seconds for which a site may leave a question unanswered."""
MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
LARGEST = 1_000_000
"""Bytes of an answer that are read."""


class Listing(msgspec.Struct, frozen=True):
    """One page of the list of articles."""

    articles: list[str]
    next: str | None


class Article(msgspec.Struct, frozen=True):
    """What is kept of an article."""

    address: str
    words: int


class Report(msgspec.Struct, frozen=True):
    """What all of them come to."""

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
    """Add them up, one after the other."""
    number = words = 0
    for article in articles:
        number += 1
        words += article.words
    return Report(number, words)


def _fetch(address: str) -> bytes:
    if not address.startswith(("http://", "https://")):
        raise FinalFailure(f"{address} is no address of a site")
    try:
        with urlopen(address, timeout=PATIENCE) as answer:  # noqa: S310  checked above
            body: bytes = answer.read(LARGEST)
            return body
    except HTTPError as refusal:
        if refusal.code in MISSING:
            raise FinalFailure(f"{address} is not there") from refusal
        raise
