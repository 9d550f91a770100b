"""Trouble of the database is no failure of a task: its worker begins another life, and it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.flows.calls import Start
from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import gated, numbers, offset
from tests.waiting import wait_until
from tidegate.flows import Context, Flow
from tidegate.flows.client import start_flow
from tidegate.store import Database

REFUSING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not at this moment' USING ERRCODE = 'XX000';
END
$$;
CREATE TRIGGER refusing BEFORE INSERT OR UPDATE OF state ON tidegate.flow_task
FOR EACH ROW WHEN ({moment}) EXECUTE FUNCTION refuse()
"""

skipping = Flow("skipping")


@skipping.step(condition=lambda number: number > 0)
def positive(context: Context, number: int) -> int:
    return number


@contextmanager
def refused(database: Database, moment: str) -> Iterator[None]:
    """The database does not do one thing until the block is left."""
    with database.connect() as connection:
        connection.execute(REFUSING.format(moment=moment).encode())
        try:
            yield
        finally:
            connection.execute("DROP TRIGGER refusing ON tidegate.flow_task")


@pytest.mark.parametrize(
    ("flow", "moment"),
    [
        (numbers, "NEW.state = 'ready' AND NEW.position >= 0"),  # items are spawned
        (numbers, "NEW.state = 'succeeded' AND NEW.position < 0"),  # a generator ends
        (numbers, "NEW.state = 'succeeded' AND NEW.position >= 0"),  # items are completed
        (gated, "NEW.state = 'suspended'"),
        (skipping, "NEW.state = 'succeeded'"),
    ],
)
def test_a_task_does_not_fail_because_the_database_would_not_write(
    work: Start, hand: Hand, flow: Flow, moment: str
) -> None:
    with refused(hand.database, moment):
        works = work(flow)
        life = works.worker.name
        run = start_flow(hand.database, flow, 0)
        start_flow(hand.database, flow, 5)
        wait_until(lambda: works.worker.name != life)
    if flow is gated:
        run.set_state(offset, 0, "a feed")
    run.wait(60, works.notifications)
