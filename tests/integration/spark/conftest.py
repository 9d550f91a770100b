"""One Spark session for all tests of the room: starting it costs more than most tests."""

from collections.abc import Iterator

import pytest

from tidegate.spark import Session, open_session

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # Compiling code for a job takes longer than a handful of rows; Connect's test compiles.
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Session]:
    session = open_session("local[2]", settings=SETTINGS)
    yield session
    session.stop()
