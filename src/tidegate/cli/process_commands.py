"""What the commands of a deployment's processes share: signals, and joining the group."""

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
        help="The group's address, when the deployment's folder does not tell. The secret comes"
        " in TIDEGATE_SECRET.",
        metavar="ADDRESS",
        show_default=False,
    ),
]
ProcessName = Annotated[
    str | None,
    typer.Option("--name", help="What this process is called in the group.", show_default=False),
]
Stages = Annotated[
    str | None,
    typer.Option(
        "--stages",
        help="Run only these stages of the plan, such as s1,s2; others have to run the rest.",
        metavar="LIST",
        show_default=False,
    ),
]
WithParent = Annotated[
    bool, typer.Option("--with-parent", hidden=True, help="End when standard input is closed.")
]


def listed_stages(stages: str | None) -> tuple[str, ...]:
    """As they were written.

    >>> listed_stages("s1, s2")
    ('s1', 's2')
    """
    return tuple(it.strip() for it in (stages or "").split(",") if it.strip())


def stop_event(*, with_parent: bool = False, by_interrupt: bool = False) -> Event:
    """Set by SIGTERM, or the death of whoever started this process.

    Ctrl-C sets it as well `by_interrupt`, or else once this process stands at its post: before that
    there is nothing to finish, so it ends the process at once.
    """
    stopped = Event()
    _set_on_signal(signal.SIGTERM, stopped)
    if by_interrupt:
        _set_on_signal(signal.SIGINT, stopped)
    if with_parent:
        Thread(target=_watch_parent, args=(stopped,), daemon=True).start()
    return stopped


def _set_on_signal(asked: signal.Signals, stopped: Event) -> None:
    signal.signal(asked, lambda *_: stopped.set())


def _watch_parent(stopped: Event) -> None:
    # Not through sys.stdin: a thread that waits in it would keep this process from ending.
    while os.read(0, 4096):
        pass
    stopped.set()


def process_name(name: str | None, role: str) -> str:
    """What a process of a deployment is called: as it was told, or as no other is."""
    return name or f"{role}-{socket.gethostname()[:32]}-{os.getpid()}"


def refuse_taken_name(
    folder: Path, address: str | None, name: str | None, *, with_parent: bool
) -> None:
    """Raise `NameTaken` if a living process of the deployment has the name that was given.

    Whoever `up` starts may have it: that is one of a kind, and what is left of an earlier crew
    hands over and ends.
    """
    from tidegate.runtime.cluster.discovery import find
    from tidegate.runtime.cluster.membership_probe import refuse_used_name

    place = find(folder, address)
    if place is not None and name is not None and not with_parent:
        with suppress(CoordinatorUnreachable, NotAdmitted):  # joining says so
            refuse_used_name(place, name)


@contextmanager
def join_as_peer(folder: Path, address: str | None, name: str) -> Iterator[GroupPeer | None]:
    """This process in the group of its deployment, if that has one."""
    from tidegate.runtime.cluster.discovery import find
    from tidegate.runtime.cluster.peer import GroupPeer

    place = find(folder, address)
    if place is None:
        yield None
        return
    try:
        peer = GroupPeer.join(name, place)
    except (CoordinatorUnreachable, NotAdmitted) as trouble:
        if address is not None:
            raise
        log.warning("%s works without its group: %s", name, trouble)
        yield None
        return
    try:
        yield peer
    finally:
        peer.group.close()


def run_role(
    duty: Role, peer: GroupPeer | None, stopped: Event, say: Callable[[str], None]
) -> None:
    """Stand at a post until told to go, and say how that went."""
    from tidegate.runtime.cluster.roles import run_until_stopped

    _set_on_signal(signal.SIGINT, stopped)
    who = f" as {peer.name}" if peer is not None else ""
    say(f"at work{who}; stop with Ctrl-C")
    if run_until_stopped(duty, peer, stopped):
        say("everything at work was finished and handed over")
    else:
        say("not everything at work was finished in time; others will do it again")
