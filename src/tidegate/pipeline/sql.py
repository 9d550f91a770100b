"""Checks the SQL text of a declaration, without Spark.

The text stays as the user wrote it: parsing only determines whether it is valid, and which columns
it reads. Functions, columns and types are checked later, by Spark.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from tidegate.errors import ForbiddenSql, InvalidSql
from tidegate.pipeline.names import is_text
from tidegate.pipeline.nodes import STAR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlglot import Token

    from tidegate.errors import SourceLine

_SPARK = Spark()

_PLAIN = re.compile(r"\s*([A-Za-z_]\w*)(?:\s*[-+*/]\s*(?:[A-Za-z_]\w*|\d+))?\s*")
_WORD = re.compile(r"[A-Za-z_]\w*")

# fmt: off
_KEYWORDS = frozenset({
    "current_catalog", "current_date", "current_database", "current_schema", "current_time",
    "current_timestamp", "current_user", "localtimestamp", "session_user", "user", "null", "true",
    "false", "not", "and", "or", "case"
})
# fmt: on
"""Words that are not columns even as a whole expression."""

# fmt: off
CHANGING = frozenset({
    "rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle",
    "monotonically_increasing_id", "spark_partition_id", "input_file_name",
    "input_file_block_start", "input_file_block_length", "now", "curdate", "current_date",
    "current_time", "current_timestamp", "current_timestamp_ltz", "current_timestamp_ntz",
    "localtimestamp", "localtime", "sysdate", "systimestamp"
})
# fmt: on
"""Functions that may give another value when a step is replayed after a crash."""

# fmt: off
UNPARSED_AGGREGATES = frozenset({
    "mean", "every", "some", "first_value", "last_value", "string_agg", "percentile_cont",
    "percentile_disc", "std", "try_sum", "try_avg", "histogram_numeric", "count_min_sketch",
    "hll_sketch_agg", "hll_union_agg", "bit_and", "bit_or", "bit_xor", "product", "grouping",
    "grouping_id", "bitmap_construct_agg", "bitmap_or_agg", "approx_top_k", "regr_avgx",
    "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy",
    "regr_syy"
})
# fmt: on
"""Spark's aggregate functions that the parser does not know as aggregates."""


_SPARK_NAMES = {
    "approx_distinct": "approx_count_distinct",
    "approx_quantile": "percentile_approx",
    "arg_max": "max_by",
    "arg_min": "min_by",
    "array_unique_agg": "collect_set",
    "group_concat": "listagg",
    "logical_and": "bool_and",
    "logical_or": "bool_or",
    "quantile": "percentile",
    "variance_pop": "var_pop",
}
"""Spark's names of aggregates that the parser names differently."""


def parse(sql: str, at: SourceLine) -> exp.Expr:
    """The expression of `sql`, which must not be modified; raises `InvalidSql`."""
    if not is_text(sql) or not sql.strip():
        raise InvalidSql(at, sql, "there is no text")
    try:
        parsed = _parsed(sql)
    except ParseError as error:
        raise InvalidSql(at, sql, _reason(error)) from error
    except SqlglotError as error:
        raise InvalidSql(at, sql, str(error)) from error
    except RecursionError:
        reason = "nested too deeply; compute it in several selects"
        raise InvalidSql(at, sql, reason) from None
    expression = parsed[0]
    if len(parsed) != 1 or expression is None or sql.rstrip().endswith(";"):
        raise InvalidSql(at, sql, "not exactly one expression")
    if isinstance(expression, exp.Alias):
        raise InvalidSql(at, sql, f"{expression.alias!r} follows a complete expression")
    if isinstance(expression, exp.Query | exp.DDL | exp.DML | exp.Command | exp.Drop):
        raise InvalidSql(at, sql, "a statement, not an expression")
    return expression


@lru_cache(maxsize=16_384)
def _parsed(sql: str) -> list[exp.Expr | None]:
    # Cached for whole wide tables: the planner parses declared texts again, and parsing takes
    # most of the time. Expressions are never modified.
    return list(_SPARK.parse(sql))


def _reason(error: ParseError) -> str:
    details = error.errors[0] if error.errors else {}
    reason = str(details.get("description", error)).rstrip(".")
    # The parser names its own classes here, which users do not know.
    return "something is missing in it" if reason.startswith("Required keyword") else reason


