"""Words that were given up do not come back: code and documents use those of docs/glossary.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GIVEN_UP = {
    "lane": "channel",
    "desk": "job batcher",
    "workshop": "processor factory",
    "company": "local cluster",
    "crew": "process supervisor",
    "colleague": "peer",
    "guilt": "failure classification",
    "guilty": "to blame: name the cause",
    "tending": "periodic task",
    "hurry": "run_now",
    "seat": "worker registration",
    "cutting": "checkpoints",
    "chief": "coordinator supervisor",
    "fronting": "serve_frontend",
    "untold": "store unavailable",
    "parked": "suspended",
    "roster": "member table",
    "sealed": "with a checksum",
    "anybody": "the thing that does it",
    "condense": "compact",
    "condensed": "compacted",
    "nobody": "the thing that is missing",
    "whoever": "the thing that does it",
    "somebody": "the thing that does it",
    "everybody": "all members, all tasks",
}
PLACES = ("src", "docs", "examples", "README.md", "CONTRIBUTING.md")
FILES = {".py", ".sql", ".md"}


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", *PLACES], cwd=ROOT, check=True, capture_output=True, text=True
    )
    found = (ROOT / name for name in listed.stdout.splitlines())
    return [it for it in found if it.suffix in FILES and it.is_file()]


@pytest.mark.parametrize("word", sorted(GIVEN_UP))
def test_a_word_that_was_given_up_is_not_used(word: str) -> None:
    pattern = re.compile(rf"(?<![a-z]){word}s?(?![a-z])", re.IGNORECASE)
    used = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    shown = "\n".join(used[:20])
    assert not used, f"write {GIVEN_UP[word]!r} instead of {word!r}:\n{shown}"
