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
    import tidegate as tg
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

    def deliver(self, run: tg.Run, output: DemoOutput) -> None:
        """Deliver every chunk, then declare the number of chunks of each source."""
        for at, (source, number, file) in enumerate(self.numbered()):
            if self.pauses and at == self.chunks // 2:
                output.line(f"client {self.name}: delivered {at} of {self.chunks} chunks")
                self.go_on.wait(PATIENCE)
            run.put(source, file, chunk=number)
        if self.repeats:
            self._repeat(run, output)
        for source, files in self.files.items():
            run.end(source, chunks=len(files))
        output.line(f"client {self.name}: delivered all {self.chunks} chunks, then END")

    def _repeat(self, run: tg.Run, output: DemoOutput) -> None:
        source, number, file = next(self.numbered())
        run.put(source, file, chunk=number)
        delivered = sum(each.delivered for each in run.status().sources)
        output.line(
            f"client {self.name}: delivered chunk {number} of {source} again;"
            f" the run has {delivered} of {self.chunks} chunks: a repetition has no effect"
        )

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
