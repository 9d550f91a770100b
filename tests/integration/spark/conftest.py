"""One Spark session for all tests of the room: starting it costs more than most tests."""

from collections.abc import Iterator

import pytest

from tidegate.spark import Session, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Session]:
    session = open_session("local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
