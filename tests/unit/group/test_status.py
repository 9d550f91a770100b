"""Completions and timeouts of barriers."""

from __future__ import annotations

import pytest

from tidegate.errors import BarrierFailed, UnboundedWait
from tidegate.group import (
    Completion,
    Coordinator,
    Failure,
    Group,
    Member,
    PhaseStatus,
    Require,
    State,
    Timeouts,
    new_secret,
)

GOOD = PhaseStatus(State.SATISFIED, sequence=3)
LOST = PhaseStatus(State.FAILED, Failure.PEER_LOST, offender=7)
ANN = Member("ann", 7, bytes(16), "north", 41, last_phase="arrived at 'night'", silent=0.25)


def test_a_completion_names_the_offender_with_its_host_pid_last_phase_and_heartbeat() -> None:
    completion = Completion("night", 3, Require.INBOUND, LOST, LOST, offenders={7: ANN})

    assert str(completion) == (
        "barrier 'night' is not satisfied: rendezvous and inbound failed (peer lost by ann"
        " (pid 41 on north; arrived at 'night', last heartbeat 0.2 s before))"
    )


def test_a_satisfied_completion_lists_its_phases() -> None:
    assert str(Completion("night", 3, Require.INBOUND, GOOD, GOOD)) == (
        "barrier 'night' is satisfied: rendezvous, inbound"
    )


def test_raise_for_status_raises_with_the_completion() -> None:
    good = Completion("night", 3, Require.NOTHING, GOOD)
    assert good.raise_for_status() is good

    bad = Completion("night", 3, Require.NOTHING, LOST)
    with pytest.raises(BarrierFailed) as raised:
        bad.raise_for_status()
    assert raised.value.completion is bad
    assert str(raised.value) == str(bad)


def test_a_downgraded_phase_is_not_satisfied() -> None:
    downgraded = PhaseStatus(State.DOWNGRADED, Failure.PEER_DRAINING, offender=7)

    assert not Completion("night", 3, Require.NOTHING, downgraded).is_satisfied


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1.0])
def test_a_timeout_that_bounds_nothing_is_refused(seconds: float) -> None:
    with pytest.raises(UnboundedWait):
        Timeouts(processing=seconds)


def test_the_defaults_are_half_a_minute_and_one_for_handlers() -> None:
    assert Timeouts() == Timeouts(rendezvous=30, inbound=30, outbound=30, processing=60)


def test_a_plain_number_is_understood_and_an_unknown_flag_is_refused() -> None:
    secret = new_secret()
    with (
        Coordinator("tcp://127.0.0.1:0", secret=secret) as coordinator,
        Group.join("ann", address=coordinator.address, secret=secret) as group,
    ):
        assert group.barrier("night", require=5).require == Require.INBOUND | Require.PROCESSING
        with pytest.raises(ValueError, match="8"):
            group.barrier("night", require=8)
        assert group.rendezvous("night").is_satisfied
