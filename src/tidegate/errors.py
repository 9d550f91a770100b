"""Every error Tidegate raises, as one tree.

    TidegateError
    ├── UsageError              something was asked for by a name that means nothing here
    ├── DeclarationError        the user's pipeline is wrong; points at the user's line
    ├── AlignmentError          a barrier broke the rules of a fan-in
    ├── CheckpointError         a barrier of a checkpoint is none, or did not get where it should
    ├── ChannelError            a lane between two processors cannot be used any more
    ├── RunError                a live pipeline or one of its runs cannot do what was asked
    ├── FlowError               a run of a flow cannot do what was asked
    ├── CutoverError            an index cannot be made from a table, or not be switched to
    ├── GroupError              a process and its group do not come together
    ├── ServeError              a client and its server do not come together
    ├── SparkUnavailable        there is no Spark to run on
    ├── EngineUnfit             what a pipeline runs on does not have what it needs
    └── StoreError              PostgreSQL is not there, or is not what it should be

An error is a class (the condition) with typed fields (the parameters); its sentence is made
from them. Programs and tests look at the class and the fields, people read the sentence: what
happened, to what, and what to do next. `retryable` says whether the same call may succeed
later without anybody changing anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(eq=False)
class TidegateError(Exception):
    """Root of the tree. Subclasses are dataclasses whose `says` is filled from their fields."""

    retryable: ClassVar[bool] = False
    says: ClassVar[str] = "Tidegate failed"

    @property
    def condition(self) -> str:
        """The stable name of what went wrong, for programs."""
        return type(self).__name__

    def __str__(self) -> str:
        return self.says.format_map(vars(self))

    def __reduce__(self) -> tuple[object, ...]:
        # Fields may have been given by keyword, which Exception's own pickling forgets.
        return _rebuild, (type(self), dict(vars(self)))


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names for a sentence, the first few of many.

    >>> listed(["s1", "s2", "s3"], most=2)
    's1, s2 and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "nobody"


def counted(number: int, of: str) -> str:
    """A number of things for a sentence.

    >>> counted(1, "chunk"), counted(2000, "chunk")
    ('1 chunk', '2,000 chunks')
    """
    return f"{number:,} {of}" if number == 1 else f"{number:,} {of}s"


def _rebuild(kind: type[TidegateError], fields: dict[str, object]) -> TidegateError:
    error = kind.__new__(kind)
    vars(error).update(fields)
    return error


# --- UsageError: a name that means nothing here ----------------------------------------------


@dataclass(eq=False)
class UsageError(TidegateError):
    """What was asked for cannot be understood; asking differently is all it takes."""


@dataclass(eq=False)
class UnknownPipeline(UsageError):
    """No pipeline is found under what the user gave as its name."""

    says = "there is no pipeline {pipeline!r}: {reason}. Use {known}, or package.module:attribute."

    pipeline: str
    reason: str
    known: str


@dataclass(eq=False)
class NothingToExplain(UsageError):
    """A plan is to be shown, and nobody said which."""

    says = "there is nothing to explain: give {missing}"

    missing: str


@dataclass(eq=False)
class UnknownStage(UsageError):
    """A worker is to run a stage that the plan does not have."""

    says = "{pipeline} has no stage {stage!r}; `tidegate explain` draws them: {known}"

    stage: str
    pipeline: str
    known: str


@dataclass(eq=False)
class ClusterShared(UsageError):
    """Several workers on a cluster, of which the first would take everything."""

    says = (
        "each of the {workers} workers is an application of its own on {master}, and the first"
        " would take all of its cores; say with --cores how many each may have"
    )

    master: str
    workers: int


@dataclass(eq=False)
class UnknownDemo(UsageError):
    """No demo is registered under this name."""

    says = "there is no demo {demo!r}; registered are: {known}"

    demo: str
    known: str


@dataclass(eq=False)
class UnknownCrashPoint(UsageError):
    """The process was asked to die at a point that does not exist."""

    says = "there is no crash point {wanted!r}; write name or name:nth, the names are: {known}"

    wanted: str
    known: str


# --- DeclarationError: the user's pipeline is wrong ------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's code; `text` is empty where the file cannot be read."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(eq=False)
class DeclarationError(TidegateError):
    """A pipeline that cannot work; `at` is the line of the user's code that says so.

    `says` tells what is wrong, `advice` what to write instead; both are filled from the fields.
    """

    advice: ClassVar[str] = ""

    at: SourceLine

    @property
    def what(self) -> str:
        """What is wrong, without the line."""
        return self.says.format_map(vars(self))

    @property
    def todo(self) -> str:
        """What to write instead."""
        return self.advice.format_map(vars(self))

    def __str__(self) -> str:
        return f"{self.at}: {self.what}. {self.todo}".rstrip()


@dataclass(eq=False)
class BrokenModule(DeclarationError):
    """The module that declares a pipeline raised an error of its own."""

    says = "module {module!r} cannot be imported: {reason}"
    advice = "Make `python -c 'import {module}'` work first."

    module: str
    reason: str


@dataclass(eq=False)
class InvalidName(DeclarationError):
    """A name that could not be a file name everywhere."""

    says = "{name!r} cannot be the name of a {kind}"
    advice = "Use letters, digits, '_', '-' and '.', starting with a letter or digit."

    kind: str
    name: str


@dataclass(eq=False)
class DuplicateName(DeclarationError):
    """Two things of one kind under one name; `first` is where the other one is."""

    says = "there already is a {kind} {name!r}, declared at {first}"
    advice = "Give one of the two another name (upper and lower case count as the same)."

    kind: str
    name: str
    first: SourceLine


@dataclass(eq=False)
class DuplicateColumn(DeclarationError):
    """Two columns of one operator under one name."""

    says = "the {operator} has two columns {column!r}"
    advice = "Give one of the two another name (upper and lower case count as the same)."

    operator: str
    column: str


@dataclass(eq=False)
class InvalidArgument(DeclarationError):
    """An argument outside of what an operator can do."""

    says = "{operator}: {argument}={value!r} is not possible"
    advice = "Expected is {expected}."

    operator: str
    argument: str
    value: object
    expected: str


@dataclass(eq=False)
class InvalidSchema(DeclarationError):
    """A schema that is not Spark DDL."""

    says = "the schema of source {source!r} cannot be read: {reason}"
    advice = "Write it as Spark DDL, for example 'item_id bigint, price decimal(10,2)'."

    source: str
    reason: str


@dataclass(eq=False)
class InvalidSql(DeclarationError):
    """SQL text that cannot be parsed."""

    says = "this is not a Spark SQL expression: {sql!r} ({reason})"
    advice = "Write one expression, without SELECT and without a closing semicolon."

    sql: str
    reason: str


@dataclass(eq=False)
class ForbiddenSql(DeclarationError):
    """SQL that parses, but whose rows would differ from one replay to the next."""

    says = "{found} has no place in {operator}: {sql!r}"
    advice = "{instead}"

    operator: str
    sql: str
    found: str
    instead: str


@dataclass(eq=False)
class UnmergeableAggregate(DeclarationError):
    """An aggregate that needs all of its rows in one place."""

    says = "column {column!r} cannot be merged from partial results: {sql!r}: {reason}"
    advice = "{instead}"

    column: str
    sql: str
    reason: str
    instead: str


@dataclass(eq=False)
class InexactAggregate(DeclarationError):
    """An aggregate whose digits depend on the order of rows, where exactness was asked for."""

    says = "exact=True, but column {column!r} is approximate ({reason}): {sql!r}"
    advice = "{instead}"

    column: str
    sql: str
    reason: str
    instead: str


@dataclass(eq=False)
class JoinWithoutKeys(DeclarationError):
    """A join of everything with everything."""

    says = "this join has no keys"
    advice = "Name the columns both sides share, for example on='store_id'."


@dataclass(eq=False)
class ForeignStream(DeclarationError):
    """Streams of two pipelines in one operator."""

    says = "a stream of pipeline {other!r} is combined with one of pipeline {pipeline!r}"
    advice = "Declare both sides in one pipeline."

    pipeline: str
    other: str


@dataclass(eq=False)
class CyclicPipeline(DeclarationError):
    """A stream that reads its own output."""

    says = "this stream feeds itself: {path}"
    advice = "Break the circle: a stream may only read what was made before it."

    path: str


@dataclass(eq=False)
class UnknownStream(DeclarationError):
    """A reference to a stream that nobody named: a sink without input."""

    says = "nothing arrives here: no stream of pipeline {pipeline!r} is named {name!r}"
    advice = "Call .named({name!r}) on the stream that is meant."

    pipeline: str
    name: str


@dataclass(eq=False)
class PipelineWithoutSink(DeclarationError):
    """A pipeline without a result."""

    says = "pipeline {pipeline!r} has no sink, so nothing would come out of it"
    advice = "End at least one stream with .sink(name)."

    pipeline: str


@dataclass(eq=False)
class UnreadSource(DeclarationError):
    """A source whose rows would be delivered for nothing."""

    says = "source {source!r} of pipeline {pipeline!r} is read by no sink"
    advice = "Remove the source, or lead it to a sink."

    pipeline: str
    source: str


@dataclass(eq=False)
class RefusedBySpark(DeclarationError):
    """Spark's analyser refuses an operator; `spark_condition` is its own name for the reason."""

    says = "Spark refuses this {operator}, {sql!r}: {reason} [{spark_condition}]"
    advice = "{instead}"

    operator: str
    sql: str
    spark_condition: str
    reason: str
    instead: str


