"""Clients of the demo: each generates its data, delivers it in numbered chunks, and ends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from tidegate_examples.coffee import pipeline
from tidegate_examples.coffee.data import Size, write

if TYPE_CHECKING:
    from tidegate.runtime.ingestion.run_service import RunService
    from tidegate_examples.demo_output import DemoOutput

PATIENCE = 300.0
"""Seconds after which a pausing client continues by itself."""


@dataclass(frozen=True)
class Client:
    """One client: the name of its run and its files by source. Every file is a chunk."""

    name: str
    files: Mapping[str, Sequence[str]]
    repeats: bool = False
    """Whether it delivers its first chunk twice, as after a lost response."""
    pauses: bool = False
    """Whether it delivers half of its chunks, and the others after `go_on` is set."""
    go_on: Event = field(default_factory=Event)

    @property
    def chunks(self) -> int:
        """The total number of its chunks."""
        return sum(map(len, self.files.values()))

    def deliver(self, server: RunService, output: DemoOutput) -> None:
        """Start a run, deliver every chunk, and declare the number of chunks of each source."""
        server.begin(self.name)
        for at, (source, number, file) in enumerate(self.numbered()):
            if self.pauses and at == self.chunks // 2:
                output.line(f"client {self.name}: delivered {at} of {self.chunks} chunks")
                self.go_on.wait(PATIENCE)
            server.deliver(self.name, source, number, file)
        for source, files in self.files.items():
            server.end(self.name, source, chunks=len(files))
        output.line(f"client {self.name}: delivered all {self.chunks} chunks, then END")
        if self.repeats:
            self._repeat(server, output)

    def _repeat(self, server: RunService, output: DemoOutput) -> None:
        source, number, file = next(self.numbered())
        is_new = server.deliver(self.name, source, number, file)
        effect = "accepted as new" if is_new else "recognized as a duplicate, no effect"
        output.line(f"client {self.name}: delivered chunk {number} of {source} again: {effect}")

    def numbered(self) -> Iterator[tuple[str, int, str]]:
        """The chunks of all sources in turn, so that they complete at about the same time."""
        longest = max(map(len, self.files.values()))
        for at in range(longest):
            for source, files in self.files.items():
                if at < len(files):
                    yield source, at + 1, files[at]


def make_client(
    name: str, size: Size, folder: Path, *, repeats: bool = False, pauses: bool = False
) -> Client:
    """A client with generated data."""
    write(folder / name, size, seed=len(name))
    files = {
        source: sorted(str(file) for file in (folder / name / source).glob("*.csv"))
        for source in pipeline.sources
    }
    return Client(name, files, repeats, pauses)
