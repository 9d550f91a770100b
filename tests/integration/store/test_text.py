"""Text of errors and reasons is stored whatever it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.dataflow import Event
from tidegate.store import (
    ChannelName,
    RunFailure,
    RunState,
    begin_run,
    close_run,
    fail_runs,
    find_run,
    message_id,
)
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.core.text import MOST_CHARACTERS, plain, storable
from tidegate.store.runs.channels import append
from tidegate.store.runs.message_codec import as_json

ANY_TEXT = st.text(st.one_of(st.sampled_from("\0\\0\ud800\udfff\uffff"), st.characters(codec=None)))
HOSTILE = "cast of 'a\0b\ud800' " + "x" * 10 * MOST_CHARACTERS
CHANNEL = ChannelName("head", "s1")


@pytest.fixture(scope="module")
def session(template: str, new_database: Callable[[str], str]) -> Iterator[psycopg.Connection]:
    with psycopg.connect(new_database(template), autocommit=True) as session:
        yield session


@given(text=ANY_TEXT)
def test_postgresql_accepts_and_keeps_every_storable_text(
    session: psycopg.Connection, text: str
) -> None:
    made = storable(text)

    asked = "SELECT %s::text, %s::jsonb #>> '{}'"
    assert session.execute(asked, (made, as_json(made))).fetchone() == (made, made)


@given(text=ANY_TEXT, most=st.integers(1, 20))
def test_a_storable_text_is_never_longer_than_its_bound(text: str, most: int) -> None:
    assert len(storable(text, most)) <= most
    assert len(plain(text, most)) <= most
    assert plain(text, most).isascii()


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_text_that_postgresql_accepts_is_stored_as_it_is(text: str) -> None:
    assert storable(text) == text


def test_a_run_fails_whatever_its_cause_holds(session: psycopg.Connection) -> None:
    first, second = (begin_run(session, "p", name, [CHANNEL]) for name in ("a", "b"))
    with session.transaction():
        append(session, first, CHANNEL, [(message_id(1), Event(1, first.key))])
        fail_runs(session, [RunFailure(first.id, HOSTILE)])
    assert close_run(session, second, RunState.FAILED, HOSTILE)
    for name in ("a", "b"):
        found = find_run(session, "p", name)
        assert found is not None
        assert found.state is RunState.FAILED
        assert found.cause == storable(HOSTILE)


def test_a_checkpoint_is_aborted_whatever_the_reason_holds(session: psycopg.Connection) -> None:
    run = begin_run(session, "p", "c", [CHANNEL])
    with session.transaction():
        assert not checkpoint_store.abort(session, run, 1, HOSTILE, "s1\0")  # unknown, and no error
