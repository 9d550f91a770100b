"""Errors of process groups: joining, messages, barriers, and the processes of a deployment."""

from __future__ import annotations

from tidegate.errors.base import TidegateError
from tidegate.errors.usage import UsageError


class GroupError(TidegateError):
    """Base class of process group errors."""


class InvalidGroupName(GroupError):
    """The name of a member, barrier or topic is not valid."""

    name: str
    most: int
    message = "{name!r} is not a valid name in a group: use 1 to {most} bytes of printable text"


class InvalidAddress(GroupError):
    """A group address cannot be parsed."""

    address: str
    message = "{address!r} is not a group address; use tcp://HOST:PORT or unix:///PATH"


class WeakSecret(GroupError):
    """A group secret is too short."""

    length: int
    least: int
    message = (
        "the group's secret has {length} bytes; use at least {least} random bytes,"
        " for example from tidegate.group.new_secret()"
    )


class NoSecret(GroupError):
    """A group address was given without its secret."""

    address: str
    variable: str
    message = (
        "the group at {address} requires its secret; set {variable}."
        " The secret is in group.json in the folder of the deployment that coordinates the group"
    )


class UnboundedWait(GroupError):
    """A timeout is not a finite number of seconds."""

    phase: str
    seconds: float
    message = (
        "{seconds} is not a valid timeout for {phase}: use a finite number of seconds, zero or more"
    )


class MalformedFrame(GroupError):
    """Received bytes are not a valid frame of the group protocol."""

    reason: str
    message = "malformed frame: {reason}"


class CoordinatorUnreachable(GroupError):
    """The coordinator of a group cannot be reached."""

    retryable = True
    address: str
    reason: str
    message = (
        "the coordinator of the group at {address} cannot be reached: {reason}."
        " Members keep retrying; start the coordinator if it is down"
    )


class CoordinatorBroken(GroupError):
    """A coordinator was stopped by an internal error, which is `__cause__`."""

    retryable = True
    address: str
    reason: str
    message = (
        "the coordinator of the group at {address} was stopped by an internal error: {reason}."
        " Start another one at this address, and its members reconnect; please report the error"
    )


class NotAdmitted(GroupError):
    """The process at the coordinator's address rejected this process, or is not trusted by it."""

    name: str
    address: str
    reason: str
    message = "{name!r} was not admitted to the group at {address}: {reason}"


class MemberReplaced(GroupError):
    """Another process has joined under the same name; the newer one is the member."""

    name: str
    message = (
        "another process has joined the group as {name!r}, so this one is no longer a member."
        " Give every process its own name"
    )


class NameTaken(UsageError):
    """A process name is in use by a running process."""

    name: str
    pid: int
    host: str
    message = "{name} is already running (pid {pid} on {host}): choose another name"


class MembersMissing(GroupError):
    """Expected members have not joined in time."""

    retryable = True
    names: str
    seconds: float
    present: str
    message = (
        "{names} did not join the group within {seconds:g} s; present: {present}."
        " Check that they were started with the same address and secret"
    )


class ClusterIncomplete(GroupError):
    """Not all processes of a deployment became ready."""

    reason: str
    seconds: float
    output: str
    message = (
        "not all processes are ready after {seconds:.0f} s: {reason}. See their logs\n{output}"
    )


class NotUp(GroupError):
    """A deployment has no running coordinator."""

    folder: str
    message = (
        "no group is running in {folder}; start one with `tidegate up`. A worker that was started"
        " manually without a group is drained by Ctrl-C"
    )


class AlreadyUp(GroupError):
    """A deployment is already coordinated by another process."""

    folder: str
    pid: str
    message = (
        "{folder} is already served by `tidegate up` (pid {pid}). Add workers with"
        " `tidegate worker`, or stop it first"
    )


class NotAWorker(GroupError):
    """The process to drain is not a worker, or is not running."""

    name: str
    what: str
    workers: str
    message = "{what}; workers are {workers}"


class UnknownMember(GroupError):
    """The recipient of a message is not a member."""

    name: str
    present: str
    message = "there is no member {name!r} in the group; present: {present}"


class MessageTooLarge(GroupError):
    """A message payload exceeds the limit."""

    topic: str
    size: int
    most: int
    message = (
        "a message on {topic!r} has {size} bytes; the limit is {most}."
        " Put the data into a file or the database and send its location"
    )


class LeftTheGroup(GroupError):
    """This process has left the group, or is leaving."""

    name: str
    message = "{name!r} has left the group; join again to take part"


class BarrierFailed(GroupError):
    """A barrier did not satisfy all required phases."""

    barrier: str
    sentence: str
    completion: object
    message = "{sentence}"


class BarrierRefused(GroupError):
    """A barrier call takes part in no round; the round continues without it."""

    barrier: str
    name: str
    reason: str
    message = "{name!r} cannot take part in barrier {barrier!r}: {reason}"


class NoAnswer(GroupError):
    """The connected coordinator has not completed a barrier within its bounds."""

    retryable = True
    barrier: str
    seconds: float
    message = (
        "the coordinator has not completed barrier {barrier!r} within {seconds:g} s,"
        " which is longer than all its phases may take together"
    )


class InboundIncomplete(GroupError):
    """A barrier is complete, but messages sent to this process before it have not arrived."""

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
