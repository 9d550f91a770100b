"""The HTTP interface of a served pipeline, and its client.

    request ──▶ app ──▶ ClientApi ──▶ RunService
            ◀── JSON, error bodies, server-sent events, result streams

`serve_http` runs the interface beside a `PipelineFrontend`. A `ClientApi` acts for one client and
sees only that client's runs. Calls that wait for PostgreSQL, Spark or a disk run on a few threads,
never on the event loop. Errors are sent with their class and fields; `HttpRunClient`, which offers
the interface of a `RunService` over HTTP, raises the same classes again.
"""

from tidegate.http.app import http_app
from tidegate.http.auth.token_file import TokenFile
from tidegate.http.auth.tokens import Tokens, read_tokens
from tidegate.http.client.http_client import HttpClient
from tidegate.http.client.run_client import HttpRunClient, http_run_client
from tidegate.http.limits.limits import HttpLimits
from tidegate.http.server.server import HttpAddress, check_listen_address, listen_http, serve_http

__all__ = [
    "HttpAddress",
    "HttpClient",
    "HttpLimits",
    "HttpRunClient",
    "TokenFile",
    "Tokens",
    "check_listen_address",
    "http_app",
    "http_run_client",
    "listen_http",
    "read_tokens",
    "serve_http",
]
