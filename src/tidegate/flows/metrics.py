"""Prometheus metrics of flows, as text or over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Metric, generate_latest, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from tidegate.errors import InvalidListen
from tidegate.store.flows.metrics import flow_gauges

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from tidegate.store import Database

log = logging.getLogger(__name__)

PATH = "/metrics"
LOOPBACK = "127.0.0.1"
REQUEST_TIMEOUT = 10.0


class FlowCollector(Collector):
    """Reads the metrics of open runs from the database at each scrape."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterator[Metric]:
        """All metrics, in the order of `GAUGES`."""
        for gauge in self._database.transact(flow_gauges):
            metric = Metric(gauge.name, gauge.help, "gauge")
            for labels, value in gauge.samples:
                metric.add_sample(gauge.name, dict(labels), value)
            yield metric


def metrics_text(database: Database) -> str:
    """All metrics in the text format of Prometheus."""
    return generate_latest(_registry(database)).decode()


@contextmanager
def serve_metrics(database: Database, port: int, host: str = LOOPBACK) -> Iterator[int]:
    """Serve `GET /metrics` until the block is left; yields the port."""
    app = _answer_or_refuse(make_wsgi_app(_registry(database)))
    try:
        server = make_server(host, port, app, ThreadingWSGIServer, _Handler)
    except OSError as error:
        raise InvalidListen(f"{host}:{port}", str(error)) from error
    thread = Thread(target=server.serve_forever, name="tidegate-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _registry(database: Database) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(FlowCollector(database))
    return registry


def _answer_or_refuse(app: Callable[..., Any]) -> Callable[..., Iterable[bytes]]:
    """The app at its path only; 503 while the database cannot be read."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            return refuse(start_response, "404 Not Found", f"metrics are at {PATH}")
        try:
            return app(environ, start_response)  # type: ignore[no-any-return]
        except Exception as error:  # noqa: BLE001  the scraper has to see that there are none
            log.warning("cannot read metrics: %s", error)
            reason = "the database does not answer"
            return refuse(start_response, "503 Service Unavailable", reason)

    def refuse(start_response: StartResponse, status: str, reason: str) -> Iterable[bytes]:
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{reason}\n".encode()]

    return answer


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as its base has it
        log.debug(format, *args)
