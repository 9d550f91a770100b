"""The quick part of the crash kit for runs with checkpoints; `make chaos` does all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import temporary_folder
from tidegate.testing import CHECKPOINT_POINTS, Subject, checkpoint_trials

SALES = "item_id,quantity\n1,{}\n2,{}\n"
ITEMS = "item_id,item_name\n1,tea\n2,rice\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder


@pytest.fixture
def data(folder: Path) -> Path:
    """Sales in two chunks, and items."""
    for source, texts in {
        "items": [ITEMS],
        "sales": [SALES.format(7, 200), SALES.format(300, 4)],
    }.items():
        (folder / "data" / source).mkdir(parents=True)
        for number, text in enumerate(texts):
            (folder / "data" / source / f"{number}.csv").write_text(text)
    return folder / "data"


@pytest.mark.timeout(1500)
def test_a_run_with_checkpoints_that_is_killed_repeatedly_gives_the_same_results(
    folder: Path, data: Path
) -> None:
    subject = Subject("tests.crash.shop:pipeline", data, folder)
    none, trial = checkpoint_trials(subject)
    assert (none.kills, trial.kills) == (0, len(CHECKPOINT_POINTS))
