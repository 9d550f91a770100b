"""What those hear who follow a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from uuid import UUID

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from tidegate.checkpoint import CheckpointState
from tidegate.errors import TooManyFollowers
from tidegate.http.client_api import RunView
from tidegate.http.limits.concurrency import ConcurrencyLimit
from tidegate.http.sse import EventId, RunEvent, events, response, stream
from tidegate.store import RunInfo, RunState
from tidegate.store.checkpoints.checkpoints import Checkpoint
from tidegate.store.runs.status import StageStatus

HEARD_NOTHING = EventId(17)


def seen(
    state: RunState = RunState.OPEN,
    processed: int = 0,
    cause: str | None = None,
    checkpoints: Sequence[int] = (),
) -> RunView:
    results = {"best": 2, "bulk": 0} if state is RunState.ENDED else {}
    stage = StageStatus("s1", 3, False, 3, processed, 1, 0, 0, 0)
    run = RunInfo(17, "shop", "march", 1, state, cause)
    return RunView(run, "waiting", [stage], results, tuple(map(checkpoint, checkpoints)))


def checkpoint(number: int) -> Checkpoint:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    committed = CheckpointState.COMMITTED
    more = (0.5, 0.1, 10, "s1", None, None)
    return Checkpoint(number, UUID(int=number), number, committed, at, *more)


def told(found: Sequence[RunEvent]) -> list[tuple[str, str]]:
    return [(str(event.id), event.kind) for event in found]


ENDED = [("17.1", "query-end"), ("17.2", "query-end"), ("17.3", "complete")]


def test_progress_is_sent_first_and_when_it_has_changed() -> None:
    assert told([*events(None, seen(), HEARD_NOTHING)]) == [("17.0", "progress")]
    assert told([*events(seen(), seen(), HEARD_NOTHING)]) == []
    assert told([*events(seen(), seen(processed=1), HEARD_NOTHING)]) == [("17.0", "progress")]


def test_the_end_tells_every_sink_once_and_then_that_all_is_complete() -> None:
    found = [*events(seen(), seen(RunState.ENDED), HEARD_NOTHING)]
    assert told(found) == ENDED
    assert [event.data.get("sink") for event in found] == ["best", "bulk", None]
    assert [event.is_last for event in found] == [False, False, True]


def test_every_checkpoint_is_sent_once_also_after_a_reconnect() -> None:
    first = [*events(None, seen(checkpoints=[3, 4]), HEARD_NOTHING)]
    assert told(first) == [
        ("17.0.3", "checkpoint"),
        ("17.0.4", "checkpoint"),
        ("17.0.4", "progress"),
    ]
    assert first[0].data["number"] == 3
    back = EventId.read(str(first[0].id))
    assert back is not None
    assert told([*events(seen(), seen(checkpoints=[3, 4]), back)]) == [("17.0.4", "checkpoint")]
    assert told([*events(seen(checkpoints=[3, 4]), seen(checkpoints=[4]), first[-1].id)]) == []


def test_checkpoints_are_sent_before_the_end_and_not_again() -> None:
    found = [*events(seen(), seen(RunState.ENDED, checkpoints=[7]), HEARD_NOTHING)]
    assert [event.kind for event in found] == ["checkpoint", "query-end", "query-end", "complete"]
    again = [*events(None, seen(RunState.ENDED, checkpoints=[7]), found[1].id)]
    assert told(again) == [("17.2.7", "query-end"), ("17.3.7", "complete")]


def test_a_stream_sends_a_checkpoint_once() -> None:
    taken = seen(checkpoints=[5])
    heard = b"".join(heard_of([taken, taken, seen(RunState.CANCELLED, checkpoints=[5])]))
    assert heard.count(b"event: checkpoint\n") == 1


@pytest.mark.parametrize("heard", range(5))
def test_a_reconnect_gets_the_remaining_events_and_always_the_last(heard: int) -> None:
    assert told([*events(None, seen(RunState.ENDED), EventId(17, heard))]) == ENDED[min(heard, 2) :]


@pytest.mark.parametrize(
    ("state", "kind"), [(RunState.FAILED, "failed"), (RunState.CANCELLED, "cancelled")]
)
def test_a_run_without_results_ends_with_what_became_of_it(state: RunState, kind: str) -> None:
    (event,) = events(seen(), seen(state, cause="no tea"), HEARD_NOTHING)
    assert (event.kind, event.data["cause"]) == (kind, "no tea")
    assert event.is_last


@pytest.mark.parametrize(
    "text", [None, "", "17", "17.x", "-1.0", "1.2.0", "1.2.3.4", "9" * 40 + ".1"]
)
def test_an_id_that_was_never_sent_is_none(text: str | None) -> None:
    assert EventId.read(text) is None


def heard_of(looks: Sequence[RunView | None], beat: float = 60.0) -> list[bytes]:
    """What the stream sends to who sees this, one after the other."""
    following = iter(looks[1:])

    async def look() -> RunView | None:
        return next(following)

    async def listen() -> list[bytes]:
        first = looks[0]
        assert first is not None
        return [piece async for piece in stream(first, look, HEARD_NOTHING, beat=beat, every=0)]

    return asyncio.run(listen())


def test_a_stream_ends_with_the_run() -> None:
    sent = heard_of([seen(), seen(), seen(processed=2), seen(RunState.ENDED)])
    kinds = [piece.split(b"\n")[1] for piece in sent]
    assert kinds == [
        b"event: progress", b"event: progress", b"event: query-end", b"event: query-end",
        b"event: complete",
    ]  # fmt: skip
    assert sent[-1] == (b'id: 17.3\nevent: complete\ndata: {"run":"march","state":"ended"}\n\n')


def test_a_stream_ends_when_the_server_does_and_beats_while_there_is_no_news() -> None:
    sent = heard_of([seen(), seen(), None], beat=0)
    assert [piece[:1] for piece in sent] == [b"i", b":", b":"]


def test_a_client_follows_so_many_runs_at_a_time_and_others_do_not_count() -> None:
    followers = ConcurrencyLimit(2, TooManyFollowers)
    with followers.acquire("ann"), followers.acquire("ben"):
        second = ExitStack()
        second.enter_context(followers.acquire("ann"))
        with pytest.raises(TooManyFollowers), followers.acquire("ann"):
            pass
        second.close()
        with followers.acquire("ann"):
            pass


def test_a_follower_that_is_gone_before_the_first_event_counts_no_more() -> None:
    followers, held = ConcurrencyLimit(1, TooManyFollowers), ExitStack()

    async def look() -> RunView | None:
        return None

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise OSError("gone")

    held.enter_context(followers.acquire("ann"))
    answer = response(seen(), look, HEARD_NOTHING, held)
    with pytest.raises(ClientDisconnect):
        asyncio.run(answer({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send))
    with followers.acquire("ann"):
        pass
