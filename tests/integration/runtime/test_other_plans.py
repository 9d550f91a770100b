"""A run goes on under the plan it was begun with, or is restored under one that it fits."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.runtime.shop import BOUND, rows
from tidegate.errors import OtherPlan, StillServed
from tidegate.http.error_mapping import error_body, error_from_body
from tidegate.runtime.checkpoints.restore import restore
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.runtime.task_graph import build_task_graph
from tidegate.spark import Session, check
from tidegate.store import Database


def test_an_open_run_is_not_served_under_another_plan(
    database: Database, spark: Session, tmp_path: Path
) -> None:
    pipeline = tg.Pipeline("numbers", shards=2)
    pipeline.source("numbers", "number bigint").filter("number > 1").sink("large")
    place = Deployment(database, str(tmp_path))
    with serve(place, pipeline, spark) as service:
        service.server.begin("march")
    with pytest.raises(OtherPlan) as refused, serve(place, pipeline, spark, shards=3):
        pass
    assert refused.value.runs == "march"
    with serve(place, pipeline, spark) as service:
        service.server.end("march")
        assert service.server.wait("march", 60) == {"large": []}


def shop(least: int = 0, behind: int = 0) -> tg.Pipeline:
    """What was sold of each item, if it was much; and single sales."""
    pipeline = tg.Pipeline("shop", shards=2)
    sales = pipeline.source("sales", "item_id bigint, quantity int")
    sold = sales.filter(f"quantity > {least}").aggregate(by="item_id", sold="sum(quantity)")
    sold.filter(f"sold > {behind}").sink("best")
    sales.filter("quantity > 100").sink("bulk")
    return pipeline


class Seller:
    """Delivers chunks of sales to whoever serves them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, service: PipelineService, number: int, *sales: tuple[int, int]) -> None:
        file = self._folder / f"{number}.csv"
        lines = ["item_id,quantity", *(f"{item},{quantity}" for item, quantity in sales)]
        file.write_text("\n".join(lines) + "\n")
        service.server.deliver("march", "sales", number, str(file))


def test_a_run_is_restored_under_a_changed_declaration_or_the_difference_is_told(
    place: Deployment, spark: Session, tmp_path: Path
) -> None:
    sell = Seller(tmp_path)
    after = build_task_graph(check(shop(behind=10), spark).plan)
    with serve(place, shop(behind=1000), spark) as service:
        server = service.server
        server.begin("march")
        sell(service, 1, (1, 4), (2, 200), (3, 1))
        server.checkpoints.wait("march", server.checkpoints.begin("march"), BOUND)
        assert rows(spark, place, server.checkpoints.read("march").results["best"]) == []
        sell(service, 2, (1, 5))
        run = server.known("march")
        with pytest.raises(StillServed):
            restore(place, after, run)
        server.cancel("march")
    with serve(place, shop(least=1, behind=1000), spark) as service:
        with pytest.raises(OtherPlan) as refused:
            service.server.restore("march")
        assert refused.value.difference == ("filter quantity > 0 → filter quantity > 1",)
        assert refused.value.http_status == 409
        arrived = error_from_body(error_body(refused.value))
        assert isinstance(arrived, OtherPlan)
        assert arrived.difference == refused.value.difference
    assert restore(place, after, run).incarnation == 2
    with serve(place, shop(behind=10), spark) as service:
        sell(service, 3, (1, 3), (3, 300))
        service.server.end("march")
        final = service.server.wait("march", BOUND)
    assert sorted(rows(spark, place, final["best"])) == [(1, 12), (2, 200), (3, 301)]
    assert sorted(rows(spark, place, final["bulk"])) == [(2, 200), (3, 300)]
