"""A live pipeline or one of its runs cannot do what was asked."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.errors.base import TidegateError, listed


class RunError(TidegateError):
    """A live pipeline, or one of its runs, cannot do what was asked."""


class ProcessorFailed(RunError):
    """A processor raised. `__cause__` is what it raised."""

    processor: str
    elements: str
    reason: str
    runs: tuple[str, ...] = ()
    message = "processor {processor} failed on {elements}: {reason}"


class RunEnded(RunError):
    """The run (or this source of it) was ended or cancelled before."""

    http_status = 409

    run: str
    source: str
    how: str
    cause: str | None = None

    def __str__(self) -> str:
        because = f" ({self.cause})" if self.cause else ""
        what = (
            f"run {self.run!r}"
            if self.source == "*"
            else f"source {self.source!r} of run {self.run!r}"
        )
        return f"{what} is {self.how}{because} and takes nothing more; use another run name"


class AmbiguousRun(RunError):
    """Several clients of a server have runs of the name that was given."""

    run: str
    known: str
    message = "several runs are called {run!r}; name one of {known}"


class UnknownRun(RunError):
    """There is no such run, or it was removed."""

    http_status = 404

    run: str
    message = "there is no run {run!r} here: it was never started, or it was removed after it ended"


class NothingToCancel(RunError):
    """The run was closed before, whichever way."""

    http_status = 409

    run: str
    how: str
    message = "run {run!r} is {how} already; there is nothing to cancel"


class RunExists(RunError):
    """The name is taken by a run that is still open, or is no name."""

    http_status = 409

    run: str

    def __str__(self) -> str:
        if not self.run:
            return "a run needs a name that is not empty"
        return f"a run {self.run!r} is open already; end or cancel it first, or use another name"


class StageFailed(RunError):
    """A Spark job failed. `spark_condition` is Spark's own name for it, `__cause__` its error."""

    stage: str
    spark_condition: str
    reason: str
    message = "stage {stage} failed in Spark: {reason} [{spark_condition}]"


class RunFailed(RunError):
    """A run could not be completed; nothing of it was published."""

    http_status = 409

    run: str
    cause: str
    message = "run {run!r} has failed: {cause}"


class RunOverdue(RunFailed):
    """A run was not complete when its deadline passed; the cause names what was missing."""


class RunLosesWorkers(RunError):
    """Worker processes end while they process this run alone, so it cannot be completed."""

    run: str
    task: str
    losses: int
    error: str
    message = (
        "run {run!r} ends its worker processes: {losses} lost while it was processed alone, the"
        " last in task {task!r} ({error}). Correct its data, or give workers more memory"
    )


class WorkerGaveUp(RunError):
    """A task of the pipeline fails repeatedly, for instance because Spark is gone."""

    pipeline: str
    reason: str
    message = (
        "the worker of {pipeline!r} has given up: {reason}. What is committed is safe;"
        " start it again and it continues."
    )


class RunCancelled(RunError):
    """The run was cancelled; nothing of it was published."""

    http_status = 409

    run: str
    message = "run {run!r} was cancelled; its name may be used again"


class RunTimeout(RunError):
    """A run is not closed when the timeout of the call passed; it continues."""

    retryable = True

    run: str
    seconds: float
    message = "run {run!r} is not complete after {seconds:g} s; it continues"


class UndeclaredMessages(RunError):
    """More messages were processed than their producers declared."""

    run: str
    task: str
    unexpected: Mapping[str, tuple[int, ...]]

    def __str__(self) -> str:
        found = "; ".join(
            f"{producer}: {listed([str(number) for number in numbers])}"
            for producer, numbers in self.unexpected.items()
        )
        return (
            f"{self.task} has processed messages of run {self.run!r} that were never declared"
            f" ({found}); its results cannot be trusted, begin the run again"
        )


class ChaosFailed(RunError):
    """The crash kit found a fault that changes the outcome of a run."""

    fault: str
    reason: str
    message = "with the fault {fault!r}: {reason}"


class SourceNotGiven(RunError):
    """`pipeline.run` was called without data for a source."""

    sources: str

    message = "no data is given for {sources}; give a path, a DataFrame or a table for each source"


class DataFolderNotGiven(RunError):
    """A database was given without a folder for the files of the deployment."""

    database: str

    message = (
        "{database} names a database alone; give data=PATH, a folder that all processes and Spark"
        " can reach"
    )
