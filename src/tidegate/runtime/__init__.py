"""Run: the step loop, and pipelines that are alive in this process.

A `Processor` decides what follows from a message; a `StepLoop` reads, lets it decide, and
commits. A `LivePipeline` gives each processor a thread and each edge a lane, numbers signals
at its head, and answers every barrier with a `Receipt`.
"""

from tidegate.runtime.in_memory.live import LivePipeline
from tidegate.runtime.in_memory.receipts import Receipt, ReceiptState
from tidegate.runtime.in_memory.states import (
    CloseReport,
    HowClosed,
    PipelineState,
    ProcessorState,
    ProcessorStatus,
)
from tidegate.runtime.task.processors import BarrierProcessor, Operator
from tidegate.runtime.task.task_loop import Lanes, Outcome, Processor, Step, StepLoop
from tidegate.runtime.wiring import Link, edges_into

__all__ = [
    "BarrierProcessor",
    "CloseReport",
    "HowClosed",
    "Lanes",
    "Link",
    "LivePipeline",
    "Operator",
    "Outcome",
    "PipelineState",
    "Processor",
    "ProcessorState",
    "ProcessorStatus",
    "Receipt",
    "ReceiptState",
    "Step",
    "StepLoop",
    "edges_into",
]
