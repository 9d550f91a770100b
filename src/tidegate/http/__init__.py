"""Serve: the HTTP interface of a served pipeline, and its client.

    client ──▶ app ──▶ Account ──▶ Server       who asks, what they may see, what is done
           ◀── refusals, events, result streams

`serve_http` runs the interface beside a `PipelineFrontend`. An `Account` is all that one client
can do: it knows the client's own runs and no others. Whatever waits for PostgreSQL, Spark or a disk
runs on a few threads, never on the event loop. Errors travel as what they are: `HttpRunClient`,
which is a `Server` elsewhere to whoever delivers a folder, raises the same classes again.
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
