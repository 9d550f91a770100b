"""Dataflow: the messages that tasks exchange, and the alignment of barriers.

The head of a pipeline numbers every signal from one counter (`SignalIds`) and sends it on one
of two channels (`Carrier`). Instants are handled when read. Barriers travel in order with the
data and are held at each fan-in by an `Aligner` until every upstream has delivered them; END
closes a run's channel. In memory, messages travel through a `Channel`. Events carry a `Batch`, or
a `SinkResult` on their way to the result collector.

Checkpoints begin at the sources: a coordinator requests a `CheckpointBarrier` from each source's
`BarrierInjector` through its handle, the read loop polls the injector between batches, and a
`BarrierEmitter` puts the barrier on the source's channels. The package is plain Python that is also
compiled into installed packages (docs/adr/0011-dataflow-is-compiled-where-possible.md).

The package is pure: it uses neither Spark nor PostgreSQL and starts no threads.
"""

from tidegate.dataflow.aligner import Aligner, Arrival, Edge, Pending
from tidegate.dataflow.batch import Batch, Payload, SinkResult
from tidegate.dataflow.bell import Bell
from tidegate.dataflow.channel import Channel
from tidegate.dataflow.checkpoint_barrier import EMPTY_COMMAND, CheckpointBarrier, InjectBarrier
from tidegate.dataflow.checkpoint_id import CheckpointId, CheckpointIds
from tidegate.dataflow.control import (
    WHOLE_PIPELINE,
    Barrier,
    BarrierKind,
    Carrier,
    ControlSignal,
    Instant,
    InstantKind,
)
from tidegate.dataflow.emitter import BarrierEmitter
from tidegate.dataflow.ids import SignalIds
from tidegate.dataflow.injector import BarrierInjector, InjectorHandle
from tidegate.dataflow.messages import Event, StreamMessage, Watermark

__all__ = [
    "EMPTY_COMMAND",
    "WHOLE_PIPELINE",
    "Aligner",
    "Arrival",
    "Barrier",
    "BarrierEmitter",
    "BarrierInjector",
    "BarrierKind",
    "Batch",
    "Bell",
    "Carrier",
    "Channel",
    "CheckpointBarrier",
    "CheckpointId",
    "CheckpointIds",
    "ControlSignal",
    "Edge",
    "Event",
    "InjectBarrier",
    "InjectorHandle",
    "Instant",
    "InstantKind",
    "Payload",
    "Pending",
    "SignalIds",
    "SinkResult",
    "StreamMessage",
    "Watermark",
]
