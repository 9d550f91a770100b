"""What a client has in open runs is bounded, and the quota of one is not that of another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.integration.http.conftest import ANN, BEN, Asking, RunAsking
from tests.integration.http.sparkless import shop_without_spark
from tidegate.http import HttpAddress
from tidegate.runtime.deployment import Deployment

CHUNK = b"item_id,quantity\n" + b"1,2\n" * 100


@pytest.fixture
def listening(place: Deployment) -> Iterator[HttpAddress]:
    settings = replace(place.settings, client_open_runs=2, client_open_bytes=2_000)
    with shop_without_spark(replace(place, settings=settings)) as listening:
        yield listening


def test_a_client_has_so_many_open_runs(listening: HttpAddress) -> None:
    ann, ben = Asking(listening, ANN), Asking(listening, BEN)
    first, _ = ann.run("one"), ann.run("two")
    refused = ann("POST", "/pipelines/shop/runs", {"run": "three"})
    assert refused.refusal == (429, "OpenRunsExceeded")
    assert ann("POST", "/pipelines/shop/runs", {"run": "one"}).refusal == (409, "RunExists")
    ben.run("one").post("/cancel")
    assert first.post("/cancel").status == 200
    ann.run("three")
    for name in ("two", "three"):
        RunAsking(ann, name).post("/cancel")


def test_the_open_runs_of_a_client_have_so_many_bytes(listening: HttpAddress) -> None:
    ann, ben = Asking(listening, ANN), Asking(listening, BEN)
    mine, other = ann.run("four"), ben.run("four")
    statuses = [mine.put("sales", number, CHUNK).status for number in range(1, 7)]
    assert statuses[0] == 201
    assert statuses[-1] == 507
    refused = mine.put("sales", 9, CHUNK)
    assert refused.refusal == (507, "OpenBytesExceeded")
    assert refused.headers["retry-after"]
    assert other.put("sales", 1, CHUNK).status == 201
    for run in (mine, other):
        assert run.post("/cancel").status == 200
