"""A group of real processes for each test: neither Spark nor PostgreSQL takes part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.group.processes import Cluster, Nursery, Pace


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def group(nursery: Nursery) -> Iterator[Cluster]:
    """Over TCP, on a port that the system chooses."""
    with Cluster(nursery) as group:
        yield group


@pytest.fixture(params=["tcp", "unix"])
def any_group(request: pytest.FixtureRequest, nursery: Nursery) -> Iterator[Cluster]:
    """Over each of the transports."""
    with TemporaryDirectory(prefix="tidegate-") as folder:
        path = Path(folder) / "group"
        address = "tcp://127.0.0.1:0" if request.param == "tcp" else f"unix://{path}"
        with Cluster(nursery, address) as group:
            yield group


@pytest.fixture
def paced(nursery: Nursery) -> Iterator[Callable[..., Cluster]]:
    """Makes a group whose coordinator keeps time as the test says."""
    with ExitStack() as stack:
        yield lambda **pace: stack.enter_context(Cluster(nursery, pace=Pace(**pace)))