@dataclass(eq=False)
class JoinKeysDiffer(DeclarationError):
    """A join key whose two sides have different types, so that equal values may not meet."""

    says = "join key {column!r} is {left} on the left and {right} on the right"
    advice = "Cast one of them in a select before the join."

    column: str
    left: str
    right: str


# ── Signals: alignment ──────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class InvalidSignalId(TidegateError):
    """A signal was numbered with something the head would never give."""

    id: int
    says: ClassVar[str] = "signal ids start at 1 and only grow, {id} is none; take it from the head"


@dataclass(eq=False)
class AlignmentError(TidegateError):
    """A message broke the rules of a fan-in. The aligner refused it and is as it was before."""


@dataclass(eq=False)
class NoUpstreams(AlignmentError):
    """A fan-in was built over nothing."""

    run: str
    says: ClassVar[str] = (
        "an aligner of run {run!r} expects no upstreams and would never complete anything;"
        " give it at least one input edge"
    )


@dataclass(eq=False)
class UnknownUpstream(AlignmentError):
    """A message came by an edge that the plan does not have."""

    upstream: str
    run: str
    known: str
    says: ClassVar[str] = (
        "{upstream} is not an upstream of this fan-in (run {run!r}); its upstreams are: {known}"
    )


@dataclass(eq=False)
class DuplicateBarrier(AlignmentError):
    """One upstream delivered the same barrier twice; it counts once."""

    upstream: str
    barrier: str
    says: ClassVar[str] = (
        "{upstream} delivered {barrier} a second time; each upstream delivers a barrier once"
    )


@dataclass(eq=False)
class BarrierOverlap(AlignmentError):
    """A different barrier arrived while one was still waiting."""

    upstream: str
    barrier: str
    pending: str
    missing: str
    says: ClassVar[str] = (
        "{upstream} delivered {barrier} while {pending} is pending (still missing from: {missing});"
        " send the next barrier when the last one has completed, or abort that one first"
    )


@dataclass(eq=False)
class BarrierRegressed(AlignmentError):
    """A barrier's id is not above the last one's."""

    upstream: str
    barrier: str
    last: str
    says: ClassVar[str] = "{upstream} delivered {barrier} after {last}; barrier ids only grow"


@dataclass(eq=False)
class TwoEnds(AlignmentError):
    """A run was ended under two different ids."""

    upstream: str
    end: str
    first: str
    says: ClassVar[str] = "{upstream} delivered {end} but the run's END is {first}; a run has one"


@dataclass(eq=False)
class LaneClosed(AlignmentError):
    """Something came after the END of its run, or after a terminal."""

    upstream: str
    message: str
    closed_by: str
    says: ClassVar[str] = "{upstream} delivered {message} after {closed_by} had closed its lane"


@dataclass(eq=False)
class UnfinishedAlignment(AlignmentError):
    """A terminal completed while a run's barrier still held messages."""

    terminal: str
    pending: str
    missing: str
    says: ClassVar[str] = (
        "{terminal} completed while {pending} still holds messages (missing from: {missing});"
        " abort that barrier before ending the pipeline"
    )


@dataclass(eq=False)
class CountMismatch(AlignmentError):
    """An END declared another number of messages than its lane carried."""

    upstream: str
    run: str
    declared: int
    received: int
    says: ClassVar[str] = (
        "{upstream} declared {declared} messages of run {run!r} and {received} arrived;"
        " the lane lost or repeated some, so the run cannot be complete"
    )


# ── Checkpoint barriers ─────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class CheckpointError(TidegateError):
    """A barrier of a checkpoint is none, or did not get where it should."""


@dataclass(eq=False)
class InvalidCheckpointBarrier(CheckpointError):
    """Numbers that no checkpoint barrier has."""

    checkpoint_id: int
    epoch: int
    flags: int
    reason: str
    says: ClassVar[str] = (
        "there is no barrier of checkpoint {checkpoint_id} with epoch {epoch} and flags {flags}:"
        " {reason}. Take the numbers from the run's coordinator"
    )


@dataclass(eq=False)
class MalformedBarrier(CheckpointError):
    """Bytes that nobody packed as a barrier or a command."""

    what: str
    data: str
    reason: str
    says: ClassVar[str] = (
        "0x{data} is no packed {what}: {reason}. The sender runs another version, or the bytes"
        " were damaged"
    )


@dataclass(eq=False)
class InvalidCheckpointId(CheckpointError):
    """What was given as the id of a checkpoint's manifest is none."""

    text: str
    reason: str
    says: ClassVar[str] = "{text!r} is no id of a checkpoint: {reason}. Copy it from its manifest"


@dataclass(eq=False)
class BarrierInjectionFailed(CheckpointError):
    """A source could not put a barrier on its lanes; it takes part in no checkpoint any more."""

    source: str
    barrier: str
    reason: str
    says: ClassVar[str] = (
        "source {source!r} could not inject {barrier}: {reason}. The checkpoint cannot complete;"
        " abort it and restart the source"
    )


# ── Channels ────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class ChannelError(TidegateError):
    """A lane between two processors cannot do what was asked."""

    channel: str


@dataclass(eq=False)
class ChannelClosed(ChannelError):
    """The other end is gone; the message was not accepted."""

    message: str
    says: ClassVar[str] = "channel {channel} is closed; not accepted: {message}"


@dataclass(eq=False)
class ChannelTimeout(ChannelError):
    """The other end did not keep up within the caller's bound."""

    retryable: ClassVar[bool] = True
    doing: str
    seconds: float
    says: ClassVar[str] = "channel {channel}: waited {seconds:g} s for {doing}"


@dataclass(eq=False)
class TooManySignals(ChannelError):
    """The places reserved for signals are taken."""

    retryable: ClassVar[bool] = True
    waiting: int
    says: ClassVar[str] = (
        "channel {channel} has {waiting} messages unread and no place for another signal;"
        " its processor is stuck, or signals are sent faster than it handles them"
    )


# ── Live pipelines ──────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class RunError(TidegateError):
    """A live pipeline, or one of its runs, cannot do what was asked."""


@dataclass(eq=False)
class BadWiring(RunError):
    """The processors and links do not make a graph that can run."""

    reason: str
    says: ClassVar[str] = "these processors cannot be wired: {reason}"


@dataclass(eq=False)
class ProcessorFailed(RunError):
    """A processor raised. `__cause__` is what it raised."""

    processor: str
    message: str
    reason: str
    runs: tuple[str, ...] = ()
    says: ClassVar[str] = "processor {processor} failed on {message}: {reason}"


