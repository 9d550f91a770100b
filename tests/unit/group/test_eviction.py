"""The number of connections without a proof is bounded, and the crowded address pays for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from tidegate.group.connection import Connection
from tidegate.group.unauthenticated import UnauthenticatedConnections


def connection(host: str) -> Connection:
    return cast(Connection, SimpleStranger(host=host))


class SimpleStranger(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


@given(st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]), max_size=60))
def test_there_are_never_more_than_the_bound(hosts: list[str]) -> None:
    strangers, evicted = UnauthenticatedConnections(most=8), 0
    for host in hosts:
        evicted += strangers.add(connection(host)) is not None

        assert len(strangers) <= 8
    assert len(strangers) + evicted == len(hosts)


def test_a_flood_from_one_address_evicts_no_connection_of_another() -> None:
    strangers = UnauthenticatedConnections(most=8)
    member = connection("10.0.0.1")
    strangers.add(member)
    for _ in range(1000):
        strangers.add(connection("10.0.0.7"))

    assert member in set(strangers)


def test_a_connection_that_has_proven_itself_is_not_evicted() -> None:
    strangers = UnauthenticatedConnections(most=1)
    member = connection("10.0.0.1")
    strangers.add(member)
    strangers.discard(member)

    assert strangers.add(connection("10.0.0.1")) is None
