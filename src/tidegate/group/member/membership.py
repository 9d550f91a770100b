"""The membership of a process: joining, the known members, and rejoining after a lost session."""

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
from tidegate.group.log_events import log, log_event
from tidegate.group.member.boot_ids import BootIds
from tidegate.group.member.handlers import Handlers, Message
from tidegate.group.member.handshake import Applicant
from tidegate.group.member.session import Session
from tidegate.group.protocol.fields import put_name
from tidegate.group.protocol.wire import BOOT, Configure, Drain, MemberInfo, RejectReason
from tidegate.group.status import Member, Timeouts

Handler = Callable[[Message], None]

JOIN_TIMEOUT = 10.0
"""Seconds for which a process tries to reach its coordinator."""
ATTEMPT_TIMEOUT = 5.0
"""Seconds that one attempt to join may take."""
RETRIES = Backoff(first=0.05, longest=1.0, jitter=0.0)
"""Pauses between two attempts."""


class Membership:
    """The successive sessions of one process, and its view of the group."""

    def __init__(
        self, name: str, address: Address, secret: bytes, handlers: Mapping[str, Handler] | None
    ) -> None:
        put_name(name)
        self.name = name
        self.handlers = dict(handlers or {})
        self._handler_queue = Handlers(self._handle)
        self.timeouts = Timeouts()
        self._applicant = Applicant(
            name, bytes(BOOT), os.getpid(), socket.gethostname(), secret, address
        )
        self._changed = Condition()
        self._members: dict[int, Member] = {}
        self._boot_ids = BootIds()
        self._session: Session | None = None
        self._final_error: GroupError | None = None
        self._is_draining = False
        self._closed = Event()

    def start(self, timeout: float) -> None:
        """Join, waiting for the coordinator if necessary, and rejoin after losses from then on."""
        until = monotonic() + timeout
        for pause in RETRIES.pauses():
            try:
                self._join(min(ATTEMPT_TIMEOUT, max(RETRIES.first, until - monotonic())))
            except CoordinatorUnreachable:
                if monotonic() + pause > until:
                    raise
                self._closed.wait(pause)
            else:
                Thread(target=self._keep_joined, name=f"group {self.name}", daemon=True).start()
                return

    # --- the view of the group ---

    @property
    def members(self) -> tuple[Member, ...]:
        """The present members, sorted by name."""
        with self._changed:
            return tuple(sorted(self._present(), key=lambda member: member.name))

    def wait_for(self, names: frozenset[str], timeout: float) -> None:
        """Wait until all named members are present."""

        def missing() -> list[str]:
            return sorted(names - {member.name for member in self._present()})

        with self._changed:
            if not self._wait_for(lambda: not missing() or self._is_finished, timeout):
                present = sorted(member.name for member in self._present())
                raise MembersMissing(listed(missing()), timeout, listed(present))
        self.check()

    def configure(self, timeouts: Timeouts) -> None:
        """Change the group's timeouts, and wait until this process has received the change."""
        session = self.session()
        session.send_control(Configure.to(timeouts))
        with self._changed:
            self._changed.wait_for(
                lambda: self.timeouts == timeouts or session.ended.is_set(), JOIN_TIMEOUT
            )
        if self.timeouts != timeouts and session.ended.is_set():
            self._raise_lost()

    def _on_update(self, update: MemberInfo | Configure) -> None:
        with self._changed:
            if isinstance(update, Configure):
                self.timeouts = update.timeouts
            else:
                self._apply_member_info(update)
            self._changed.notify_all()

    def _apply_member_info(self, info: MemberInfo) -> None:
        if info.is_present:
            self._members[info.instance] = info.member
        elif (known := self._members.get(info.instance)) and known.boot == info.boot:
            del self._members[info.instance]  # a newer boot of the instance stays

    def _present(self) -> Collection[Member]:
        """The members; empty while the coordinator is not connected."""
        return self._members.values() if self.is_connected else ()

    def _handle(self, message: Message) -> None:
        handler = self.handlers.get(message.topic)
        if handler is not None:
            handler(message)

    # --- sessions ---

    @property
    def is_connected(self) -> bool:
        """Whether there is an active session."""
        return self._active_session() is not None

    def check(self) -> None:
        """Raise if this process has left or was replaced."""
        if self._session is not None and self._session.end_reason is RejectReason.REPLACED:
            self._finish(MemberReplaced(self.name))
        if self._final_error is not None:
            raise self._final_error

    def session(self) -> Session:
        """The active session; raises `CoordinatorUnreachable`."""
        self.check()
        session = self._active_session()
        return session or self._raise_lost()

    def wait_for_session(self, timeout: float) -> Session | None:
        """The active session, if there is one in time."""
        self.check()
        session = self._active_session()
        if session is None:
            with self._changed:
                self._wait_for(lambda: self.is_connected or self._is_finished, timeout)
            self.check()
            session = self._active_session()
        return session

    def _active_session(self) -> Session | None:
        session = self._session
        return session if session is not None and not session.ended.is_set() else None

    def _raise_lost(self) -> NoReturn:
        self.check()
        raise CoordinatorUnreachable(str(self._applicant.address), "the connection was lost")

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        return self._changed.wait_for(condition, min(timeout, TIMEOUT_MAX))

    @property
    def _is_finished(self) -> bool:
        return self._final_error is not None

    def _join(self, timeout: float) -> None:
        before = self._session
        with self._changed:
            self._members.clear()
        boot = self._boot_ids.next(is_rejoin=before is not None)
        applicant = replace(self._applicant, boot=boot)
        session = Session(applicant, timeout, self._handler_queue, self._on_update)
        try:
            has_left = self._activate(session)
        except BaseException:
            session.end(None)
            session.close()
            raise
        if has_left:
            self._leave(session)
        elif self._is_draining:
            session.send_control(Drain())

    def _activate(self, session: Session) -> bool:
        """Start the session; whether this process has left meanwhile."""
        with self._changed:
            session.start()
            self._session = session
            self._changed.notify_all()
            return self._closed.is_set()

    def _keep_joined(self) -> None:
        """Rejoin whenever a session has ended, until this process leaves or is replaced."""
        while not (self._closed.is_set() or self._is_finished):
            session = self._session
            assert session is not None
            session.ended.wait()
            if self._closed.is_set():
                return
            with self._changed:
                self._changed.notify_all()
            session.close()
            log_event("group.lost", member=self.name, why=str(session.end_reason))
            if session.end_reason is RejectReason.REPLACED:
                self._finish(MemberReplaced(self.name))
                return
            self._rejoin()

    def _rejoin(self) -> None:
        pauses = RETRIES.pauses()
        pause = next(pauses)
        while not self._closed.wait(pause):
            try:
                self._join(ATTEMPT_TIMEOUT)
            except CoordinatorUnreachable:
                pause = next(pauses)
            except MemberReplaced as replaced:
                self._finish(replaced)
                return
            except NotAdmitted as refused:
                log.warning("%s", refused)
                pause = RETRIES.longest
            except Exception:  # noqa: BLE001  e.g. no thread can be started: retry
                log.exception("%s could not rejoin the group; retrying", self.name)
                pause = RETRIES.longest
            else:
                return

    # --- leaving ---

    def drain(self, timeout: float) -> bool:
        """Join no new round; whether the open rounds of this process end in time."""
        self._is_draining = True
        try:
            session = self.session()
            session.send_control(Drain())
        except CoordinatorUnreachable:
            return False
        return session.wait_idle(timeout) and not session.ended.is_set()

    def close(self) -> None:
        """Leave the group; there is no rejoin."""
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

    def _finish(self, error: GroupError) -> None:
        with self._changed:
            self._final_error = self._final_error or error
            self._changed.notify_all()
        self._handler_queue.close()
