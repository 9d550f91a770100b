"""The coordinator of checkpoints: triggers, moves on, commits and gives up those of all runs.

It is part of whoever watches a pipeline, under the same lease. It observes facts, lets
`tidegate.checkpoint` decide and writes the verdict; whoever takes over sees the same facts.
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
    """Looks after the checkpoints of one pipeline's runs."""

    def __init__(self, database: Database, pipeline: str, checksum: ChecksumFiles) -> None:
        self._database = database
        self._pipeline = pipeline
        self._checksum = checksum
        self._warned: dict[int, int] = {}
        """By run the last checkpoint that somebody was warned of."""
        self.checkpoints = 0
        """How many it has committed."""

    def look(self, lease: Lease) -> None:
        """Do what is due, until nothing is."""
        while self._turn(lease):
            pass

    def _turn(self, lease: Lease) -> bool:
        """One verdict for each run; whether there may be another at once."""
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
                self._tell(run, facts, verdict)
                verdicts.append(verdict)
        return any(isinstance(verdict, ChangeState | Unalign) for verdict in verdicts)

    def _warn(self, run: RunInfo, facts: CheckpointFacts) -> None:
        """Once for each checkpoint, well before it is given up."""
        late = overdue(facts)
        if late is None or facts.pending is None:
            return
        number = facts.pending.number
        if self._warned.get(run.id) != number:
            self._warned[run.id] = number
            log.warning("checkpoint %d of run %s is late, and waits for %s", number, run.name, late)

    def _checksums(self, lease: Lease, run: RunInfo, number: int) -> Commit | Abort:
        """Files that tasks keep are sealed by them, those of what was on its way by nobody."""
        found = self._database.transact(lambda c: unaligned.without_checksum(c, run, number))
        try:
            checksums = {place: self._checksum(files) for place, files in found.items()}
        except OSError as trouble:
            return Abort(f"what was on its way cannot be sealed: {trouble}", "the storage")
        if checksums:
            self._database.transact(partial(self._write_seals, lease, run, number, checksums))
        return Commit()

    def _write_seals(
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
                with suppress(RunEnded):  # by somebody else, since it was looked at
                    wanted = CheckpointId.new()
                    checkpoint_store.trigger(
                        connection, run, wanted, unpublished=is_unpublished, patience=patience
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

    def _tell(self, run: RunInfo, facts: CheckpointFacts, verdict: Verdict) -> None:
        number = facts.pending.number if facts.pending else 0
        if isinstance(verdict, Commit):
            crash_point("checkpoint.commit.after_commit")
            self.checkpoints += 1
            self._database.transact(lambda c: retention.prune(c, run))
        elif isinstance(verdict, Abort):
            log.warning("checkpoint %d of run %s is given up: %s (%s)",
                        number, run.name, verdict.reason, verdict.offender)  # fmt: skip
