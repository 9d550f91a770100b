"""`tidegate checkpoint`, `checkpoints`, `restore` and `explain --analyze`, next to who serves."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.integration.cli.command import DECLARED, Command, dripping
from tests.integration.runtime.shop import BOUND, Client, ask, rows
from tidegate.cli import app
from tidegate.cli.arguments.loader import find_pipeline
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.service import PipelineService, serve
from tidegate.spark import Session


def test_a_checkpoint_is_taken_listed_and_restored(
    command: Command, service: PipelineService, place: Deployment, spark: Session, tmp_path: Path
) -> None:
    client = dripping(service, "march", tmp_path)
    taken = command("checkpoint", "march", "--timeout", str(BOUND))
    assert taken.exit_code == 0, taken.output
    text = r"checkpoint 1 of run 'march' is committed: \d+\.\d\d s, [\d,]+ bytes\n"
    assert re.fullmatch(text, taken.stdout)
    client.sales(2, (1, 300))
    assert command.json("checkpoint", "march", "--timeout", str(BOUND))["number"] == 2

    header, first, second = command("checkpoints", "march").stdout.splitlines()
    assert header.split()[:5] == ["number", "state", "seconds", "aligning", "bytes"]
    assert [line.split()[:2] for line in (first, second)] == [
        ["1", "committed"],
        ["2", "committed"],
    ]
    listed = command.json("checkpoints", "march")
    assert [it["number"] for it in listed] == [1, 2]
    assert all(it["slowest"] for it in listed)

    back = command("restore", "march", "--checkpoint", "1", "--declared", DECLARED)
    assert back.stdout == "run 'march' is restored from checkpoint 1, as incarnation 2\n", (
        back.output
    )
    client.sales(3, (2, 400))
    client.end()
    assert rows(spark, place, client.wait()["best"]) == [("rice", 600_000)]
    assert [it["state"] for it in command.json("checkpoints", "march")] == ["committed", "aborted"]


def test_the_plan_shows_the_last_upstream_at_each_barrier(
    command: Command, service: PipelineService, tmp_path: Path
) -> None:
    dripping(service, "analysed", tmp_path)
    explain = ("explain", DECLARED, "--analyze", "analysed")
    assert "This run has no checkpoint" in command(*explain).stdout
    for _ in range(2):
        assert command("checkpoint", "analysed", "--timeout", str(BOUND)).exit_code == 0
    told = command(*explain)
    assert told.exit_code == 0, told.output
    held = re.findall(r"checkpoint 2: (\S+) came last, waited \d+\.\d{3} s at (\S+)", told.stdout)
    assert len(held) == len(re.findall(r"PhysicalBarrier \S+  upstream", told.stdout))
    assert all(task.startswith("b") and last for last, task in held)
    assert len(re.findall(r"2 checkpoints: waited \d+\.\d{3} s in all; last ", told.stdout)) == len(
        held
    )
    barriers = command.json(*explain)["barriers"]
    assert {it["checkpoint"] for it in barriers.values()} == {2}
    service.server.cancel("analysed")


def test_checkpoints_that_cannot_be_taken_or_restored_are_named_errors(
    command: Command, service: PipelineService, tmp_path: Path
) -> None:
    client = dripping(service, "refused", tmp_path)
    assert command("checkpoints", "refused").stdout == "no checkpoints\n"
    assert command.error("checkpoint", "nobody") == (1, "UnknownRun")
    restore = ("restore", "refused", "--declared", DECLARED)
    assert command.error(*restore) == (1, "UnknownCheckpoint")
    assert "does not have any checkpoint; there is: none" in command(*restore).stderr
    assert command.error("restore", "refused", "--declared", "coffee") == (2, "OtherPlan")
    assert command.error("restore", "refused") == (2, "UnknownPipeline")
    assert command("checkpoint", "refused", "--timeout", str(BOUND)).exit_code == 0
    assert command.error(*restore, "--shards", "5") == (2, "OtherPlan")
    assert "on 2 shards → on 5 shards" in command(*restore, "--shards", "5").stderr
    client.end()
    client.wait()
    assert command.error("checkpoint", "refused") == (1, "RunEnded")


DECLARATION = """
import tidegate as tg

pipeline = tg.Pipeline("changing", shards=2)
sales = pipeline.source("sales", "item_id bigint, quantity int")
sold = sales.filter("quantity > 0").aggregate(by="item_id", sold="sum(quantity)")
sold.filter("sold > 10").sink("best")
"""


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write a declaration, with one thing changed for another, under the name of a module."""
    monkeypatch.syspath_prepend(tmp_path)

    def declare(module: str, changed: str = "pipeline", to: str = "pipeline") -> str:
        (tmp_path / f"{module}.py").write_text(DECLARATION.replace(changed, to))
        return f"{module}:pipeline"

    return declare


def test_a_changed_declaration_is_accepted_if_it_fits_and_else_refused_with_the_difference(
    command: Command,
    place: Deployment,
    spark: Session,
    tmp_path: Path,
    declare: Callable[..., str],
) -> None:
    with serve(place, find_pipeline(declare("as_it_was")), spark) as service:
        client = Client(service.server, "changed", tmp_path)
        client.sales(1, (1, 7), (2, 200))
        assert command("checkpoint", "changed", "--timeout", str(BOUND)).exit_code == 0
        fitting = declare("changed_behind", "sold > 10", "sold > 5")
        restore = ("restore", "changed", "--declared")
        assert command.error(*restore, fitting) == (2, "StillServed")
    told = command(*restore, declare("changed_before", "quantity > 0", "quantity > 1"))
    assert told.exit_code == 2
    assert "\n  filter quantity > 0 → filter quantity > 1\n" in told.stderr
    back = command(*restore, fitting)
    assert back.stdout == "run 'changed' is restored from checkpoint 1, as incarnation 2\n", (
        back.output
    )
    with serve(place, find_pipeline(fitting), spark) as service:
        service.server.end("changed")
        best = service.server.wait("changed", BOUND)["best"]
    assert sorted(rows(spark, place, best)) == [(1, 7), (2, 200)]


def test_waiting_for_a_checkpoint_without_workers_times_out(
    command: Command, place: Deployment, service: PipelineService, tmp_path: Path
) -> None:
    dripping(service, "alone", tmp_path)
    # As if those who serve it had gone: they look after the runs of their own pipeline only.
    ask(place.database, "UPDATE tidegate.run SET pipeline = 'left' WHERE name = 'alone'")
    assert command.error("checkpoint", "alone", "--timeout", "0") == (3, "CheckpointPending")
    assert command.error("checkpoint", "alone", "--timeout", "0") == (3, "CheckpointPending")
    reason = "UPDATE tidegate.checkpoint SET state = 'aborted', reason = 'no tea', offender = 's1'"
    ask(place.database, f"{reason} WHERE state = 'triggered'")
    assert command("checkpoints", "alone").stdout.splitlines()[-1] == "    no tea (s1)"


def test_analysing_needs_a_deployment(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["explain", "--analyze", "march"])
    assert answer.exit_code == 2
    assert "--deployment" in answer.stderr
