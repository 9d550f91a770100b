"""Checks of a client before it uses a server: names that become files, and the path of a token.

A server sends the names of its sources and sinks. `tidegate submit` reads and writes files of these
names, so each has to be a name that a pipeline can declare: such a name never leads out of the
folder that the user gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING

from tidegate.errors import PlainHttpToken, UntrustedName
from tidegate.pipeline.names import is_file_name

if TYPE_CHECKING:
    from tidegate.http.client_api import PipelineInfo

NOT_A_NAME = "is not a valid name"
NOT_SERVED = "it does not serve"
NOT_DECLARED = "the given pipeline does not declare"


def check_served(server: str, served: PipelineInfo) -> None:
    """Raise `UntrustedName` unless a pipeline could declare all served names."""
    given = {"pipeline": [served.pipeline], "source": served.sources, "sink": [*served.sinks]}
    for kind, names in given.items():
        for name in names:
            if not is_file_name(name):
                raise UntrustedName(server, kind, name, NOT_A_NAME)


def check_declared(
    server: str, served: PipelineInfo, sources: Iterable[str], sinks: Iterable[str]
) -> None:
    """Raise `UntrustedName` for a served source or sink that is not among the given ones."""
    _check_known(server, "source", served.sources, sources, NOT_DECLARED)
    _check_known(server, "sink", served.sinks, sinks, NOT_DECLARED)


def check_results(server: str, served: PipelineInfo, results: Mapping[str, int]) -> None:
    """Raise `UntrustedName` for the result of a sink that is not served."""
    _check_known(server, "sink", results, served.sinks, NOT_SERVED)


def check_token_way(server: str, scheme: str, host: str) -> None:
    """Raise `PlainHttpToken` if the network could read a token sent there."""
    if scheme != "https" and not is_loopback(host):
        raise PlainHttpToken(server, host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1")
    (True, True, True)
    >>> is_loopback("127.0.0.1.example.com"), is_loopback("10.0.0.1"), is_loopback("")
    (False, False, False)
    """
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _check_known(
    server: str, kind: str, names: Iterable[str], known: Iterable[str], reason: str
) -> None:
    expected = {*known}
    for name in names:
        if name not in expected:
            raise UntrustedName(server, kind, name, reason)