def tokens(sql: str) -> list[Token]:
    """The tokens of `sql`; `start` and `end` are offsets of their first and last letter."""
    return list(_SPARK.tokenize(sql))


def between_commas(sql: str, at: SourceLine) -> list[str]:
    """The parts of a list such as `a desc, greatest(b, c) asc`; raises `InvalidSql`."""
    try:
        found = tokens(sql)
    except SqlglotError as error:
        raise InvalidSql(at, sql, str(error)) from error
    parts, start, depth = [], 0, 0
    for token in found:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is TokenType.COMMA and depth == 0:
            parts.append(sql[start : token.start])
            start = token.end + 1
    return [*parts, sql[start:]]


def reads_of_rows(operator: str, sql: str, at: SourceLine) -> tuple[str, ...]:
    """The columns that `sql` reads, if it is computed row by row and repeatable.

    Raises `InvalidSql`, or `ForbiddenSql` for aggregates and functions that are not repeatable.
    """
    if (plain := plain_words(sql)) is not None:
        return plain
    parts = list(parse(sql, at).walk())
    refuse_changing(operator, sql, parts, at)
    for function in functions(parts):
        if is_aggregate(function):
            instead = "Use .aggregate(by=…) first; this operator sees one row at a time."
            raise ForbiddenSql(at, operator, sql, f"the aggregate {name_of(function)}()", instead)
    return columns_read(parts)


def plain_words(sql: str) -> tuple[str, ...] | None:
    """The columns of `a` or `a * b`, read without the parser, for tables with 10,000 columns."""
    if not is_text(sql) or not _PLAIN.fullmatch(sql):
        return None
    words = _WORD.findall(sql)
    return None if any(word.lower() in _KEYWORDS for word in words) else tuple(words)


def refuse_changing(operator: str, sql: str, parts: Sequence[exp.Expr], at: SourceLine) -> None:
    """Raise `ForbiddenSql` for subqueries, windows and functions that are not repeatable."""
    if any(isinstance(part, exp.Query) for part in parts):
        instead = "Declare the other table as a source and join it."
        raise ForbiddenSql(at, operator, sql, "a subquery", instead)
    if any(isinstance(part, exp.Window) for part in parts):
        instead = "Use .top(n, by=…, per=…) for ranks, .aggregate(by=…) and .join(…) for totals."
        raise ForbiddenSql(at, operator, sql, "a window function", instead)
    for function in map(name_of, functions(parts)):
        if function in CHANGING:
            instead = "A replayed step must give the same rows; put the value into the source."
            raise ForbiddenSql(
                at, operator, sql, f"{function}(), which is not repeatable,", instead
            )


def functions(parts: Iterable[exp.Expr]) -> list[exp.Expr]:
    """All function calls among parts, `any(x)` with them, `x like any (…)` not."""
    return [
        call
        for call in parts
        # The parser counts `a and b` among the functions.
        if isinstance(call, (exp.Func, exp.Any))
        and not isinstance(call, exp.Binary)
        and not isinstance(call.parent, (exp.Like, exp.ILike))
    ]


def name_of(call: exp.Expr) -> str:
    """The name of a function in lower case, as Spark writes it."""
    if isinstance(call, exp.Anonymous):
        return str(call.name).lower()
    name = call.sql_name().lower() if isinstance(call, exp.Func) else "any"
    return _SPARK_NAMES.get(name, name)


def is_aggregate(call: exp.Expr) -> bool:
    """Whether a call is an aggregate in Spark."""
    return isinstance(call, (exp.AggFunc, exp.Any)) or name_of(call) in UNPARSED_AGGREGATES


def columns_read(parts: Iterable[exp.Expr]) -> tuple[str, ...]:
    """The columns among the parts of an expression; of `address.city`, the column `address`.

    A star means all columns and is named `*`, except in `count(*)`, which reads none.
    """
    names = (_column_read(part) for part in parts)
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _column_read(part: exp.Expr) -> str | None:
    if isinstance(part, exp.Column):
        return str(part.parts[0].name)
    return STAR if isinstance(part, exp.Star) and _stands_for_columns(part) else None


def _stands_for_columns(star: exp.Expr) -> bool:
    """Whether a star means all columns: not in `count(*)`, nor in `address.*`."""
    above = star.parent
    counts_rows = isinstance(above, exp.Count) and not above.expressions
    return not counts_rows and not isinstance(above, exp.Column)
