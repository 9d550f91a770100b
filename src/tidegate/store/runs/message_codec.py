"""Encodes stream messages as rows (a kind and a JSON document) and derives their ids."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

import msgspec

from tidegate.dataflow import (
    Barrier,
    BarrierKind,
    Batch,
    CheckpointBarrier,
    Event,
    Instant,
    InstantKind,
    Payload,
    SinkResult,
    StreamMessage,
    Watermark,
)

NAMESPACE = UUID("7469646e-6761-5465-8000-6d6573736167")


def message_id(*cause: str | int) -> UUID:
    """A deterministic id: the same cause gives the same id on any machine.

    >>> message_id("march#1", "s1", 7) == message_id("march#1", "s1", 7)
    True
    """
    return uuid5(NAMESPACE, msgspec.json.encode(cause).decode())


def as_json(value: object) -> str:
    """A value as JSON. Many rows are sent faster as one JSON text than as arrays."""
    return msgspec.json.encode(value).decode()


def encode(message: StreamMessage) -> tuple[str, str]:
    """Kind and JSON of a message, without its run, which the channel determines."""
    match message:
        case Event():
            return "event", _json(
                payload=message.payload,
                shard=message.shard,
                port=message.port,
                version=message.version,
            )
        case Watermark():
            return "watermark", _json(time=message.time)
        case Barrier():
            checkpoint = message.checkpoint
            of_checkpoint = (
                {} if checkpoint is None else {"epoch": checkpoint.epoch, "flags": checkpoint.flags}
            )
            kind = message.kind.value
            return "barrier", _json(id=message.id, kind=kind, count=message.count, **of_checkpoint)
        case Instant():
            return "instant", _json(id=message.id, kind=message.kind.value, target=message.target)


def decode(kind: str, text: str, run: str) -> StreamMessage:
    """The inverse of `encode`, for a message of this run."""
    fields: dict[str, Any] = msgspec.json.decode(text)
    match kind:
        case "event":
            version = fields.get("version", 0)
            payload = _payload(fields["payload"])
            return Event(payload, run, fields["shard"], fields["port"], version)
        case "watermark":
            return Watermark(fields["time"], run)
        case "barrier":
            return _barrier(fields, run)
        case "instant":
            return Instant(fields["id"], InstantKind(fields["kind"]), run, fields["target"])
    raise ValueError(f"unknown kind of message: {kind!r}")


def _payload(value: object) -> object:
    """Decoded JSON as the `Batch` or `SinkResult` that it is; anything else as it is."""
    try:
        match value:
            case {"sink": _, "batch": _}:
                return msgspec.convert(value, SinkResult)
            case {"files": _, "rows": _}:
                return msgspec.convert(value, Batch)
    except msgspec.ValidationError:  # the task that reads it fails the run, with its message
        pass
    return value


def decode_state(text: str) -> Payload:
    """An entry of a task's state: a `SinkResult` of the result collector, a `Batch` of a stage."""
    value: dict[str, Any] = msgspec.json.decode(text)
    return msgspec.convert(value, SinkResult) if "sink" in value else msgspec.convert(value, Batch)


def _barrier(fields: dict[str, Any], run: str) -> Barrier:
    checkpoint = None
    if "epoch" in fields:
        checkpoint = CheckpointBarrier(fields["id"], fields["epoch"], fields["flags"])
    return Barrier(fields["id"], BarrierKind(fields["kind"]), run, fields["count"], checkpoint)


def _json(**fields: object) -> str:
    return as_json(fields)
