"""Shared parts of the commands for deployment processes: signals, and joining the group."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.errors import CoordinatorUnreachable, NotAdmitted

if TYPE_CHECKING:
    from tidegate.runtime.cluster.peer import GroupPeer
    from tidegate.runtime.cluster.roles import Role

log = logging.getLogger(__name__)

GroupAddress = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="The group's address, if it is not in the deployment's folder. The secret is read from"
        " TIDEGATE_SECRET.",
        metavar="ADDRESS",
        show_default=False,
    ),
]
ProcessName = Annotated[
    str | None,
    typer.Option("--name", help="The name of this process in the group.", show_default=False),
]
Stages = Annotated[
    str | None,
    typer.Option(
        "--stages",
        help="Run only these stages of the plan, such as s1,s2; other workers run the rest.",
        metavar="LIST",
        show_default=False,
    ),
]
WithParent = Annotated[
    bool, typer.Option("--with-parent", hidden=True, help="End when standard input is closed.")
]


def listed_stages(stages: str | None) -> tuple[str, ...]:
    """The names in a comma-separated list.

    >>> listed_stages("s1, s2")
    ('s1', 's2')
    """
    return tuple(name.strip() for name in (stages or "").split(",") if name.strip())


def stop_event(*, with_parent: bool = False, by_interrupt: bool = False) -> Event:
    """An event that is set by SIGTERM, and `with_parent` when the parent process ends.

    Ctrl-C sets it `by_interrupt`, and otherwise from `run_role` on: before that there is no work to
    finish, so it ends the process at once.
    """
    stopped = Event()
    _set_on_signal(signal.SIGTERM, stopped)
    if by_interrupt:
        _set_on_signal(signal.SIGINT, stopped)
    if with_parent:
        Thread(target=_watch_parent, args=(stopped,), daemon=True).start()
    return stopped


def _set_on_signal(number: signal.Signals, stopped: Event) -> None:
    signal.signal(number, lambda *_: stopped.set())


def _watch_parent(stopped: Event) -> None:
    # Not through sys.stdin: a thread blocked in it would keep this process from ending.
    while os.read(0, 4096):
        pass
    stopped.set()


def process_name(name: str | None, role: str) -> str:
    """The given name of a process, or a unique one."""
    return name or f"{role}-{socket.gethostname()[:32]}-{os.getpid()}"


def refuse_taken_name(
    folder: Path, address: str | None, name: str | None, *, with_parent: bool
) -> None:
    """Raise `NameTaken` if a running process of the deployment has the given name.

    A process that `up` starts may take over a name: at most one other process has it, left from an
    earlier `up`, which hands over and ends.
    """
    from tidegate.runtime.cluster.discovery import find
    from tidegate.runtime.cluster.membership_probe import refuse_used_name

    group = find(folder, address)
    if group is not None and name is not None and not with_parent:
        with suppress(CoordinatorUnreachable, NotAdmitted):  # reported by joining
            refuse_used_name(group, name)


@contextmanager
def join_as_peer(folder: Path, address: str | None, name: str) -> Iterator[GroupPeer | None]:
    """This process as a member of its deployment's group; None if there is no group."""
    from tidegate.runtime.cluster.discovery import find
    from tidegate.runtime.cluster.peer import GroupPeer

    group = find(folder, address)
    if group is None:
        yield None
        return
    try:
        peer = GroupPeer.join(name, group)
    except (CoordinatorUnreachable, NotAdmitted) as error:
        if address is not None:
            raise
        log.warning("%s runs without its group: %s", name, error)
        yield None
        return
    try:
        yield peer
    finally:
        peer.group.close()


def run_role(
    role: Role, peer: GroupPeer | None, stopped: Event, say: Callable[[str], None]
) -> None:
    """Run a role until it is stopped or drained, and print the outcome."""
    from tidegate.runtime.cluster.roles import run_until_stopped

    _set_on_signal(signal.SIGINT, stopped)
    name = f" as {peer.name}" if peer is not None else ""
    say(f"running{name}; stop with Ctrl-C")
    if run_until_stopped(role, peer, stopped):
        say("all running jobs were finished and their tasks handed over")
    else:
        say("some running jobs were not finished in time; other workers repeat them")
