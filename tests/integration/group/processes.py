"""Handles of the processes of these tests: start, command, freeze, kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Self, TextIO

import msgspec

from tests.waiting import wait_until
from tidegate.group import new_secret

ROOT = Path(__file__).parents[3]
BOUND = 30.0
"""Seconds after which something that should happen at once counts as hanging."""


class Raised(Exception):
    """What a process was asked for has raised this there."""

    def __init__(self, kind: str, says: str) -> None:
        super().__init__(f"{kind}: {says}")
        self.kind = kind


class PhaseResult(msgspec.Struct, frozen=True):
    """The status of a phase."""

    state: str
    failure: str
    offender: str
    sequence: int


class Outcome(msgspec.Struct, frozen=True):
    """The completion of a barrier in another process."""

    text: str
    sequence: int
    require: int
    rendezvous: PhaseResult
    inbound: PhaseResult
    outbound: PhaseResult
    processing: PhaseResult
    seconds: float = 0.0
    handled: dict[str, int] = {}

    @property
    def states(self) -> tuple[str, str, str, str]:
        """Of all phases."""
        return (
            self.rendezvous.state,
            self.inbound.state,
            self.outbound.state,
            self.processing.state,
        )

    @property
    def is_satisfied(self) -> bool:
        """Whether nothing went wrong."""
        return set(self.states) <= {"satisfied", "not requested"}


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A structured event."""

    event: str
    facts: dict[str, Any]

    def matches(self, event: str, facts: dict[str, Any]) -> bool:
        """Whether it is such an event, with these facts among others."""
        return self.event == event and facts.items() <= self.facts.items()


class Pending:
    """Something that a process was asked for and may still be doing."""

    def __init__(self, process: Process, number: int) -> None:
        self._process = process
        self._number = number

    @property
    def is_done(self) -> bool:
        """Whether there is an answer."""
        return self._number in self._process.answers

    def answer(self, bound: float = BOUND) -> Any:
        """What came of it; `Raised` if it was an error."""
        self._process.wait_until(lambda: self.is_done or self._process.has_ended, bound)
        if not self.is_done:
            raise EOFError("the process has ended without an answer")
        answer = self._process.answers[self._number]
        if "error" in answer:
            raise Raised(answer["error"], answer["says"])
        return answer["answer"]

    def outcome(self, bound: float = BOUND) -> Outcome:
        """Of a barrier."""
        return msgspec.convert(self.answer(bound), Outcome)


class ForkServer:
    """Where processes come from (see `fork_server`)."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair()
        with theirs:
            module = "tests.integration.group.fork_server"
            self._program = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )

    def start(self, program: str, *arguments: str) -> tuple[int, TextIO, TextIO]:
        """A process: its pid, what it reads and what it writes."""
        child_input, orders = os.pipe()
        answers, child_output = os.pipe()
        data = msgspec.json.encode((program, *arguments))
        socket.send_fds(self._requests, [data], [child_input, child_output])
        pid = int(self._requests.recv(32))
        os.close(child_input)
        os.close(child_output)
        return pid, open(orders, "w"), open(answers)  # noqa: PTH123  these are descriptors

    def close(self) -> None:
        """Start no more."""
        self._requests.close()
        self._program.wait(BOUND)


class Process:
    """A program that runs commands (see `commands`)."""

    def __init__(self, fork_server: ForkServer, program: str, *arguments: str) -> None:
        self.pid, self._orders, self._output = fork_server.start(program, *arguments)
        self._numbers = count(1)
        self._changed = Condition()
        self.answers: dict[int, dict[str, Any]] = {}
        self.events: list[LoggedEvent] = []
        self.has_ended = False
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def begin(self, what: str, **arguments: Any) -> Pending:
        """Ask for something that may take long."""
        return self._ask(what, arguments, aside=True)

    def do(self, what: str, **arguments: Any) -> Any:
        """Ask for something, after whatever was asked for before, and wait for the answer."""
        return self._ask(what, arguments, aside=False).answer()

    def wait_until(self, condition: Callable[[], bool], bound: float = BOUND) -> None:
        """Wait for a condition on the output of this process."""
        with self._changed:
            assert self._changed.wait_for(condition, bound), f"not within {bound:g} s"

    def wait_event(self, event: str, /, **facts: Any) -> LoggedEvent:
        """The first event that is this one."""
        self.wait_until(lambda: any(it.matches(event, facts) for it in self.events))
        return next(it for it in self.events if it.matches(event, facts))

    def count_events(self, event: str, /, **facts: Any) -> int:
        """How many there were."""
        return sum(it.matches(event, facts) for it in self.events)

    def freeze(self) -> None:
        """It does nothing until it is thawed."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """It ends without a word."""
        if not self.has_ended:
            os.kill(self.pid, signal.SIGKILL)
            self._reader.join(BOUND)

    def end(self) -> None:
        """Leave nothing behind."""
        self.kill()
        with suppress(OSError):
            self._orders.close()

    def _ask(self, what: str, arguments: dict[str, Any], *, aside: bool) -> Pending:
        number = next(self._numbers)
        order = {"id": number, "do": what, "with": arguments, "aside": aside}
        self._orders.write(msgspec.json.encode(order).decode() + "\n")
        self._orders.flush()
        return Pending(self, number)

    def _read(self) -> None:
        with self._output as lines:
            for line in lines:
                self._note(msgspec.json.decode(line))
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()

    def _note(self, line: dict[str, Any]) -> None:
        with self._changed:
            if "event" in line:
                self.events.append(LoggedEvent(line["event"], line["facts"]))
            else:
                self.answers[line["id"]] = line
            self._changed.notify_all()


class Peer(Process):
    """A member of the group."""

    def __init__(self, fork_server: ForkServer, name: str, address: str, secret: str) -> None:
        super().__init__(fork_server, "peer", name, address, secret)
        self.name = name

    def barrier(self, name: str, require: int = 0, timeout: Any = None) -> Pending:
        """Call a barrier."""
        return self.begin("barrier", name=name, require=require, timeout=timeout)

    def wait_for_counts(self, expected: dict[str, int]) -> None:
        """Wait until so many messages of each sender have been handled."""
        wait_until(lambda: self.do("counts") == expected)

    def wait_inside(self, gate: str, times: int = 1) -> None:
        """Wait until so many handlers have come to a gate."""
        wait_until(lambda: self.do("inside", gate=gate) == times)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a coordinator keeps time."""

    heartbeat: float = 0.2
    silence: float = 10.0
    admission: float = 5.0


