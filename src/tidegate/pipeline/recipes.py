"""How aggregates are merged from partial results, and why others cannot be."""

from __future__ import annotations

from typing import NamedTuple


class StateRecipe(NamedTuple):
    """One state of an aggregate: SQL over its argument, SQL over the states of all batches."""

    role: str
    partial: str
    merge: str


class Recipe(NamedTuple):
    """How one aggregate is computed: its states, and SQL over the merged states."""

    parts: tuple[StateRecipe, ...]
    finish: str
    approximate: str | None = None


_SUM = StateRecipe("sum", "sum({})", "sum({})")
# A whole-table count over no batches is 0, while a sum over no partial counts is null.
_COUNT = StateRecipe("count", "count({})", "coalesce(sum({}), 0)")

RECIPES: dict[str, Recipe] = {
    "sum": Recipe((_SUM,), "{}"),
    "count": Recipe((_COUNT,), "{}"),
    "count_if": Recipe((StateRecipe("count", "count_if({})", "coalesce(sum({}), 0)"),), "{}"),
    # Division of decimals rounds to a scale that depends on the precision of both sides, and the
    # cast to Spark's own type rounds once more. An exact `avg` of decimals must divide directly
    # into that type; `spark.jobs.averages` does, from both states.
    "avg": Recipe((_SUM, _COUNT), "{} / nullif({}, 0)"),
    "min": Recipe((StateRecipe("min", "min({})", "min({})"),), "{}"),
    "max": Recipe((StateRecipe("max", "max({})", "max({})"),), "{}"),
    "bool_and": Recipe((StateRecipe("all", "bool_and({})", "bool_and({})"),), "{}"),
    "bool_or": Recipe((StateRecipe("any", "bool_or({})", "bool_or({})"),), "{}"),
    # Sketches take numbers and strings, not decimals or dates; every type has a text.
    "approx_count_distinct": Recipe(
        (StateRecipe("sketch", "hll_sketch_agg(cast({} as string))", "hll_union_agg({})"),),
        "coalesce(hll_sketch_estimate({}), 0)",
        approximate="HLL sketch, about 2 %",
    ),
}

ALIASES = {"mean": "avg", "every": "bool_and", "some": "bool_or", "any": "bool_or"}

SUMS = frozenset({"sum", "avg"})
"""Aggregates whose last digits depend on the order of rows when they add floating point."""

UNKNOWN = (
    "it cannot be merged from partial results",
    f"Use one of {', '.join(sorted(RECIPES))}, or .transform(…) after an aggregate.",
)

_ALL_ROWS = "it needs all rows of a group in one place"
_ANY_ROW = "its result depends on the order of rows"
_DOUBLES = "it adds floating-point squares, whose sum depends on the order of rows"
_DISTRIBUTION = (_ALL_ROWS, "Aggregate by the value as well, and rank the counts with .top(…).")
_ONE_OF_MANY = (_ANY_ROW, "Use min(…) or max(…), or .top(1, by=…, per=…) for a whole row.")
_COLLECTION = (
    "it collects every row, in order of arrival",
    "Write the rows to a sink of their own.",
)
_SPREAD = (_DOUBLES, "Aggregate sum(x), sum(x * x) and count(x), and compute it in a select.")

REFUSED: dict[str, tuple[str, str]] = {
    "distinct": (
        "the same value may be counted on every shard",
        "Aggregate by the column first and count the groups, or use approx_count_distinct(…).",
    ),
    "nested": ("an aggregate inside an aggregate", "Use two aggregates, one after the other."),
    "arguments": ("only its first argument is supported", "Leave the other arguments out."),
    **dict.fromkeys(
        ("median", "mode", "percentile", "percentile_approx", "approx_percentile",
         "percentile_cont", "percentile_disc", "histogram_numeric"),
        _DISTRIBUTION,
    ),
    **dict.fromkeys(
        ("first", "last", "first_value", "last_value", "any_value", "max_by", "min_by"),
        _ONE_OF_MANY,
    ),
    **dict.fromkeys(
        ("collect_list", "collect_set", "array_agg", "listagg", "string_agg"), _COLLECTION
    ),
    **dict.fromkeys(
        ("stddev", "stddev_pop", "stddev_samp", "std", "variance", "var_pop", "var_samp",
         "skewness", "kurtosis", "corr", "covar_pop", "covar_samp"),
        _SPREAD,
    ),
}  # fmt: skip
"""Reason and advice for aggregates, and forms of calls, that cannot be merged."""
