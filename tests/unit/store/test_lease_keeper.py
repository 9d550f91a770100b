"""What a heartbeat concludes from an answer, or from none."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidegate.store import Lease
from tidegate.store.core.lease_keeper import decide

LEASES = st.lists(
    st.builds(
        Lease,
        st.just("task"),
        st.integers(0, 20).map(str),
        st.just("ann"),
        st.integers(1, 9),
        st.floats(1, 100),
        st.floats(0, 100),
    ),
    unique_by=lambda lease: lease.key,
)


@given(LEASES, st.floats(0, 300), st.data())
def test_every_lease_is_either_held_or_lost(
    kept: list[Lease], now: float, data: st.DataObject
) -> None:
    renewed = None
    if data.draw(st.booleans()):
        renewed = [replace(lease, requested_at=now) for lease in kept if data.draw(st.booleans())]
    verdict = decide(kept, renewed, now)
    assert sorted(lease.key for lease in (*verdict.held, *verdict.lost)) == sorted(
        lease.key for lease in kept
    )


@given(LEASES, st.floats(0, 300))
def test_without_an_answer_only_what_is_safe_by_the_own_clock_is_held(
    kept: list[Lease], now: float
) -> None:
    verdict = decide(kept, None, now)
    assert all(lease.is_safe(now) for lease in verdict.held)
    assert not any(lease.is_safe(now) for lease in verdict.lost)


@given(LEASES, st.floats(0, 300))
def test_what_the_database_did_not_renew_is_lost(kept: list[Lease], now: float) -> None:
    assert decide(kept, [], now).lost == tuple(kept)
