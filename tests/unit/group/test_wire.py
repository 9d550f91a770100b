"""Frames are decoded exactly as encoded; anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidGroupName, MalformedFrame
from tidegate.group.protocol.fields import MAX_NAME
from tidegate.group.protocol.framing import Frames
from tidegate.group.protocol.wire import (
    HEADER,
    KINDS,
    MAX_PAYLOAD,
    VERSION,
    AckRequest,
    AckResponse,
    AckType,
    BarrierCompletion,
    BarrierRequest,
    Challenge,
    ChannelKind,
    Configure,
    Delivered,
    Drain,
    Frame,
    Goodbye,
    Heartbeat,
    Hello,
    Leave,
    MemberInfo,
    Posted,
    Refusal,
    RejectReason,
    Welcome,
    unpack,
)
from tidegate.group.status import NO_MEMBER, Failure, PhaseStatus, Require, State

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
seconds = st.floats(0, 1e9)
bounds = st.none() | seconds
flags = st.integers(0, 7).map(Require)
names = st.text(min_size=1, max_size=16).filter(str.isprintable)
texts = st.text(max_size=60).filter(lambda text: "\0" not in text)
good = st.sampled_from([State.NOT_REQUESTED, State.SATISFIED])
bad = st.sampled_from([State.DOWNGRADED, State.FAILED])
reasons = st.sampled_from([failure for failure in Failure if failure])
statuses = st.builds(PhaseStatus, good, st.just(Failure.NONE), st.just(NO_MEMBER), u64) | st.builds(
    PhaseStatus, bad, reasons, u64, u64
)


def raw(length: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=length, max_size=length)


acks = st.sampled_from(AckType)
frames: dict[type[Frame], st.SearchStrategy[Frame]] = {
    BarrierRequest: st.builds(BarrierRequest, u64, names, flags, bounds, bounds, bounds),
    AckRequest: st.builds(AckRequest, u64, u64, u32, acks, u64, u64, seconds),
    AckResponse: st.builds(AckResponse, u64, u64, u32, acks, u64, st.booleans()),
    BarrierCompletion: st.builds(BarrierCompletion, u64, u64, flags, *[statuses] * 4),
    Refusal: st.builds(Refusal, u64, st.sampled_from(RejectReason)),
    Challenge: st.builds(Challenge, raw(32)),
    Hello: st.builds(
        Hello, raw(32), st.sampled_from(ChannelKind), raw(16), u32, raw(32), names, texts
    ),
    Welcome: st.builds(Welcome, raw(32), seconds, seconds),
    Configure: st.builds(Configure, *[seconds] * 4),
    Heartbeat: st.just(Heartbeat()),
    Drain: st.just(Drain()),
    Leave: st.just(Leave()),
    Goodbye: st.builds(Goodbye, st.sampled_from(RejectReason)),
    MemberInfo: st.builds(
        MemberInfo, names, u64, raw(16), texts, u32, st.booleans(), texts, seconds, st.booleans()
    ),
    Posted: st.builds(Posted, u64, u64, names, st.binary(max_size=300)),
    Delivered: st.builds(Delivered, u64, names, u64, names, st.binary(max_size=300)),
}
any_frame = st.one_of(*frames.values())


def test_every_kind_of_frame_is_tried_here() -> None:
    assert set(frames) == set(KINDS.values())


@given(any_frame)
def test_a_frame_comes_back_as_it_went_in(frame: Frame) -> None:
    data = frame.pack()

    assert unpack(data) == frame
    assert unpack(data).pack() == data


@pytest.mark.parametrize(
    ("kind", "size"),
    [(BarrierRequest, 100), (AckRequest, 45), (AckResponse, 30), (BarrierCompletion, 92)],
)
@given(data=st.data())
def test_the_frames_of_a_barrier_have_one_size(
    kind: type[Frame], size: int, data: st.DataObject
) -> None:
    frame = data.draw(frames[kind])

    assert len(frame.pack()) == HEADER.size + size


def test_the_layout_is_little_endian_and_begins_with_the_version() -> None:
    where = {"sequence": 1, "round": 2, "generation": 3}
    request = AckRequest(**where, ack=AckType.PROCESSING, target=258, call=4, within=1.0)

    assert request.pack() == (
        bytes([VERSION, 17, 0, 0]) + (45).to_bytes(4, "little")
        + (1).to_bytes(8, "little") + (2).to_bytes(8, "little") + (3).to_bytes(4, "little")
        + bytes([2]) + (258).to_bytes(8, "little") + (4).to_bytes(8, "little")
        + bytes([0, 0, 0, 0, 0, 0, 0xF0, 0x3F])
    )  # fmt: skip


@given(any_frame, st.data())
def test_a_truncated_frame_is_refused(frame: Frame, data: st.DataObject) -> None:
    packed = frame.pack()
    length = data.draw(st.integers(0, len(packed) - 1))

    with pytest.raises(MalformedFrame):
        unpack(packed[:length])


@given(any_frame)
def test_a_frame_with_something_behind_it_is_refused(frame: Frame) -> None:
    with pytest.raises(MalformedFrame):
        unpack(frame.pack() + b"\0")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_are_refused(data: bytes) -> None:
    try:
        frame = unpack(data)
    except MalformedFrame:
        return
    assert unpack(frame.pack()) == frame


@given(any_frame, st.data())
def test_a_changed_byte_is_another_frame_or_is_refused(frame: Frame, data: st.DataObject) -> None:
    packed = bytearray(frame.pack())
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    try:
        other = unpack(bytes(packed))
    except MalformedFrame:
        return
    assert other != frame


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param(bytes([VERSION + 1, 5, 0, 0, 0, 0, 0, 0]), id="another version"),
        pytest.param(bytes([VERSION, 99, 0, 0, 0, 0, 0, 0]), id="unknown kind"),
        pytest.param(bytes([VERSION, 5, 1, 0, 0, 0, 0, 0]), id="reserved bits"),
        pytest.param(bytes([VERSION, 8, 0, 0, 1, 0, 0, 0, 200]), id="unknown reason"),
        pytest.param(bytes([VERSION, 32, 0, 0, 255, 255, 255, 255]), id="four gigabytes"),
    ],
)
def test_what_is_malformed_is_refused(spoilt: bytes) -> None:
    with pytest.raises(MalformedFrame):
        unpack(spoilt)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), -1.0])
def test_a_timeout_that_bounds_nothing_is_refused(value: float) -> None:
    request = BarrierRequest(1, "night", Require.INBOUND, rendezvous=value)

    with pytest.raises(MalformedFrame):
        unpack(request.pack())


def test_a_failure_without_a_reason_is_refused() -> None:
    status = PhaseStatus(State.FAILED)

    with pytest.raises(MalformedFrame):
        unpack(BarrierCompletion(1, 1, Require.NOTHING, *[status] * 4).pack())


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME + 1), "a\0b", "line\nline", "ü" * 40])
def test_a_name_that_does_not_fit_is_refused_and_not_truncated(name: str) -> None:
    with pytest.raises(InvalidGroupName):
        BarrierRequest(1, name, Require.NOTHING).pack()


@given(st.lists(any_frame, max_size=5), st.data())
def test_frames_are_found_however_the_stream_is_split(
    wanted: list[Frame], data: st.DataObject
) -> None:
    stream = b"".join(frame.pack() for frame in wanted)
    reader = Frames()
    found: list[Frame] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]

    assert found == wanted


def test_an_unauthenticated_connection_may_only_send_hello() -> None:
    reader = Frames(only=Hello)
    message = Posted(1, NO_MEMBER, "topic", bytes(MAX_PAYLOAD))

    with pytest.raises(MalformedFrame):
        list(reader.feed(message.pack()[: HEADER.size]))