@dataclass(eq=False)
class NotRunning(RunError):
    """The pipeline takes nothing any more. `__cause__` is the failure, if it was one."""

    pipeline: str
    state: str
    because: str = ""

    def __str__(self) -> str:
        because = f" because {self.because}" if self.because else ""
        return f"pipeline {self.pipeline!r} is {self.state}{because}; it takes nothing more"


@dataclass(eq=False)
class RunEnded(RunError):
    """The run (or this source of it) was ended or cancelled before."""

    run: str
    source: str
    how: str
    cause: str | None = None

    def __str__(self) -> str:
        because = f" ({self.cause})" if self.cause else ""
        return (
            f"source {self.source!r} of run {self.run!r} is {self.how}{because} and takes nothing"
            " more; use another run name"
        )


@dataclass(eq=False)
class AmbiguousRun(RunError):
    """Several clients of a server have runs of the name that was given."""

    run: str
    known: str
    says: ClassVar[str] = "several runs are called {run!r}: say which of {known}"


@dataclass(eq=False)
class UnknownRun(RunError):
    """There is no such run: never begun, or ended, or cancelled and gone."""

    run: str
    says: ClassVar[str] = (
        "there is no run {run!r} here: it was never begun, or it ended long ago and is gone"
    )


@dataclass(eq=False)
class NothingToCancel(RunError):
    """The run was closed before, whichever way."""

    run: str
    how: str
    says: ClassVar[str] = "run {run!r} is {how} already; there is nothing to cancel"


@dataclass(eq=False)
class RunExists(RunError):
    """The name is taken by a run that is still open, or is no name."""

    run: str

    def __str__(self) -> str:
        if not self.run:
            return "a run needs a name that is not empty"
        return f"a run {self.run!r} is open already; end or cancel it first, or use another name"


@dataclass(eq=False)
class UnknownSource(RunError):
    """Data was sent to a source that the pipeline does not have."""

    source: str
    known: str
    says: ClassVar[str] = "there is no source {source!r}; the pipeline's sources are: {known}"


@dataclass(eq=False)
class InvalidChunkNumber(RunError):
    """Chunks are numbered from 1, and their count is not negative."""

    source: str
    number: int
    says: ClassVar[str] = (
        "{number} cannot be the number or the count of chunks of source {source!r};"
        " chunks are numbered 1, 2, 3, …"
    )


@dataclass(eq=False)
class ChunkConflict(RunError):
    """Something else was delivered under this number before."""

    run: str
    source: str
    number: int
    sha256: str
    known: str

    def __str__(self) -> str:
        return (
            f"chunk {self.number} of source {self.source!r} of run {self.run!r} was delivered"
            f" before with other content (SHA-256 {self.known[:12]}…, not {self.sha256[:12]}…);"
            " deliver the same bytes again, or others under a number of their own"
        )


@dataclass(eq=False)
class SourceEnded(RunError):
    """The source was declared to have fewer chunks than this one's number."""

    run: str
    source: str
    number: int
    declared: int
    says: ClassVar[str] = (
        "the number of chunks of source {source!r} of run {run!r} was declared to be {declared}, so"
        " there is no chunk {number}; use another run for more data"
    )


@dataclass(eq=False)
class CountConflict(RunError):
    """The source was declared to have another number of chunks before."""

    run: str
    source: str
    chunks: int
    declared: int
    says: ClassVar[str] = (
        "the number of chunks of source {source!r} of run {run!r} was declared to be {declared}"
        " before, and cannot be {chunks} instead"
    )


@dataclass(eq=False)
class ChunksMissing(RunError):
    """A source is to end with what was delivered, which has gaps."""

    run: str
    source: str
    missing: tuple[int, ...]

    def __str__(self) -> str:
        numbers = listed([str(number) for number in self.missing])
        return (
            f"source {self.source!r} of run {self.run!r} cannot end with the chunks it has:"
            f" missing before the last one: {numbers}. Deliver them, or say how many chunks"
            " there are"
        )


@dataclass(eq=False)
class ChunksBeyond(RunError):
    """More was delivered than the source is declared to have."""

    run: str
    source: str
    chunks: int
    beyond: tuple[int, ...]

    def __str__(self) -> str:
        numbers = listed([str(number) for number in self.beyond])
        return (
            f"source {self.source!r} of run {self.run!r} cannot have"
            f" {counted(self.chunks, 'chunk')}: delivered beyond them: {numbers}."
            " Declare a count that has room for them, or cancel the run"
        )


@dataclass(eq=False)
class NotForSending(RunError):
    """A barrier of this kind ends something, which has a call of its own."""

    kind: str
    instead: str
    says: ClassVar[str] = "{kind} is not sent as a barrier; call {instead}"


@dataclass(eq=False)
class BarrierTimeout(RunError):
    """A barrier did not reach the collecting end within its bound."""

    retryable: ClassVar[bool] = True
    barrier: str
    seconds: float
    missing: tuple[str, ...]
    held_by: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.barrier} was not collected within {self.seconds:g} s;"
            f" not delivered by: {listed(self.missing)}; held up at: {listed(self.held_by)}"
        )


@dataclass(eq=False)
class BarrierWithdrawn(RunError):
    """A barrier was given up before it was collected."""

    retryable: ClassVar[bool] = True
    barrier: str
    reason: str
    says: ClassVar[str] = "{barrier} was withdrawn: {reason}"


@dataclass(eq=False)
class NotABatch(RunError):
    """Something was sent that a stage on Spark cannot read."""

    kind: str
    says: ClassVar[str] = "a stage on Spark takes batches of files, not a {kind}"


@dataclass(eq=False)
class NoSuchChunk(RunError):
    """A file that was to be delivered is not there."""

    source: str
    file: str
    says: ClassVar[str] = "there is no file {file}, which was to be a chunk of source {source!r}"


@dataclass(eq=False)
class StageFailed(RunError):
    """A Spark job failed. `spark_condition` is Spark's own name for it, `__cause__` its error."""

    stage: str
    spark_condition: str
    reason: str
    says: ClassVar[str] = "stage {stage} failed in Spark: {reason} [{spark_condition}]"


@dataclass(eq=False)
class RunFailed(RunError):
    """A run could not be completed; nothing of it was published."""

    run: str
    cause: str
    says: ClassVar[str] = "run {run!r} has failed: {cause}"


@dataclass(eq=False)
class RunOverdue(RunFailed):
    """A run was not complete when its deadline passed; the cause says what was missing."""


@dataclass(eq=False)
class WorkerGaveUp(RunError):
    """A task of the pipeline dies again and again whatever is tried, as when Spark is gone."""

    pipeline: str
    reason: str
    says: ClassVar[str] = (
        "the worker of {pipeline!r} has given up: {reason}. What is committed is safe;"
        " start it again and it goes on."
    )


@dataclass(eq=False)
class RunCancelled(RunError):
    """Somebody gave the run up; nothing of it was published."""

    run: str
    says: ClassVar[str] = "run {run!r} was cancelled; its name may be used again"


@dataclass(eq=False)
class RunTimeout(RunError):
    """A run is not closed within the time that somebody was ready to wait; it goes on."""

    retryable: ClassVar[bool] = True

    run: str
    seconds: float
    says: ClassVar[str] = "run {run!r} is not complete after {seconds:g} s, and goes on"


@dataclass(eq=False)
class NothingToCut(RunError):
    """A checkpoint was asked for when no source of the run can bring anything new."""

    run: str
    says: ClassVar[str] = (
        "run {run!r} cannot be cut: all its sources have ended. Wait for its results instead"
    )


@dataclass(eq=False)
class CheckpointUnderWay(RunError):
    """A checkpoint was asked for while another is not over; there is one at a time."""

    retryable: ClassVar[bool] = True

    run: str
    number: int
    says: ClassVar[str] = (
        "run {run!r} cannot be cut now: checkpoint {number} is under way. Wait for it"
    )


@dataclass(eq=False)
class CheckpointPending(RunError):
    """A checkpoint is not over within the time that somebody was ready to wait; it goes on."""

    retryable: ClassVar[bool] = True

    run: str
    number: int
    seconds: float
    says: ClassVar[str] = (
        "checkpoint {number} of run {run!r} is not over after {seconds:g} s, and goes on"
    )


