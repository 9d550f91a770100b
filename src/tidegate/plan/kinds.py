"""What is certain about the type of an expression without asking Spark.

Only numbers matter here, and only their family: sums of floating point depend on the order of
rows, sums of integers and decimals do not. Whatever is not certain is None; Spark's analyser
decides it later.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Kind: TypeAlias = Literal["floating", "decimal", "integer"] | None

_PLAIN = re.compile(r"\s*[A-Za-z_]\w*(\s*[-+*]\s*([A-Za-z_]\w*|\d+))*\s*")
_WORD = re.compile(r"\w+")

_FAMILIES: dict[str, Kind] = {
    **dict.fromkeys(("double", "float", "real"), "floating"),
    **dict.fromkeys(("decimal", "dec", "numeric"), "decimal"),
    **dict.fromkeys(
        ("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"), "integer"
    ),
}


def kind_of_type(text: str) -> Kind:
    """The family of a Spark type.

    >>> kind_of_type("decimal(10,2)"), kind_of_type("DOUBLE"), kind_of_type("date")
    ('decimal', 'floating', None)
    """
    return _FAMILIES.get(text.partition("(")[0].strip().lower())


def kind_of_plain(sql: str, columns: Mapping[str, Kind]) -> Kind | Literal["unclear"]:
    """The family of `a`, `a * 2` or `a + b - c`, which needs no parser; wide tables have many.

    >>> kind_of_plain("price * 2", {"price": "decimal"}), kind_of_plain("sqrt(price)", {})
    ('decimal', 'unclear')
    """
    if not _PLAIN.fullmatch(sql):
        return "unclear"
    words = _WORD.findall(sql)
    return widest("integer" if it.isdigit() else columns.get(it.casefold()) for it in words)


def kind_of(expression: exp.Expr, columns: Mapping[str, Kind]) -> Kind:
    """The family of an expression over columns of known families (by name in lower case)."""
    try:
        return _kind(expression, columns)
    except RecursionError:
        # A sum of thousands of terms: nothing is certain about it here.
        return None


def _kind(expression: exp.Expr, columns: Mapping[str, Kind]) -> Kind:
    for kinds, rule in _RULES:
        if isinstance(expression, kinds):
            return rule(expression, columns)
    return None


def _column(column: exp.Expr, columns: Mapping[str, Kind]) -> Kind:
    is_field_of_struct = bool(column.args.get("table"))
    return None if is_field_of_struct else columns.get(column.name.casefold())


def _cast(cast: exp.Expr, _columns: Mapping[str, Kind]) -> Kind:
    return kind_of_type(cast.args["to"].sql("spark"))


def _literal(literal: exp.Expr, _columns: Mapping[str, Kind]) -> Kind:
    if literal.args.get("is_string"):
        return None
    if "e" in literal.name.lower():
        return "floating"
    return "decimal" if "." in literal.name else "integer"


def _floating(_function: exp.Expr, _columns: Mapping[str, Kind]) -> Kind:
    return "floating"


def _division(division: exp.Expr, columns: Mapping[str, Kind]) -> Kind:
    left, right = (_kind(division.args[side], columns) for side in ("this", "expression"))
    # Spark divides integers as doubles.
    return "floating" if left == right == "integer" else widest((left, right))


def _same(function: exp.Expr, columns: Mapping[str, Kind]) -> Kind:
    return _kind(function.this, columns)


def _widest(operator: exp.Expr, columns: Mapping[str, Kind]) -> Kind:
    parts = (operator.this, operator.args.get("expression"), *operator.expressions)
    return widest(_kind(part, columns) for part in parts if part is not None)


def _branches(choice: exp.Expr, columns: Mapping[str, Kind]) -> Kind:
    parts = (choice.args["true"], choice.args.get("false"))
    return widest(_kind(part, columns) for part in parts if part is not None)


_RULES: tuple[tuple[tuple[type[exp.Expr], ...], Callable[..., Kind]], ...] = (
    ((exp.Column,), _column),
    ((exp.Cast,), _cast),
    ((exp.Literal,), _literal),
    ((exp.Sqrt, exp.Exp, exp.Ln, exp.Pow), _floating),
    ((exp.Div,), _division),
    ((exp.Paren, exp.Neg, exp.Abs, exp.Round), _same),
    ((exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Coalesce), _widest),
    ((exp.If,), _branches),
)


def widest(kinds: Iterable[Kind]) -> Kind:
    """What Spark makes of several kinds: floating point wins, then doubt, then decimals."""
    given = set(kinds)
    order: tuple[Kind, ...] = ("floating", None, "decimal", "integer")
    return next((kind for kind in order if kind in given), None)
