"""What the holder of a lease knows by its own clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.store import Lease
from tidegate.store.core.notifications import LONGEST_PAYLOAD, pack

SECONDS = st.floats(0.001, 10_000)


@given(asked=SECONDS, seconds=SECONDS, now=SECONDS)
def test_a_lease_is_renewed_before_it_stops_being_safe(
    asked: float, seconds: float, now: float
) -> None:
    lease = Lease("task", "s1", "ann", 1, seconds, asked)
    assert lease.is_due(now) or lease.is_safe(now)


def test_a_lease_is_due_after_a_third_and_unsafe_after_all_of_its_time() -> None:
    lease = Lease("task", "s1", "ann", 1, seconds=30, requested_at=100)
    assert [lease.is_due(now) for now in (100, 109, 110)] == [False, False, True]
    assert [lease.is_safe(now) for now in (100, 129, 130)] == [True, True, False]


def test_a_notification_names_each_topic_once() -> None:
    assert pack(["b", "a", "b"]) == "a\nb"


def test_no_topics_are_no_notification() -> None:
    assert pack([]) is None


def test_more_topics_than_fit_are_news_for_everybody() -> None:
    assert pack(f"sales/s{n}" for n in range(LONGEST_PAYLOAD)) == ""
