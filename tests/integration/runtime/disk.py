"""A bench whose jobs write files, and a sweeper that removes those that nothing refers to.

A file contains names as rows. Reading a swept file gives a row that names it, so that results are
wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import cast
from zlib import crc32

from tests.integration.runtime.names import Bench, ManualJobBatcher, NamesProcessorFactory
from tidegate.dataflow import Batch
from tidegate.plan import PhysicalPlan
from tidegate.runtime.jobs.job_batcher import JobBatcher, ShardOutputs
from tidegate.spark import JobInput
from tidegate.store import files_named
from tidegate.store.runs import retention

_numbers = count(1)
"""Benches share a database, and no two may write the same file."""


@dataclass
class Disk:
    """The content of files; one that no job wrote is a chunk, and contains its own name."""

    written: dict[str, tuple[str, ...]] = field(default_factory=dict)
    swept: set[str] = field(default_factory=set)

    def write(self, rows: Iterable[str]) -> Batch:
        file = f"made {next(_numbers)}"
        self.written[file] = tuple(rows)
        return Batch((file,), len(self.written[file]))

    def read(self, file: str) -> tuple[str, ...]:
        return (f"{file} was swept",) if file in self.swept else self.written.get(file, (file,))


class WritingJobBatcher(ManualJobBatcher):
    """Reads files and writes others."""

    def __init__(self, shards: int | None, disk: Disk) -> None:
        super().__init__(shards)
        self._disk = disk

    def _outputs(self, job_input: JobInput) -> ShardOutputs:
        files = [file for its in job_input.inputs for batch in its for file in batch.files]
        rows = [row for file in files for row in self._disk.read(file)]
        if self._shards is None:
            return {None: self._disk.write(rows)} if rows else {}
        shards: dict[int | None, list[str]] = {}
        for row in rows:
            shards.setdefault(crc32(row.encode()) % self._shards, []).append(row)
        return {shard: self._disk.write(its) for shard, its in shards.items()}


class WritingProcessorFactory(NamesProcessorFactory):
    """The jobs of its processors write files."""

    def __init__(self, plan: PhysicalPlan, disk: Disk) -> None:
        super().__init__(plan)
        self._disk = disk

    def _batcher(self, shards: int | None) -> JobBatcher:
        batcher = WritingJobBatcher(shards, self._disk)
        self.batchers.append(batcher)
        return cast("JobBatcher", batcher)


@dataclass
class DiskBench(Bench):
    """One run of a pipeline on a disk."""

    disk: Disk = field(default_factory=Disk)

    def factory_of(self, plan: PhysicalPlan) -> NamesProcessorFactory:
        return WritingProcessorFactory(plan, self.disk)

    def names_in(self, batches: Sequence[Batch]) -> Counter[str]:
        files = super().names_in(batches).elements()
        return Counter(row for file in files for row in self.disk.read(file))

    def sweep(self) -> None:
        """Remove at once what the sweeper would remove of the open run later."""
        self.database.transact(lambda c: retention.prune(c, self.run, 0.0))
        every = self.database.transact(lambda c: retention.unused_files(c, seconds=0.0))
        noted = [(run, file) for run, file in every if run == self.run.id]
        named = self.database.transact(lambda c: files_named(c, {self.run.id}))
        self.disk.swept |= {file for _, file in noted if file not in named}
        self.database.transact(lambda c: retention.forget_unused(c, noted))

    def retire(self, retained: int) -> None:
        """Forget all but the last few cuts."""
        self.database.transact(lambda c: retention.retire(c, self.run, retained))

    @property
    def stranded(self) -> set[str]:
        """Files that jobs wrote, that nobody names and nobody has swept."""
        named = self.database.transact(lambda c: files_named(c, {self.run.id}))
        return self.disk.written.keys() - named - self.disk.swept