@dataclass(eq=False)
class CheckpointAborted(RunError):
    """A checkpoint was given up. The run goes on, and its number is not used again."""

    run: str
    number: int
    reason: str
    offender: str
    says: ClassVar[str] = (
        "checkpoint {number} of run {run!r} was given up: {reason}. Held up by {offender}"
    )


@dataclass(eq=False)
class NoSuchCut(RunError):
    """A cut was asked for that the run does not have, or not any more."""

    run: str
    wanted: str
    known: str
    says: ClassVar[str] = "run {run!r} does not have {wanted}; there is: {known}"


@dataclass(eq=False)
class CutDamaged(RunError):
    """A run was to be restored to a cut whose files are gone or not as they were."""

    run: str
    number: int
    files: str
    intact: str
    says: ClassVar[str] = (
        "run {run!r} cannot be restored to cut {number}: {files} gone or damaged; nothing was"
        " changed. The newest other cut that is intact: {intact}"
    )


@dataclass(eq=False)
class UndeclaredMessages(RunError):
    """The monitor found messages processed that nobody declared."""

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


@dataclass(eq=False)
class ChaosFailed(RunError):
    """The crash kit found a fault that changes the outcome of a run."""

    fault: str
    reason: str
    says: ClassVar[str] = "with the fault {fault!r}: {reason}"


@dataclass(eq=False)
class OtherPlan(UsageError):
    """A pipeline is to be served, or a run restored, under another plan than runs were begun with.

    When a run is to be restored, `difference` tells how the plan differs from that of the cut, and
    `obstacles` why what the run keeps does not fit it.
    """

    says = (
        "runs of {pipeline!r} are open that were begun with another plan than {plan:.12}: {runs}."
        " Serve them with the declaration and the shards they were begun with, or cancel them."
    )

    pipeline: str
    plan: str
    runs: str
    difference: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.obstacles:
            return super().__str__()
        cut = f"run {self.runs!r} of {self.pipeline!r} was cut under another plan than"
        todo = (
            "Restore it with the declaration and the shards that it was cut with (--declared,"
            " --shards), or begin another run."
        )
        told = _few("what differs", self.difference), _few("why it does not fit", self.obstacles)
        does_not_fit = f"{cut} {self.plan:.12}, and what it keeps does not fit this one."
        return "\n".join([does_not_fit, *told[0], *told[1], todo])


def _few(title: str, lines: Sequence[str], most: int = 8) -> list[str]:
    """A title and the first lines below it; nothing where there are none."""
    more = [f"… and {len(lines) - most} more"] if len(lines) > most else []
    return [f"{title}:", *(f"  {line}" for line in (*lines[:most], *more))] if lines else []


@dataclass(eq=False)
class StillServed(UsageError):
    """A run is to go on under another plan while somebody serves its pipeline, maybe as it was."""

    says = (
        "run {run!r} is to go on under another plan while {pipeline!r} is served by {owners};"
        " stop that first, and serve the changed declaration afterwards"
    )

    pipeline: str
    run: str
    owners: str


@dataclass(eq=False)
class NoDeployment(UsageError):
    """A folder that was named as a deployment is none."""

    says = "{folder} is no deployment: nothing was ever run there. Check --deployment."

    folder: str


@dataclass(eq=False)
class NoGeneratedData(UsageError):
    """A pipeline has no generator of data, so somebody has to say where its data is."""

    says = "no data can be generated for {pipeline!r}; give some with --data"

    pipeline: str


@dataclass(eq=False)
class NoDataFolder(UsageError):
    """Data is to be taken from a folder that is not there."""

    says = "there is no folder {folder}; say with --data where the folders of the sources are."

    folder: str


@dataclass(eq=False)
class NoSourceFolder(UsageError):
    """A data folder lacks the folders of some sources."""

    says = (
        "{folder} has no folder for: {sources}. Put the files of each source below a folder of its"
        " name, such as {folder}/<source>/1.csv; an empty folder is a source without rows."
    )

    folder: str
    sources: str


@dataclass(eq=False)
class UnexpectedFiles(UsageError):
    """A source's folder has something that is no chunk, and may have been meant as one."""

    says = (
        "the folder of source {source!r} has what is no chunk: {files}. Chunks are files that end"
        " with {endings}; rename what is one, and move the rest elsewhere."
    )

    source: str
    files: str
    endings: str


@dataclass(eq=False)
class NotAStream(RunError):
    """A DataFrame was to be followed that does not go on."""

    source: str
    says: ClassVar[str] = (
        "source {source!r} cannot follow this DataFrame, which is no stream: make it by"
        " spark.readStream, or write it to files and deliver those"
    )


@dataclass(eq=False)
class StreamOverConnect(RunError):
    """A stream was to be followed over Spark Connect, where batches are taken by the server."""

    source: str
    says: ClassVar[str] = (
        "source {source!r} cannot follow a stream over Spark Connect: its batches would be handed"
        " over in the server's process, which has no pipeline. Use a classic session for it"
    )


@dataclass(eq=False)
class StreamFailed(RunError):
    """A stream that is followed has ended by an error."""

    retryable: ClassVar[bool] = True

    run: str
    source: str
    reason: str
    says: ClassVar[str] = (
        "the stream of source {source!r} of run {run!r} has failed: {reason}. What was taken is"
        " recorded; follow it again with the same checkpoint to go on"
    )


@dataclass(eq=False)
class MissingColumns(RunError):
    """A delivered file lacks columns that its source declares."""

    source: str
    file: str
    missing: tuple[str, ...]
    found: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.file} has no column {', '.join(self.missing)}, which source {self.source!r}"
            f" declares; its columns are: {', '.join(self.found) or 'none'}"
        )


@dataclass(eq=False)
class BadValue(RunError):
    """A delivered file has a value that is not of its declared type; `__cause__` is Spark's error.

    `line` is known for CSV files that are not too long.
    """

    source: str
    file: str
    column: str
    value: str
    type: str
    line: int | None = None

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line else ""
        return (
            f"{self.file}{line}: {self.column} is {self.value!r}, which cannot be read as"
            f" {self.type}; correct the value, or the type in the schema of source {self.source!r}"
        )


@dataclass(eq=False)
class BadLine(RunError):
    """A line of a delivered CSV file does not have one field for every column of its header.

    `line` is known for files that are not too long.
    """

    source: str
    file: str
    columns: int
    line: int | None = None

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else "a line"
        return (
            f"{self.file}: {line} cannot be split into the {self.columns} columns of the header;"
            f" correct the line, which was to be a row of source {self.source!r}"
        )


@dataclass(eq=False)
class WrongColumnType(RunError):
    """A delivered file stores a column as another type than its source declares."""

    source: str
    file: str
    column: str
    found: str
    declared: str
    says: ClassVar[str] = (
        "{file} stores {column} as {found}, which cannot be read as {declared};"
        " store it as that, or change the type in the schema of source {source!r}"
    )


@dataclass(eq=False)
class UnreadableChunk(RunError):
    """A delivered file is broken: cut off, corrupt, or not what its name says."""

    source: str
    file: str
    reason: str
    says: ClassVar[str] = (
        "{file} cannot be read as a chunk of source {source!r}: {reason}; write it again"
    )


@dataclass(eq=False)
class ChunkNotCopied(RunError):
    """Spark failed while it copied a chunk, and the chunk is not known to be the reason."""

    retryable: ClassVar[bool] = True
    source: str
    file: str
    spark_condition: str
    reason: str
    says: ClassVar[str] = (
        "{file}, a chunk of source {source!r}, was not copied: {reason} [{spark_condition}]"
    )


@dataclass(eq=False)
class NoSpace(RunError):
    """The disk is full. What was being written is gone, so the same call may work later."""

    retryable: ClassVar[bool] = True
    where: str
    says: ClassVar[str] = "there is no space left on {where}; free some and try again"


@dataclass(eq=False)
class UnknownFormat(RunError):
    """A delivered file is of a kind that cannot be read."""

    file: str
    says: ClassVar[str] = (
        "{file} is neither CSV, Parquet nor Arrow by its name;"
        " deliver *.csv, *.csv.gz, *.csv.bz2, *.parquet, *.arrow, *.feather or *.ipc"
    )


