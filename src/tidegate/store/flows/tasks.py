"""Tasks of flows, as workers see them: claimed in batches, completed in batches.

A claim is (owner, epoch) on the row of the task. Each write of a worker for a task names its claim,
and is refused with `ClaimLost` when the claim is no longer valid. Calls can be repeated: what the
same claim has done before is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import psycopg

from tidegate.errors import ClaimLost
from tidegate.flows.model.gates import Condition
from tidegate.store.core.queries import queries
from tidegate.store.core.text import storable
from tidegate.store.flows.sql_errors import raised_sql_errors
from tidegate.store.runs.message_codec import as_json

FLOW_WORKER = "flow worker"
"""The kind of a worker's lease; without it, its claims are freed."""
OWN = -1
"""The position of a step's own task."""


class Claim(msgspec.Struct, frozen=True):
    """A task claimed by a worker."""

    owner: str
    step_id: int
    position: int
    run: int
    queue: str
    epoch: int
    attempt: int
    payload: str | None
    wait_number: int | None
    """Which of its waits it was suspended at last."""
    waited: float | None
    """Seconds since it reached that wait."""

    @property
    def name(self) -> tuple[int, int, int]:
        """Step, position and epoch, which identify the claim."""
        return self.step_id, self.position, self.epoch

    @property
    def identity(self) -> dict[str, object]:
        """The parameters that identify the claim in statements."""
        return {
            "owner": self.owner,
            "run": self.run,
            "step": self.step_id,
            "position": self.position,
            "epoch": self.epoch,
        }


@dataclass(frozen=True, slots=True)
class GeneratorPosition:
    """The position of a generator."""

    spawned: int
    in_flight: int
    cursor: str | None
    cursor_position: int


class _CompletedTask(msgspec.Struct):
    run: int
    step: int
    position: int
    epoch: int
    result: msgspec.Raw


def claim(
    connection: psycopg.Connection, owner: str, limits: Mapping[str, int], most: int | None = None
) -> list[Claim]:
    """Claim ready tasks: up to a limit of each queue, and up to `most` in all.

    Earlier queues have priority; the tasks of a step come in the order of their positions.
    """
    parameters = {
        "owner": owner,
        "queues": list(limits),
        "limits": list(limits.values()),
        "most": most,
    }
    rows = connection.execute(_SQL["claim"].sql, parameters)
    return sorted(
        (Claim(owner, *row) for row in rows), key=lambda it: (it.run, it.step_id, it.position)
    )


def complete(
    connection: psycopg.Connection, owner: str, results: Sequence[tuple[Claim, str]]
) -> list[ClaimLost]:
    """Complete tasks with their results, as JSON; returns the lost claims, which change nothing."""
    done = [
        _CompletedTask(it.run, it.step_id, it.position, it.epoch, msgspec.Raw(text.encode()))
        for it, text in results
    ]
    parameters = {"owner": owner, "results": as_json(done)}
    rows = connection.execute(_SQL["complete"].sql, parameters)
    return [
        ClaimLost(run, step, position, owner, epoch, holder, current)
        for run, step, position, epoch, holder, current in rows
    ]


def fail(
    connection: psycopg.Connection, it: Claim, error: str, pause: float, *, is_final: bool
) -> str:
    """Record a failed attempt; returns the task's new state: ready, after a pause, or failed."""
    row = _call(connection, "fail", it, error=storable(error), pause=pause, is_final=is_final)
    return str(row[0])


def spawn(
    connection: psycopg.Connection,
    it: Claim,
    items: Sequence[tuple[int | str, str]],
    cursor: tuple[str, int] | None = None,
) -> tuple[int, int]:
    """Create tasks for items, identified by position or key; returns their number and in flight.

    A cursor is saved with them: its value, as JSON, and the position of the first item after it.
    """
    given = [
        {"key" if isinstance(name, str) else "position": name, "item": msgspec.Raw(text.encode())}
        for name, text in items
    ]
    value, position = cursor or (None, None)
    spawned, in_flight = _call(
        connection, "spawn", it, items=as_json(given), cursor=value, cursor_position=position
    )
    return spawned, in_flight


