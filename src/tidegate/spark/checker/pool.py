"""A pool of chunk checkers: warm processes that check chunks, one each at a time.

    pool.check(asked) ──▶ an idle checker, or a new one ──▶ Copied | NeedsSpark, or an error

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
from tidegate.spark.checker.protocol import Copied, Failed, NeedsSpark, Refused
from tidegate.spark.ingest.parquet_files import size
from tidegate.spark.ingest.parquet_writer import remove_remains

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.settings import Settings
    from tidegate.spark.checker.protocol import Answer, Check

MOST_CHUNKS = 5000
"""After which a checker is replaced, whatever it may have kept."""
MOST_GROWN = 4
"""An idle checker may hold one part in so many of its memory; the rest is for the next chunk."""

_log = logging.getLogger(__name__)


class CheckerPool:
    """Checks chunks in other processes. Threads may share it."""

    def __init__(self, settings: Settings, program: Path = PROGRAM) -> None:
        self._program = program
        self.limits = ChunkLimits.from_settings(settings)
        # A delivery that may begin must not wait for a checker that another client has.
        self._most = max(1, settings.chunk_checkers, settings.http_deliveries)
        self._idle: list[Checker] = []
        self._every: set[Checker] = set()
        self._changed = Condition()
        self._is_closed = False
        self._at_exit = weakref.finalize(self, _end_all, self._every)

    @property
    def checkers(self) -> list[Checker]:
        """All that there are now, idle or at work."""
        with self._changed:
            return list(self._every)

    def warm(self) -> None:
        """Start a checker for the first chunk, unless there is one. Does not wait for it."""
        with self._changed:
            if self._every or self._is_closed:
                return
            try:
                self._idle.append(self._start())
            except NoChecker as reason:
                _log.warning("could not start a chunk checker: %s", reason)

    def check(self, asked: Check) -> Copied | NeedsSpark:
        """Check a chunk. Raises what is wrong with it, or what may be tried again."""
        sent = size(asked.file)
        seconds = self.limits.duration(sent)
        answer = self._try(asked, seconds, is_last=False) or self._try(asked, seconds, is_last=True)
        assert answer is not None, "the last try raises"
        return _taken(asked, answer)

    def close(self) -> None:
        """End all checkers at once; a chunk that is being checked may be delivered again."""
        with self._changed:
            self._is_closed = True
            self._idle.clear()
            self._changed.notify_all()
        _end_all(self._every)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── one try ──

    def _try(self, asked: Check, seconds: float, *, is_last: bool) -> Answer | None:
        """The answer of a checker; None if it was lost and the chunk is to be tried once more."""
        checker = self._borrow(asked, seconds, is_fresh=is_last)
        answer = None
        try:
            answer = checker.ask(asked, seconds)
        except CheckerSlow:
            raise ChunkTooSlow(asked.source, asked.file, seconds) from None
        except NoChecker as reason:
            if is_last:
                raise _unavailable(asked, f"a checker failed: {reason}") from reason
        except CheckerLost as lost:
            self._refuse_closed(asked)
            _log.warning("chunk checker %d ended by %s", checker.pid, lost)
            if is_last:
                raise ChunkCrashedChecker(asked.source, asked.file, str(lost)) from None
        finally:
            self._give_back(checker, is_running=answer is not None)
            if not isinstance(answer, Copied):
                remove_remains(asked.root, asked.name)
        return answer

    def _borrow(self, asked: Check, seconds: float, *, is_fresh: bool) -> Checker:
        deadline = monotonic() + 2 * seconds
        with self._changed:
            while not self._is_closed and not self._has_room():
                left = deadline - monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise _unavailable(asked, f"all {self._most} checkers are busy")
            self._refuse_closed(asked)
            if self._idle and not is_fresh:
                return self._idle.pop()
            if len(self._every) >= self._most:
                self._end(self._idle.pop())
            return self._started(asked)

    def _has_room(self) -> bool:
        return bool(self._idle) or len(self._every) < self._most

    def _started(self, asked: Check) -> Checker:
        try:
            return self._start()
        except NoChecker as reason:
            raise _unavailable(asked, str(reason)) from reason

    def _refuse_closed(self, asked: Check) -> None:
        if self._is_closed:
            raise _unavailable(asked, "the server is stopping")

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


def _unavailable(asked: Check, reason: str) -> CheckerUnavailable:
    return CheckerUnavailable(asked.source, asked.file, reason)


def _taken(asked: Check, answer: Answer) -> Copied | NeedsSpark:
    if isinstance(answer, Refused):
        raise answer.error
    if isinstance(answer, Failed):
        raise ChunkNotCopied(asked.source, asked.file, answer.condition, answer.reason)
    return answer


def _end_all(every: set[Checker]) -> None:
    while every:
        every.pop().end()
