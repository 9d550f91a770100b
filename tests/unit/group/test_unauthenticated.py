"""The number of unauthenticated connections is bounded; the busiest address is evicted first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from tidegate.group.coordinator.connection import Connection
from tidegate.group.coordinator.unauthenticated import UnauthenticatedConnections


def connection(host: str) -> Connection:
    return cast(Connection, FakeConnection(host=host))


class FakeConnection(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


@given(st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]), max_size=60))
def test_there_are_never_more_than_the_bound(hosts: list[str]) -> None:
    connections, evicted = UnauthenticatedConnections(limit=8), 0
    for host in hosts:
        evicted += connections.add(connection(host)) is not None

        assert len(connections) <= 8
    assert len(connections) + evicted == len(hosts)


def test_a_flood_from_one_address_evicts_no_connection_of_another() -> None:
    connections = UnauthenticatedConnections(limit=8)
    member = connection("10.0.0.1")
    connections.add(member)
    for _ in range(1000):
        connections.add(connection("10.0.0.7"))

    assert member in set(connections)


def test_an_authenticated_connection_is_not_evicted() -> None:
    connections = UnauthenticatedConnections(limit=1)
    member = connection("10.0.0.1")
    connections.add(member)
    connections.discard(member)

    assert connections.add(connection("10.0.0.1")) is None
