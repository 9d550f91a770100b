"""What may change in a declaration under a run that goes on, and how a change is reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidegate as tg
from tidegate.plan import physical_plan
from tidegate.plan.compatibility.difference import Difference, difference
from tidegate.plan.compatibility.fit import OTHER_GRAPH
from tidegate.plan.encode import encoded

SALES = "item_id bigint, shop_id bigint, quantity int"
SUMMED = "aggregate by=[item_id] [sold = sum(quantity)]"


def plain(rows: object) -> object:
    return rows


def other(rows: object) -> object:
    return rows


def shop(  # noqa: PLR0913  one for every place where a declaration may change
    *,
    shards: int = 2,
    columns: str = SALES,
    before: str = "quantity > 0",
    sold: str = "sum(quantity)",
    behind: str = "sold > 10",
    shown: str = "sold * 2",
    first: int = 3,
    bulk: str = "quantity > 100",
    named: str = "late",
    joined: str = "inner",
    sink: str = "best",
    more: Callable[[tg.Stream], None] = lambda _: None,
) -> Callable[[], str]:
    """Items that were sold best, those of their names, and large sales as they come."""

    def declared() -> str:
        pipeline = tg.Pipeline("shop", shards=shards)
        sales = pipeline.source("sales", columns)
        items = pipeline.source("items", "item_id bigint, name string")
        totals = sales.filter(before).aggregate(by="item_id", sold=sold).filter(behind)
        totals.select("item_id", twice=shown).top(first, by="twice desc").sink(sink)
        named_ = sales.aggregate(by="item_id", rows="count(*)").join(
            items,
            on="item_id",
            how=joined,  # type: ignore[arg-type]
        )
        named_.filter(f"name <> '{named}'").sink("named")
        sales.filter(bulk).sink("bulk")
        more(sales)
        return encoded(physical_plan(pipeline))

    return declared


def between(before: Callable[[], str], after: Callable[[], str]) -> Difference:
    return difference(before(), after())


def test_the_same_declaration_differs_in_nothing() -> None:
    found = between(shop(), shop())
    assert (found.added, found.removed, found.changed) == ((), (), ())
    assert found.fits
    assert found.lines == ()


@pytest.mark.parametrize(
    ("after", "line"),
    [
        (shop(behind="sold > 20"), "filter sold > 10 → filter sold > 20"),
        (shop(named="never"), "filter name <> 'late' → filter name <> 'never'"),
        (shop(shown="sold * 3"), "select [twice = sold * 2] → select [twice = sold * 3]"),
        (shop(first=5), "top 3 by=[twice desc] → top 5 by=[twice desc]"),
    ],
    ids=["a filter of totals", "a filter behind a join", "a formula", "a ranking of totals"],
)
def test_operators_over_recomputed_rows_may_change(after: Callable[[], str], line: str) -> None:
    found = between(shop(), after)
    assert found.lines == (line,)
    assert found.obstacles == ()


@pytest.mark.parametrize(
    ("after", "line"),
    [
        (shop(before="quantity > 1"), "filter quantity > 0 → filter quantity > 1"),
        (shop(bulk="quantity > 200"), "filter quantity > 100 → filter quantity > 200"),
        (shop(joined="left"), "join inner on=[item_id] → join left on=[item_id]"),
        (shop(sold="max(quantity)"), f"{SUMMED} → {SUMMED.replace('sum', 'max')}"),
        (shop(sink="top"), "sink best → sink top"),
    ],
    ids=["before an aggregate", "on the way to a sink", "a join", "an aggregate", "a sink"],
)
def test_operators_before_stored_rows_may_not_change(after: Callable[[], str], line: str) -> None:
    found = between(shop(), after)
    assert line in found.lines
    assert not found.fits
    assert found.obstacles


def test_the_type_of_a_column_that_is_read_may_not_change() -> None:
    found = between(shop(), shop(columns=SALES.replace("quantity int", "quantity bigint")))
    assert not found.fits
    assert all("quantity bigint]" in change.after[0] for change in found.changed)


def test_another_number_of_shards_is_reported_and_refused() -> None:
    found = between(shop(), shop(shards=4))
    assert found.obstacles == (OTHER_GRAPH,)
    assert "on 2 shards → on 4 shards" in found.lines


def test_an_added_or_removed_sink_is_reported_and_refused() -> None:
    def more(sales: tg.Stream) -> None:
        sales.aggregate(by="shop_id", rows="count(*)").sink("shops")

    found = between(shop(), shop(more=more))
    assert found.added[0].operators[-1] == "aggregate by=[shop_id] [rows = count(*)]"
    assert found.added[-1].operators[-1] == "sink shops"
    assert found.obstacles == (OTHER_GRAPH,)
    back = between(shop(more=more), shop())
    assert [part.operators for part in back.removed] == [part.operators for part in found.added]
    assert not back.fits


Declare = Callable[[tg.Stream, tg.Stream], dict[str, tg.Stream]]


def of(declare: Declare) -> Callable[[], str]:
    """A pipeline of two sources, by its sinks."""

    def declared() -> str:
        pipeline = tg.Pipeline("shop", shards=2)
        sales, items = (pipeline.source(it, "item_id bigint, n int") for it in ("sales", "items"))
        for sink, stream in declare(sales, items).items():
            stream.sink(sink)
        return encoded(physical_plan(pipeline))

    return declared


def sold(sales: tg.Stream) -> tg.Stream:
    return sales.aggregate(by="item_id", n="sum(n)")


def test_recomputed_rows_may_not_change_before_a_join_with_permanent_rows() -> None:
    def joined(least: int) -> Callable[[], str]:
        return of(
            lambda sales, items: {
                "out": sold(sales)
                .filter(f"n > {least}")
                .join(items.select("item_id"), on="item_id")
            }
        )

    found = between(joined(1), joined(2))
    assert found.lines == ("filter n > 1 → filter n > 2",)
    assert not found.fits


def test_recomputed_rows_may_not_change_before_a_union_with_permanent_rows() -> None:
    def united(least: int) -> Callable[[], str]:
        return of(lambda sales, items: {"out": sold(sales).filter(f"n > {least}").union(items)})

    assert not between(united(1), united(2)).fits


def test_recomputed_rows_keep_their_columns() -> None:
    def answered(name: str) -> Callable[[], str]:
        return of(
            lambda sales, items: {"out": sold(sales).select(columns={name: "n"}), "all": items}
        )

    found = between(answered("n"), answered("units"))
    assert found.lines == ("select [n] → select [units = n]",)
    assert not found.fits


def test_of_many_columns_only_those_that_differ_are_reported() -> None:
    def wide(last: str) -> Callable[[], str]:
        columns = {f"c{number}": "n" for number in range(99)}
        return of(
            lambda sales, items: {
                "out": sold(sales).select(columns=columns | {"c99": last}),
                "all": items,
            }
        )

    found = between(wide("n"), wide("n + 1"))
    assert found.lines == ("select [c99 = n] → select [c99 = n + 1]",)
    assert found.fits


def test_a_function_counts_by_its_name() -> None:
    def mapped(function: Callable[[object], object]) -> Callable[[], str]:
        return of(lambda sales, items: {"out": sales.transform(function), "all": items})

    assert between(mapped(plain), mapped(plain)).lines == ()
    found = between(mapped(plain), mapped(other))
    assert found.lines == (f"transform {__name__}.plain → transform {__name__}.other",)
    assert not found.fits


def test_a_filter_may_not_become_a_ranking_nor_a_ranking_a_filter() -> None:
    ranked = of(lambda sales, items: {"out": items.top(1, by="n desc"), "all": sales})
    narrow = of(lambda sales, items: {"out": items.filter("n > 0"), "all": sales})
    assert not between(narrow, ranked).fits
    assert not between(ranked, narrow).fits


def test_sinks_that_have_each_others_rows_differ() -> None:
    found = between(
        of(lambda sales, items: {"one": sales, "two": items}),
        of(lambda sales, items: {"one": items, "two": sales}),
    )
    assert found.lines
    assert not found.fits


def test_an_operator_that_reads_its_sides_the_other_way_round_differs() -> None:
    def joined(*, is_turned: bool) -> Callable[[], str]:
        def declare(sales: tg.Stream, items: tg.Stream) -> dict[str, tg.Stream]:
            left, right = (items, sales) if is_turned else (sales, items)
            right = right.select("item_id")
            return {"out": left.select("item_id").join(right, on="item_id")}

        return of(declare)

    found = between(joined(is_turned=False), joined(is_turned=True))
    assert found.lines
    assert not found.fits


def test_recomputed_stages_are_those_that_forward_no_permanent_rows() -> None:
    both = of(lambda sales, items: {"out": sold(sales), "all": items})
    assert between(both, both).recomputed == ("s2", "s3")


def once(condition: str, *, summed: bool, behind: str = "true") -> Callable[[], str]:
    """Distinct rows of a source or of totals, filtered before and behind."""

    def declared() -> str:
        pipeline = tg.Pipeline("shop", shards=2)
        sales = pipeline.source("sales", SALES)
        rows = sales.aggregate(by="item_id", sold="sum(quantity)") if summed else sales
        rows.filter(condition).distinct().filter(behind).sink("once")
        return encoded(physical_plan(pipeline))

    return declared


def test_a_distinct_stores_permanent_rows_and_recomputes_others() -> None:
    old, new = once("item_id > 1", summed=False), once("item_id > 2", summed=False)
    assert not between(old, new).fits
    assert between(old, once("item_id > 1", summed=False, behind="item_id > 5")).fits
    assert between(once("sold > 1", summed=True), once("sold > 2", summed=True)).fits


def test_a_distinct_in_place_of_a_top_is_named_and_refused() -> None:
    def declared(rows: Callable[[tg.Stream], tg.Stream]) -> Callable[[], str]:
        pipeline = tg.Pipeline("shop", shards=1)
        rows(pipeline.source("sales", SALES)).sink("out")
        return lambda: encoded(physical_plan(pipeline))

    found = between(
        declared(lambda it: it.top(1, by="quantity desc")), declared(tg.Stream.distinct)
    )
    assert not found.fits
    assert any("distinct" in line for line in found.lines)
