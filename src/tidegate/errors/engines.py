"""What a pipeline would run on is not there, or does not have what it needs."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors.base import TidegateError


class SparkUnavailable(TidegateError):
    """No session could be opened. `__cause__` is what Spark raised, if it got that far."""

    master: str
    reason: str
    instead: str
    message = "there is no Spark on {master}: {reason}. {instead}"


class SparkUnprotected(TidegateError):
    """A session would let other users of the machine or the network into its driver."""

    master: str
    reason: str
    instead: str
    message = "Spark on {master} is not started: {reason}. {instead}"


class SparkLost(TidegateError):
    """The Spark of this process has ended. The process ends as well; what is committed is safe."""

    retryable = True
    reason: str
    message = (
        "Spark has ended in this process: {reason}. What is committed is safe; start the process"
        " again and it continues"
    )


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that has to be there before a pipeline is served, and what is there instead."""

    what: str
    required: str
    available: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}: required: {self.required}; available: {self.available}. {self.advice}"


class EngineUnfit(TidegateError):
    """What a pipeline runs on does not have what it needs. Nothing was started."""

    engine: str
    complaints: tuple[Complaint, ...]
    message = "{engine} does not fit"

    def __str__(self) -> str:
        lines = (f"\n  {complaint}." for complaint in self.complaints)
        return f"the pipeline cannot be served on {self.engine}:{''.join(lines)}"
