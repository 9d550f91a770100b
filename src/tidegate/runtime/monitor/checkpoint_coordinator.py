"""The checkpoint coordinator triggers, advances, commits and aborts the checkpoints of all runs.

It is part of the monitor of a pipeline, under the same lease. It reads facts, lets
`tidegate.checkpoint` decide and writes the decision; after a takeover the facts are the same.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import tidegate
from tidegate.checkpoint import (
    Abort,
    ChangeState,
    Commit,
    Fail,
    NoAction,
    Trigger,
    Unalign,
    Verdict,
    decide,
    overdue,
)
from tidegate.dataflow import CheckpointId
from tidegate.errors import RunEnded
from tidegate.faults import crash_point
from tidegate.store import RunState, close_run, guard
from tidegate.store.checkpoints import checkpoints as checkpoint_store
from tidegate.store.checkpoints import unaligned
from tidegate.store.runs import retention

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.checkpoint import CheckpointFacts
    from tidegate.runtime.task.commit_rows import ChecksumFiles
    from tidegate.store import Connection, Database, FileChecksum, Lease, RunInfo

log = logging.getLogger(__name__)

VERSIONS = {"tidegate": tidegate.__version__, "pyspark": version("pyspark")}


class CheckpointCoordinator:
    """Coordinates the checkpoints of the runs of one pipeline."""

    def __init__(self, database: Database, pipeline: str, checksum: ChecksumFiles) -> None:
        self._database = database
        self._pipeline = pipeline
        self._checksum = checksum
        self._warned: dict[int, int] = {}
        """By run: the last checkpoint for which a warning was logged."""
        self.checkpoints = 0
        """Checkpoints that it has committed."""

    def look(self, lease: Lease) -> None:
        """Carry out all decisions that are due."""
        while self._decide_once(lease):
            pass

    def _decide_once(self, lease: Lease) -> bool:
        """One decision for each run; whether another may be due at once."""
        verdicts = []
        for run, facts in self._database.transact(
            lambda c: checkpoint_store.runs_to_checkpoint(c, self._pipeline)
        ):
            verdict = decide(facts)
            self._warn(run, facts)
            if isinstance(verdict, Commit) and facts.pending:
                verdict = self._checksums(lease, run, facts.pending.number)
            if not isinstance(verdict, NoAction):
                write = partial(self._write, lease=lease, run=run, facts=facts, verdict=verdict)
                self._database.transact(write)
                self._finish(run, facts, verdict)
                verdicts.append(verdict)
        return any(isinstance(verdict, ChangeState | Unalign) for verdict in verdicts)

    def _warn(self, run: RunInfo, facts: CheckpointFacts) -> None:
        """Log once for each checkpoint that is late, well before it is aborted."""
        late = overdue(facts)
        if late is None or facts.pending is None:
            return
        number = facts.pending.number
        if self._warned.get(run.id) != number:
            self._warned[run.id] = number
            log.warning("checkpoint %d of run %s is late: waiting for %s", number, run.name, late)

    def _checksums(self, lease: Lease, run: RunInfo, number: int) -> Commit | Abort:
        """Add the checksums of files of in-flight messages; tasks add those of their state."""
        found = self._database.transact(lambda c: unaligned.without_checksum(c, run, number))
        try:
            checksums = {position: self._checksum(files) for position, files in found.items()}
        except OSError as error:
            return Abort(f"files of in-flight messages cannot be read: {error}", "the storage")
        if checksums:
            self._database.transact(partial(self._write_checksums, lease, run, number, checksums))
        return Commit()

    def _write_checksums(
        self,
        lease: Lease,
        run: RunInfo,
        number: int,
        checksums: Mapping[int, Sequence[FileChecksum]],
        connection: Connection,
    ) -> None:
        guard(connection, lease)
        unaligned.checksum(connection, run, number, checksums)

    def _write(
        self,
        connection: Connection,
        lease: Lease,
        run: RunInfo,
        facts: CheckpointFacts,
        verdict: Verdict,
    ) -> None:
        guard(connection, lease)
        number = facts.pending.number if facts.pending else 0
        match verdict:
            case Trigger(is_unpublished, patience):
                with suppress(RunEnded):  # it was closed after its facts were read
                    checkpoint_id = CheckpointId.new()
                    checkpoint_store.trigger(
                        connection,
                        run,
                        checkpoint_id,
                        unpublished=is_unpublished,
                        alignment_timeout=patience,
                    )
            case ChangeState(to):
                checkpoint_store.advance(connection, run, number, to)
            case Unalign():
                unaligned.unalign(connection, run, number)
            case Commit():
                checkpoint_store.commit(connection, run, number, VERSIONS)
                retention.retire(connection, run, facts.checkpoints.retained)
            case Abort(reason, offender):
                checkpoint_store.abort(connection, run, number, reason, offender)
            case Fail(cause):
                close_run(connection, run, RunState.FAILED, cause)
            case NoAction():
                pass

    def _finish(self, run: RunInfo, facts: CheckpointFacts, verdict: Verdict) -> None:
        number = facts.pending.number if facts.pending else 0
        if isinstance(verdict, Commit):
            crash_point("checkpoint.commit.after_commit")
            self.checkpoints += 1
            self._database.transact(lambda c: retention.prune(c, run))
        elif isinstance(verdict, Abort):
            log.warning("checkpoint %d of run %s is aborted: %s (%s)",
                        number, run.name, verdict.reason, verdict.offender)  # fmt: skip
