"""A group of real processes for each test: neither Spark nor PostgreSQL takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.group.processes import Cluster, ForkServer, Pace


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def group(fork_server: ForkServer) -> Iterator[Cluster]:
    """Over TCP, on a port that the system chooses."""
    with Cluster(fork_server) as group:
        yield group


@pytest.fixture(params=["tcp", "unix"])
def any_group(request: pytest.FixtureRequest, fork_server: ForkServer) -> Iterator[Cluster]:
    """Over each of the transports."""
    with TemporaryDirectory(prefix="tidegate-") as folder:
        path = Path(folder) / "group"
        address = "tcp://127.0.0.1:0" if request.param == "tcp" else f"unix://{path}"
        with Cluster(fork_server, address) as group:
            yield group


@pytest.fixture
def paced(fork_server: ForkServer) -> Iterator[Callable[..., Cluster]]:
    """Makes a group whose coordinator keeps time with the given timings."""
    with ExitStack() as stack:
        yield lambda **pace: stack.enter_context(Cluster(fork_server, pace=Pace(**pace)))
