"""A few of the chunks that `make fuzz` delivers."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.chunks import TAKEN, fuzzing, no_session
from tidegate.store import Database

INPUTS = range(300)


def test_damaged_chunks_get_named_answers_and_the_server_stays_small(
    tmp_path: Path, database: Database
) -> None:
    with fuzzing(database, tmp_path, no_session, seed=7) as fuzz:
        fuzz.run(INPUTS)
    assert fuzz.counters.wrong == []
    assert sum(fuzz.counters.answers.values()) == len(INPUTS)
    assert fuzz.counters.answers["good", TAKEN] > 0
