"""Checkpoints that wait no longer, on pipelines whose rows are names; without Spark."""

from __future__ import annotations

import time
from functools import partial
from itertools import count

import pytest

import tidegate as tg
from tests.integration.runtime.names import Bench, Hub
from tidegate.checkpoint import Checkpoints
from tidegate.errors import UnknownCheckpoint
from tidegate.pipeline.stream import Stream
from tidegate.plan import physical_plan, plan_hash
from tidegate.runtime.task import task_channels
from tidegate.store import RunState
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.checkpoints.alignment_stats import alignments_of
from tidegate.store.checkpoints.restore import file_checksums
from tidegate.store.runs import retention
from tidegate.store.runs.results import reload_run

COLUMNS = "k bigint, v bigint"
_names = count(1)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow stages wait for no more than there is."""
    monkeypatch.setattr(task_channels, "ready_at", lambda *_: 0.0)


def totals(stream: Stream) -> Stream:
    return stream.aggregate(by="k", v="sum(v)")


@pytest.fixture
def joined(hub: Hub) -> Bench:
    """Two sources, an aggregate over each, and a join of both: three fan-ins and the collector."""
    declared = tg.Pipeline(f"unaligned-{next(_names)}", shards=2)
    a, b = declared.source("a", COLUMNS), declared.source("b", COLUMNS)
    totals(a).join(totals(b), on="k").sink("both")
    return Bench(*hub, physical_plan(declared))


def of(it: Bench, kind: str) -> list[str]:
    """The tasks of stages (s) or barrier nodes (b)."""
    return [task for task in it.tasks if task.startswith(kind)]


def deliver_both(it: Bench) -> None:
    it.deliver("a")
    it.deliver("b")


def begin(it: Bench) -> int:
    number = it.trigger()
    assert number is not None
    return number


def is_complete_after_restoring(it: Bench, number: int) -> bool:
    """Whether a run restored to a checkpoint ends with the results of an undisturbed one."""
    it.restore(number)
    return it.finish() == it.expected()


def test_a_source_that_injects_nothing_is_recorded_behind_its_last_chunk(joined: Bench) -> None:
    deliver_both(joined)
    number = begin(joined)
    joined.inject("a")
    deliver_both(joined)
    assert joined.unalign(number)
    deliver_both(joined)
    joined.watch_over()
    assert number in joined.restorable
    assert is_complete_after_restoring(joined, number)


def test_aligned_inputs_and_one_that_delivers_nothing_make_one_checkpoint(joined: Bench) -> None:
    """All of one side has passed the barrier on; the other side's first task is stalled."""
    deliver_both(joined)
    number = begin(joined)
    joined.inject("a")
    joined.inject("b")
    stalled = [task for task in of(joined, "s") if task.startswith("s2")]
    joined.settle(without=stalled)
    assert joined.unalign(number)
    joined.settle(without=stalled)
    assert number in joined.restorable
    deliver_both(joined)
    joined.settle()
    assert is_complete_after_restoring(joined, number)


def test_the_run_goes_on_behind_one_that_did_not_wait(joined: Bench) -> None:
    """Its barriers are still on their channels and mean nothing; the next checkpoint is aligned."""
    deliver_both(joined)
    number = begin(joined)
    joined.inject("a")
    joined.settle(without=of(joined, "b"))
    joined.unalign(number)
    joined.watch_over()
    deliver_both(joined)
    following = begin(joined)
    joined.settle()
    assert joined.committed == [following]
    assert joined.shown(following) == joined.expected(following)
    assert joined.finish() == joined.expected()


def test_a_task_that_answers_too_late_keeps_nothing_for_that_checkpoint(joined: Bench) -> None:
    """The job ran when the checkpoint stopped waiting; the messages that it read were in flight."""
    deliver_both(joined)
    number = begin(joined)
    late = [task for task in of(joined, "s") if task.partition("/")[0] in joined.totalling]
    joined.settle(without=late)
    for task in late:
        while joined.tasks[task].turn():
            pass
    joined.unalign(number)
    joined.settle()
    assert number in joined.restorable
    deliver_both(joined)
    following = begin(joined)
    joined.settle()
    assert joined.shown(following) == joined.expected(following)
    assert is_complete_after_restoring(joined, number)


def test_what_has_ended_and_was_not_read_is_part_of_it(joined: Bench) -> None:
    deliver_both(joined)
    joined.end("a")
    number = begin(joined)
    joined.unalign(number)
    joined.watch_over()
    joined.settle()
    assert is_complete_after_restoring(joined, number)


def test_what_had_ended_before_it_stays_ended(joined: Bench) -> None:
    deliver_both(joined)
    joined.end("a")
    joined.settle()
    number = begin(joined)
    joined.unalign(number)
    joined.watch_over()
    assert is_complete_after_restoring(joined, number)


def test_a_run_goes_back_to_one_again_and_again(joined: Bench) -> None:
    deliver_both(joined)
    first = begin(joined)
    joined.unalign(first)
    joined.watch_over()
    joined.restore(first)
    joined.settle(without=of(joined, "b"))
    deliver_both(joined)
    second = begin(joined)
    joined.unalign(second)
    joined.watch_over()
    joined.restore(second)
    joined.restore(first)
    assert joined.finish() == joined.expected()


