"""A site to read: lists of articles on loopback, some of which are busy at first, or gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from time import sleep

import msgspec

from tidegate_examples.discover import Listing

PER_LIST = 50
GONE_EVERY, BUSY_EVERY = 101, 17
PAUSE = 0.004
"""Seconds per response."""


class Site:
    """Articles by number, and how often each was requested."""

    def __init__(self, articles: int) -> None:
        self.articles = articles
        self.address = ""
        self.asked: Counter[int] = Counter()
        self._counting = Lock()

    @property
    def there(self) -> list[int]:
        """The articles that can be read."""
        return [at for at in range(self.articles) if not self.is_gone(at)]

    @property
    def words(self) -> int:
        """The number of words of all readable articles."""
        return sum(len(self.text(at).split()) for at in self.there)

    def is_gone(self, article: int) -> bool:
        """Whether the lists contain it although it does not exist."""
        return article % GONE_EVERY == GONE_EVERY - 1

    def text(self, article: int) -> str:
        """The text of an article."""
        return " ".join(["word"] * (article % 7 + 1))

    def listing(self, first: int) -> Listing:
        """One page of the list, from an article on."""
        end = min(first + PER_LIST, self.articles)
        articles = [f"{self.address}/article/{at}" for at in range(first, end)]
        return Listing(articles, f"{self.address}/articles/{end}" if end < self.articles else None)

    def answer(self, path: str) -> tuple[HTTPStatus, bytes]:
        """The response to a request for a path."""
        kind, _, number = path.strip("/").partition("/")
        at = int(number) if number.isdecimal() else 0
        if kind == "articles":
            return HTTPStatus.OK, msgspec.json.encode(self.listing(at))
        with self._counting:
            self.asked[at] += 1
            times = self.asked[at]
        if self.is_gone(at):
            return HTTPStatus.GONE, b""
        if at % BUSY_EVERY == 0 and times == 1:
            return HTTPStatus.SERVICE_UNAVAILABLE, b""
        return HTTPStatus.OK, self.text(at).encode()


@contextmanager
def served(articles: int) -> Iterator[Site]:
    """A site that answers until the block is left."""
    site = Site(articles)

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sleep(PAUSE)
            status, body = site.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            with suppress(ConnectionError):  # the client may be killed
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as it is called there
            """Do not log requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        site.address = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, name="site", daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
