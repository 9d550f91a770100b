"""EXPLAIN stays readable and cheap whatever the size of a plan."""

from __future__ import annotations

import subprocess
import sys
from time import process_time
from typing import Any

import tidegate as tg
from tidegate.plan import (
    PhysicalPlan,
    explain_logical,
    explain_physical,
    logical_json,
    logical_plan,
    physical_json,
    physical_plan,
    plan_hash,
)
from tidegate.plan.tree import draw
from tidegate.plan.wording import listed, shortened

WIDTH = 160


def longest(text: str) -> int:
    return max(len(line) for line in text.splitlines())


def plan_of(sql: str, **more_columns: str) -> PhysicalPlan:
    pipeline = tg.Pipeline("shop")
    columns = {"x": sql, **more_columns}
    pipeline.source("sales", "a int, b double").aggregate(by="a", columns=columns).sink("out")
    return physical_plan(pipeline)


NAMES = [f"c{number}" for number in range(10_000)]


def wide_rows() -> tuple[tg.Pipeline, tg.Stream]:
    wide = tg.Pipeline("wide", shards=4)
    return wide, wide.source("rows", {"k": "int", **dict.fromkeys(NAMES, "decimal(10,2)")})


def test_ten_thousand_columns_are_explained_in_well_under_a_second() -> None:
    wide, rows = wide_rows()
    rows.aggregate(by="k", columns={name: f"sum({name})" for name in NAMES}).sink("sums")
    start = process_time()
    text = explain_physical(physical_plan(wide))
    assert process_time() - start < 1
    assert longest(text) < WIDTH
    assert len(text.splitlines()) < 60
    assert "… 9,992 more columns" in text
    assert longest(explain_logical(logical_plan(wide))) < WIDTH


def test_ten_thousand_computed_columns_are_parsed_when_they_are_declared_and_not_again() -> None:
    wide, rows = wide_rows()
    computed = rows.select("k", columns={name: f"round({name} * 1.5, 2)" for name in NAMES})
    computed.aggregate(by="k", columns={name: f"avg({name})" for name in NAMES}).sink("means")
    start = process_time()
    explain_physical(physical_plan(wide))
    # Around 0.8 s; parsing everything again would triple it.
    assert process_time() - start < 1.6


def test_a_thousand_stages_go_straight_down() -> None:
    deep = tg.Pipeline("deep")
    stream = deep.source("rows", "k int, v int")
    for _ in range(1_000):
        stream = stream.aggregate(by="k", v="sum(v)")
    stream.sink("end")
    assert longest(explain_physical(physical_plan(deep))) < WIDTH


def test_a_thousand_nested_joins_continue_further_down() -> None:
    deep = tg.Pipeline("deep")
    rows = deep.source("rows", "k int")
    stream = rows
    for _ in range(1_000):
        stream = stream.join(rows, on="k")
    stream.sink("end")
    text = explain_physical(physical_plan(deep))
    assert longest(text) < WIDTH
    assert "(drawn below)" in text
    assert text.count("PhysicalStage s1 ") == 1


def test_a_branch_that_waits_to_be_drawn_is_drawn_once() -> None:
    def reads(node: str) -> list[str]:
        number = int(node)
        return [] if number == 0 else [str(number - 1), str(number - 1)]

    lines = list(draw("40", lambda node: [f"node {node}"], reads))
    assert [line.strip("│├└─ ") for line in lines].count("node 7") == 1


def test_an_approximate_column_is_marked_with_the_reason() -> None:
    text = explain_physical(plan_of("sum(b)", y="approx_count_distinct(a)"))
    assert "x = sum(x_sum) (approximate: order of addition)" in text
    assert "(approximate: HLL sketch, about 2 %)" in text


def test_an_undecided_sum_names_the_option_that_decides_it() -> None:
    text = explain_physical(plan_of("sum(my_function(a))", y="max(my_function(a))"))
    assert "x = sum(x_sum) (exactness unknown until --analyze-schema)" in text
    assert text.count("exactness") == 1


def test_knowing_more_about_exactness_is_no_other_plan() -> None:
    pipeline = tg.Pipeline("shop")
    rows = pipeline.source("sales", "a int")
    rows.aggregate(x="sum(my_function(a))").sink("out")
    asked = physical_plan(pipeline, floating={"n2": frozenset({"x_value"})})
    assert "(approximate: order of addition)" in explain_physical(asked)
    assert plan_hash(asked) == plan_hash(physical_plan(pipeline))


def test_partial_merge_and_finish_are_shown() -> None:
    text = explain_physical(plan_of("avg(a) + 1"))
    assert "x_sum = sum(a), x_count = count(a)" in text
    assert "x = sum(x_sum) / nullif(coalesce(sum(x_count), 0), 0) + 1" in text


def test_a_hash_changes_with_what_a_plan_does() -> None:
    assert plan_hash(plan_of("sum(a)")) == plan_hash(plan_of("sum(a)"))
    assert plan_hash(plan_of("sum(a)")) != plan_hash(plan_of("max(a)"))


def test_event_time_is_part_of_a_plan_only_where_it_is_declared() -> None:
    def plans(**declared: str) -> tuple[PhysicalPlan, dict[str, Any], dict[str, Any]]:
        pipeline = tg.Pipeline("shop")
        pipeline.source("sales", "a int, at timestamp", **declared).select("a").sink("out")
        plan = physical_plan(pipeline)
        physical: Any = physical_json(plan)
        logical: Any = logical_json(logical_plan(pipeline))
        return plan, physical["nodes"][0]["operators"][0], logical["nodes"][0]

    plain, timed = plans(), plans(event_time="at")
    late = plans(event_time="at", delay="1 s")
    assert len({plan_hash(plan) for plan, _, _ in (plain, timed, late)}) == 3
    for scan in late[1:]:
        assert scan["event_time"] == {"column": "at", "delay": 1000}
    assert all("event_time" not in scan for scan in plain[1:])


def test_a_hash_is_the_same_in_another_process() -> None:
    code = (
        "from tidegate.plan import physical_plan, plan_hash;"
        "from tidegate_examples.coffee import pipeline;"
        "print(plan_hash(physical_plan(pipeline)))"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_a_function_counts_by_its_qualified_name() -> None:
    pipeline = tg.Pipeline("shop")
    pipeline.source("sales", "a int").transform(unchanged).sink("out")
    plan = physical_plan(pipeline)
    assert f"Apply {__name__}.unchanged" in explain_physical(plan)
    assert f"{__name__}.unchanged" in str(physical_json(plan))


def unchanged(rows: object) -> object:
    return rows


def test_a_list_has_the_number_of_items_left_out() -> None:
    assert listed(["a", "b"]) == "[a, b]"
    assert listed(["a" * 500]) == f"[{'a' * 59}…]"
    assert listed([]) == "[]"


def test_sql_over_several_lines_is_shown_on_one() -> None:
    assert shortened("a >\n      1") == "a > 1"
