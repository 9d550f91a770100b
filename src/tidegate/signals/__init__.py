"""Signals: the words that processors exchange and the rules by which they agree.

The head of a pipeline numbers every signal from one counter (`SignalIds`) and sends it on one
of two channels (`Carrier`). Instants are acted on when read. Barriers travel in order with the
data and are held at each fan-in by an `Aligner` until every upstream has delivered them; END
closes a run's lane. Messages move between two processors through a `Channel`.

Nothing here knows about Spark, PostgreSQL or threads of its own.
"""

from tidegate.signals.aligner import Aligner, Delivery, Edge, Pending
from tidegate.signals.bell import Bell
from tidegate.signals.channel import Channel
from tidegate.signals.control import (
    WHOLE_PIPELINE,
    Barrier,
    BarrierKind,
    Carrier,
    ControlSignal,
    Instant,
    InstantKind,
)
from tidegate.signals.ids import SignalIds
from tidegate.signals.messages import Event, StreamMessage, Watermark

__all__ = [
    "WHOLE_PIPELINE",
    "Aligner",
    "Barrier",
    "BarrierKind",
    "Bell",
    "Carrier",
    "Channel",
    "ControlSignal",
    "Delivery",
    "Edge",
    "Event",
    "Instant",
    "InstantKind",
    "Pending",
    "SignalIds",
    "StreamMessage",
    "Watermark",
]