# ── Spark ───────────────────────────────────────────────────────────────────────────────


# --- GroupError: processes that meet -----------------------------------------------------------


@dataclass(eq=False)
class GroupError(TidegateError):
    """A process and its group do not come together."""


@dataclass(eq=False)
class InvalidGroupName(GroupError):
    """A member, a barrier or a topic cannot be called this."""

    name: str
    most: int
    says: ClassVar[str] = (
        "{name!r} cannot be a name in a group: use 1 to {most} bytes of printable text"
    )


@dataclass(eq=False)
class InvalidAddress(GroupError):
    """An address that is none."""

    address: str
    says: ClassVar[str] = (
        "{address!r} is no address of a group; write tcp://HOST:PORT or unix:///PATH"
    )


@dataclass(eq=False)
class WeakSecret(GroupError):
    """A secret that anybody could guess."""

    length: int
    least: int
    says: ClassVar[str] = (
        "the group's secret has {length} bytes; use at least {least} that nobody can guess,"
        " for instance those of tidegate.group.new_secret()"
    )


@dataclass(eq=False)
class NoSecret(GroupError):
    """A group is to be joined by its address, and nobody said the secret."""

    address: str
    variable: str
    says: ClassVar[str] = (
        "the group at {address} lets in only those who know its secret; give it in {variable}."
        " It stands in group.json in the folder of the deployment that coordinates it"
    )


@dataclass(eq=False)
class UnboundedWait(GroupError):
    """A timeout that bounds nothing."""

    phase: str
    seconds: float
    says: ClassVar[str] = (
        "{seconds} is no bound for {phase}: give a number of seconds, zero or more. Every wait has"
        " an end"
    )


@dataclass(eq=False)
class MalformedFrame(GroupError):
    """Bytes that no member and no coordinator writes."""

    reason: str
    says: ClassVar[str] = "these bytes are not of a group: {reason}"


@dataclass(eq=False)
class CoordinatorUnreachable(GroupError):
    """Nobody coordinates the group at this address, at the moment."""

    retryable = True
    address: str
    reason: str
    says: ClassVar[str] = (
        "the coordinator of the group at {address} cannot be reached: {reason}."
        " Members go on trying; start it if it is not meant to be down"
    )


@dataclass(eq=False)
class CoordinatorBroken(GroupError):
    """A coordinator has ended by a fault of its own. `__cause__` is that."""

    retryable = True
    address: str
    reason: str
    says: ClassVar[str] = (
        "the coordinator of the group at {address} has ended by a fault of its own: {reason}."
        " Start another one there, which its members will find; please report the fault"
    )


@dataclass(eq=False)
class NotAdmitted(GroupError):
    """The coordinator, or whoever listens there, did not let this process in."""

    name: str
    address: str
    reason: str
    says: ClassVar[str] = "{name!r} was not admitted to the group at {address}: {reason}"


@dataclass(eq=False)
class MemberReplaced(GroupError):
    """Another process has joined under the same name; the younger one is the member."""

    name: str
    says: ClassVar[str] = (
        "another process has joined the group as {name!r}, so this one is no member any more."
        " Give every process a name of its own"
    )


@dataclass(eq=False)
class NameTaken(UsageError):
    """A process was to be called what another one is called that lives."""

    name: str
    pid: int
    host: str
    says = "{name} is here already (pid {pid} on {host}): choose another name"


@dataclass(eq=False)
class MembersMissing(GroupError):
    """Not everybody who was awaited has joined."""

    retryable = True
    names: str
    seconds: float
    present: str
    says: ClassVar[str] = (
        "after {seconds:g} s the group still lacks {names}; here are: {present}."
        " Look whether they were started, and with the same address and secret"
    )


@dataclass(eq=False)
class CompanyIncomplete(GroupError):
    """Not all processes of a deployment came to work."""

    reason: str
    seconds: float
    said: str
    says: ClassVar[str] = (
        "not everybody is at work after {seconds:.0f} s: {reason}. Their logs say why\n{said}"
    )


@dataclass(eq=False)
class NotUp(GroupError):
    """Nobody coordinates the processes of a deployment."""

    folder: str
    says: ClassVar[str] = (
        "no group is coordinated in {folder}: `tidegate up` does that. A worker that was started"
        " by hand without one is drained by Ctrl-C"
    )


@dataclass(eq=False)
class AlreadyUp(GroupError):
    """Two processes were to coordinate one deployment."""

    folder: str
    pid: str
    says: ClassVar[str] = (
        "{folder} is already run by `tidegate up` (pid {pid}). Add to it with `tidegate worker`,"
        " or stop it first"
    )


@dataclass(eq=False)
class NotAWorker(GroupError):
    """Somebody was to be drained who has no tasks to hand over, or is not here."""

    name: str
    what: str
    workers: str
    says: ClassVar[str] = "{what}; workers are {workers}"


@dataclass(eq=False)
class UnknownMember(GroupError):
    """A message was to go to somebody who is not here."""

    name: str
    present: str
    says: ClassVar[str] = "there is no member {name!r} in the group; here are: {present}"


@dataclass(eq=False)
class MessageTooLarge(GroupError):
    """More than one message may hold."""

    topic: str
    size: int
    most: int
    says: ClassVar[str] = (
        "a message on {topic!r} has {size} bytes and may have {most}; the group carries hints."
        " Put the data into a file or the database and send where it is"
    )


@dataclass(eq=False)
class LeftTheGroup(GroupError):
    """This process has left, or is about to."""

    name: str
    says: ClassVar[str] = "{name!r} has left the group; join again to take part"


@dataclass(eq=False)
class BarrierFailed(GroupError):
    """A barrier did not give its caller all that was asked for."""

    barrier: str
    sentence: str
    completion: object
    says: ClassVar[str] = "{sentence}"


@dataclass(eq=False)
class BarrierRefused(GroupError):
    """A call takes part in no round of its barrier; the round goes on without it."""

    barrier: str
    name: str
    reason: str
    says: ClassVar[str] = "{name!r} takes no part in barrier {barrier!r}: {reason}"


@dataclass(eq=False)
class NoAnswer(GroupError):
    """The coordinator lives and says nothing about a barrier that should be over by its bounds."""

    retryable = True
    barrier: str
    seconds: float
    says: ClassVar[str] = (
        "the coordinator has not said within {seconds:g} s what came of barrier {barrier!r},"
        " which is longer than its phases may take together"
    )


@dataclass(eq=False)
class InboundIncomplete(GroupError):
    """All have met, and what was sent to this process before that has not arrived."""

    retryable = True
    barrier: str
    received: int
    target: int
    seconds: float
    reason: str
    says: ClassVar[str] = (
        "barrier {barrier!r} is complete, but of the {target} messages sent to this process only"
        " {received} have arrived within {seconds:.1f} s; {reason}"
    )


