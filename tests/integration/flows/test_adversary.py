"""Many hands do anything to the same runs, die, repeat themselves and speak too late.

Whatever comes of it: nothing but a refusal is raised, no two wait for each other, at every moment
the counters are those of the tasks and each step that runs has somebody to wait for, and each run
can be brought to its end.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from tests.integration.flows.conftest import Hand
from tidegate.errors import FlowError, StoreError
from tidegate.flows import Context, Flow, Tolerate
from tidegate.store import Connection, Database, acquire
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks
from tidegate.store.flows.tasks import FLOW_WORKER, OWN, Claim

HANDS, RUNS = 5, 3
TURNS = int(os.environ.get("TIDEGATE_ADVERSARY_TURNS", "80"))
WRONG = """
SELECT 'counters', run.id, step.name, run.state, step.state
FROM tidegate.flow_run AS run JOIN tidegate.flow_step AS step ON step.run_id = run.id
WHERE (step.spawned, step.succeeded, step.failed, step.canceled) <> (
    SELECT count(*), count(*) FILTER (WHERE state = 'succeeded'),
        count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'canceled')
    FROM tidegate.flow_task WHERE step_id = step.id AND position >= 0)
UNION ALL
SELECT 'a step of a closed run', run.id, step.name, run.state, step.state
FROM tidegate.flow_run AS run JOIN tidegate.flow_step AS step ON step.run_id = run.id
WHERE run.closed_at IS NOT NULL AND step.state IN ('waiting', 'running')
UNION ALL
SELECT 'a task of a closed step', run.id, step.name, run.state, task.state
FROM tidegate.flow_run AS run JOIN tidegate.flow_step AS step ON step.run_id = run.id
JOIN tidegate.flow_task AS task ON task.step_id = step.id
WHERE step.closed_at IS NOT NULL AND task.state IN ('ready', 'held', 'claimed', 'suspended')
UNION ALL
SELECT 'nobody to wait for', run.id, step.name, run.state, step.state
FROM tidegate.flow_run AS run JOIN tidegate.flow_step AS step ON step.run_id = run.id
WHERE run.state IN ('running', 'paused') AND step.state = 'running' AND NOT EXISTS (
    SELECT FROM tidegate.flow_task
    WHERE step_id = step.id AND state IN ('ready', 'held', 'claimed', 'suspended'))
UNION ALL
SELECT 'held or ready at the wrong time', run.id, task.queue, run.state, task.state
FROM tidegate.flow_run AS run JOIN tidegate.flow_task AS task ON task.run_id = run.id
WHERE (task.state = 'held') AND run.state <> 'paused'
OR (task.state = 'ready') AND run.state <> 'running'
UNION ALL
SELECT 'a run without steps to do', run.id, '', run.state, ''
FROM tidegate.flow_run AS run
WHERE run.state IN ('running', 'paused') AND NOT EXISTS (
    SELECT FROM tidegate.flow_step WHERE run_id = run.id AND state = 'running')
AND NOT EXISTS (SELECT FROM tidegate.flow_step
    WHERE run_id = run.id AND state = 'waiting' AND needs_signal)
