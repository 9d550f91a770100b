"""Processors for tests: they work on single events and need no Spark."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.dataflow import Barrier, Event, StreamMessage
from tidegate.runtime.task.processor import Processor, StepInput, StepOutput, failure_on


class Operator(Processor):
    """Forwards what arrives. Override `on_event`, and `flush` when it collects events."""

    def on_event(self, event: Event[object]) -> Iterable[Event[object]]:
        """What follows from an event."""
        return (event,)

    def flush(self, barrier: Barrier) -> Iterable[Event[object]]:
        """What is forwarded before this barrier."""
        return ()

    def process(self, step: StepInput) -> StepOutput:
        output = StepOutput()
        for message in step.messages:
            try:
                output.messages.extend(self._follow(message))
            except (Exception, SystemExit) as cause:
                raise failure_on(self.name, (message,), cause) from cause
        return output

    def _follow(self, message: StreamMessage) -> Iterable[StreamMessage]:
        if isinstance(message, Event):
            return self.on_event(message)
        if isinstance(message, Barrier):
            return (*self.flush(message), message)
        return (message,)
