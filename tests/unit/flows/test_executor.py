"""What an attempt that has failed says of the next one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tidegate.errors import AliasBusy, FinalFailure, IndexDiffers
from tidegate.flows import Backoff, Context, Flow
from tidegate.flows.worker.executor import failed, is_final, render_error
from tidegate.flows.worker.task_context import TaskContext
from tidegate.store import Database
from tidegate.store.flows.tasks import OWN, Claim

NOWHERE = Database("postgresql://nowhere.invalid/none")  # nobody asks it anything
SLOW = Backoff(first=100, longest=1000, jitter=0.5)
SLOWER = Backoff(first=10_000, longest=100_000, jitter=0.5)

flow = Flow("f")


@flow.generator(backoff=SLOWER)
def count_up(context: Context) -> Iterator[int]:
    yield 1


@count_up.handler(backoff=SLOW)
def handle(context: Context, number: int) -> int:
    return number


def pauses(queue: str, position: int, attempt: int) -> list[float]:
    claim = Claim("me", 1, position, 1, queue, 1, attempt, None, None, None)
    context = TaskContext(NOWHERE, flow.definition, claim)
    return [failed(context, ValueError("not yet")).pause for _ in range(20)]


@pytest.mark.parametrize(("attempt", "whole"), [(1, 100), (2, 200), (3, 400), (9, 1000)])
def test_the_pause_after_each_attempt_is_as_declared_and_left_to_chance(
    attempt: int, whole: float
) -> None:
    found = pauses("f/count_up[]", 0, attempt)
    assert all(whole / 2 <= it <= whole for it in found)
    assert len(set(found)) > 1


def test_a_generator_and_its_handler_each_have_their_own_pauses() -> None:
    assert min(pauses("f/count_up", OWN, 1)) >= 5000
    assert max(pauses("f/count_up[]", 0, 1)) <= 100


def test_an_error_of_users_code_names_the_line_where_it_was_raised() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        _ = 1 / 0
    found = render_error(raised.value)
    assert re.fullmatch(r"ZeroDivisionError: division by zero \(test_executor\.py:\d+\)", found)


@pytest.mark.parametrize(
    ("error", "is_over"),
    [
        (FinalFailure("gone"), True),
        (IndexDiffers("v1", "it is another"), True),
        (AliasBusy("search.articles"), False),
        (ValueError("busy"), False),
    ],
)
def test_what_would_fail_again_is_final(error: Exception, is_over: bool) -> None:
    assert is_final(error) == is_over
