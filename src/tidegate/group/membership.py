"""How a process stays in its group: it joins, hears who is here, and joins again after a loss."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from threading import TIMEOUT_MAX, Condition, Event, Thread
from time import monotonic
from typing import NoReturn

from tidegate.backoff import Backoff
from tidegate.errors import (
    CoordinatorUnreachable,
    GroupError,
    LeftTheGroup,
    MemberReplaced,
    MembersMissing,
    NotAdmitted,
    listed,
)
from tidegate.group.address import Address
from tidegate.group.boot_ids import BootIds
from tidegate.group.fields import put_name
from tidegate.group.handlers import Handlers, Message
from tidegate.group.handshake import Applicant
from tidegate.group.log_events import log, tell
from tidegate.group.session import Session
from tidegate.group.status import Member, Timeouts
from tidegate.group.wire import BOOT, About, Configure, Drain, Reason

Handler = Callable[[Message], None]

JOINING = 10.0
"""Seconds for which a process looks for its coordinator before it gives up."""
ATTEMPT = 5.0
"""Seconds that one attempt to be admitted may take."""
RETRIES = Backoff(first=0.05, longest=1.0, jitter=0.0)
"""Seconds between two attempts."""


class Membership:
    """The sessions of one process, one after the other, and what it has heard of the group."""

    def __init__(
        self, name: str, address: Address, secret: bytes, handlers: Mapping[str, Handler] | None
    ) -> None:
        put_name(name)
        self.name = name
        self.handlers = dict(handlers or {})
        self._at_work = Handlers(self._handle)
        self.timeouts = Timeouts()
        self._applicant = Applicant(
            name, bytes(BOOT), os.getpid(), socket.gethostname(), secret, address
        )
        self._changed = Condition()
        self._here: dict[int, Member] = {}
        self._lives = BootIds()
        self._session: Session | None = None
        self._end: GroupError | None = None
        self._is_draining = False
        self._closed = Event()

    def begin(self, timeout: float) -> None:
        """Join, waiting for the coordinator if it is not there yet, and stay from then on."""
        until = monotonic() + timeout
        for pause in RETRIES.pauses():
            try:
                self._join(min(ATTEMPT, max(RETRIES.first, until - monotonic())))
            except CoordinatorUnreachable:
                if monotonic() + pause > until:
                    raise
                self._closed.wait(pause)
            else:
                Thread(target=self._stay, name=f"group {self.name}", daemon=True).start()
                return

    # --- what is heard ---

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is here, by name."""
        with self._changed:
            return tuple(sorted(self._present(), key=lambda it: it.name))

    def wait_for(self, names: frozenset[str], timeout: float) -> None:
        """Wait until all of these are here."""

        def missing() -> list[str]:
            return sorted(names - {it.name for it in self._present()})

        with self._changed:
            if not self._wait_for(lambda: not missing() or self._is_over, timeout):
                present = sorted(it.name for it in self._present())
                raise MembersMissing(listed(missing()), timeout, listed(present))
        self.check()

    def configure(self, timeouts: Timeouts) -> None:
        """Change the group's timeouts, and wait until this process has heard of it."""
        session = self.session()
        session.say(Configure.to(timeouts))
        with self._changed:
            self._changed.wait_for(
                lambda: self.timeouts == timeouts or session.over.is_set(), JOINING
            )
        if self.timeouts != timeouts and session.over.is_set():
            self._raise_lost()

    def _hear(self, what: About | Configure) -> None:
        with self._changed:
            if isinstance(what, Configure):
                self.timeouts = what.timeouts
            else:
                self._note(what)
            self._changed.notify_all()

    def _note(self, about: About) -> None:
        if about.is_here:
            self._here[about.instance] = about.member
        elif (known := self._here.get(about.instance)) and known.boot == about.boot:
            del self._here[about.instance]  # and not when a younger life of it is here

    def _present(self) -> Collection[Member]:
        """Nobody, while there is nobody to say so."""
        return self._here.values() if self.is_connected else ()

    def _handle(self, message: Message) -> None:
        handler = self.handlers.get(message.topic)
        if handler is not None:
            handler(message)

    # --- sessions ---

    @property
    def is_connected(self) -> bool:
        """Whether there is a session at the moment."""
        return self._live() is not None

    def check(self) -> None:
        """Raise if this process is a member no more."""
        if self._session is not None and self._session.ended_by is Reason.REPLACED:
            self._finish(MemberReplaced(self.name))
        if self._end is not None:
            raise self._end

    def session(self) -> Session:
        """The session at work, or `CoordinatorUnreachable`."""
        self.check()
        session = self._live()
        return session or self._raise_lost()

    def wait_for_session(self, timeout: float) -> Session | None:
        """The session at work, if there is one in time."""
        self.check()
        session = self._live()
        if session is None:
            with self._changed:
                self._wait_for(lambda: self.is_connected or self._is_over, timeout)
            self.check()
            session = self._live()
        return session

    def _live(self) -> Session | None:
        session = self._session
        return session if session is not None and not session.over.is_set() else None

    def _raise_lost(self) -> NoReturn:
        self.check()
        raise CoordinatorUnreachable(str(self._applicant.address), "the connection was lost")

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        return self._changed.wait_for(condition, min(timeout, TIMEOUT_MAX))

    @property
    def _is_over(self) -> bool:
        return self._end is not None

    def _join(self, timeout: float) -> None:
        before = self._session
        with self._changed:
            self._here.clear()
        boot = self._lives.next(is_again=before is not None)
        who = replace(self._applicant, boot=boot)
        session = Session(who, timeout, self._at_work, self._hear)
        try:
            is_late = self._begin(session)
        except BaseException:
            session.end(None)
            session.close()
            raise
        if is_late:
            self._leave(session)
        elif self._is_draining:
            session.say(Drain())

    def _begin(self, session: Session) -> bool:
        """Be a member by it; whether this process has left meanwhile."""
        with self._changed:
            session.start()
            self._session = session
            self._changed.notify_all()
            return self._closed.is_set()

    def _stay(self) -> None:
        """Join again whenever a session has ended, until this process leaves or is replaced."""
        while not (self._closed.is_set() or self._is_over):
            session = self._session
            assert session is not None
            session.over.wait()
            if self._closed.is_set():
                return
            with self._changed:
                self._changed.notify_all()
            session.close()
            tell("group.lost", member=self.name, why=str(session.ended_by))
            if session.ended_by is Reason.REPLACED:
                self._finish(MemberReplaced(self.name))
                return
            self._join_again()

    def _join_again(self) -> None:
        pauses = RETRIES.pauses()
        pause = next(pauses)
        while not self._closed.wait(pause):
            try:
                self._join(ATTEMPT)
            except CoordinatorUnreachable:
                pause = next(pauses)
            except MemberReplaced as replaced:
                self._finish(replaced)
                return
            except NotAdmitted as refused:
                log.warning("%s", refused)
                pause = RETRIES.longest
            except Exception:  # noqa: BLE001  a process that lacks something for a moment
                log.exception("%s could not join the group again", self.name)
                pause = RETRIES.longest
            else:
                return

    # --- going ---

    def drain(self, timeout: float) -> bool:
        """Take part in nothing new; whether the open rounds of this process end in time."""
        self._is_draining = True
        try:
            session = self.session()
            session.say(Drain())
        except CoordinatorUnreachable:
            return False
        return session.wait_idle(timeout) and not session.over.is_set()

    def close(self) -> None:
        """Leave, for good."""
        with self._changed:
            is_first = not self._closed.is_set()
            self._closed.set()
            session = self._session
        self._finish(LeftTheGroup(self.name))
        if is_first and session is not None:
            self._leave(session)

    def _leave(self, session: Session) -> None:
        session.leave()
        session.close()

    def _finish(self, end: GroupError) -> None:
        with self._changed:
            self._end = self._end or end
            self._changed.notify_all()
        self._at_work.close()
