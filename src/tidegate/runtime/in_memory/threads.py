"""A processor's thread."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from tidegate.errors import ChannelClosed
from tidegate.runtime.in_memory.states import ProcessorState
from tidegate.runtime.task.task_loop import Processor, StepLoop


class ProcessorThread:
    """One processor on its thread."""

    def __init__(
        self,
        processor: Processor,
        loop: StepLoop,
        pipeline: str,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self.name = processor.name
        self.loop = loop
        self._on_failure = on_failure
        self._outcome = ProcessorState.STOPPED
        name = f"tidegate-{pipeline}-{self.name}"
        self.thread = Thread(target=self._work, name=name, daemon=True)

    @property
    def state(self) -> ProcessorState:
        """Running as long as the thread is, whatever anybody remembers."""
        return ProcessorState.RUNNING if self.thread.is_alive() else self._outcome

    def _work(self) -> None:
        try:
            if self.loop.run() is not None:
                self._outcome = ProcessorState.ENDED
        except ChannelClosed:
            # The pipeline closed its lanes under the loop: stopping is what was asked for.
            self._outcome = ProcessorState.STOPPED
        except BaseException as error:  # noqa: BLE001  a dead thread must never look alive
            self._outcome = ProcessorState.FAILED
            self._on_failure(self.name, error)
