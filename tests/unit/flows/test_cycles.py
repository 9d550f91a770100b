"""A gate that can never open is refused when the flow is first used, with the circle named."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.flows.test_declarations import plain, refused
from tidegate.errors import GateNeverOpens
from tidegate.flows import Context, Flow, is_set, reached
from tidegate.flows.model.cycles import Cycle, Waits, find_cycle


def takes_number(context: Context, number: int | None) -> int:
    return number or 0


def test_a_gate_for_a_key_that_only_the_step_itself_writes_is_refused() -> None:
    flow = Flow("f")
    done = flow.state("done", bool)
    flow.step(wait_for=is_set(done), writes=done)(plain)  # wrong
    error = refused(GateNeverOpens, flow)
    assert (error.flow, error.step, error.key) == ("f", "plain", "done")
    assert error.circle == "plain → plain"


def test_a_gate_for_a_key_that_only_a_later_step_writes_is_refused() -> None:
    flow = Flow("f")
    offset = flow.state("offset", int)
    mark = flow.state("mark", int, external=True)
    flow.step(wait_for=reached(mark, offset))(plain)  # wrong
    flow.step(name="second", depends_on="plain")(takes_number)
    flow.step(name="third", depends_on="second", writes=offset)(takes_number)
    error = refused(GateNeverOpens, flow)
    assert (error.step, error.key) == ("plain", "offset")
    assert error.circle == "plain → third → second → plain"


def test_two_gates_that_wait_for_each_other_are_refused() -> None:
    flow = Flow("f")
    one, two = flow.state("one", bool), flow.state("two", bool)
    flow.step(name="first", wait_for=is_set(one), writes=two)(plain)  # wrong
    flow.step(name="second", wait_for=is_set(two), writes=one)(plain)
    assert refused(GateNeverOpens, flow).circle == "first → second → first"


def test_the_line_is_that_of_the_gate_and_not_of_a_step_before_it() -> None:
    flow = Flow("f")
    done = flow.state("done", bool)
    flow.step(plain)
    flow.step(name="second", depends_on="plain", wait_for=is_set(done))(takes_number)  # wrong
    flow.step(name="third", depends_on="second", writes=done)(takes_number)
    assert refused(GateNeverOpens, flow).step == "second"


def test_a_step_that_may_be_skipped_still_has_to_be_able_to_begin() -> None:
    flow = Flow("f")
    done = flow.state("done", bool)
    flow.step(wait_for=is_set(done), condition=lambda: True)(plain)  # wrong
    flow.step(name="second", depends_on="plain", writes=done)(takes_number)
    assert refused(GateNeverOpens, flow).step == "plain"


def test_a_step_is_not_skipped_before_those_that_it_depends_on_have_ended() -> None:
    flow = Flow("f")
    done = flow.state("done", bool)
    flow.step(wait_for=is_set(done))(plain)  # wrong
    flow.step(name="second", depends_on="plain", condition=lambda it: False)(takes_number)
    flow.step(name="third", depends_on="second", writes=done)(takes_number)
    assert refused(GateNeverOpens, flow).circle == "plain → third → second → plain"


def test_steps_that_take_turns_by_their_conditions_are_fine() -> None:
    """Either is skipped where the other is not, and then the other's gate opens."""
    turns = {
        "left": Waits(needs=("l",), may_be_skipped=True),
        "right": Waits(needs=("r",), may_be_skipped=True),
        "after_left": Waits(("left",), writes=("r",)),
        "after_right": Waits(("right",), writes=("l",)),
    }
    assert find_cycle(turns) is None
    always = {name: replace(it, may_be_skipped=False) for name, it in turns.items()}
    assert find_cycle(always) == Cycle("l", ("left", "after_right", "right", "after_left"))


@pytest.mark.parametrize("is_external", [True, False])
def test_a_gate_opens_by_any_other_writer(is_external: bool) -> None:
    flow = Flow("f")
    done = flow.state("done", bool, external=is_external)
    flow.step(wait_for=is_set(done), writes=done)(plain)
    if not is_external:
        flow.step(name="other", writes=done)(plain)
    assert "plain" in flow.definition.steps


@st.composite
def orders(draw: st.DrawFn) -> dict[str, Waits]:
    """Steps that can begin one after the other, in any order of their declaration."""
    count = draw(st.integers(1, 7))
    names = [f"s{at}" for at in range(count)]
    steps = {}
    for at, name in enumerate(names):
        before = st.lists(st.sampled_from(names[:at]), unique=True) if at else st.just([])
        needs = [f"key of {it}" for it in draw(before)]
        others = draw(st.lists(st.sampled_from(names), unique=True))
        writes = [f"key of {it}" for it in (name, *others)]
        steps[name] = Waits(tuple(draw(before)), tuple(needs), tuple(writes), draw(st.booleans()))
    return {name: steps[name] for name in draw(st.permutations(names))}


@given(orders())
def test_steps_that_can_begin_one_after_the_other_are_never_refused(
    steps: dict[str, Waits],
) -> None:
    assert find_cycle(steps) is None


@given(orders(), st.data())
def test_a_key_that_is_only_written_behind_its_gate_is_always_refused(
    steps: dict[str, Waits], data: st.DataObject
) -> None:
    gated = data.draw(st.sampled_from(sorted(steps)))
    behind = sorted(it for it in steps if gated in all_before(steps, it))
    writers = data.draw(st.lists(st.sampled_from([gated, *behind]), min_size=1, unique=True))
    steps[gated] = replace(steps[gated], needs=(*steps[gated].needs, "late"))
    for name in writers:
        steps[name] = replace(steps[name], writes=(*steps[name].writes, "late"))
    found = find_cycle(steps)
    assert found is not None
    check(steps, found)


def all_before(steps: dict[str, Waits], name: str) -> set[str]:
    """Everything that a step depends on, also by way of others."""
    direct = steps[name].depends_on
    return {*direct, *(it for before in direct for it in all_before(steps, before))}


def check(steps: dict[str, Waits], circle: Cycle) -> None:
    """Each step of a circle waits for the next, and its first step for the key."""
    around = [*circle.steps, circle.steps[0]]
    assert circle.key in steps[around[0]].needs
    assert circle.key in steps[around[1]].writes
    for name, after in pairwise(around):
        is_gate = not set(steps[name].needs).isdisjoint(steps[after].writes)
        assert after in steps[name].depends_on or is_gate
