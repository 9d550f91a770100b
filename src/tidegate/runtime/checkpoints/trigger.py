"""Taking a checkpoint of a run: begin one, and wait until it is a cut; with the database alone.

That a checkpoint was begun stands in the database; those who serve the pipeline inject its barriers
and commit it. So this needs neither the plan nor Spark.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from threading import Event as Flag
from time import monotonic
from typing import TYPE_CHECKING

from tidegate.checkpoint import FINAL_STATES, CheckpointState
from tidegate.dataflow import CheckpointId
from tidegate.errors import (
    CheckpointAborted,
    CheckpointPending,
    CheckpointUnderWay,
    NothingToCheckpoint,
    RunError,
    UnknownCheckpoint,
    listed,
)
from tidegate.store import run_topic
from tidegate.store.checkpoints import checkpoints as checkpoint_store

if TYPE_CHECKING:
    from tidegate.store import Database, Notifications, RunInfo
    from tidegate.store.checkpoints.checkpoints import Checkpoint

GLANCE = 1.0
"""Seconds after which somebody who waits looks again although nobody woke it."""


def begin(database: Database, run: RunInfo, *, unaligned: bool = False) -> int:
    """Begin a checkpoint now; its number. An unaligned one waits for nobody, and is not shown.

    Raises `NothingToCheckpoint`, `CheckpointUnderWay`, or `RunEnded` when the run is closed.
    """
    patience = 0.0 if unaligned else None
    wanted = partial(
        checkpoint_store.trigger,
        run=run,
        id=CheckpointId.new(),
        unpublished=unaligned,
        patience=patience,
    )
    number = database.transact(wanted)
    if number is None:
        raise _why_not(database, run)
    return number


def take(
    database: Database,
    notifications: Notifications,
    run: RunInfo,
    timeout: float,
    *,
    unaligned: bool = False,
) -> Checkpoint:
    """Begin a checkpoint as soon as no other is under way, and wait until it is a cut."""
    deadline = monotonic() + timeout
    while True:
        try:
            number = begin(database, run, unaligned=unaligned)
        except CheckpointUnderWay as other:
            with suppress(CheckpointAborted):
                wait(database, notifications, run, other.number, deadline - monotonic())
        else:
            return wait(database, notifications, run, number, deadline - monotonic())


def wait(
    database: Database, notifications: Notifications, run: RunInfo, number: int, timeout: float
) -> Checkpoint:
    """Wait until a checkpoint is a cut; `CheckpointAborted` says why it never will be."""
    changed = Flag()
    unsubscribe = notifications.subscribe(run_topic(run.pipeline), changed.set)
    deadline = monotonic() + timeout
    try:
        while (it := _looked(database, run, number)).state is not CheckpointState.COMMITTED:
            left = min(GLANCE, deadline - monotonic())
            if left <= 0:
                raise CheckpointPending(run.name, number, timeout)
            changed.wait(left)
            changed.clear()
        return it
    finally:
        unsubscribe()


def _looked(database: Database, run: RunInfo, number: int) -> Checkpoint:
    known = database.transact(lambda c: checkpoint_store.checkpoints_of(c, run))
    it = next((each for each in known if each.number == number), None)
    if it is None:
        numbers = [str(each.number) for each in known] or ["none"]
        raise UnknownCheckpoint(run.name, f"cut {number}", listed(numbers))
    if it.state is CheckpointState.ABORTED:
        raise CheckpointAborted(run.name, number, it.reason or "", it.offender or "nobody")
    return it


def _why_not(database: Database, run: RunInfo) -> RunError:
    known = database.transact(lambda c: checkpoint_store.checkpoints_of(c, run))
    under_way = [it.number for it in known if it.state not in FINAL_STATES]
    return (
        CheckpointUnderWay(run.name, under_way[-1]) if under_way else NothingToCheckpoint(run.name)
    )
