"""Whatever happens to a run, in whichever order, its counters are right and it can end."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.flows.conftest import GENERATOR, ITEMS, Hand
from tests.integration.flows.declared import numbers
from tidegate.errors import ClaimLost, FlowRunClosed, SpawnRefused
from tidegate.store import Database
from tidegate.store.flows import runs as store
from tidegate.store.flows import tasks
from tidegate.store.flows.tasks import Claim

REFUSALS = (ClaimLost, FlowRunClosed, SpawnRefused)
COUNTERS = """
SELECT s.spawned, s.succeeded, s.failed, s.canceled,
    count(*) FILTER (WHERE t.position >= 0),
    count(*) FILTER (WHERE t.position >= 0 AND t.state = 'succeeded'),
    count(*) FILTER (WHERE t.position >= 0 AND t.state = 'failed'),
    count(*) FILTER (WHERE t.position >= 0 AND t.state = 'canceled')
FROM tidegate.flow_step AS s JOIN tidegate.flow_task AS t ON t.step_id = s.id
WHERE s.run_id = %s AND s.name = 'count_up' GROUP BY s.id
"""


@dataclass
class Life:
    """A run to which anything may happen; claims are kept, also those that were lost."""

    hand: Hand
    run: int
    generators: list[Claim] = field(default_factory=list)
    items: list[Claim] = field(default_factory=list)
    spawned: int = 0

    def claim(self, chance: random.Random) -> None:
        self.generators += self.hand.claim(GENERATOR)
        self.items += self.hand.claim(ITEMS, room=chance.randint(1, 4))

    def spawn(self, chance: random.Random) -> None:
        if self.generators:
            first = chance.randint(0, self.spawned)
            last = first + chance.randint(0, 5)
            after, _ = self.hand.spawn(chance.choice(self.generators), range(first, last))
            self.spawned = after

    def finish(self, chance: random.Random) -> None:
        if self.generators:
            self.hand.do(tasks.finish_generator, chance.choice(self.generators))

    def complete(self, chance: random.Random) -> None:
        if self.items:
            self.hand.complete(chance.sample(self.items, min(3, len(self.items))), "1")

    def fail(self, chance: random.Random) -> None:
        if self.items:
            is_final = chance.random() < 0.1
            self.hand.do(tasks.fail, chance.choice(self.items), "bad", 0.0, is_final=is_final)

    def put_back(self, chance: random.Random) -> None:
        self.hand.do(tasks.put_back, self.hand.name, self.items[-2:] + self.generators[-1:])

    def lose(self, chance: random.Random) -> None:
        asked = "DELETE FROM tidegate.lease WHERE kind = 'flow worker' RETURNING 1"
        self.hand.ask(asked)
        self.hand.do(store.sweep_flows)
        waiting = "UPDATE tidegate.flow_task SET available_at = now() WHERE state = 'ready'"
        self.hand.ask(waiting + " RETURNING 1")

    def pause(self, chance: random.Random) -> None:
        self.hand.do(store.pause_flow, self.run)

    def resume(self, chance: random.Random) -> None:
        self.hand.do(store.resume_flow, self.run)

    def retry(self, chance: random.Random) -> None:
        self.hand.do(store.retry_flow, self.run)

    def cancel(self, chance: random.Random) -> None:
        if chance.random() < 0.2:
            self.hand.do(store.cancel_flow, self.run, "enough")

    def check(self) -> None:
        (found,) = self.hand.ask(COUNTERS, self.run)
        assert found[:4] == found[4:]

    def end(self, chance: random.Random) -> str:
        """Do what is left to do; nothing is stuck."""
        with suppress(*REFUSALS):
            self.resume(chance)
        for _ in range(40):
            self.lose(chance)
            self.claim(chance)
            self.items += self.hand.claim(ITEMS)
            self.hand.complete(self.items + self.hand.claim("numbers/total"), "1")
            for generator in self.generators:
                with suppress(*REFUSALS):
                    self.hand.do(tasks.finish_generator, generator)
            if self.hand.state(self.run) in {"completed", "failed", "canceled"}:
                break
        return self.hand.state(self.run)


EVENTS: list[Callable[[Life, random.Random], None]] = [
    Life.claim, Life.spawn, Life.finish, Life.complete, Life.fail, Life.put_back, Life.lose,
    Life.pause, Life.resume, Life.retry, Life.cancel,
]  # fmt: skip


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(range(len(EVENTS))), max_size=25), st.integers(0, 2**20))
def test_counters_are_right_after_every_event_and_no_run_is_stuck(
    hand: Hand, events: list[int], seed: int
) -> None:
    chance = random.Random(seed)
    life = Life(hand, hand.begin(numbers, "5", key=str(chance.random()) + str(events)))
    for event in [0, 1, *events]:
        with suppress(*REFUSALS):
            EVENTS[event](life, chance)
        life.check()
    assert life.end(chance) in {"completed", "failed", "canceled"}
    life.check()


@pytest.mark.parametrize("seed", range(3))
def test_many_hands_at_once_never_wait_in_a_ring(hand: Hand, database: Database, seed: int) -> None:
    runs = [hand.begin(numbers, "5") for _ in range(3)]
    ending = (Life.pause, Life.retry, Life.cancel, Life.lose)
    usual = [event for event in EVENTS if event not in ending]

    def work(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        lives = [Life(Hand(database, f"hand-{number}"), run) for run in runs]
        for _ in range(60):
            with suppress(*REFUSALS):
                chance.choice(usual)(chance.choice(lives), chance)
            if chance.random() < 0.05:
                hand.do(store.sweep_flows)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))
    for run in runs:
        life = Life(hand, run)
        life.check()
        assert life.end(random.Random(seed)) in {"completed", "failed"}
        life.check()
    asked = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert hand.ask(asked) == [(0,)]
