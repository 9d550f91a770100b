"""Flows can be worked on and steered from psql alone, which also tells what each function does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg

from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import numbers
from tidegate.store.runs.message_codec import as_json

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
NAMED = re.compile(r"\bflow_[a-z_]+")
CLAIM = "SELECT step_id, position, run_id, epoch FROM tidegate.flow_claim('psql', %s, %s)"


def test_a_whole_run_is_worked_on_by_statements(hand: Hand) -> None:
    def ask(query: str, *given: object) -> list[Any]:
        with psycopg.connect(hand.database.url, autocommit=True) as connection:
            return connection.execute(query.encode(), given).fetchall()

    ask(
        "INSERT INTO tidegate.lease (kind, key, owner, epoch, expires_at)"
        " VALUES ('flow worker', 'psql', 'psql', 1, now() + interval '1 minute') RETURNING 1"
    )
    given = numbers.definition.as_rows()
    ((run,),) = ask(
        "SELECT tidegate.flow_begin('numbers', 'by hand', '2', %s::jsonb, %s::jsonb)",
        as_json(given["steps"]),
        as_json(given["keys"]),
    )
    ((step, _, _, epoch),) = ask(CLAIM, ["numbers/count_up"], [1])
    ask(
        "SELECT * FROM tidegate.flow_spawn('psql', %s, %s, %s,"
        """ '[{"position": 0, "item": 5}, {"position": 1, "item": 6}]')""",
        run, step, epoch,
    )  # fmt: skip
    ask("SELECT tidegate.flow_finish_generator('psql', %s, %s, %s)", run, step, epoch)
    for queue, results in [("numbers/count_up[]", 2), ("numbers/total", 1)]:
        claimed = ask(CLAIM, [queue], [10])
        assert len(claimed) == results
        names = ("step", "position", "run", "epoch")
        done = [{**dict(zip(names, it, strict=True)), "result": 10} for it in claimed]
        assert ask("SELECT * FROM tidegate.flow_complete('psql', %s::jsonb)", as_json(done)) == []
    found = ask("SELECT step, state, spawned, succeeded FROM tidegate.flow_progress")
    assert found == [("count_up", "completed", 2, 2), ("total", "completed", 0, 0)]
    assert ask("SELECT state FROM tidegate.flow_run WHERE id = %s", run) == [("completed",)]


def test_functions_for_operators_are_described_in_psql(hand: Hand) -> None:
    told = set(NAMED.findall(OPERATIONS.read_text()))
    described = dict(
        hand.ask(
            "SELECT proname, obj_description(oid, 'pg_proc') FROM pg_proc"
            " WHERE pronamespace = 'tidegate'::regnamespace"
        )
    )
    meant = told & described.keys()
    assert {"flow_claim", "flow_complete", "flow_signal", "flow_retry"} <= meant
    assert [name for name in sorted(meant) if not described[name]] == []
