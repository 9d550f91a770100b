"""How every benchmark measures and prints: in turns with its peer, medians, ratios first.

The machine is rarely alone. So each side runs several times, one after the other and in turns,
and the ratio is taken between neighbours, which had the same load.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from time import perf_counter

ROUNDS = 7
PEER_EFFORT = 5
"""How many times more the peer does per round: it is so fast that less would measure noise."""
HEADER = ("", "ratio", "half of all rounds", "Tidegate", "peer", "")


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that both sides do, ours `count` times per round."""

    title: str
    unit: str
    count: int
    ours: Callable[[int], None]
    peer: Callable[[int], None]
    against: str = "SimpleQueue"
    effort: int = PEER_EFFORT


@dataclass(frozen=True, slots=True)
class Result:
    """The result: units per second of both sides, and ours divided by the peer's."""

    title: str
    unit: str
    against: str
    ours: float
    peer: float
    ratio: float
    low: float
    high: float

    @property
    def row(self) -> tuple[str, ...]:
        """Its line of the table."""
        spread = f"{self.low:.2f} – {self.high:.2f}"
        return (
            self.title,
            f"{self.ratio:.2f} ×",
            spread,
            f"{self.ours:,.0f} {self.unit}/s",
            f"{self.peer:,.0f} {self.unit}/s",
            self.against,
        )


def measure(case: Case) -> Result:
    """Run both sides in turns, after one round each that does not count."""
    _, *pairs = [
        (_rate(case.ours, case.count), _rate(case.peer, case.count * case.effort))
        for _ in range(1 + ROUNDS)
    ]
    ratios = [ours / peer for ours, peer in pairs]
    low, _, high = quantiles(ratios, n=4)
    ours, peer = (median(side) for side in zip(*pairs, strict=True))
    return Result(case.title, case.unit, case.against, ours, peer, median(ratios), low, high)


def main(cases: Sequence[Case]) -> None:
    """Measure and print: a table, or JSON when `--json` is given."""
    results = [measure(case) for case in cases]
    if "--json" in sys.argv[1:]:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        _print_table([HEADER, *(result.row for result in results)])


def _rate(side: Callable[[int], None], count: int) -> float:
    started = perf_counter()
    side(count)
    return count / (perf_counter() - started)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for title, *figures, against in rows:
        cells = (cell.rjust(width) for cell, width in zip(figures, widths[1:-1], strict=True))
        print("  ".join((title.ljust(widths[0]), *cells, against)).rstrip())
