"""A server with scripted responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tidegate.errors import TidegateError
from tidegate.http.error_mapping import error_body


@dataclass(frozen=True)
class Reply:
    """A response; `missing` bytes of it are not sent, of a lost one nothing."""

    status: int = 200
    body: bytes = b"{}"
    missing: int = 0
    is_lost: bool = False
    location: str = ""


LOST = Reply(is_lost=True)


def value(of: object) -> Reply:
    return Reply(200, json.dumps(of).encode())


def refusal(error: TidegateError) -> Reply:
    import msgspec

    return Reply(error.http_status, msgspec.json.encode(error_body(error)))


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    body: bytes
    headers: dict[str, str]


@dataclass
class Stub:
    """Sends the replies in turn, the last one repeatedly."""

    replies: list[Reply]
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    def next(self) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def answering(*replies: Reply) -> Iterator[Stub]:
    stub = Stub(list(replies))

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            headers = {name.lower(): text for name, text in self.headers.items()}
            stub.asked.append(Asked(self.command, self.path, self.rfile.read(length), headers))
            reply = stub.next()
            if reply.is_lost:
                return
            self.send_response(reply.status)
            self.send_header("content-length", str(len(reply.body)))
            if reply.location:
                self.send_header("location", reply.location)
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) - reply.missing])

        do_GET = do_POST = do_PUT = answer  # noqa: N815  as the standard library wants it

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stub.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
