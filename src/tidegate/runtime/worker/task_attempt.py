"""The lives of a task: how far each has brought its runs, and how often it was for nothing.

A task that dies is built anew from what is committed. How quickly it dies says little, for a job
may take its time to fail. What counts is whether the runs it died with have come any further
since: one that it dies with again and again would be the death of it for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.dataflow import Edge
    from tidegate.runtime.task.processor import DurableProcessor
    from tidegate.runtime.task.task_loop import Outcome, Step, TaskChannelsProtocol

LONG = 600.0
"""Seconds of a life after which dying while at work for nobody says nothing any more."""
CAREFUL = 60.0
"""Seconds for which a life is careful that was begun so."""
NOBODY = ""


class TaskAttempt:
    """One life of a task: its channels, and what comes of what is read from them.

    A careful one reads message by message, so that whoever is the death of it is known.
    """

    def __init__(
        self,
        channels: TaskChannelsProtocol,
        processor: DurableProcessor,
        *,
        is_careful: bool = False,
    ) -> None:
        self._channels = channels
        self._processor = processor
        self._begun_at = monotonic()
        self._careful_until = self._begun_at + CAREFUL if is_careful else 0.0
        self.at_work: set[str] = set()
        """The runs for which something was read and nothing has followed from it yet."""
        self.moved: set[str] = set()
        """The runs that something was committed for which will not be done again."""

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return monotonic() - self._begun_at

    @property
    def is_settled(self) -> bool:
        """Whether everything committed has left."""
        return self._channels.is_settled

    @property
    def is_closed(self) -> bool:
        """Whether the channels were closed."""
        return self._channels.is_closed

    def read(self, room: Callable[[Edge], int]) -> Step | None:
        """The next step, and whom it is for."""
        is_careful = monotonic() < self._careful_until
        step = self._channels.read(_for_one(room) if is_careful else room)
        if step is not None:
            self.at_work |= {message.run for message in step.messages}
        return step

    def commit(self, step: Step, outcome: Outcome) -> None:
        """Take over the outcome of a step, and see who has come further by it."""
        followed = {message.run for message in step.messages} - outcome.later
        sent = {message.run for message in outcome.data}
        unsettled = self._processor.unsettled
        moved = {run for run in followed if run in sent or not unsettled(step.edge, run)}
        self._channels.commit(step, outcome)
        self.at_work -= followed
        self.moved |= moved

    def wait(self, room: Callable[[Edge], int], timeout: float) -> None:
        """Sleep until `read` may have something."""
        self._channels.wait(room, timeout)

    def discard(self) -> int:
        """Drop what has not left."""
        return self._channels.discard()


class FailureCounter:
    """How often a task has died with each run since that run has come further."""

    def __init__(self) -> None:
        self._with: dict[str, int] = {}

    def count(self, life: TaskAttempt) -> int:
        """Count the death that ended this life; the most that there were with any one run."""
        forgotten = life.moved | ({NOBODY} if life.moved or life.seconds > LONG else set())
        self._with = {run: times for run, times in self._with.items() if run not in forgotten}
        for run in life.at_work or {NOBODY}:
            self._with[run] = self._with.get(run, 0) + 1
        return max(self._with[run] for run in life.at_work or {NOBODY})


def _for_one(room: Callable[[Edge], int]) -> Callable[[Edge], int]:
    return lambda edge: min(1, room(edge))