@dataclass(eq=False)
class SparkUnavailable(TidegateError):
    """No session could be opened. `__cause__` is what Spark raised, if it got that far."""

    master: str
    reason: str
    instead: str
    says: ClassVar[str] = "there is no Spark on {master}: {reason}. {instead}"


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that has to be there before a pipeline is served, and what is there instead."""

    what: str
    required: str
    available: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}: required: {self.required}; available: {self.available}. {self.advice}"


@dataclass(eq=False)
class EngineUnfit(TidegateError):
    """What a pipeline runs on does not have what it needs. Nothing was started."""

    engine: str
    complaints: tuple[Complaint, ...]
    says: ClassVar[str] = "{engine} does not fit"

    def __str__(self) -> str:
        lines = (f"\n  {complaint}." for complaint in self.complaints)
        return f"the pipeline cannot be served on {self.engine}:{''.join(lines)}"


# ── Store ───────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class StoreError(TidegateError):
    """PostgreSQL is not there, is not what it should be, or refused a write."""


@dataclass(eq=False)
class EmbeddedServerFailed(StoreError):
    """The embedded PostgreSQL did not do what was asked within its bound."""

    retryable: ClassVar[bool] = True
    folder: str
    doing: str
    seconds: float
    log: str
    says: ClassVar[str] = (
        "the embedded PostgreSQL in {folder} did not {doing} within {seconds:g} s."
        " The end of its log:\n{log}"
    )


@dataclass(eq=False)
class EmbeddedServerElsewhere(StoreError):
    """The embedded PostgreSQL runs already and listens where it was started to listen."""

    folder: str
    wanted: str
    listens: str
    says: ClassVar[str] = (
        "the embedded PostgreSQL in {folder} was asked to listen on {wanted} but already runs"
        " and listens on {listens}; end the processes that use it, or ask for the same"
    )


@dataclass(eq=False)
class InvalidDatabase(StoreError):
    """What was given as a database is no address of one."""

    database: str
    reason: str
    says: ClassVar[str] = (
        "{database!r} does not name a database ({reason});"
        " write postgresql://user@host:port/name, or leave it out for the embedded one"
    )


@dataclass(eq=False)
class DatabaseUnreachable(StoreError):
    """The database did not answer, or kept losing the connection. `__cause__` is the last loss."""

    retryable: ClassVar[bool] = True
    database: str
    seconds: float
    reason: str
    says: ClassVar[str] = (
        "database {database} could not be used for {seconds:g} s ({reason});"
        " see that PostgreSQL runs there and takes connections"
    )


@dataclass(eq=False)
class DatabaseTooOld(StoreError):
    """The server is older than what Tidegate needs."""

    database: str
    version: str
    needed: int
    says: ClassVar[str] = (
        "database {database} is PostgreSQL {version}; use {needed} or later, or the embedded one"
    )


@dataclass(eq=False)
class SchemaTooNew(StoreError):
    """A later Tidegate has migrated this database."""

    database: str
    found: int
    known: int
    says: ClassVar[str] = (
        "the tidegate schema of {database} is at migration {found} and this Tidegate knows {known};"
        " install the Tidegate that migrated it, or a later one"
    )


@dataclass(eq=False)
class Fenced(StoreError):
    """A write of somebody who does not own the thing any more; it changed nothing."""

    kind: str
    key: str
    owner: str
    epoch: int
    holder: str
    current: int
    says: ClassVar[str] = (
        "{owner} does not own {kind} {key!r} under epoch {epoch} any more: it is at epoch {current}"
        " and held by {holder}. Nothing was written; acquire it again or leave it alone"
    )


@dataclass(eq=False)
class LaneConflict(StoreError):
    """A lane is not where its only writer left it."""

    task: str
    reason: str
    run: str = ""
    """The key of the run that cannot be completed by it, if it is about one."""
    says: ClassVar[str] = (
        "the lanes of task {task!r} are not as this worker left them ({reason});"
        " nothing was written. Give the task up and acquire it again"
    )


@dataclass(eq=False)
class Overtaken(StoreError):
    """A step keeps something for checkpoints that no longer wait for it; it changed nothing."""

    task: str
    runs: tuple[int, ...]
    says: ClassVar[str] = (
        "task {task!r} comes too late to a checkpoint of runs {runs}: what it has read belongs to"
        " what was on its way. Nothing was written; read these runs anew"
    )


# ── Serving by HTTP ─────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class ServeError(TidegateError):
    """A request by HTTP cannot be answered as it was meant."""


@dataclass(eq=False)
class InvalidTokens(UsageError):
    """A file of tokens has a line that is none."""

    says = (
        "{file}, line {line}: {reason}. Write one `client: SHA-256 of its token` per line,"
        " the digest as 64 hexadecimal digits."
    )

    file: str
    line: int
    reason: str


@dataclass(eq=False)
class UnsafeListen(UsageError):
    """A server that others can reach would let everybody in."""

    says = (
        "{address} can be reached by others, and without tokens everybody would be let in;"
        " name the clients in a file and give it with --tokens, or listen on 127.0.0.1"
    )

    address: str


@dataclass(eq=False)
class InvalidListen(UsageError):
    """What was given to listen on is no address, or none of this machine that is free."""

    says = "nobody can listen on {address!r}: {reason}. Write HOST:PORT, such as 127.0.0.1:8420."

    address: str
    reason: str


@dataclass(eq=False)
class InvalidServer(UsageError):
    """What was given as the address of a server is none."""

    says = "{server!r} is no address of a server; write http://HOST:PORT"

    server: str


@dataclass(eq=False)
class NoSecureConnection(UsageError):
    """A server speaks no TLS, or not one that is trusted here."""

    says = (
        "there is no secure connection to {server}: {reason}. Write http:// if no TLS is spoken"
        " there; otherwise check its certificate."
    )

    server: str
    reason: str


@dataclass(eq=False)
class OtherPipeline(UsageError):
    """The server takes runs of another pipeline."""

    says = "the server at {server} takes runs of {served!r}, not of {pipeline!r}"

    server: str
    pipeline: str
    served: str


@dataclass(eq=False)
class NowhereToWrite(UsageError):
    """Results are to be awaited, and nobody said where they go."""

    says = "with --wait the results of run {run!r} are written; say where with --out DIR"

    run: str


@dataclass(eq=False)
class UnknownToken(ServeError):
    """The request has no token, or one that nobody has."""

    says: ClassVar[str] = (
        "this server knows its clients by tokens; send `Authorization: Bearer TOKEN` with one that"
        " it knows (`tidegate submit` takes it from TIDEGATE_TOKEN)"
    )


@dataclass(eq=False)
class ForeignOrigin(ServeError):
    """A page of another site asks, and without tokens nobody can tell who is behind it."""

    origin: str
    says: ClassVar[str] = (
        "requests from {origin} are refused: a server without tokens answers programs of its own"
        " machine only"
    )


@dataclass(eq=False)
class InvalidRunName(ServeError):
    """A run cannot be called this in an address."""

    run: str
    says: ClassVar[str] = (
        "{run!r} cannot be the name of a run: use up to 100 letters, digits, '_', '-' and '.',"
        " starting with a letter or digit"
    )


@dataclass(eq=False)
class InvalidRequest(ServeError):
    """The body or a parameter of a request is not what it should be."""

    reason: str
    says: ClassVar[str] = "the request cannot be understood: {reason}"


@dataclass(eq=False)
class NoSuchRoute(ServeError):
    """There is nothing under this address."""

    path: str
    says: ClassVar[str] = "there is nothing at {path}; docs/http.md lists what there is"


@dataclass(eq=False)
class WrongMethod(ServeError):
    """There is something under this address, and it takes other methods."""

    path: str
    method: str
    allowed: str
    says: ClassVar[str] = "{path} does not take {method}; it takes {allowed}"


@dataclass(eq=False)
class ChunkTooLarge(ServeError):
    """A chunk has more bytes than the server takes at once."""

    source: str
    number: int
    most: int
    says: ClassVar[str] = (
        "chunk {number} of source {source!r} has more than the {most} bytes that this server takes"
        " at once; nothing of it was kept. Cut it into several chunks"
    )


@dataclass(eq=False)
class UnknownUploadFormat(ServeError):
    """Nobody said in which format a chunk is, or in one that cannot be read."""

    given: str
    known: str
    says: ClassVar[str] = (
        "a chunk is sent as {given}, which cannot be read; say ?format= with one of: {known}"
    )


@dataclass(eq=False)
class UploadInterrupted(ServeError):
    """The client went away before its chunk was complete; nothing of it was kept."""

    retryable: ClassVar[bool] = True
    source: str
    number: int
    says: ClassVar[str] = (
        "chunk {number} of source {source!r} did not arrive whole, and nothing of it was kept;"
        " send it again"
    )


@dataclass(eq=False)
class UploadStalled(ServeError):
    """A chunk takes too long to arrive; nothing of it was kept."""

    retryable: ClassVar[bool] = True
    source: str
    number: int
    seconds: float
    says: ClassVar[str] = (
        "chunk {number} of source {source!r} did not go on within {seconds:g} s, and nothing of it"
        " was kept; send it again"
    )


@dataclass(eq=False)
class UploadTooSlow(ServeError):
    """A chunk arrives so slowly that it would keep others waiting; nothing of it was kept."""

    retryable: ClassVar[bool] = True
    source: str
    number: int
    least: int
    says: ClassVar[str] = (
        "chunk {number} of source {source!r} came with less than {least} bytes per second, and"
        " nothing of it was kept; send it again, or in smaller chunks"
    )


@dataclass(eq=False)
class TooManyFollowers(ServeError):
    """A client follows as many runs at a time as it may."""

    retryable: ClassVar[bool] = True
    most: int
    says: ClassVar[str] = (
        "this client has {most} streams of events open, and may not have more; close one of them"
    )


@dataclass(eq=False)
class UnknownSink(ServeError):
    """A result was asked for that the pipeline does not have."""

    sink: str
    known: str
    says: ClassVar[str] = "there is no sink {sink!r}; the pipeline's sinks are: {known}"


@dataclass(eq=False)
class UnknownResultFormat(ServeError):
    """A result was asked for in a format that it is not given in."""

    given: str
    known: str
    says: ClassVar[str] = "results are not given as {given}; say ?format= with one of: {known}"


@dataclass(eq=False)
class ResultsNotReady(ServeError):
    """Results were asked for before the run is complete; there are none until all are there."""

    retryable: ClassVar[bool] = True
    run: str
    says: ClassVar[str] = (
        "run {run!r} is not complete, so it has no results yet; its `why` tells what it waits for"
    )


@dataclass(eq=False)
class ServerTrouble(ServeError):
    """The server cannot do its work at the moment; what it is, its own log says."""

    retryable: ClassVar[bool] = True
    trouble: str
    says: ClassVar[str] = (
        "the server cannot answer at the moment ({trouble}); its log says more. Try again"
    )


@dataclass(eq=False)
class ServerStopping(ServeError):
    """The server is about to stop."""

    retryable: ClassVar[bool] = True
    says: ClassVar[str] = "the server is stopping; try again when it is back"


@dataclass(eq=False)
class ServerFailed(ServeError):
    """A mistake in the server; a client can only tell somebody."""

    says: ClassVar[str] = "the server failed on this request; its log says how"


@dataclass(eq=False)
class ServerUnreachable(ServeError):
    """Nobody answered for as long as the client was ready to try."""

    retryable: ClassVar[bool] = True
    server: str
    seconds: float
    reason: str
    says: ClassVar[str] = (
        "the server at {server} did not answer for {seconds:g} s ({reason}). What it has taken is"
        " safe: give the same command again when it is back"
    )


@dataclass(eq=False)
class RefusedByServer(ServeError):
    """The server refused with a condition that this client does not know."""

    refusal: str
    message: str
    says: ClassVar[str] = "{message} [{refusal}]"


# ── Durable flows ───────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class UntypedFunction(DeclarationError):
    """A function of a flow whose annotations are missing or cannot be read."""

    says = "{function} of flow {flow!r} is not fully annotated: {reason}"
    advice = "Annotate every parameter and the result; types are looked up where it is declared."

    flow: str
    function: str
    reason: str


@dataclass(eq=False)
class WrongParameters(DeclarationError):
    """A function of a flow does not take what it will be given."""

    says = "{function} of flow {flow!r} takes {found}, and will be given {given}"
    advice = "A function takes its context first, then one value for each of its dependencies."

    flow: str
    function: str
    found: str
    given: str


@dataclass(eq=False)
class TypesDiffer(DeclarationError):
    """What one function of a flow gives is not what another takes."""

    says = "{function} of flow {flow!r} takes {wanted}, and {source} gives {given}"
    advice = "Make the two annotations the same."

    flow: str
    function: str
    wanted: str
    source: str
    given: str


@dataclass(eq=False)
class UnknownFlowStep(DeclarationError):
    """A flow has no step of this name."""

    says = "flow {flow!r} has no step {step!r}"
    advice = "Its steps are: {known}."

    flow: str
    step: str
    known: str


@dataclass(eq=False)
class CyclicFlow(DeclarationError):
    """Steps that wait for each other."""

    says = "steps of flow {flow!r} wait for each other: {circle}"
    advice = "Take one of these dependencies away."

    flow: str
    circle: str


@dataclass(eq=False)
class GeneratorWithoutHandler(DeclarationError):
    """Items are generated, and nobody handles them."""

    says = "generator {step!r} of flow {flow!r} has no handler"
    advice = "Declare one with @{step}.handler."

    flow: str
    step: str


@dataclass(eq=False)
class StateNeverWritten(DeclarationError):
    """A step waits for a key of the state that nobody writes."""

    says = "step {step!r} of flow {flow!r} reads the state {key!r}, which no step writes"
    advice = "Name it in `writes` of the step that does, or declare it with external=True."

    flow: str
    step: str
    key: str


@dataclass(eq=False)
class FlowInUse(DeclarationError):
    """A flow was used already and cannot be added to."""

    says = "flow {flow!r} is in use, and {name!r} comes too late"
    advice = "Declare everything before the flow is first begun or worked for."

    flow: str
    name: str


@dataclass(eq=False)
class UnknownFlow(UsageError):
    """No flow is found under what the user gave as its name."""

    says = "there is no flow {flow!r}: {reason}. Write package.module:attribute."

    flow: str
    reason: str


@dataclass(eq=False)
class InvalidJson(UsageError):
    """A value on the command line that is no JSON."""

    says = "{given!r} is not JSON ({reason}); texts are written with quotes, as '\"text\"'"

    given: str
    reason: str


@dataclass(eq=False)
class FlowError(TidegateError):
    """A run of a flow cannot do what was asked."""


@dataclass(eq=False)
class UnknownFlowRun(FlowError):
    """There is no such run of a flow."""

    says = "there is no run {run} of a flow; `tidegate flow list` shows them"

    run: int


@dataclass(eq=False)
class FlowRunClosed(FlowError):
    """A run of a flow that has ended, or is about to, was asked to do something."""

    says = "run {run} is {state}, so {wanted} is not possible any more"

    run: int
    state: str
    wanted: str


@dataclass(eq=False)
class FlowRedefined(FlowError):
    """A run was begun when its flow was declared otherwise, so that a step cannot work for it."""

    says = (
        "step {step!r} does not fit run {run}, which was begun when the flow was declared"
        " otherwise: {reason}. Start a worker with the flow as it was and retry the run, or cancel"
        " it; give a flow that is changed so much another name"
    )

    run: int
    step: str
    reason: str


@dataclass(eq=False)
class InvalidFlowValue(FlowError):
    """A value that is not of the type that was declared for it."""

    says = "{value} is not what {of} is declared to be: {reason}"

    of: str
    value: str
    reason: str


@dataclass(eq=False)
class SpawnRefused(FlowError):
    """Items came after their generator had ended, or not as many as it says."""

    says = "items of step {step!r} of run {run} are refused: {reason}. Nothing was written"

    run: int
    step: str
    reason: str


@dataclass(eq=False)
class StateRegressed(FlowError):
    """A monotonic key of the state would have gone back."""

    says = (
        "state {key!r} of run {run} is monotonic: it stands at {current}, written by {writer}, and"
        " {value} would be back. Nothing was written"
    )

    run: int
    key: str
    value: str
    current: str
    writer: str


@dataclass(eq=False)
class StateUndeclared(FlowError):
    """A key of the state was read or written by somebody who had not declared it."""

    says = "{who} may not {action} the state {key!r}: it did not declare that"

    who: str
    action: str
    key: str


@dataclass(eq=False)
class StateNeverCame(FlowError):
    """A wait for a flow's state has reached its bound."""

    says = (
        "step {step!r} of run {run} has waited {seconds:.1f} s for the state {key!r}, which stands"
        " at {value}, last written by {writer}{ago}{distance}"
    )

    run: int
    step: str
    seconds: float
    key: str
    value: str
    writer: str
    age: float | None = None
    """Seconds since the key was written."""
    missing: tuple[str, ...] = ()
    """How far each condition of a declared gate is that does not hold."""

    def __str__(self) -> str:
        ago = "" if self.age is None else f" {self.age:,.1f} s ago"
        distance = f": {'; '.join(self.missing)}" if self.missing else ""
        return self.says.format_map({**vars(self), "ago": ago, "distance": distance})