def test_sinks_do_not_show_it_and_what_they_show_stays(joined: Bench) -> None:
    deliver_both(joined)
    shown = begin(joined)
    joined.settle()
    for _ in range(5):
        deliver_both(joined)
        joined.unalign(begin(joined))
        joined.watch_over()
    with pytest.raises(UnknownCheckpoint):
        joined.shown(shown + 1)
    joined.database.transact(lambda c: retention.retire(c, joined.run, 2))
    assert joined.restorable == [shown, shown + 4, shown + 5]
    assert joined.shown(shown) == joined.expected(shown)
    assert is_complete_after_restoring(joined, shown + 4)


def test_files_of_messages_in_flight_have_checksums(joined: Bench) -> None:
    deliver_both(joined)
    number = begin(joined)
    joined.unalign(number)
    joined.watch_over()
    checksums = joined.database.transact(lambda c: file_checksums(c, joined.run, number))
    assert {it.path for it in checksums} == {"a 1.0", "a 1.1", "b 1.0", "b 1.1"}


def test_a_coordinator_takes_them_by_itself_while_a_source_is_stalled(joined: Bench) -> None:
    at_once = Checkpoints(every=0.0, pause=0.0, unaligned_after=0.0, retained=100)
    be = partial(checkpoint_store.set_checkpoints, run=joined.run, checkpoints=at_once)
    deliver_both(joined)
    joined.database.transact(be)
    for _ in range(6):
        joined.watch_over()
    taken = joined.checkpoints.all(joined.run.name)
    assert len(taken) >= 2
    assert not any(it.is_aligned or it.is_published for it in taken)
    assert joined.inject("a") is False
    assert is_complete_after_restoring(joined, joined.restorable[0])


def test_the_task_that_held_the_barrier_longest_is_the_slowest(joined: Bench) -> None:
    deliver_both(joined)
    begin(joined)
    (late, *_) = [task for task in of(joined, "s") if task.partition("/")[0] in joined.totalling]
    joined.settle(without=[late])
    time.sleep(0.5)
    joined.settle()
    (it,) = joined.checkpoints.all(joined.run.name)
    assert it.slowest == late


def test_alignments_are_listed_only_for_aligned_checkpoints(joined: Bench) -> None:
    deliver_both(joined)
    aligned = begin(joined)
    joined.settle()
    joined.unalign(begin(joined))
    joined.watch_over()
    alignments = joined.database.transact(lambda c: alignments_of(c, joined.run))
    assert {each.number for each in alignments} == {aligned}


def test_a_fan_in_that_waits_too_long_aborts_the_checkpoint_and_names_the_late_task(
    joined: Bench,
) -> None:
    deliver_both(joined)
    begin(joined)
    (late, *_) = of(joined, "s3")
    joined.settle(without=[late])
    # Only now, so that no other task is late on a slow machine.
    impatient = Checkpoints(alignment=0.05, tolerated=None)
    joined.database.transact(lambda c: checkpoint_store.set_checkpoints(c, joined.run, impatient))
    time.sleep(0.1)
    joined.watch_over()
    (it,) = joined.checkpoints.all(joined.run.name)
    assert (it.state.value, it.offender) == ("aborted", late)
    assert joined.finish() == joined.expected()


def test_a_run_whose_checkpoints_fail_too_often_fails(joined: Bench) -> None:
    strict = Checkpoints(every=0.0, pause=0.0, acknowledgement=0.0, tolerated=1)
    joined.database.transact(lambda c: checkpoint_store.set_checkpoints(c, joined.run, strict))
    deliver_both(joined)
    for _ in range(6):
        joined.watch_over()
    now = joined.database.transact(lambda c: reload_run(c, joined.run))
    assert now is not None
    assert (now.state, now.cause) == (RunState.FAILED, "2 checkpoints in a row failed")


def test_a_manifest_describes_its_checkpoint(joined: Bench) -> None:
    deliver_both(joined)
    number = begin(joined)
    joined.settle()
    (it,) = joined.checkpoints.all(joined.run.name)
    manifest = joined.checkpoints.read(joined.run.name, number).manifest
    found = (manifest["id"], manifest["number"], manifest["epoch"], manifest["plan"])
    assert found == (str(it.id), number, it.epoch, plan_hash(joined.plan))
    assert it.id.version == 7
    assert manifest["sources"] == {source: {"chunks": 1, "ended": False} for source in "ab"}
    kept = [file for each in manifest["added"] for file in each["files"]]
    assert {file["path"] for file in kept} >= {"a 1.0", "b 1.1"}
    assert all(file["bytes"] and file["sha256"] for file in kept)
    assert [each["sink"] for each in manifest["outputs"]] == ["both"]
    assert manifest["versions"].keys() == {"tidegate", "pyspark"}
    assert (manifest["is_aligned"], manifest["in_flight"]) == (True, [])
