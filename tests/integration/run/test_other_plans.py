"""A run goes on under the plan it was begun with, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tidegate.errors import OtherPlan
from tidegate.run.deployment import Deployment
from tidegate.run.service import serving
from tidegate.spark import Session
from tidegate.store import Database


def test_an_open_run_is_not_served_under_another_plan(
    database: Database, spark: Session, tmp_path: Path
) -> None:
    pipeline = tg.Pipeline("numbers", shards=2)
    pipeline.source("numbers", "number bigint").filter("number > 1").sink("large")
    place = Deployment(database, str(tmp_path))
    with serving(place, pipeline, spark) as service:
        service.server.begin("march")
    with pytest.raises(OtherPlan) as refused, serving(place, pipeline, spark, shards=3):
        pass
    assert refused.value.runs == "march"
    with serving(place, pipeline, spark) as service:
        service.server.end("march")
        assert service.server.wait("march", 60) == {"large": []}