@dataclass(eq=False)
class PipelineNotReleased(FlowError):
    """A step has waited for a run of a pipeline as long as it was ready to; the run is given up."""

    says = (
        "step {step!r} of run {run} has waited {waited:,.1f} s for run {pipeline_run!r} of pipeline"
        " {pipeline!r}, which is not released: {reason}"
    )

    run: int
    step: str
    waited: float
    pipeline: str
    pipeline_run: str
    reason: str


@dataclass(eq=False)
class PipelineServedOtherwise(FlowError):
    """A pipeline is served with another declaration than the worker of a flow has."""

    retryable: ClassVar[bool] = True
    says = (
        "pipeline {pipeline!r} is served with plan {served:.12}, and here it has plan {plan:.12}:"
        " restart whichever of the two has the older declaration"
    )

    pipeline: str
    served: str
    plan: str


@dataclass(eq=False)
class SourcesNotGiven(FlowError):
    """Chunks for a run of a pipeline were named, and not for each of its sources."""

    says = (
        "run {pipeline_run!r} of pipeline {pipeline!r} was given no chunks of {sources}; name them,"
        " with an empty list for a source that has none"
    )

    pipeline: str
    pipeline_run: str
    sources: str


@dataclass(eq=False)
class PipelineRunTwice(FlowError):
    """A step runs a pipeline twice under one name, so the second would be the first."""

    says = (
        "step {step!r} runs pipeline {pipeline!r} twice as {pipeline_run!r}; tell the two apart"
        " with name=…"
    )

    step: str
    pipeline: str
    pipeline_run: str


