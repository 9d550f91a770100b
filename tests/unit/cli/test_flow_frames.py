"""The picture of a run: every line fits, and says how far and how fast things are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tidegate.cli.flow.frames import frame
from tidegate.flows.inspect import RateMeter, RunInspection
from tidegate.flows.model.gates import Condition, Standing
from tidegate.flows.model.keys import StateValue
from tidegate.flows.model.states import FlowState, StepState
from tidegate.store.flows.events import FlowWait, WorkerTasks
from tidegate.store.flows.runs import FlowRunInfo, StepProgress

NOW = datetime.now(UTC)


def step(name: str, state: StepState, generating: str | None = None, **counts: int) -> StepProgress:
    spawned, succeeded, failed = (counts.get(it, 0) for it in ("spawned", "succeeded", "failed"))
    kind = "plain" if generating is None else "generator"
    error = "ValueError: no such row\nsecond line" if failed else None
    return StepProgress(
        name, kind, state, generating, spawned, succeeded, failed, 0,
        spawned - succeeded - failed, error, error,
    )  # fmt: skip


def inspection(at: float, succeeded: int, position: int, age: float = 0.2) -> RunInspection:
    """A run with a running generator and a step at its gate."""
    condition = Condition("consumer_offset", "target_watermark")
    standing = Standing(condition, str(position), "5000", "consume", age)
    until = NOW + timedelta(minutes=10)
    return RunInspection(
        FlowRunInfo(17, "reindex", "march", FlowState.RUNNING, None, NOW, None),
        [
            step("backfill", StepState.RUNNING, "started", spawned=1200, succeeded=succeeded,
                 failed=3),
            step("copied", StepState.RUNNING, "complete", spawned=40, succeeded=10),
            step("switch", StepState.RUNNING),
            step("drain", StepState.WAITING),
        ],
        {"consumer_offset": StateValue(str(position), "consume", 1, age)},
        [
            FlowWait("switch", -1, NOW, 12.0, until, standing),
            FlowWait("switch", -1, NOW, 12.0, until, Standing(Condition("backfill_done"), None)),
            FlowWait("copied", 7, NOW, 1.0, None, None),
        ],
        [WorkerTasks("worker-1", "backfill", each, n) for each, n in ((True, 12), (False, 1))],
        at,
    )  # fmt: skip


def drawn(*sights: RunInspection, width: int = 200) -> list[str]:
    pace = RateMeter()
    for it in sights:
        pace.add(it)
    return frame(sights[-1], pace, width)


def line(lines: list[str], start: str) -> str:
    (found,) = [it for it in lines if it.strip().startswith(f"{start} ")]
    return found


def test_items_are_shown_with_what_is_in_flight_failed_and_done_in_a_second() -> None:
    told = line(drawn(inspection(0.0, 1000, 0), inspection(2.0, 1100, 0)), "backfill")
    assert told == "  backfill  running    1,103 of 1,200+ items, 97 in flight, 3 failed, 50/s"


def test_a_bar_is_drawn_where_the_end_is_known() -> None:
    told = line(drawn(inspection(0.0, 0, 0)), "copied")
    assert "█████░░░░░░░░░░░░░░░ 10 of 40 items, 30 in flight, 1 waiting" in told


def test_a_gate_is_shown_with_how_far_how_fast_and_for_how_long() -> None:
    lines = drawn(inspection(0.0, 0, 3000), inspection(10.0, 0, 4000, age=0.2))
    assert line(lines, "switch").startswith("  switch    waits for 12 s, ")
    assert line(lines, "consumer_offset") == (
        "    consumer_offset is 4,000 of 5,000 (target_watermark): 1,000 behind, 100/s,"
        " 10 s to go, written by consume 0.2 s ago"
    )
    assert line(lines, "backfill_done") == "    backfill_done was never written"


def test_a_gate_that_stalls_shows_since_when() -> None:
    told = line(
        drawn(inspection(0.0, 0, 4000), inspection(9.0, 0, 4000, age=75.0)), "consumer_offset"
    )
    assert told.endswith("1,000 behind, written by consume 1 min 15 s ago")


def test_errors_and_workers_are_shown() -> None:
    lines = drawn(inspection(0.0, 0, 0))
    assert line(lines, "last error") == "  last error of backfill: ValueError: no such row"
    assert line(lines, "in flight") == "  in flight  worker-1: 12 of backfill, backfill"


def test_a_signal_that_is_awaited_is_shown_with_its_command() -> None:
    lines = drawn(replace(inspection(0.0, 0, 0), signals=["drain"]))
    assert line(lines, "drain") == (
        "  drain     waits for its signal: `tidegate flow signal 17 drain JSON`"
    )


@pytest.mark.parametrize(
    ("seconds", "workers", "told"),
    [
        (4.0, 0, None),
        (185.0, 0, "ready for 3 min 5 s: no worker is alive; start one with"),
        (7.0, 1, "ready for 7.0 s: no worker claims it; the only worker may be busy"),
        (7.0, 3, "no worker claims it; the 3 workers may be busy"),
    ],
)
def test_a_step_that_no_worker_claims_is_shown_after_some_seconds(
    seconds: float, workers: int, told: str | None
) -> None:
    lines = drawn(replace(inspection(0.0, 0, 0), ready={"copied": seconds}, workers=workers))
    found = [it for it in lines if "has been ready" in it]
    assert (told is None and not found) or (told is not None and told in found[0])


def test_a_rate_is_that_of_the_last_seconds() -> None:
    pace = RateMeter()
    for at, done in ((0.0, 0), (100.0, 10), (103.0, 40), (106.0, 70)):
        pace.add(inspection(at, done, 0))
    assert pace.rate(lambda it: it.done("backfill")) == pytest.approx(10.0)


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = drawn(inspection(0.0, 0, 3000), inspection(2.0, 0, 3100), width=width)
    assert max(map(len, lines)) <= width
