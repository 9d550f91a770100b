"""The loop of one task over durable channels, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from time import monotonic
from uuid import uuid4

import psycopg
import pytest

from tests.integration.runtime.operators import Operator
from tidegate.dataflow import BarrierKind, Batch, Edge, Event, StreamMessage, Watermark
from tidegate.errors import ChannelConflict, CountMismatch, Fenced
from tidegate.runtime.task.input_gate import InputGate
from tidegate.runtime.task.processor import Processor, StepInput, StepOutput
from tidegate.runtime.task.task_loop import Ownership, TaskLoop
from tidegate.runtime.task_graph import TaskEdge, channel_names, edges_into
from tidegate.store import (
    ChannelName,
    Database,
    Lease,
    RunInfo,
    acquire,
    begin_run,
    message_id,
    task_topic,
)
from tidegate.store.runs.channels import append

FAN_IN = (TaskEdge("left", "meet"), TaskEdge("right", "meet"), TaskEdge("meet", "after"))
EXCHANGE = (
    TaskEdge("before", "op"),
    TaskEdge("op", "next/0", shard=0),
    TaskEdge("op", "next/1", shard=1),
)
BATCH = Batch(("a.parquet",), 1, 6)
LEFT, RIGHT = ChannelName("left", "meet", 0), ChannelName("right", "meet", 1)


class Rig:
    """One run of a graph, and the channels around one of its tasks."""

    def __init__(self, database: Database, edges: Sequence[TaskEdge], name: str = "march") -> None:
        self.database = database
        self.edges = edges
        channels = channel_names(edges, ())
        self.run: RunInfo = database.transact(lambda c: begin_run(c, "test", name, channels))
        self._numbers = count()

    def send(self, channel: ChannelName, *messages: StreamMessage) -> None:
        sent = [(message_id(self.run.key, next(self._numbers)), message) for message in messages]
        self.database.transact(lambda c: append(c, self.run, channel, sent))

    def work(self, processor: Processor) -> TaskLoop:
        """Take the task over and run it until it is idle."""
        owned = Ownership(self.own(processor.name))
        loop = TaskLoop(self.database, "test", processor, self.edges, owned)
        while (step := loop.fetch()) is not None:
            loop.commit(step, processor.process(step))
        return loop

    def meet(self) -> None:
        """Run the fan-in until it is idle, then drop it."""
        self.work(InputGate("meet", edges_into(self.edges, "meet")))

    def own(self, task: str) -> Lease:
        key, owner = task_topic("test", task), str(uuid4())
        lease = self.database.transact(lambda c: acquire(c, "task", key, owner, seconds=0))
        assert lease is not None
        return lease

    def sent_to(self, task: str) -> list[object]:
        """What arrived at a task: payloads of events, times of watermarks, ids of barriers."""
        return [value for value, _ in self._messages(task)]

    def ids_at(self, task: str) -> list[object]:
        return [id for _, id in self._messages(task)]

    def _messages(self, task: str) -> list[tuple[object, object]]:
        return self.database.transact(
            lambda c: c.execute(
                "SELECT coalesce(payload -> 'payload', payload -> 'time', payload -> 'id'),"
                " message.id FROM tidegate.message JOIN tidegate.channel ON channel.id = channel_id"
                " WHERE to_task = %s ORDER BY channel_id, message.seq",
                (task,),
            ).fetchall()
        )

    def event(self, payload: object, shard: int | None = None) -> Event[object]:
        return Event(payload, self.run.key, shard)

    def barrier(self, id: int) -> StreamMessage:
        return BarrierKind.CHECKPOINT.with_id(id, self.run.key)

    @property
    def end(self) -> StreamMessage:
        return BarrierKind.END_OF_RUN.with_id(99, self.run.key)


@pytest.fixture
def fan_in(database: Database) -> Rig:
    return Rig(database, FAN_IN)


def test_messages_behind_a_barrier_stay_on_their_channel_until_all_have_delivered_it(
    fan_in: Rig,
) -> None:
    later = [fan_in.event("a2"), fan_in.barrier(2), fan_in.event("a3"), fan_in.end]
    fan_in.send(LEFT, fan_in.event("a1"), fan_in.barrier(1), *later)
    fan_in.meet()
    assert fan_in.sent_to("after") == ["a1"]
    fan_in.send(RIGHT, fan_in.event("b1"), fan_in.barrier(1), fan_in.event("b2"))
    fan_in.meet()
    assert fan_in.sent_to("after")[:3] == ["a1", "b1", 1]
    assert sorted(map(str, fan_in.sent_to("after")[3:])) == ["a2", "b2"]
    fan_in.send(RIGHT, fan_in.barrier(2), fan_in.end)
    fan_in.meet()
    assert fan_in.sent_to("after")[5:] == [2, "a3", 99]


def test_a_watermark_from_before_a_crash_still_counts(fan_in: Rig) -> None:
    key = fan_in.run.key
    fan_in.send(LEFT, Watermark(5, key), fan_in.event("a"))
    fan_in.meet()
    assert fan_in.sent_to("after") == ["a"]
    fan_in.send(RIGHT, Watermark(9, key), fan_in.event("b"))
    fan_in.meet()
    assert fan_in.sent_to("after") == ["a", 5, "b"]


def test_a_watermark_that_an_end_released_is_not_forwarded_again(fan_in: Rig) -> None:
    key = fan_in.run.key
    fan_in.send(LEFT, Watermark(5, key))
    fan_in.send(RIGHT, Watermark(9, key))
    fan_in.meet()
    assert fan_in.sent_to("after") == [5]
    fan_in.send(LEFT, fan_in.end)
    for _ in range(3):
        fan_in.meet()
        assert fan_in.sent_to("after") == [5, 9]
    fan_in.send(RIGHT, fan_in.end)
    fan_in.meet()
    assert fan_in.sent_to("after") == [5, 9, 99]


def test_an_exchange_gives_events_to_their_shard_and_signals_to_all(database: Database) -> None:
    rig = Rig(database, EXCHANGE)
    channel = ChannelName("before", "op")
    rig.send(channel, rig.event("a", 0), rig.event("b", 1), rig.event("all"), rig.end)
    rig.work(Operator("op"))
    assert rig.sent_to("next/0") == ["a", "all", 99]
    assert rig.sent_to("next/1") == ["b", "all", 99]


def test_same_input_gives_same_ids(template: str, new_database: Callable[[str], str]) -> None:
    def ids() -> list[object]:
        with Database(new_database(template)).open() as database:
            rig = Rig(database, EXCHANGE)
            rig.send(ChannelName("before", "op"), rig.event("a", 0), rig.event("b", 0), rig.end)
            rig.work(Operator("op"))
            return rig.ids_at("next/0") + rig.ids_at("next/1")

    first, second = ids(), ids()
    assert first == second
    assert len(set(first)) == len(first) == 4


def test_a_loop_that_lost_its_lease_writes_nothing(fan_in: Rig) -> None:
    fan_in.send(LEFT, fan_in.event("a"))
    processor = InputGate("meet", edges_into(FAN_IN, "meet"))
    lease = fan_in.own("meet")
    loop = TaskLoop(fan_in.database, "test", processor, FAN_IN, Ownership(lease))
    step = loop.fetch()
    assert step is not None
    fan_in.meet()
    with pytest.raises(Fenced):
        loop.commit(step, processor.process(step))
    assert fan_in.sent_to("after") == ["a"]


def test_a_channel_that_lost_a_message_is_an_error(fan_in: Rig) -> None:
    fan_in.send(LEFT, fan_in.event("a"), fan_in.event("b"), fan_in.event("c"))
    _execute(fan_in.database, "DELETE FROM tidegate.message WHERE seq = 2")
    with pytest.raises(ChannelConflict):
        fan_in.meet()


def test_an_end_whose_count_is_not_what_came_is_an_error(fan_in: Rig) -> None:
    fan_in.send(LEFT, fan_in.event("a"), fan_in.end)
    _execute(
        fan_in.database,
        "UPDATE tidegate.message SET payload = payload || '{\"count\": 7}' WHERE seq = 2",
    )
    with pytest.raises(CountMismatch) as refused:
        fan_in.meet()
    assert (refused.value.declared, refused.value.received) == (7, 1)


def _execute(database: Database, sql: str) -> None:
    def work(connection: psycopg.Connection) -> None:
        connection.execute(sql.encode())

    database.transact(work)


def test_a_loop_that_is_closed_leaves_messages_on_the_channels(database: Database) -> None:
    rig = Rig(database, EXCHANGE)
    rig.send(ChannelName("before", "op"), rig.event("a", 0))
    operator = Operator("op")
    loop = TaskLoop(database, "test", operator, EXCHANGE, Ownership(rig.own("op")))
    loop.close()
    loop.run()
    assert rig.sent_to("next/0") == []
    rig.work(Operator("op"))
    assert rig.sent_to("next/0") == ["a"]


class SmallSteps(Operator):
    """Reads few bytes in a step."""

    @property
    def step_bytes(self) -> int:
        return 20


def test_runs_that_wait_share_the_bytes_of_a_step_evenly(database: Database) -> None:
    channel = ChannelName("before", "op")
    large, small = Rig(database, EXCHANGE, "large"), Rig(database, EXCHANGE, "small")
    large.send(channel, *(large.event(BATCH) for _ in range(9)))
    operator = SmallSteps("op")
    loop = TaskLoop(database, "test", operator, EXCHANGE, Ownership(large.own("op")))
    alone = loop.fetch()
    assert alone is not None
    assert len(alone.messages) == 4
    loop.commit(alone, operator.process(alone))
    small.send(channel, small.event(BATCH), small.end)
    loop.close()

    loop = TaskLoop(database, "test", operator, EXCHANGE, Ownership(large.own("op")))
    shared = loop.fetch()
    assert shared is not None
    taken = [message.run for message in shared.messages]
    assert (taken.count(large.run.key), taken.count(small.run.key)) == (2, 2)


class Gathering(SmallSteps):
    """Prefers large steps."""

    @property
    def prefers_large_steps(self) -> bool:
        return True


def test_data_gathers_until_there_is_enough_or_a_signal_follows(database: Database) -> None:
    channel = ChannelName("before", "op")
    rig = Rig(database, EXCHANGE)
    operator = Gathering("op")
    loop = TaskLoop(database, "test", operator, EXCHANGE, Ownership(rig.own("op")))
    rig.send(channel, rig.event(BATCH))
    assert loop.fetch() is None
    rig.send(channel, rig.event(BATCH))
    loop.wake()
    assert loop.fetch() is None, "two are still little"
    rig.send(channel, rig.event(BATCH), rig.end)
    loop.wake()
    step = loop.fetch()
    assert step is not None
    assert len(step.messages) == 4, "END is taken at once"


def test_data_that_nothing_follows_is_taken_after_some_time(database: Database) -> None:
    rig = Rig(database, EXCHANGE)
    operator = Gathering("op")
    loop = TaskLoop(database, "test", operator, EXCHANGE, Ownership(rig.own("op")))
    rig.send(ChannelName("before", "op"), rig.event("a"))
    assert loop.fetch() is None
    started = monotonic()
    while loop.fetch() is None:
        loop.wait(timeout=60)
    assert monotonic() - started < 30, "it slept until the data was ready, not longer"


class Slow(Operator):
    """Runs jobs in the background for a run called slow, until the test ends them."""

    def __init__(self) -> None:
        super().__init__("op")
        self.in_progress: list[StepInput] = []
        self.job_done: Callable[[], None] = lambda: None

    def on_job_done(self, callback: Callable[[], None]) -> None:
        self.job_done = callback

    def is_blocked(self, edge: Edge, run: str) -> bool:
        return any(message.run == run for step in self.in_progress for message in step.messages)

    def process(self, step: StepInput) -> StepOutput:
        slow = tuple(message for message in step.messages if message.run.startswith("slow"))
        quick = tuple(message for message in step.messages if message not in slow)
        output = super().process(StepInput(step.edge, quick))
        if slow:
            self.in_progress.append(StepInput(step.edge, slow))
            output.deferred = {message.run for message in slow}
        return output

    def end_jobs(self) -> list[tuple[StepInput, StepOutput]]:
        done = [(step, super(Slow, self).process(step)) for step in self.in_progress]
        self.in_progress.clear()
        return done


def test_a_job_of_one_run_delays_no_other_and_is_committed_separately(
    database: Database,
) -> None:
    channel = ChannelName("before", "op")
    slow, quick = Rig(database, EXCHANGE, "slow"), Rig(database, EXCHANGE, "quick")
    slow.send(channel, slow.event("a", 0), slow.event("b", 0))
    operator = Slow()
    loop = slow.work(operator)
    assert slow.sent_to("next/0") == []
    slow.send(channel, slow.event("c", 0))
    quick.send(channel, quick.event("q", 0), quick.end)
    loop.wake()
    while (step := loop.fetch()) is not None:
        loop.commit(step, operator.process(step))
    assert slow.sent_to("next/0") == ["q", 99], "the other run has ended"
    for step, output in operator.end_jobs():
        loop.commit(step, output)
    assert sorted(map(str, slow.sent_to("next/0"))) == ["99", "a", "b", "q"]
    step = loop.fetch()
    assert step is not None, "messages that arrived meanwhile are next"
    assert [message.payload for message in step.messages if isinstance(message, Event)] == ["c"]


def test_after_a_crash_during_a_job_its_messages_are_read_again(database: Database) -> None:
    rig = Rig(database, EXCHANGE, "slow")
    rig.send(ChannelName("before", "op"), rig.event("a", 0), rig.end)
    rig.work(Slow())
    assert rig.sent_to("next/0") == []
    rig.work(Operator("op"))
    assert rig.sent_to("next/0") == ["a", 99]


def test_a_finished_job_wakes_the_loop(database: Database) -> None:
    rig = Rig(database, EXCHANGE, "slow")
    operator = Slow()
    loop = rig.work(operator)
    operator.job_done()
    assert loop.fetch() is None, "fetching does not clear it"
    started = monotonic()
    loop.wait(timeout=30)
    assert monotonic() - started < 10
