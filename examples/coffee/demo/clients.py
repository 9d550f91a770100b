"""Clients of the demo: each makes its data, delivers it in numbered chunks, and closes it."""

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
"""Seconds after which a client stops waiting for the demo to let it go on."""


@dataclass(frozen=True)
class Client:
    """One client: its run's name and its files by source. Every file is a chunk."""

    name: str
    files: Mapping[str, Sequence[str]]
    repeats: bool = False
    """Delivers its first chunk a second time, as after an answer that got lost."""
    pauses: bool = False
    """Delivers half of its chunks, and the others when it may go on."""
    go_on: Event = field(default_factory=Event)

    @property
    def chunks(self) -> int:
        """How many it has in all."""
        return sum(map(len, self.files.values()))

    def deliver(self, server: RunService, output: DemoOutput) -> None:
        """Begin a run, deliver every chunk, and say how many each source has."""
        server.begin(self.name)
        for at, (source, number, file) in enumerate(self.numbered()):
            if self.pauses and at == self.chunks // 2:
                output.line(f"client {self.name}: {at} of {self.chunks} chunks are delivered")
                self.go_on.wait(PATIENCE)
            server.deliver(self.name, source, number, file)
        for source, files in self.files.items():
            server.end(self.name, source, chunks=len(files))
        output.line(f"client {self.name}: all {self.chunks} chunks are delivered, END follows them")
        if self.repeats:
            self._repeat(server, output)

    def _repeat(self, server: RunService, output: DemoOutput) -> None:
        source, number, file = next(self.numbered())
        is_new = server.deliver(self.name, source, number, file)
        known = "taken as a new one" if is_new else "it is known and changes nothing"
        output.line(f"client {self.name}: chunk {number} of {source} is delivered again: {known}")

    def numbered(self) -> Iterator[tuple[str, int, str]]:
        """The chunks of all sources in turn, so that no source is complete long before others."""
        longest = max(map(len, self.files.values()))
        for at in range(longest):
            for source, files in self.files.items():
                if at < len(files):
                    yield source, at + 1, files[at]


def make_client(
    name: str, size: Size, folder: Path, *, repeats: bool = False, pauses: bool = False
) -> Client:
    """A client with data of its own."""
    write(folder / name, size, seed=len(name))
    files = {
        source: sorted(str(file) for file in (folder / name / source).glob("*.csv"))
        for source in pipeline.sources
    }
    return Client(name, files, repeats, pauses)
