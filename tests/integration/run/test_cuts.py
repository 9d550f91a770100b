"""Cuts of a run that goes on: all sinks at one point, whatever comes behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.run.shop import BOUND, Client, Row, ask, rows
from tests.waiting import wait_until
from tidegate.checkpoint import CheckpointState, Cutting
from tidegate.errors import CheckpointAborted, NoSuchCut, NothingToCut
from tidegate.run.cuts import Cut
from tidegate.run.deployment import Deployment
from tidegate.run.service import Service
from tidegate.spark import Session
from tidegate.store import cuts


def shown(spark: Session, place: Deployment, cut: Cut) -> dict[str, list[Row]]:
    return {sink: sorted(rows(spark, place, its)) for sink, its in cut.results.items()}


def take(service: Service, client: Client) -> Cut:
    number = service.server.cuts.begin(client.run)
    return service.server.cuts.wait(client.run, number, BOUND)


def test_every_cut_shows_all_sinks_at_one_point(
    common: Service, common_place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = Client(common.server, "dripping", tmp_path)
    client.items(1, (1, "tea"), (2, "rice"))
    client.sales(1, (1, 7), (2, 200))
    first = take(common, client)
    client.sales(2, (1, 300))
    second = take(common, client)
    client.sales(3, (2, 400))
    client.end()
    final = client.wait()

    assert shown(spark, common_place, first) == {"best": [("rice", 200_000)], "bulk": [(2, 200)]}
    assert shown(spark, common_place, second) == {
        "best": [("tea", 307_000)],
        "bulk": [(1, 300), (2, 200)],
    }
    assert sorted(rows(spark, common_place, final["bulk"])) == [(1, 300), (2, 200), (2, 400)]
    assert rows(spark, common_place, final["best"]) == [("rice", 600_000)]
    again = common.server.cuts.read(client.run, first.number)
    assert shown(spark, common_place, again) == shown(spark, common_place, first)
