"""What is decided about runs of pipelines that steps of flows wait for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.errors import SourcesNotGiven, UnknownSource
from tidegate.flows.model.context import Data
from tidegate.flows.worker.pipeline_runs import UNSERVED, PipelineRequest, run_name, why_unreleased
from tidegate.flows.worker.pipeline_submit import chunks_for
from tidegate.store import ChannelStatus, Owner, RunFacts, RunInfo, RunState
from tidegate.store.flows.pipeline_links import SubmittedRun

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CHANNEL = ChannelStatus("head", "scan", 0, 2, 1, 0, NOW)


def run(state: RunState = RunState.OPEN) -> RunInfo:
    return RunInfo(7, "shop", "flow:nightly/1/count", 1, state)


def facts(*owners: Owner) -> RunFacts:
    owned = {f"task-{number}": owner for number, owner in enumerate(owners)}
    return RunFacts(run(), NOW, (), (CHANNEL,), frozenset(), owned)


def wanted(data: Data) -> PipelineRequest:
    pipeline = tg.Pipeline("shop")
    sales = pipeline.source("sales", "item_id bigint")
    items = pipeline.source("items", "item_id bigint")
    sales.join(items, on="item_id").sink("sold")
    return PipelineRequest(pipeline, "flow:nightly/1/count", data, 1, None)


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.CANCELLED])
def test_a_run_that_failed_is_reported_once_and_started_again_by_the_next_attempt(
    state: RunState,
) -> None:
    found = SubmittedRun(run(state), attempt=2, is_delivered=True)
    assert [found.is_spent(attempt) for attempt in (2, 3)] == [False, True]


@pytest.mark.parametrize("state", [RunState.OPEN, RunState.ENDED])
def test_any_other_run_is_kept_by_every_attempt(state: RunState) -> None:
    assert not SubmittedRun(run(state), attempt=1, is_delivered=True).is_spent(9)


@pytest.mark.parametrize("owners", [(), (Owner(None, 1, 5.0),), (Owner("ann", 1, -3.0),)])
def test_an_unserved_pipeline_is_reported_first(owners: tuple[Owner, ...]) -> None:
    assert why_unreleased(facts(*owners)).startswith(f"{UNSERVED}; waiting: ")


def test_of_a_run_that_is_served_only_the_reasons_are_reported() -> None:
    told = why_unreleased(facts(Owner("ann", 1, -3.0), Owner("bob", 1, 3.0)))
    assert told.startswith("waiting: task scan has not processed")


def test_no_two_tasks_call_their_runs_the_same() -> None:
    places = [("a", 1, "b", -1, ""), ("a", 1, "b", 0, ""), ("a", 1, "b", -1, "eu")]
    places += [("a", 2, "b", -1, ""), ("a", 1, "c", -1, ""), ("b", 1, "b", -1, "")]
    assert len({run_name(*place) for place in places}) == len(places)


def test_files_are_taken_as_they_are_named() -> None:
    given = {"sales": ["b.csv", "a.csv"], "items": []}
    assert chunks_for(wanted(given)) == {"sales": [Path("b.csv"), Path("a.csv")], "items": []}


def test_a_source_that_is_not_named_is_no_empty_one() -> None:
    with pytest.raises(SourcesNotGiven) as refused:
        chunks_for(wanted({"sales": []}))
    assert refused.value.sources == "items"


def test_files_of_no_source_are_refused() -> None:
    with pytest.raises(UnknownSource) as refused:
        chunks_for(wanted({"sales": [], "items": [], "sails": []}))
    assert refused.value.source == "sails"
