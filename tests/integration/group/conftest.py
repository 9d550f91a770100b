"""A group of real processes for each test: neither Spark nor PostgreSQL takes part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.group.processes import Cluster, cluster


@pytest.fixture
def group() -> Iterator[Cluster]:
    """Over TCP, on a port that the system chooses."""
    with cluster() as group:
        yield group


@pytest.fixture(params=["tcp", "unix"])
def any_group(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Over each of the transports."""
    with TemporaryDirectory(prefix="tidegate-") as folder:
        path = Path(folder) / "group"
        address = "tcp://127.0.0.1:0" if request.param == "tcp" else f"unix://{path}"
        with cluster(address) as group:
            yield group
