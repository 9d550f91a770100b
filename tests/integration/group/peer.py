"""A member as a program."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import Any

from tests.integration.group.commands import forward_events, run_commands
from tidegate.group import Completion, Group, Message, Phase, Require, Timeouts

BOUND = 60.0


def as_json(it: Completion) -> dict[str, Any]:
    """For `processes.Outcome`."""
    line: dict[str, Any] = {"text": str(it), "sequence": it.sequence, "require": int(it.require)}
    for phase in Phase:
        status = it[phase]
        who = it.offenders.get(status.offender)
        line[str(phase)] = {
            "state": str(status.state),
            "failure": str(status.failure),
            "offender": who.name if who else "",
            "sequence": status.sequence,
        }
    return line


def _timeouts(given: float | dict[str, float] | None) -> float | Timeouts | None:
    return Timeouts(**given) if isinstance(given, dict) else given


class Peer:
    """What the test can ask of a member; each public method is a command."""

    def __init__(self, name: str, address: str, secret: str) -> None:
        self._name, self._address, self._secret = name, address, secret.encode()
        self._messages: list[Message] = []
        self._inside: Counter[str] = Counter()
        self._gates: dict[str, Event] = {}
        self._outcomes: list[dict[str, Any]] = []
        self._drained: list[bool] = []
        self._handlers = {
            "note": self._messages.append,
            "slow": self._slowly,
            "gate": self._at_the_gate,
            "fence": self._fence_within,
            "gate then fence": self._gate_then_fence,
            "exit": lambda _: sys.exit(1),
            "drain": lambda _: self._drained.append(self._group.drain(20.0)),
        }
        self._group: Group

    # --- handlers ---

    def _slowly(self, message: Message) -> None:
        sleep(float(message.payload))
        self._messages.append(message)

    def _at_the_gate(self, message: Message) -> None:
        gate = message.payload.decode()
        self._inside[gate] += 1
        self._gates.setdefault(gate, Event()).wait(BOUND)
        self._messages.append(message)

    def _fence_within(self, message: Message) -> None:
        self._inside["fence"] += 1
        self._outcomes.append(as_json(self._group.processing_fence(message.payload.decode())))
        self._messages.append(message)

    def _gate_then_fence(self, message: Message) -> None:
        self._at_the_gate(message)
        self._fence_within(message)

    # --- coming and going ---

    def join(self, timeout: float = 10.0, secret: str = "", name: str = "") -> None:
        self._group = Group.join(
            name or self._name,
            address=self._address,
            secret=secret.encode() or self._secret,
            handlers=self._handlers,
            timeout=timeout,
        )

    def wait_for(self, names: list[str], timeout: float = 20.0) -> None:
        self._group.wait_for(names, timeout)

    def members(self) -> list[str]:
        return [member.name for member in self._group.members]

    def is_connected(self) -> bool:
        return self._group.is_connected

    def drain(self, timeout: float = 20.0) -> bool:
        return self._group.drain(timeout)

    def close(self) -> None:
        self._group.close()

    def configure(self, **timeouts: float) -> None:
        self._group.configure(Timeouts(**timeouts))

    # --- messages ---

    def publish(self, topic: str, payload: str = "", times: int = 1) -> int:
        return [self._group.publish(topic, payload.encode()) for _ in range(times)][-1]

    def publish_bytes(self, topic: str, size: int, times: int) -> int:
        return [self._group.publish(topic, bytes(size)) for _ in range(times)][-1]

    def send(self, to: str, topic: str, payload: str = "") -> int:
        return self._group.send(to, topic, payload.encode())

    def publish_until_refused(self, topic: str) -> None:
        """Publish for as long as this process is a member, connected or not."""
        while True:
            try:
                self._group.publish(topic)
            except Exception as error:
                if type(error).__name__ != "CoordinatorUnreachable":
                    raise

    def received(self) -> list[tuple[str, str, str]]:
        return [(it.sender, it.topic, it.payload.decode()) for it in self._messages]

    def counts(self) -> dict[str, int]:
        """Handled messages by sender."""
        return Counter(message.sender for message in self._messages)

    def are_in_order(self) -> bool:
        """Whether the messages came in the order and without the gaps that are promised."""
        by_sender: dict[str, list[int]] = {}
        for message in self._messages:
            by_sender.setdefault(message.sender, []).append(message.sent)
        places = [message.sequence for message in self._messages]
        in_order = all(sent == sorted(set(sent)) for sent in by_sender.values())
        return in_order and places == list(range(1, len(places) + 1))

    def release(self, gate: str) -> None:
        self._gates.setdefault(gate, Event()).set()

    def inside(self, gate: str) -> int:
        """How many handlers have come to this gate."""
        return self._inside[gate]

    def outcomes(self) -> list[dict[str, Any]]:
        """What handlers that fence have got."""
        return self._outcomes

    def drained(self) -> list[bool]:
        """How draining has ended in handlers."""
        return self._drained

    # --- barriers ---

    def barrier(
        self, name: str, require: int = 1, timeout: float | dict[str, float] | None = None
    ) -> dict[str, Any]:
        began = monotonic()
        it = self._group.barrier(name, require=Require(require), timeout=_timeouts(timeout))
        return as_json(it) | {"seconds": monotonic() - began}

    def raise_for_status(self, name: str) -> None:
        self._group.rendezvous(name).raise_for_status()

    def rounds(self, name: str, count: int, require: int = 0) -> list[dict[str, Any]]:
        """Call one barrier after the other."""
        return [self.barrier(f"{name} {number}", require) for number in range(count)]

    def storm(self, rounds: int, each: int, require: int) -> list[dict[str, Any]]:
        """Publish and fence, over and over; with each outcome, how much was handled by then."""
        line = []
        for number in range(rounds):
            for _ in range(each):
                self._group.publish("note", b"%d" % number)
            outcome = self.barrier(f"storm {number}", require)
            line.append(outcome | {"handled": dict(self.counts())})
        return line

    # --- the process ---

    def threads(self) -> list[str]:
        return sorted(thread.name for thread in threading.enumerate() if "group" in thread.name)

    def descriptors(self) -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def pid(self) -> int:
        return os.getpid()


def main(name: str, address: str, secret: str) -> None:
    """Run the commands of the test."""
    forward_events(logging.INFO)
    peer = Peer(name, address, secret)
    commands = [command for command in dir(peer) if not command.startswith("_")]
    run_commands({command: getattr(peer, command) for command in commands})