"""


@cache
def woven() -> Flow:  # noqa: C901  one function for each kind of step
    """A flow of everything that there is."""
    flow = Flow("woven")
    offset = flow.state("offset", int, monotonic=True, external=True)
    mark = flow.state("mark", int)

    @flow.generator(on_fail=Tolerate(share=0.2), retries=1)
    def stream(context: Context) -> Iterator[int]:
        yield 1

    @stream.handler(retries=1)
    def of_stream(context: Context, number: int) -> int:
        return number

    @flow.generator(on_fail=Tolerate(count=2), key=str)
    def keyed(context: Context) -> Iterator[int]:
        yield 1

    @keyed.handler
    def of_keyed(context: Context, number: int) -> int:
        return number

    @flow.step(retries=1)
    def listed(context: Context) -> list[int]:
        return [1, 2, 3]

    @flow.map_step(depends_on=listed, on_fail=Tolerate(share=0.2), retries=1)
    def each(context: Context, number: int) -> int:
        return number

    @flow.step(reads=[offset, mark], writes=[offset, mark])
    def gate(context: Context) -> int:
        return 1

    @flow.step(depends_on=gate, signal=bool)
    def approve(context: Context, number: int, approval: bool) -> int:
        return number

    @flow.step(depends_on=[stream, keyed, each, approve])
    def last(
        context: Context, some: list[int], more: list[int], others: list[int], it: int | None
    ) -> int:
        return 1

    return flow


def queues() -> list[str]:
    steps = ["stream", "keyed", "each", "listed", "gate", "approve", "last"]
    items = [f"woven/{name}[]" for name in ("stream", "keyed", "each")]
    return [f"woven/{name}" for name in steps] + items


def given_by(claim: Claim) -> str:
    return "[1, 2, 3]" if claim.queue == "woven/listed" else "1"


class Died(Exception):
    """The process was killed before it could commit."""


@dataclass
class Adversary:
    """One process that does anything, and remembers every claim that it ever had."""

    hand: Hand
    runs: list[int]
    chance: random.Random
    lives: int = 0
    claims: list[Claim] = field(default_factory=list)
    begun: int = 0

    def do(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """A transaction whose commit may not come, or whose answer may be lost."""
        fate = self.chance.random()

        def mortal(connection: Connection) -> Any:
            done = work(connection, *given, **named)
            if fate < 0.08:
                raise Died
            return done

        found = self.hand.database.transact(mortal)
        return self.hand.database.transact(mortal) if fate > 0.85 else found

    @property
    def run(self) -> int:
        return self.chance.choice(self.runs)

    def some(self, name: str = "", *, own: bool | None = None) -> list[Claim]:
        """Claims of a step, most of them late ones."""
        found = [
            it
            for it in self.claims
            if it.queue.startswith(f"woven/{name}") and own in (None, it.position == OWN)
        ]
        return self.chance.sample(found[-30:], min(len(found[-30:]), self.chance.randint(0, 6)))

    def claim(self) -> None:
        wanted = self.chance.sample(queues(), self.chance.randint(1, 10))
        rooms = dict.fromkeys(wanted, self.chance.randint(1, 4))
        self.claims += self.do(tasks.claim, self.hand.name, rooms, self.chance.choice([None, 3, 9]))

    def complete(self) -> None:
        run = self.run
        chosen = self.some() if self.chance.random() < 0.7 else self.claims[-60:]
        ours = [
            it for it in chosen if it.owner == self.hand.name and it.run in (run, chosen[0].run)
        ]
        self.do(tasks.complete, self.hand.name, [(it, given_by(it)) for it in ours])

    def fail(self) -> None:
        for it in self.some()[:1]:
            is_final = self.chance.random() < 0.3
            self.do(tasks.fail, it, "bad", self.chance.choice([0.0, 0.01]), is_final=is_final)

    def spawn(self) -> None:
        for it in self.some("stream", own=True)[:1]:
            place = self.do(tasks.generator_position, it.step_id)
            first = self.chance.randint(0, place.spawned)
            items = [(at, "1") for at in range(first, first + self.chance.randint(0, 6))]
            cursor = ("1", items[-1][0] + 1) if items and self.chance.random() < 0.5 else None
            self.do(tasks.spawn, it, items, cursor)

    def spawn_keyed(self) -> None:
        for it in self.some("keyed", own=True)[:1]:
            names = self.chance.choices("abcdefghij", k=self.chance.randint(0, 6))
            self.do(tasks.spawn, it, [(name, "1") for name in names])

    def finish(self) -> None:
        for it in self.some(self.chance.choice(["stream", "keyed"]), own=True)[:1]:
            self.do(tasks.finish_generator, it)

    def skip(self) -> None:
        for it in self.some(self.chance.choice(["gate", "stream", "each"]), own=True)[:1]:
            if self.chance.random() < 0.2:
                self.do(tasks.skip, it)

    def suspend(self) -> None:
        for it in self.some("gate")[:1]:
            seen, _ = self.do(store.flow_state, it.run)
            bound = self.chance.choice([None, 0.0, 5.0])
            self.do(tasks.suspend, it, ["offset", "mark"], seen, 1, 0.0, bound)

    def write(self) -> None:
        value = str(self.chance.randint(0, 50))
        for it in self.some("gate")[:1]:
            key, once = self.chance.choice(["offset", "mark"]), self.chance.random() < 0.3
            self.do(tasks.set_state, it, key, value, "gate", once=once)
        self.do(store.set_external_state, self.run, "offset", value, "outside")

    def put_back(self) -> None:
        self.do(tasks.put_back, self.hand.name, self.some())

    def sweep(self) -> None:
        self.do(store.sweep_flows)
        self.run_now()

    def run_now(self) -> None:
        hurried = (
            b"UPDATE tidegate.flow_task SET available_at = now() WHERE (step_id, position) IN ("
            b"SELECT step_id, position FROM tidegate.flow_task WHERE state = 'ready'"
            b" FOR UPDATE SKIP LOCKED)"
        )
        self.do(lambda connection: connection.execute(hurried))

    def die(self) -> None:
        """Its lease is gone, its claims are remembered: it speaks on as if nothing had happened."""
        release = b"DELETE FROM tidegate.lease WHERE kind = %s AND key = %s"
        self.do(lambda connection: connection.execute(release, (FLOW_WORKER, self.hand.name)))
        self.lives += 1
        self.hand.name = f"{self.hand.name.partition('+')[0]}+{self.lives}"
        name = self.hand.name
        self.hand.do(lambda connection: acquire(connection, FLOW_WORKER, name, name, 60.0))

    def signal(self) -> None:
        self.do(store.signal_flow, self.run, "approve", "true", "me")

    def pause(self) -> None:
        self.do(store.pause_flow, self.run)

    def resume(self) -> None:
        for run in self.runs:
            with suppress(FlowError, StoreError):
                self.do(store.resume_flow, run)

    def retry(self) -> None:
        for run in self.runs:
            with suppress(FlowError, StoreError):
                self.do(store.retry_flow, run)

    def tolerate(self) -> None:
        name = self.chance.choice(["stream", "keyed", "each"])
        count, share = self.chance.choice([(None, 0.1), (3, None), (None, 0.5), (1, 0.9)])
        self.do(store.tolerate, self.run, name, count, share)

    def cancel(self) -> None:
        if self.chance.random() < 0.15:
            self.do(store.cancel_flow, self.run, "enough")

    def begin(self) -> None:
        """Others begin the same at this moment."""
        flow = woven().definition
        key = f"begun-{self.begun // 3}"
        self.begun += 1
        self.runs.append(self.do(store.begin_flow, flow.name, key, "null", flow.as_rows()))
        del self.runs[:-RUNS]


ACTS: list[tuple[Callable[[Adversary], None], int]] = [
    (Adversary.claim, 8), (Adversary.complete, 8), (Adversary.fail, 4), (Adversary.spawn, 4),
    (Adversary.spawn_keyed, 3), (Adversary.finish, 3), (Adversary.skip, 1), (Adversary.suspend, 2),
    (Adversary.write, 2), (Adversary.put_back, 1), (Adversary.sweep, 2), (Adversary.die, 1),
    (Adversary.signal, 3), (Adversary.pause, 1), (Adversary.resume, 2), (Adversary.retry, 1),
    (Adversary.tolerate, 1), (Adversary.cancel, 1), (Adversary.begin, 4),
]  # fmt: skip


def act(adversary: Adversary) -> None:
    (chosen,) = adversary.chance.choices(*zip(*ACTS, strict=True))
    with suppress(FlowError, StoreError, Died):
        chosen(adversary)


def bring_to_an_end(hand: Hand, run: int) -> str:
    with suppress(FlowError, StoreError):
        hand.do(store.resume_flow, run)
    for _ in range(60):
        hand.ask("UPDATE tidegate.flow_task SET available_at = now() RETURNING 1")
        hand.do(store.sweep_flows)
        with suppress(FlowError, StoreError):
            hand.do(store.signal_flow, run, "approve", "true", "me")
        with suppress(FlowError, StoreError):
            hand.do(store.set_external_state, run, "offset", "1000", "outside")
        for it in hand.claim(*queues(), room=1000):
            if it.position == OWN and it.queue in {"woven/stream", "woven/keyed"}:
                hand.do(tasks.finish_generator, it)
            else:
                hand.complete([it], given_by(it))
        if hand.state(run) in {"completed", "failed", "canceled"}:
            break
    return hand.state(run)


@pytest.mark.parametrize("seed", range(int(os.environ.get("TIDEGATE_ADVERSARY_SEEDS", "2"))))
def test_whatever_many_hands_do_runs_are_whole_and_can_end(
    hand: Hand, database: Database, seed: int
) -> None:
    runs = [hand.begin(woven()) for _ in range(RUNS)]

    def attack(number: int) -> list[int]:
        chance = random.Random(f"{seed} {number}")
        adversary = Adversary(Hand(database, f"hand-{number}"), list(runs), chance)
        for turn in range(TURNS):
            act(adversary)
            if turn % 10 == 0:
                assert hand.ask(WRONG) == []
        adversary.hand.ask("DELETE FROM tidegate.lease WHERE key LIKE 'hand-%%' RETURNING 1")
        return adversary.runs

    with ThreadPoolExecutor(HANDS) as threads:
        seen = {run for found in threads.map(attack, range(HANDS)) for run in found}
    assert hand.ask(WRONG) == []
    for run in sorted(seen | set(runs)):
        assert bring_to_an_end(hand, run) in {"completed", "failed", "canceled"}
    assert hand.ask(WRONG) == []
    asked = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert hand.ask(asked) == [(0,)]
