"""The quick part of the crash kit for runs that are cut; `make chaos` does all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import temporary_folder
from tidegate.testing import IN_TURN, Subject, chaos_of_checkpoints

SALES = "item_id,quantity\n1,{}\n2,{}\n"
ITEMS = "item_id,item_name\n1,tea\n2,rice\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder


@pytest.fixture
def data(folder: Path) -> Path:
    """What the shop sells, in two chunks."""
    for source, texts in {
        "items": [ITEMS],
        "sales": [SALES.format(7, 200), SALES.format(300, 4)],
    }.items():
        (folder / "data" / source).mkdir(parents=True)
        for number, text in enumerate(texts):
            (folder / "data" / source / f"{number}.csv").write_text(text)
    return folder / "data"


@pytest.mark.timeout(1500)
def test_a_run_that_is_cut_and_dies_again_and_again_gives_the_same_results(
    folder: Path, data: Path
) -> None:
    subject = Subject("tests.crash.shop:pipeline", data, folder)
    none, trial = chaos_of_checkpoints(subject)
    assert (none.deaths, trial.deaths) == (0, len(IN_TURN))