@dataclass(eq=False)
class NowhereForChunks(FlowError):
    """A step runs a pipeline, and its worker does not know where the deployment's files are."""

    says = (
        "step {step!r} cannot deliver to pipeline {pipeline!r}: its worker was not told where the"
        " files of the deployment are. Use `tidegate flow worker`, or give the worker root=…"
    )

    step: str
    pipeline: str


@dataclass(eq=False)
class SignalRefused(FlowError):
    """A signal that nobody waits for, or another than was given before."""

    says = "step {step!r} of run {run} does not take this signal: {reason}"

    run: int
    step: str
    reason: str


@dataclass(eq=False)
class NoStepWithItems(FlowError):
    """A run has no such step, or one that has no items."""

    says = "run {run} has no step {step!r} with items; `tidegate flow show {run}` lists its steps"

    run: int
    step: str


@dataclass(eq=False)
class StepTimedOut(FlowError):
    """A handler took longer than its step allows."""

    retryable: ClassVar[bool] = True
    says = "step {step!r} of run {run} took longer than its {seconds:g} s"

    run: int
    step: str
    seconds: float


@dataclass(eq=False)
class FinalFailure(FlowError):
    """A function of a flow says so itself: the same attempt again would fail as well."""

    says = "{reason}"

    reason: str


@dataclass(eq=False)
class FlowCancelled(FlowError):
    """What a handler is told when nobody wants its result any more."""

    says = "run {run} wants nothing more of step {step!r}: {reason}"

    run: int
    step: str
    reason: str


@dataclass(eq=False)
class FlowFailed(FlowError):
    """A run of a flow has failed or was cancelled; the first cause is kept."""

    says = "run {run} of flow {flow!r} is {state}: {cause}"

    run: int
    flow: str
    state: str
    cause: str


@dataclass(eq=False)
class FlowTimeout(FlowError):
    """A run of a flow did not end while somebody waited."""

    retryable: ClassVar[bool] = True
    says = "run {run} of flow {flow!r} is {state} after {seconds:g} s; `tidegate flow show {run}`"

    run: int
    flow: str
    state: str
    seconds: float


@dataclass(eq=False)
class ClaimLost(StoreError):
    """A write of a worker for a task of a flow that is not its own any more; nothing changed."""

    run: int
    step: str
    position: int
    owner: str
    epoch: int
    holder: str
    current: int
    says: ClassVar[str] = (
        "{owner} does not hold task {step}[{position}] of run {run} under epoch {epoch} any more:"
        " it is at epoch {current} and {holder}. Nothing was written; leave it alone"
    )


# ── Cutovers ────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class CutoverError(TidegateError):
    """An index cannot be made from a table, or readers cannot be switched to it."""


@dataclass(eq=False)
class UnknownTable(CutoverError):
    """There is no such table."""

    says = "there is no table {table}; write schema.table"

    table: str


@dataclass(eq=False)
class NoPrimaryKey(CutoverError):
    """The rows of a table cannot be told apart."""

    says = "{table} has no primary key, or one that is DEFERRABLE: rows are known by it, so add one"

    table: str


@dataclass(eq=False)
class UnknownTableColumn(CutoverError):
    """A table does not have a column that an index wants."""

    says = "{table} has no column {column!r}; it has {known}"

    table: str
    column: str
    known: str


@dataclass(eq=False)
class TableBusy(CutoverError):
    """Somebody writes to a table for so long that its changes cannot begin to be logged."""

    retryable: ClassVar[bool] = True
    says = (
        "transactions that write to {table} do not end, and its changes can only be logged from a"
        " moment when there is none; end them, or try again when it is quieter"
    )

    table: str


@dataclass(eq=False)
class NotFollowed(CutoverError):
    """No changes are kept for an index: some may have been removed that it does not have."""

    says = (
        "the log of {table} keeps no changes for {index}, so it may lack some for good;"
        " make another index, and retire this one"
    )

    index: str
    table: str


@dataclass(eq=False)
class IndexDiffers(CutoverError):
    """What is there under the name of an index cannot be used as that."""

    says = "{index} cannot be used: {reason}. Name another index, or drop this one."

    index: str
    reason: str


@dataclass(eq=False)
class AliasDiffers(CutoverError):
    """Readers of an alias would miss a column, or find another type in it."""

    says = (
        "{index} cannot stand behind {alias}: {reason}. Readers rely on the columns they have: keep"
        " them, and add others behind them; or make another alias."
    )

    alias: str
    index: str
    reason: str


@dataclass(eq=False)
class RowsDiffer(CutoverError):
    """An index does not hold what its source holds, and no change is under way that explains it."""

    says = (
        "{index} is not as {source}: {number} rows differ, {examples}. It was not switched to."
        " Retry the run to compare again; if they stay, begin another index."
    )

    index: str
    source: str
    number: int
    examples: str


@dataclass(eq=False)
class GateClosed(CutoverError):
    """A switch was to be made before its conditions held."""

    retryable: ClassVar[bool] = True
    says = "{alias} was not switched to {index}: {reason}"

    alias: str
    index: str
    reason: str


@dataclass(eq=False)
class AliasBusy(CutoverError):
    """Readers of an alias do not end, and it can only be switched between them."""

    retryable: ClassVar[bool] = True
    says = "queries on {alias} do not end, and it is switched between them; it is tried again"

    alias: str


@dataclass(eq=False)
class NothingToReverse(CutoverError):
    """There is no index that an alias stood for before."""

    says = "{alias} cannot go back: {reason}"

    alias: str
    reason: str


@dataclass(eq=False)
class IndexBehind(CutoverError):
    """An index that readers would be switched to does not have what has changed since."""

    retryable: ClassVar[bool] = True
    says = (
        "{index} is {changes} behind, the oldest {seconds:.1f} s old, and did not catch up"
        " within {bound:g} s; start workers for its feed, or switch all the same with --stale"
    )

    index: str
    changes: str
    seconds: float
    bound: float


@dataclass(eq=False)
class IndexInUse(CutoverError):
    """An index that readers see, or that is being filled, is not to be removed."""

    says = "{index} is not removed: {reason}"

    index: str
    reason: str


@dataclass(eq=False)
class StreamStalled(CutoverError):
    """Changes could not be applied for longer than is borne."""

    retryable: ClassVar[bool] = True
    says = "no change has reached {index} for {seconds:.0f} s: {reason}"

    index: str
    seconds: float
    reason: str
