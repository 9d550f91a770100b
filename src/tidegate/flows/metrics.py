"""Figures of flows in the text format of Prometheus, once or over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

from tidegate.errors import InvalidListen
from tidegate.store.flows.metrics import Gauge, flow_gauges

if TYPE_CHECKING:
    from tidegate.store import Database

log = logging.getLogger(__name__)

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
PATH = "/metrics"
LOOPBACK = "127.0.0.1"


def metrics_text(database: Database) -> str:
    """All figures as they are."""
    gauges = database.transact(flow_gauges)
    return "".join(f"{line}\n" for it in gauges for line in rendered(it))


def rendered(gauge: Gauge) -> Iterator[str]:
    """The lines of a figure.

    >>> gauge = Gauge("workers", "Alive.", (({"host": 'a"b'}, 2.0), ({}, 0.5)))
    >>> print(*rendered(gauge), sep="\\n")
    # HELP workers Alive.
    # TYPE workers gauge
    workers{host="a\\"b"} 2
    workers 0.5
    """
    yield f"# HELP {gauge.name} {gauge.help}"
    yield f"# TYPE {gauge.name} gauge"
    for labels, number in gauge.samples:
        yield f"{gauge.name}{_labels(labels)} {_number(number)}"


@contextmanager
def serving_metrics(database: Database, port: int, host: str = LOOPBACK) -> Iterator[int]:
    """Answer `GET /metrics` until the block is left; says the port, which 0 leaves to chance."""
    try:
        server = ThreadingHTTPServer((host, port), _answering(database))
    except OSError as error:
        raise InvalidListen(f"{host}:{port}", str(error)) from error
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="tidegate-metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answering(database: Database) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(HTTPStatus.NOT_FOUND, f"figures are at {PATH}")
                return
            try:
                text = metrics_text(database)
            except Exception as trouble:  # noqa: BLE001  whoever asks is to see that there are none
                log.warning("no figures: %s", trouble)
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "the database does not answer")
                return
            self._send(text.encode())

        def _send(self, body: bytes) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", CONTENT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as its base has it
            log.debug(format, *args)

    return Answering


def _number(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


def _labels(labels: Mapping[str, str]) -> str:
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