def finish_generator(connection: psycopg.Connection, it: Claim) -> int:
    """Declare that there are no more items; returns their number."""
    return int(_call(connection, "finish_generator", it)[0])


def skip(connection: psycopg.Connection, it: Claim) -> None:
    """Skip a step whose condition does not hold."""
    _call(connection, "skip", it)


def suspend(
    connection: psycopg.Connection,
    it: Claim,
    keys: Sequence[str],
    seen: int,
    number: int,
    poll: float,
    timeout: float | None,
) -> str:
    """Suspend a task until one of these keys is written; `seen` is the last known version."""
    row = _call(
        connection, "suspend", it, keys=list(keys), seen=seen, number=number, poll=poll,
        timeout=timeout,
    )  # fmt: skip
    return str(row[0])


def record_gate(connection: psycopg.Connection, it: Claim, gate: Sequence[Condition]) -> None:
    """Record what a task is about to wait for."""
    _call(connection, "record_gate", it, gate=as_json(gate))


def pass_wait(connection: psycopg.Connection, it: Claim) -> None:
    """Continue a task after the wait that it was suspended at."""
    _call(connection, "pass_wait", it)


def set_state(
    connection: psycopg.Connection, it: Claim, key: str, value: str, writer: str, *, once: bool
) -> str:
    """Write a key of the state, as JSON; returns its value, which may be an earlier one."""
    flows = queries("tidegate.store.flows.runs")
    parameters = {**it.identity, "key": key, "value": value, "writer": writer, "once": once}
    with raised_sql_errors():
        row = connection.execute(flows["set_state"].sql, parameters).fetchone()
    assert row is not None
    return str(row[0])


def put_back(connection: psycopg.Connection, owner: str, claims: Sequence[Claim]) -> None:
    """Return tasks that were not started; that does not count as an attempt."""
    tasks = as_json([it.identity for it in claims])
    connection.execute(_SQL["put_back"].sql, {"owner": owner, "tasks": tasks})


def inputs(connection: psycopg.Connection, run: int, step: str) -> tuple[str, str | None]:
    """The input of a run, and its signal for a step, both as JSON."""
    row = connection.execute(_SQL["inputs"].sql, {"run": run, "step": step}).fetchone()
    assert row is not None, "a claimed task has a run"
    return row[0], row[1]


def generator_position(connection: psycopg.Connection, step_id: int) -> GeneratorPosition:
    """The position of a generator."""
    row = connection.execute(_SQL["generator"].sql, {"step": step_id}).fetchone()
    assert row is not None, "a claimed task has a step"
    return GeneratorPosition(*row)


def unwanted_among(connection: psycopg.Connection, runs: Iterable[int]) -> set[int]:
    """The runs among these that are neither running nor paused."""
    rows = connection.execute(_SQL["unwanted"].sql, {"runs": list(runs)})
    return {run for (run,) in rows}


def paused_among(connection: psycopg.Connection, runs: Iterable[int]) -> set[int]:
    """The runs among these that are paused."""
    rows = connection.execute(_SQL["paused"].sql, {"runs": list(runs)})
    return {run for (run,) in rows}


def held_by(connection: psycopg.Connection, owner: str) -> list[Claim]:
    """The open claims of a worker, without their payloads."""
    rows = connection.execute(_SQL["held_by"].sql, {"owner": owner})
    return [Claim(owner, *row) for row in rows]


def _call(
    connection: psycopg.Connection, query: str, it: Claim, **parameters: object
) -> tuple[Any, ...]:
    with raised_sql_errors():
        row = connection.execute(_SQL[query].sql, {**it.identity, **parameters}).fetchone()
    assert row is not None, "a function returns a row"
    return row


_SQL = queries(__name__)
