"""A process and its group do not come together."""

from __future__ import annotations

from tidegate.errors.base import TidegateError
from tidegate.errors.usage import UsageError


class GroupError(TidegateError):
    """A process and its group do not come together."""


class InvalidGroupName(GroupError):
    """A member, a barrier or a topic cannot be called this."""

    name: str
    most: int
    message = "{name!r} cannot be a name in a group: use 1 to {most} bytes of printable text"


class InvalidAddress(GroupError):
    """An address that is none."""

    address: str
    message = "{address!r} is no address of a group; write tcp://HOST:PORT or unix:///PATH"


class WeakSecret(GroupError):
    """A secret that anybody could guess."""

    length: int
    least: int
    message = (
        "the group's secret has {length} bytes; use at least {least} that nobody can guess,"
        " for instance those of tidegate.group.new_secret()"
    )


class NoSecret(GroupError):
    """A group is to be joined by its address, and nobody said the secret."""

    address: str
    variable: str
    message = (
        "the group at {address} lets in only those who know its secret; give it in {variable}."
        " It stands in group.json in the folder of the deployment that coordinates it"
    )


class UnboundedWait(GroupError):
    """A timeout that bounds nothing."""

    phase: str
    seconds: float
    message = (
        "{seconds} is no bound for {phase}: give a number of seconds, zero or more. Every wait has"
        " an end"
    )


class MalformedFrame(GroupError):
    """Bytes that no member and no coordinator writes."""

    reason: str
    message = "these bytes are not of a group: {reason}"


class CoordinatorUnreachable(GroupError):
    """Nobody coordinates the group at this address, at the moment."""

    retryable = True
    address: str
    reason: str
    message = (
        "the coordinator of the group at {address} cannot be reached: {reason}."
        " Members go on trying; start it if it is not meant to be down"
    )


class CoordinatorBroken(GroupError):
    """A coordinator has ended by a fault of its own. `__cause__` is that."""

    retryable = True
    address: str
    reason: str
    message = (
        "the coordinator of the group at {address} has ended by a fault of its own: {reason}."
        " Start another one there, which its members will find; please report the fault"
    )


class NotAdmitted(GroupError):
    """The coordinator, or whoever listens there, did not let this process in."""

    name: str
    address: str
    reason: str
    message = "{name!r} was not admitted to the group at {address}: {reason}"


class MemberReplaced(GroupError):
    """Another process has joined under the same name; the younger one is the member."""

    name: str
    message = (
        "another process has joined the group as {name!r}, so this one is no member any more."
        " Give every process a name of its own"
    )


class NameTaken(UsageError):
    """A process was to be called what another one is called that lives."""

    name: str
    pid: int
    host: str
    message = "{name} is here already (pid {pid} on {host}): choose another name"


class MembersMissing(GroupError):
    """Not everybody who was awaited has joined."""

    retryable = True
    names: str
    seconds: float
    present: str
    message = (
        "after {seconds:g} s the group still lacks {names}; here are: {present}."
        " Look whether they were started, and with the same address and secret"
    )


class ClusterIncomplete(GroupError):
    """Not all processes of a deployment came to work."""

    reason: str
    seconds: float
    said: str
    message = "not everybody is at work after {seconds:.0f} s: {reason}. Their logs say why\n{said}"


class NotUp(GroupError):
    """Nobody coordinates the processes of a deployment."""

    folder: str
    message = (
        "no group is coordinated in {folder}: `tidegate up` does that. A worker that was started"
        " by hand without one is drained by Ctrl-C"
    )


class AlreadyUp(GroupError):
    """Two processes were to coordinate one deployment."""

    folder: str
    pid: str
    message = (
        "{folder} is already run by `tidegate up` (pid {pid}). Add to it with `tidegate worker`,"
        " or stop it first"
    )


class NotAWorker(GroupError):
    """Somebody was to be drained who has no tasks to hand over, or is not here."""

    name: str
    what: str
    workers: str
    message = "{what}; workers are {workers}"


class UnknownMember(GroupError):
    """A message was to go to somebody who is not here."""

    name: str
    present: str
    message = "there is no member {name!r} in the group; here are: {present}"


class MessageTooLarge(GroupError):
    """More than one message may hold."""

    topic: str
    size: int
    most: int
    message = (
        "a message on {topic!r} has {size} bytes and may have {most}; the group carries hints."
        " Put the data into a file or the database and send where it is"
    )


class LeftTheGroup(GroupError):
    """This process has left, or is about to."""

    name: str
    message = "{name!r} has left the group; join again to take part"


class BarrierFailed(GroupError):
    """A barrier did not give its caller all that was asked for."""

    barrier: str
    sentence: str
    completion: object
    message = "{sentence}"


class BarrierRefused(GroupError):
    """A call takes part in no round of its barrier; the round goes on without it."""

    barrier: str
    name: str
    reason: str
    message = "{name!r} takes no part in barrier {barrier!r}: {reason}"


class NoAnswer(GroupError):
    """The coordinator lives and says nothing about a barrier that should be over by its bounds."""

    retryable = True
    barrier: str
    seconds: float
    message = (
        "the coordinator has not said within {seconds:g} s what came of barrier {barrier!r},"
        " which is longer than its phases may take together"
    )


class InboundIncomplete(GroupError):
    """All have met, and what was sent to this process before that has not arrived."""

    retryable = True
    barrier: str
    received: int
    target: int
    seconds: float
    reason: str
    message = (
        "barrier {barrier!r} is complete, but of the {target} messages sent to this process only"
        " {received} have arrived within {seconds:.1f} s; {reason}"
    )
