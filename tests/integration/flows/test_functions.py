"""Every transition is one function of the database, and refuses what may not happen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.integration.flows.conftest import Hand
from tests.integration.flows.declared import approved, gated, numbers
from tests.unit.flows.test_decide import counts, policies, waiting
from tidegate.errors import (
    ClaimLost,
    FlowRunClosed,
    SignalRefused,
    SpawnRefused,
    StateRegressed,
    StateUndeclared,
    UnknownFlowRun,
)
from tidegate.flows import Context, FailAtFirst, Flow, StepState, Tolerate
from tidegate.flows.decide import ItemCounts, WaitingFacts, decide_readiness, decide_verdict
from tidegate.flows.states import FLOW_TRANSITIONS, STEP_TRANSITIONS, TASK_TRANSITIONS
from tidegate.store import Database
from tidegate.store import flow_tasks as tasks
from tidegate.store import flows as store
from tidegate.store.flow_tasks import Claim

SAME_DATABASE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
GENERATOR, ITEMS = "numbers/count_up", "numbers/count_up[]"


def generating(hand: Hand, value: str = "5") -> tuple[int, Claim]:
    run = hand.begin(numbers, value)
    (generator,) = hand.claim(GENERATOR)
    return run, generator


def tolerant(policy: Tolerate) -> Flow:
    flow = Flow("tolerant")

    @flow.step
    def listed(context: Context, last: int) -> list[int]:
        return []

    @flow.map_step(depends_on=listed, on_fail=policy)
    def each(context: Context, number: int) -> int:
        return number

    return flow


# ── the database decides as the pure functions do ──


def test_the_database_knows_the_same_transitions(hand: Hand) -> None:
    tables: dict[str, Mapping[Any, frozenset[Any]]] = {
        "flow": FLOW_TRANSITIONS,
        "step": STEP_TRANSITIONS,
        "task": TASK_TRANSITIONS,
    }
    for kind, table in tables.items():
        for old in table:
            allowed = {
                new.value
                for new in table
                if hand.ask("SELECT tidegate.flow_may_move(%s, %s, %s)", kind, old.value, new.value)
                == [(True,)]
            }
            assert allowed == {new.value for new in table[old]}, (kind, old)


@SAME_DATABASE
@given(counts, policies)
def test_the_database_judges_items_the_same(
    hand: Hand, it: ItemCounts, policy: FailAtFirst | Tolerate
) -> None:
    tolerate = policy if isinstance(policy, Tolerate) else Tolerate()
    asked = "SELECT tidegate.flow_verdict(%s, %s, %s, %s, %s, %s, %s)"
    found = hand.ask(
        asked, it.is_ended, it.spawned, it.succeeded, it.failed, it.canceled, tolerate.count,
        tolerate.share,
    )  # fmt: skip
    assert found == [(decide_verdict(it, policy).value,)]


@SAME_DATABASE
@given(waiting)
def test_the_database_judges_readiness_the_same(hand: Hand, facts: WaitingFacts) -> None:
    states = [state.value for state in facts.dependencies.values()]
    optional = [name in facts.optional for name in facts.dependencies]
    asked = "SELECT tidegate.flow_readiness(%s::text[], %s::boolean[], %s, %s)"
    found = hand.ask(asked, states, optional, facts.needs_signal, facts.has_signal)
    assert found == [(decide_readiness(facts).value,)]


# ── beginning ──


def test_the_same_key_is_the_same_run_also_at_the_same_time(hand: Hand) -> None:
    with ThreadPoolExecutor(8) as threads:
        runs = list(threads.map(lambda _: hand.begin(numbers, "1", key="march"), range(16)))
    assert len(set(runs)) == 1
    assert hand.begin(numbers, "1", key="april") not in runs
    assert len(hand.claim(GENERATOR)) == 2


def test_a_run_that_does_not_exist_is_told_so(hand: Hand) -> None:
    with pytest.raises(UnknownFlowRun):
        hand.do(store.pause_flow, 404)
    with pytest.raises(UnknownFlowRun):
        hand.do(store.flow_run, 404)


# ── generators ──


def test_items_are_worked_on_while_the_generator_still_yields(hand: Hand) -> None:
    run, generator = generating(hand)
    assert hand.spawn(generator, range(3)) == (3, 3)
    items = hand.claim(ITEMS)
    assert [it.position for it in items] == [0, 1, 2]
    assert hand.complete(items, "2") == []
    assert hand.spawn(generator, range(3, 5)) == (5, 2)
    assert hand.do(tasks.finish_generator, generator) == 5
    assert hand.steps(run)["count_up"].state is StepState.RUNNING
    hand.complete(hand.claim(ITEMS), "2")
    assert hand.steps(run)["count_up"].state is StepState.COMPLETED
    hand.complete(hand.claim("numbers/total"), "10")
    assert hand.state(run) == "completed"


def test_an_empty_stream_completes(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.do(tasks.finish_generator, generator)
    found = hand.steps(run)
    assert found["count_up"].state is StepState.COMPLETED
    assert found["total"].state is StepState.RUNNING
    assert hand.do(store.item_results, run, "count_up", -1) == []


def test_items_that_are_there_already_are_recognised(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(4))
    assert hand.spawn(generator, range(4)) == (4, 4)
    assert hand.spawn(generator, range(2, 6)) == (6, 6)
    assert hand.steps(run)["count_up"].spawned == 6


def test_items_with_keys_are_recognised_by_them(hand: Hand) -> None:
    run, generator = generating(hand)
    first = [("a", "1"), ("b", "2"), ("a", "1")]
    assert hand.do(tasks.spawn, generator, first) == (2, 2)
    assert hand.do(tasks.spawn, generator, [("c", "3"), ("b", "2")]) == (3, 3)
    assert [it.payload for it in hand.claim(ITEMS)] == ["1", "2", "3"]
    assert hand.steps(run)["count_up"].spawned == 3


def test_a_gap_in_positions_is_refused(hand: Hand) -> None:
    _, generator = generating(hand)
    with pytest.raises(SpawnRefused, match="positions 0"):
        hand.spawn(generator, range(1, 3))


def test_items_after_the_end_are_refused(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(2))
    hand.do(tasks.finish_generator, generator)
    with pytest.raises(SpawnRefused, match="complete"):
        hand.spawn(generator, range(2, 3))
    assert hand.steps(run)["count_up"].spawned == 2


def test_a_cursor_is_saved_with_the_items_before_it(hand: Hand) -> None:
    _, generator = generating(hand)
    hand.do(tasks.spawn, generator, [(0, "0"), (1, "1")], ('"page 2"', 2))
    place = hand.do(tasks.generator_place, generator.step_id)
    assert (place.spawned, place.cursor, place.cursor_position) == (2, '"page 2"', 2)


@pytest.mark.parametrize("attempt", range(9))
def test_a_step_completes_once_when_its_last_task_and_its_generators_end_race(
    hand: Hand, database: Database, attempt: int
) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(8))
    items = hand.claim(ITEMS)
    with ThreadPoolExecutor(9) as threads:
        ends: list[Future[Any]] = []
        for number, it in enumerate([*items[:attempt], None, *items[attempt:]]):
            if it is None:
                ends.append(threads.submit(hand.do, tasks.finish_generator, generator))
            else:
                ends.append(threads.submit(hand.complete, [it], str(number)))
        assert [it.result() for it in ends].count([]) == 8
    found = hand.steps(run)["count_up"]
    assert (found.state, found.succeeded, found.in_flight) == (StepState.COMPLETED, 8, 0)
    assert len(hand.claim("numbers/total")) == 1


# ── fencing ──


def test_a_stale_claimant_is_refused_and_told_so(hand: Hand, database: Database) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(1))
    (stale,) = hand.claim(ITEMS)
    hand.ask("UPDATE tidegate.lease SET expires_at = now() RETURNING 1")
    assert hand.do(store.sweep_flows).freed == 2
    other = Hand(database, "other")
    (item,) = other.claim(ITEMS)
    (lost,) = hand.complete([stale], "7")
    assert isinstance(lost, ClaimLost)
    assert (lost.epoch, lost.current, lost.holder) == (1, 2, "held by other")
    with pytest.raises(ClaimLost):
        hand.spawn(generator, range(1, 2))
    with pytest.raises(ClaimLost):
        hand.do(tasks.finish_generator, generator)
    with pytest.raises(ClaimLost):
        hand.do(tasks.fail, stale, "late", 0.0, is_final=True)
    assert other.complete([item], "2") == []
    assert hand.do(store.item_results, run, "count_up", -1) == [(0, "2")]


def test_what_one_claim_has_done_may_be_said_again(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(2))
    items = hand.claim(ITEMS)
    assert hand.complete(items, "1") == []
    assert hand.complete(items, "1") == []
    hand.do(tasks.finish_generator, generator)
    assert hand.do(tasks.finish_generator, generator) == 2
    assert hand.steps(run)["count_up"].succeeded == 2


def test_a_state_write_of_a_stale_claimant_is_refused(hand: Hand, database: Database) -> None:
    hand.begin(gated, "5")
    (stale,) = hand.claim("gated/switch")
    hand.ask("UPDATE tidegate.lease SET owner = NULL RETURNING 1")
    hand.do(store.sweep_flows)
    with pytest.raises(ClaimLost):
        hand.do(tasks.set_state, stale, "target", "5", "switch", once=False)


def test_claims_of_the_living_are_left_alone(hand: Hand) -> None:
    generating(hand)
    assert hand.do(store.sweep_flows).freed == 0


def test_two_workers_never_claim_the_same_task(hand: Hand, database: Database) -> None:
    _, generator = generating(hand)
    hand.spawn(generator, range(200))
    hands = [Hand(database, f"hand-{n}") for n in range(4)]
    with ThreadPoolExecutor(4) as threads:
        claims = list(threads.map(lambda it: it.claim(ITEMS, room=50), hands * 3))
    positions = [it.position for found in claims for it in found]
    assert sorted(positions) == list(range(200))


# ── failing ──


def test_a_failed_attempt_is_tried_again_and_the_first_cause_is_kept(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(1))
    for error, becomes in [("first", "ready"), ("second", "ready"), ("third", "failed")]:
        (item,) = hand.claim(ITEMS)
        assert hand.do(tasks.fail, item, error, 0.0, is_final=False) == becomes
    assert hand.state(run) == "failed"
    assert hand.do(store.flow_run, run).cause == "step count_up: item 0: first"
    assert hand.steps(run)["count_up"].last_error == "third"
    assert hand.steps(run)["total"].state is StepState.CANCELED


def test_a_pause_between_attempts_is_kept(hand: Hand) -> None:
    _, generator = generating(hand)
    hand.spawn(generator, range(1))
    (item,) = hand.claim(ITEMS)
    hand.do(tasks.fail, item, "busy", 3600.0, is_final=False)
    assert hand.claim(ITEMS) == []


def test_what_a_failed_run_still_has_at_work_is_refused(hand: Hand) -> None:
    _, generator = generating(hand)
    hand.spawn(generator, range(2))
    first, second = hand.claim(ITEMS)
    hand.do(tasks.fail, first, "broken", 0.0, is_final=True)
    (lost,) = hand.complete([second], "1")
    assert lost.holder == "canceled"
    with pytest.raises(FlowRunClosed):
        hand.spawn(generator, range(2, 3))


def test_a_failed_run_that_is_tried_again_does_only_what_is_missing(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(3))
    items = hand.claim(ITEMS)
    hand.complete(items[:1], "1")
    hand.do(tasks.fail, items[1], "broken", 0.0, is_final=True)
    hand.do(store.retry_flow, run)
    assert hand.state(run) == "running"
    (generator,) = hand.claim(GENERATOR)
    hand.do(tasks.finish_generator, generator)
    again = hand.claim(ITEMS)
    assert [(it.position, it.attempt) for it in again] == [(1, 1), (2, 1)]
    hand.complete(again, "1")
    assert hand.steps(run)["count_up"].state is StepState.COMPLETED
    assert hand.steps(run)["count_up"].succeeded == 3


def test_a_run_that_did_not_fail_is_not_tried_again(hand: Hand) -> None:
    run, _ = generating(hand)
    with pytest.raises(FlowRunClosed):
        hand.do(store.retry_flow, run)


def test_tolerated_failures_end_in_a_summary(hand: Hand) -> None:
    run = hand.begin(tolerant(Tolerate(count=1)), "3")
    hand.complete(hand.claim("tolerant/listed"), "[1, 2, 3]")
    hand.complete(hand.claim("tolerant/each"))
    first, *others = hand.claim("tolerant/each[]")
    hand.do(tasks.fail, first, "broken", 0.0, is_final=True)
    assert hand.state(run) == "running"
    hand.complete(others, "1")
    assert hand.state(run) == "completed"
    found = hand.do(store.step_result, run, "each")
    assert found is not None
    assert found.json == (
        '{"failed": 1, "running": 0, "canceled": 0, "expected": 3, "succeeded": 2}'
    )


def test_more_failures_than_tolerated_fail_the_run_at_once(hand: Hand) -> None:
    run = hand.begin(tolerant(Tolerate(count=1)), "3")
    hand.complete(hand.claim("tolerant/listed"), "[1, 2, 3]")
    hand.complete(hand.claim("tolerant/each"))
    for item in hand.claim("tolerant/each[]")[:2]:
        hand.do(tasks.fail, item, f"broken {item.position}", 0.0, is_final=True)
    assert hand.state(run) == "failed"
    assert hand.do(store.flow_run, run).cause == "step each: item 0: broken 0"


def test_tolerance_can_be_changed_while_the_step_runs(hand: Hand) -> None:
    run = hand.begin(tolerant(Tolerate(count=0)), "3")
    hand.complete(hand.claim("tolerant/listed"), "[1, 2]")
    hand.complete(hand.claim("tolerant/each"))
    hand.do(store.tolerate, run, "each", None, 1.0)
    for item in hand.claim("tolerant/each[]"):
        hand.do(tasks.fail, item, "broken", 0.0, is_final=True)
    assert hand.state(run) == "completed"


def test_a_map_step_over_nothing_completes(hand: Hand) -> None:
    run = hand.begin(tolerant(Tolerate(share=0.0)), "0")
    hand.complete(hand.claim("tolerant/listed"), "[]")
    hand.complete(hand.claim("tolerant/each"))
    assert hand.state(run) == "completed"


def test_a_task_with_which_workers_die_again_and_again_fails(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(1))
    hand.do(tasks.finish_generator, generator)
    for _ in range(11):
        hand.claim(ITEMS)
        hand.ask("DELETE FROM tidegate.lease RETURNING 1")
        hand.do(store.sweep_flows)
    assert hand.state(run) == "failed"
    cause = hand.do(store.flow_run, run).cause
    assert cause is not None
    assert "workers have died with it 11 times" in cause


# ── signals, pausing, cancelling ──


def test_a_step_waits_for_its_signal_which_may_come_before(hand: Hand) -> None:
    run = hand.begin(approved, '"now?"')
    hand.do(store.signal_flow, run, "act", "true", "test")
    hand.do(store.signal_flow, run, "act", "true", "test")
    assert hand.claim("approved/act") == []
    hand.complete(hand.claim("approved/ask"), '"now?"')
    (act,) = hand.claim("approved/act")
    assert hand.do(tasks.inputs, run, "act") == ('"now?"', "true")
    hand.complete([act], '"done"')
    assert hand.state(run) == "completed"


def test_another_signal_and_one_that_nobody_takes_are_refused(hand: Hand) -> None:
    run = hand.begin(approved, '"now?"')
    hand.do(store.signal_flow, run, "act", "true", "test")
    with pytest.raises(SignalRefused, match="another"):
        hand.do(store.signal_flow, run, "act", "false", "test")
    with pytest.raises(SignalRefused, match="takes none"):
        hand.do(store.signal_flow, run, "ask", "true", "test")


def test_a_paused_run_begins_nothing_until_it_is_resumed(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(2))
    (item,) = hand.claim(ITEMS, room=1)
    hand.do(store.pause_flow, run)
    hand.spawn(generator, range(2, 4))
    hand.complete([item], "1")
    assert hand.claim(ITEMS) == []
    hand.do(store.resume_flow, run)
    assert [it.position for it in hand.claim(ITEMS)] == [1, 2, 3]


def test_a_run_that_is_cancelled_ends_when_its_workers_have_let_go(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(3))
    (item,) = hand.claim(ITEMS, room=1)
    assert hand.do(store.cancel_flow, run, "enough").value == "canceling"
    assert hand.do(store.cancel_flow, run, "again").value == "canceling"
    with pytest.raises(FlowRunClosed):
        hand.spawn(generator, range(3, 4))
    assert hand.complete([item], "1") == []
    assert hand.state(run) == "canceling"
    hand.do(tasks.put_back, hand.name, [generator])
    assert hand.state(run) == "canceled"
    found = hand.steps(run)["count_up"]
    assert (found.succeeded, found.canceled, found.in_flight) == (1, 2, 0)
    assert hand.do(store.flow_run, run).cause == "enough"
    assert hand.do(store.cancel_flow, run, "late").value == "canceled"


def test_a_sweep_ends_what_dead_workers_left_canceling(hand: Hand) -> None:
    run, generator = generating(hand)
    hand.spawn(generator, range(3))
    hand.claim(ITEMS, room=1)
    hand.do(store.cancel_flow, run, "enough")
    hand.ask("DELETE FROM tidegate.lease RETURNING 1")
    swept = hand.do(store.sweep_flows)
    assert (swept.freed, swept.ended) == (2, 1)
    assert hand.state(run) == "canceled"


def test_a_closed_run_is_not_steered(hand: Hand) -> None:
    run = hand.begin(approved, '"?"')
    hand.do(store.cancel_flow, run, "enough")
    for steer in (store.pause_flow, store.resume_flow, store.retry_flow):
        with pytest.raises(FlowRunClosed):
            hand.do(steer, run)


# ── state ──


def test_a_monotonic_key_never_goes_back(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    hand.do(store.set_external_state, run, "offset", "7", "a feed")
    hand.do(store.set_external_state, run, "offset", "7", "another feed")
    with pytest.raises(StateRegressed) as refused:
        hand.do(store.set_external_state, run, "offset", "6", "a feed")
    assert (refused.value.current, refused.value.writer) == ("7", "a feed")
    _, values = hand.do(store.flow_state, run)
    assert values["offset"].json == "7"


def test_only_declared_writers_write(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    with pytest.raises(StateUndeclared):
        hand.do(store.set_external_state, run, "target", "1", "outside")
    (step,) = hand.claim("gated/switch")
    with pytest.raises(StateUndeclared):
        hand.do(tasks.set_state, step, "offset", "1", "switch", once=False)


def test_a_key_that_is_set_once_keeps_its_first_value(hand: Hand) -> None:
    hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    assert hand.do(tasks.set_state, step, "target", "5", "switch", once=True) == "5"
    assert hand.do(tasks.set_state, step, "target", "9", "switch", once=True) == "5"


def parked(hand: Hand, seen: int = 0, timeout: float | None = None) -> tuple[int, str]:
    run = hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    return run, hand.do(tasks.park, step, ["offset"], seen, 1, 0.0, timeout)


def test_a_parked_task_is_ready_when_one_of_its_keys_was_written(hand: Hand) -> None:
    run, state = parked(hand)
    assert (state, hand.claim("gated/switch")) == ("parked", [])
    hand.do(store.set_external_state, run, "offset", "1", "a feed")
    (step,) = hand.claim("gated/switch")
    assert (step.attempt, step.wait_number) == (1, 1)


def test_a_write_between_the_look_and_the_parking_is_not_missed(hand: Hand) -> None:
    run = hand.begin(gated, "5")
    (step,) = hand.claim("gated/switch")
    seen, _ = hand.do(store.flow_state, run)
    hand.do(store.set_external_state, run, "offset", "1", "a feed")
    assert hand.do(tasks.park, step, ["offset"], seen, 1, 0.0, None) == "ready"
    assert len(hand.claim("gated/switch")) == 1


def test_a_wait_whose_bound_has_passed_is_woken_by_a_sweep(hand: Hand) -> None:
    parked(hand, timeout=0.0)
    assert hand.do(store.sweep_flows).woken == 1
    (step,) = hand.claim("gated/switch")
    assert step.waited is not None


def test_cancelling_ends_a_parked_run_at_once(hand: Hand) -> None:
    run, _ = parked(hand)
    assert hand.do(store.cancel_flow, run, "enough").value == "canceled"


def test_a_paused_run_holds_what_was_woken(hand: Hand) -> None:
    run, _ = parked(hand)
    hand.do(store.pause_flow, run)
    hand.do(store.set_external_state, run, "offset", "1", "a feed")
    assert hand.claim("gated/switch") == []
    hand.do(store.resume_flow, run)
    assert len(hand.claim("gated/switch")) == 1


# ── conditions ──


def test_who_cannot_do_without_a_skipped_step_is_skipped_too(hand: Hand) -> None:
    flow = Flow("skipping")

    @flow.step
    def first(context: Context) -> int:
        return 1

    @flow.step(depends_on=first)
    def needs(context: Context, number: int) -> int:
        return number

    @flow.step(depends_on=first)
    def copes(context: Context, number: int | None) -> int:
        return number or 0

    run = hand.begin(flow)
    (step,) = hand.claim("skipping/first")
    hand.do(tasks.skip, step)
    found = hand.steps(run)
    assert found["needs"].state is StepState.SKIPPED
    hand.complete(hand.claim("skipping/copes"), "0")
    assert hand.state(run) == "completed"


def test_a_step_of_a_map_is_a_list_of_the_results_of_its_items(hand: Hand) -> None:
    flow = Flow("chained")

    @flow.map_step
    def one(context: Context, number: int) -> int:
        return number

    @flow.map_step(depends_on=one)
    def two(context: Context, number: int) -> int:
        return number

    @flow.reduce(two)
    def total(context: Context, numbers: Iterator[int]) -> int:
        return sum(numbers)

    hand.begin(flow, "[3, 4]")
    hand.complete(hand.claim("chained/one"))
    first, second = hand.claim("chained/one[]")
    hand.complete([first], "30")
    hand.complete([second], "40")
    hand.complete(hand.claim("chained/two"))
    assert [it.payload for it in hand.claim("chained/two[]")] == ["30", "40"]
