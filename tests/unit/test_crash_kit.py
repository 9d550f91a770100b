"""The check of the crash kit that every sink was published once."""

from __future__ import annotations

import pytest

from tidegate.testing import Publication, publication_error

SINKS = ("q1", "q2")


def published(*sinks: str, run: str = "chaos#1", transactions: int = 1) -> Publication:
    return Publication(run, sinks, transactions)


def test_every_sink_by_one_transaction_of_one_incarnation_is_once() -> None:
    assert publication_error(SINKS, [published("q1", "q2")]) is None


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "nothing was published"),
        ([published(transactions=0)], "by 0 transactions"),
        ([published("q1", "q2", transactions=2)], "by 2 transactions"),
        ([published("q1")], "q2 was published 0 times"),
        ([published("q1", "q2", "q3")], "q3 was published 1 times, not 0"),
        (
            [published("q1", "q2"), published("q1", "q2", run="chaos#2")],
            "q1 was published 2 times, not 1, by chaos#1, chaos#2",
        ),
        ([published("q1"), published("q1", "q2", run="chaos#2")], "q1 was published 2 times"),
    ],
)
def test_anything_else_is_reported(found: list[Publication], message: str) -> None:
    assert message in (publication_error(SINKS, found) or "")


def test_a_run_that_is_to_publish_nothing_proves_nothing() -> None:
    assert publication_error([], []) is not None
