"""Which errors may be the end of a JVM."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from tidegate.errors import StageFailed
from tidegate.spark.session.jvm_liveness import is_interrupted


class FromJava(Py4JJavaError):  # type: ignore[misc]
    """An error that Java has raised and reported."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self.java_exception = None
        self._text = text

    def __str__(self) -> str:
        return self._text


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o7.parquet"),
        FromJava("Job 5 cancelled because SparkContext was shut down"),
        FromJava("Cannot call methods on a stopped SparkContext."),
        caused(StageFailed("s1", "X", "y"), FromJava("Job 5: SparkContext was shut down")),
    ],
)
def test_a_broken_connection_and_a_stopped_context_may_be_the_end(error: Exception) -> None:
    assert is_interrupted(error)


@pytest.mark.parametrize(
    "error",
    [
        FromJava("[CAST_INVALID_INPUT] The value 'x' cannot be cast"),
        FileNotFoundError(2, "no such file"),
        OSError(28, "no space left"),
        caused(StageFailed("s1", "CAST_INVALID_INPUT", "y"), FromJava("cast")),
    ],
)
def test_an_error_that_java_reports_or_of_a_file_is_not(error: Exception) -> None:
    assert not is_interrupted(error)
