"""Peers without the secret or with malformed frames are disconnected and logged."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.group.channels import admitted, connected, read_to_the_end
from tests.integration.group.processes import Cluster, ForkServer, Peer, Raised, all_at
from tests.unit.group.test_wire import any_frame
from tests.waiting import wait_until
from tidegate.group import new_secret
from tidegate.group.address import Address
from tidegate.group.member.handshake import Applicant, open_channel
from tidegate.group.protocol.authentication import challenge
from tidegate.group.protocol.wire import (
    BOOT,
    HEADER,
    KINDS,
    VERSION,
    ChannelKind,
    Configure,
    Frame,
    Goodbye,
    Heartbeat,
    Posted,
    RejectReason,
    Welcome,
)

GARBAGE = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


def frames() -> st.SearchStrategy[bytes]:
    """What has the form of a frame, with a body that is none."""
    return st.builds(
        lambda kind, body: HEADER.pack(VERSION, kind, 0, len(body)) + body,
        st.sampled_from(sorted(KINDS)) | st.integers(0, 255),
        st.binary(max_size=600),
    )


def nonsense() -> st.SearchStrategy[bytes]:
    return st.lists(st.binary(min_size=1, max_size=200) | frames(), min_size=1, max_size=5).map(
        b"".join
    )


@pytest.fixture(scope="module")
def busy(fork_server: ForkServer) -> Iterator[tuple[Cluster, list[Peer]]]:
    """A group with two members, for all of these tests."""
    with Cluster(fork_server) as group:
        yield group, group.join("a", "b")


@GARBAGE
@given(nonsense())
def test_malformed_bytes_of_an_unauthenticated_connection_cannot_stop_the_coordinator(
    busy: tuple[Cluster, list[Peer]], garbage: bytes
) -> None:
    group, peers = busy
    with connected(group.address) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        read_to_the_end(connection)

    assert all(it.is_satisfied for it in all_at(peers, "noon"))


@GARBAGE
@given(nonsense(), st.sampled_from(ChannelKind))
def test_malformed_bytes_of_a_member_cannot_stop_the_coordinator(
    busy: tuple[Cluster, list[Peer]], garbage: bytes, channel: ChannelKind
) -> None:
    group, peers = busy
    with admitted(group, "fool") as channels:
        channels[channel].sendall(garbage)
        channels[channel].shutdown(socket.SHUT_WR)
        read_to_the_end(channels[channel])

    assert_all_is_well(peers)


@GARBAGE
@given(st.lists(any_frame.filter(lambda frame: not isinstance(frame, Configure)), max_size=8))
def test_well_formed_frames_of_a_member_cannot_stop_the_coordinator(
    busy: tuple[Cluster, list[Peer]], frames: list[Frame]
) -> None:
    group, peers = busy
    with admitted(group, "fool") as channels:
        for position, frame in enumerate(frames):
            with suppress(ConnectionError):
                channels[list(ChannelKind)[position % 2]].sendall(frame.pack())
        for channel in channels.values():
            with suppress(OSError):
                channel.shutdown(socket.SHUT_WR)
            read_to_the_end(channel)

    assert_all_is_well(peers)


def assert_all_is_well(peers: list[Peer]) -> None:
    wait_until(lambda: all(peer.do("members") == ["a", "b"] for peer in peers))
    assert all(it.is_satisfied for it in all_at(peers, "noon"))


def test_the_sender_of_malformed_bytes_is_logged(group: Cluster) -> None:
    with connected(group.address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        read_to_the_end(connection)
        where = "{}:{}".format(*connection.getsockname())
    named = group.coordinator.wait_event("member.malformed_frame")
    assert named.facts["peer"] == where

    with admitted(group, "fool") as channels:
        channels[ChannelKind.MESSAGES].sendall(b"nonsense")
        read_to_the_end(channels[ChannelKind.CONTROL])
    group.coordinator.wait_until(
        lambda: any(
            it.event == "member.malformed_frame"
            and it.facts["peer"].startswith("fool (pid 7 on nowhere;")
            for it in group.coordinator.events
        )
    )


@pytest.mark.parametrize(
    "frames",
    [
        Posted(2, 0, "note", b"the first is missing").pack(),
        Goodbye(RejectReason.STOPPING).pack(),
        Heartbeat().pack() + b"\xff" * HEADER.size,
    ],
)
def test_a_member_that_sends_a_coordinator_frame_is_lost_to_a_round(
    group: Cluster, frames: bytes
) -> None:
    (a,) = group.join("a")
    with admitted(group, "fool") as channels:
        a.do("wait_for", names=["fool"])
        call = a.barrier("noon")
        group.coordinator.wait_arrived("noon", "a")
        channels[ChannelKind.MESSAGES].sendall(frames)
        outcome = call.outcome()

    assert (outcome.rendezvous.failure, outcome.rendezvous.offender) == ("peer lost", "fool")


def test_a_process_with_another_secret_is_not_admitted(any_group: Cluster) -> None:
    (a,) = any_group.join("a")

    with pytest.raises(Raised, match=r"NotAdmitted: 'b' .* secret is not the group"):
        any_group.peer("b").do("join", secret=new_secret().decode())
    assert a.do("members") == ["a"]
    assert a.barrier("noon").outcome().is_satisfied


def test_a_listener_with_another_secret_is_not_accepted_as_coordinator(group: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=welcome_anybody, args=(listener,))
        thread.start()
        group.address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Raised, match=r"NotAdmitted: .* does not know the secret"):
            group.peer("a").do("join")
        thread.join()


def welcome_anybody(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(challenge().pack())
        connection.recv(1 << 16)
        connection.sendall(Welcome(bytes(32), 1.0, 10.0).pack())
        read_to_the_end(connection)


def test_a_silent_unauthenticated_connection_is_closed_after_its_bound(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(heartbeat=0.1, admission=0.3)
    (a,) = group.join("a")
    with connected(group.address) as connection:
        assert read_to_the_end(connection)  # a challenge, a goodbye and the end

    turned_away = group.coordinator.wait_event("member.rejected")
    assert turned_away.facts["why"] == "not proven"
    assert a.barrier("noon").outcome().is_satisfied


def test_a_member_with_one_connection_only_is_dropped_after_its_bound(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(heartbeat=0.1, admission=0.3)
    (a,) = group.join("a")
    address = Address.parse(group.address)
    applicant = Applicant("half", bytes(BOOT), 7, "nowhere", group.secret.encode(), address)
    with open_channel(applicant, ChannelKind.CONTROL, 5.0).socket as half:
        half.settimeout(20.0)
        read_to_the_end(half)

    assert a.do("members") == ["a"]
    assert a.barrier("noon").outcome().is_satisfied


def test_many_silent_connections_do_not_keep_a_member_out(
    paced: Callable[..., Cluster],
) -> None:
    group = paced(heartbeat=0.1, admission=0.3)
    connections = [Address.parse(group.address).connect(5.0) for _ in range(150)]

    (a,) = group.join("a")

    assert a.barrier("noon").outcome().is_satisfied
    for connection in connections:
        connection.close()


FLOOD = Path(__file__).with_name("flood.py")
FLOODED = 40.0
"""Seconds after which a flooding process ends by itself."""


@contextmanager
def flooding(address: str, processes: int, connections: int) -> Iterator[None]:
    """Processes that hold connections without a proof, and open new ones for those they lose."""
    at = Address.parse(address)
    wanted = [sys.executable, str(FLOOD), at.host, str(at.port), str(connections), str(FLOODED)]
    floods = [subprocess.Popen(wanted, stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        for flood in floods:
            assert flood.stdout is not None
            assert flood.stdout.readline()
        yield
    finally:
        for flood in floods:
            flood.kill()
            flood.communicate()


def test_a_flood_of_connections_does_not_keep_members_out(group: Cluster) -> None:
    (first,) = group.join("first")
    newcomers = [group.peer(f"m{number}") for number in range(6)]
    with flooding(group.address, processes=3, connections=300):
        joining = [peer.begin("join") for peer in newcomers]
        for pending in joining:
            pending.answer()
        assert all(it.is_satisfied for it in all_at([first, *newcomers], "noon"))


def test_floods_are_logged_in_few_lines(group: Cluster) -> None:
    with flooding(group.address, processes=1, connections=300):
        group.coordinator.wait_until(
            lambda: any(it.facts.get("not_logged", 0) > 10 for it in group.coordinator.events)
        )
    evicted = [it for it in group.coordinator.events if it.event == "connection.evicted"]
    assert sum(it.facts.get("not_logged", 1) for it in evicted) > 2 * len(evicted)
