"""A pool of chunk checkers: warm processes that check chunks, one each at a time.

    pool.check(request) ──▶ an idle checker, or a new one ──▶ Copied | NeedsSpark, or an error

A checker that crashes is replaced. Its chunk is tried once more, on a checker that has read no
other chunk: a second crash is caused by the chunk. Processes are started when a chunk needs them
and end with the pool, or with the process that the pool is in.
"""

from __future__ import annotations

import logging
import weakref
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Self

from tidegate.errors import (
    CheckerUnavailable,
    ChunkCrashedChecker,
    ChunkNotCopied,
    ChunkTooSlow,
)
from tidegate.spark.checker.limits import ChunkLimits
from tidegate.spark.checker.process import PROGRAM, Checker, CheckerLost, CheckerSlow, NoChecker
from tidegate.spark.checker.protocol import CheckFailed, ChunkRefused, Copied, NeedsSpark
from tidegate.spark.ingest.parquet_files import size
from tidegate.spark.ingest.parquet_writer import remove_leftovers

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.settings import Settings
    from tidegate.spark.checker.protocol import Answer, Check

MOST_CHUNKS = 5000
"""Chunks after which a checker is replaced, to bound leaks."""
MOST_GROWN = 4
"""An idle checker may use this fraction (1/n) of its memory; the rest is for the next chunk."""

_log = logging.getLogger(__name__)


class CheckerPool:
    """Checks chunks in other processes. Threads may share it."""

    def __init__(self, settings: Settings, program: Path = PROGRAM) -> None:
        self._program = program
        self.limits = ChunkLimits.from_settings(settings)
        # A delivery that is admitted must not wait for a checker of another client.
        self._most = max(1, settings.chunk_checkers, settings.http_deliveries)
        self._idle: list[Checker] = []
        self._every: set[Checker] = set()
        self._changed = Condition()
        self._is_closed = False
        self._at_exit = weakref.finalize(self, _end_all, self._every)

    @property
    def checkers(self) -> list[Checker]:
        """All current checkers, idle or busy."""
        with self._changed:
            return list(self._every)

    def warm(self) -> None:
        """Start a checker for the first chunk, unless there is one; returns at once."""
        with self._changed:
            if self._every or self._is_closed:
                return
            try:
                self._idle.append(self._start())
            except NoChecker as reason:
                _log.warning("could not start a chunk checker: %s", reason)

    def check(self, request: Check) -> Copied | NeedsSpark:
        """Check a chunk. Raises its error, or one that may be retried."""
        sent = size(request.file)
        seconds = self.limits.duration(sent)
        answer = self._try(request, seconds, is_last=False) or self._try(
            request, seconds, is_last=True
        )
        assert answer is not None, "the last try raises"
        return _checked(request, answer)

    def close(self) -> None:
        """End all checkers; a chunk that is being checked may be delivered again."""
        with self._changed:
            self._is_closed = True
            self._idle.clear()
            self._changed.notify_all()
        _end_all(self._every)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── one attempt ──

    def _try(self, request: Check, seconds: float, *, is_last: bool) -> Answer | None:
        """The answer of a checker; None if it crashed and the chunk is to be tried once more."""
        checker = self._borrow(request, seconds, is_fresh=is_last)
        answer = None
        try:
            answer = checker.ask(request, seconds)
        except CheckerSlow:
            raise ChunkTooSlow(request.source, request.file, seconds) from None
        except NoChecker as reason:
            if is_last:
                raise _unavailable(request, f"a checker failed: {reason}") from reason
        except CheckerLost as lost:
            self._refuse_closed(request)
            _log.warning("chunk checker %d ended by %s", checker.pid, lost)
            if is_last:
                raise ChunkCrashedChecker(request.source, request.file, str(lost)) from None
        finally:
            self._give_back(checker, is_running=answer is not None)
            if not isinstance(answer, Copied):
                remove_leftovers(request.root, request.name)
        return answer

    def _borrow(self, request: Check, seconds: float, *, is_fresh: bool) -> Checker:
        deadline = monotonic() + 2 * seconds
        with self._changed:
            while not self._is_closed and not self._is_available():
                left = deadline - monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise _unavailable(request, f"all {self._most} checkers are busy")
            self._refuse_closed(request)
            if self._idle and not is_fresh:
                return self._idle.pop()
            if len(self._every) >= self._most:
                self._end(self._idle.pop())
            return self._started(request)

    def _is_available(self) -> bool:
        return bool(self._idle) or len(self._every) < self._most

    def _started(self, request: Check) -> Checker:
        try:
            return self._start()
        except NoChecker as reason:
            raise _unavailable(request, str(reason)) from reason

    def _refuse_closed(self, request: Check) -> None:
        if self._is_closed:
            raise _unavailable(request, "the server is stopping")

    def _give_back(self, checker: Checker, *, is_running: bool) -> None:
        with self._changed:
            if is_running and not self._is_closed and self._is_usable(checker):
                self._idle.append(checker)
            else:
                self._end(checker)
            self._changed.notify()

    def _is_usable(self, checker: Checker) -> bool:
        most = self.limits.memory_bytes // MOST_GROWN
        is_new = checker.chunks < MOST_CHUNKS and not checker.is_slowed
        return is_new and checker.grown() < most

    def _start(self) -> Checker:
        started = Checker(self.limits, self._program)
        self._every.add(started)
        return started

    def _end(self, checker: Checker) -> None:
        self._every.discard(checker)
        checker.end()


def _unavailable(request: Check, reason: str) -> CheckerUnavailable:
    return CheckerUnavailable(request.source, request.file, reason)


def _checked(request: Check, answer: Answer) -> Copied | NeedsSpark:
    if isinstance(answer, ChunkRefused):
        raise answer.error
    if isinstance(answer, CheckFailed):
        raise ChunkNotCopied(request.source, request.file, answer.condition, answer.reason)
    return answer


def _end_all(every: set[Checker]) -> None:
    while every:
        every.pop().end()
