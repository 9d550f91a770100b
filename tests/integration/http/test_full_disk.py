"""A client that fills the disk is refused before PostgreSQL has none left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import temporary_folder
from tests.integration.http.conftest import ANN, BEN, Answer, Asking
from tests.integration.http.sparkless import shop_without_spark
from tidegate.runtime.deployment import Deployment, open_deployment
from tidegate.spark.ingest.disk_space import reserve_of, space_at
from tidegate.store import EmbeddedPostgres

MEGABYTE = 1 << 20
SIZE = 512 * MEGABYTE
"""Of the disk: its reserve has room for a segment of PostgreSQL's log."""


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk that PostgreSQL's own user reaches."""
    with temporary_folder() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "tmpfs", str(folder)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("only root can mount a small disk")
        try:
            yield folder
            EmbeddedPostgres(folder / "postgres").wait_stopped()
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free_on(folder: Path) -> int:
    space = space_at(str(folder))
    assert space is not None
    return space.free


def filled_up_to(place: Deployment, left: int) -> None:
    """Leave so many bytes free."""
    with Path(place.root, "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, free_on(Path(place.root)) - left)


def noise(number: int, lines: int) -> bytes:
    """A chunk that hardly becomes smaller when it is stored."""
    rows = (f"{number},{(n * 2654435761 + number) % 2_000_000_000}" for n in range(lines))
    return ("item_id,quantity\n" + "\n".join(rows) + "\n").encode()


def test_a_client_that_fills_the_disk_is_refused_and_its_run_can_be_cancelled(
    small_disk: Path,
) -> None:
    with open_deployment(small_disk) as place, shop_without_spark(place) as listening:
        reserve = reserve_of(SIZE, place.settings.disk_reserve_bytes)
        filled_up_to(place, reserve + 12 * MEGABYTE)
        ann, ben = Asking(listening, ANN), Asking(listening, BEN)
        hostile = ann.run("everything")
        answers: list[Answer] = []
        number = 0
        for lines in (200_000, 20_000, 2_000):
            while not answers or answers[-1].status == 201:
                number += 1
                answers.append(hostile.put("sales", number, noise(number, lines)))
            refused = answers.pop()
            assert refused.refusal == (507, "SpaceReserved")
            assert str(small_disk) not in refused.json["message"]
        assert len(answers) >= 2, "some fit"
        assert free_on(small_disk) >= reserve * 0.9
        assert ben("GET", "/health").status == 200
        assert ben.run("little").get("/state").status == 200
        assert hostile.post("/cancel").status == 200
