"""A wait ends with a value or with its bound."""

from __future__ import annotations

from threading import Event

from tidegate.store.core.notifications import poll_until


def test_a_wait_ends_with_the_first_value() -> None:
    values = iter([None, None, "done"])
    changed = Event()

    def look() -> str | None:
        changed.set()
        return next(values)

    assert poll_until(look, changed, None, poll=3600.0) == "done"


def test_a_wait_ends_at_its_bound() -> None:
    assert poll_until(lambda: None, Event(), 0) is None