class CoordinatorProcess(Process):
    """The coordinator of the group."""

    def __init__(self, fork_server: ForkServer, address: str, secret: str, pace: Pace) -> None:
        numbers = (str(it) for it in (pace.heartbeat, pace.silence, pace.admission))
        super().__init__(fork_server, "coordinator", address, secret, *numbers)

    def wait_arrived(self, barrier: str, *names: str) -> None:
        """Wait until these have arrived at a barrier."""
        for name in names:
            self.wait_event("barrier.arrived", barrier=barrier, member=name)

    def wait_acknowledged(self, barrier: str, phase: str, times: int) -> None:
        """Wait until so many have confirmed a phase."""
        self.wait_until(
            lambda: self.count_events("barrier.acknowledged", barrier=barrier, phase=phase) == times
        )


@dataclass
class Cluster:
    """A coordinator and its members."""

    fork_server: ForkServer
    wanted: str = "tcp://127.0.0.1:0"
    pace: Pace = Pace()
    secret: str = field(default_factory=lambda: new_secret().decode())
    coordinator: CoordinatorProcess = field(init=False)
    address: str = field(init=False)
    _all: list[Process] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.start_coordinator()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.end()

    def start_coordinator(self) -> None:
        """Start it, or another one in its place."""
        self.coordinator = CoordinatorProcess(self.fork_server, self.wanted, self.secret, self.pace)
        self._all.append(self.coordinator)
        self.address = self.wanted = self.coordinator.do("address")

    def restart_coordinator(self, *peers: Peer) -> None:
        """Start another one in its place, and wait until these have found it."""
        self.start_coordinator()
        for peer in peers:
            self.coordinator.wait_event("member.joined", member=peer.name)
        self.meet(*peers)

    def start_another_coordinator(self) -> str:
        """At the same address; where it listens, if it does."""
        other = CoordinatorProcess(self.fork_server, self.address, self.secret, self.pace)
        self._all.append(other)
        return str(other.do("address"))

    def peer(self, name: str) -> Peer:
        """A process that has not joined."""
        peer = Peer(self.fork_server, name, self.address, self.secret)
        self._all.append(peer)
        return peer

    def join(self, *names: str) -> list[Peer]:
        """So many members that know of each other."""
        peers = [self.peer(name) for name in names]
        joining = [peer.begin("join") for peer in peers]
        for pending in joining:
            pending.answer()
        self.meet(*peers)
        return peers

    def meet(self, *peers: Peer) -> None:
        """Wait until these know of each other."""
        for peer in peers:
            peer.do("wait_for", names=[it.name for it in peers])


def all_at(peers: list[Peer], name: str, require: int = 0, timeout: Any = None) -> list[Outcome]:
    """All of these call a barrier at the same time, and what each one gets."""
    calls = [peer.barrier(name, require, timeout) for peer in peers]
    return [call.outcome() for call in calls]
