"""Determines the family of an expression's type without Spark, where it is certain.

Only the family of a type matters here: sums of floating point depend on the order of rows, sums
of integers and decimals do not, and text is added as floating point. An uncertain family is None;
Spark's analyzer decides it later. The rules are those of Spark in the sessions that Tidegate opens,
with ANSI types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidegate.pipeline.sql import name_of
from tidegate.plan.functions import (
    DECIMALS,
    FLOATING,
    INTEGERS,
    LIKE_A_REMAINDER,
    LIKE_THE_FIRST,
    TEXTS,
)

_PLAIN = re.compile(r"\s*[A-Za-z_]\w*(\s*[-+*]\s*([A-Za-z_]\w*|\d+))*\s*")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Struct:
    """A value with named fields, each of a family of its own."""

    fields: tuple[tuple[str, Kind], ...]

    def field(self, name: str) -> Kind:
        """The family of one field; names in lower case."""
        return dict(self.fields).get(name)


Kind: TypeAlias = Literal["floating", "decimal", "integer", "text", "other"] | Struct | None
"""The family of a type: `other` is known and cannot make a sum inexact, None is not known."""

Kinds: TypeAlias = Mapping[str, Kind]
"""What is known about columns, by their names in lower case."""

_FAMILIES: dict[str, Kind] = {
    **dict.fromkeys(("double", "float", "real"), "floating"),
    **dict.fromkeys(("decimal", "dec", "numeric"), "decimal"),
    **dict.fromkeys(
        ("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"), "integer"
    ),
    **dict.fromkeys(("string", "varchar", "char", "character"), "text"),
}


@lru_cache(maxsize=1024)
def kind_of_type(text: str) -> Kind:
    """The family of a Spark type.

    >>> kind_of_type("decimal(10,2)"), kind_of_type("DOUBLE"), kind_of_type("date")
    ('decimal', 'floating', 'other')
    """
    head = re.split(r"[\s(<]", text.strip().lower(), maxsplit=1)[0]
    return _struct(text) if head == "struct" else _FAMILIES.get(head, "other")


def _struct(text: str) -> Kind:
    try:
        members = exp.DataType.build(text, dialect="spark").expressions
    except (SqlglotError, ValueError, AttributeError):
        return None
    typed = [(it.name.casefold(), it.args.get("kind")) for it in members]
    return Struct(tuple((name, kind_of_type(it.sql("spark"))) for name, it in typed if it))


def is_floating(kind: Kind) -> bool:
    """Whether Spark adds such values as floating point."""
    return kind in {"floating", "text"}


def summed(kind: Kind) -> Kind:
    """The family of a sum."""
    return "floating" if is_floating(kind) else kind


def averaged(kind: Kind) -> Kind:
    """The family of an average; that of integers is a double."""
    return "floating" if kind == "integer" else summed(kind)


# --- several values --------------------------------------------------------------------------


def chosen(kinds: Iterable[Kind]) -> Kind:
    """One of several values, brought to a common type: floating point wins, then doubt."""
    given = set(kinds)
    if len(given) == 1:
        return given.pop()
    if "other" in given:
        return "other"
    if "floating" in given:
        return "floating"
    if None in given or any(isinstance(kind, Struct) for kind in given):
        return None
    if "text" in given:
        # Text beside integers is read as one, beside decimals as a double.
        return "floating" if "decimal" in given else "integer"
    return "decimal"


def computed(kinds: Iterable[Kind]) -> Kind:
    """What `+`, `-`, `*` or `%` make of several values; text alone is read as doubles."""
    return summed(chosen(kinds))


def divided(kinds: Iterable[Kind]) -> Kind:
    """What `/` makes of two values; Spark divides integers as doubles."""
    return averaged(chosen(kinds))


# --- expressions -----------------------------------------------------------------------------


def kind_of_plain(sql: str, columns: Kinds) -> Kind | Literal["unclear"]:
    """The family of `a`, `a * 2` or `a + b - c`, which needs no parser; wide tables have many.

    >>> kind_of_plain("price * 2", {"price": "decimal"}), kind_of_plain("sqrt(price)", {})
    ('decimal', 'unclear')
    """
    name = sql.casefold()
    if name in columns:
        return columns[name]
    if not _PLAIN.fullmatch(sql):
        return "unclear"
    words = _WORD.findall(name)
    if len(words) == 1:
        return None
    return computed("integer" if it.isdigit() else columns.get(it) for it in words)


def kind_of(expression: exp.Expr, columns: Kinds) -> Kind:
    """The family of an expression over columns of known families."""
    try:
        return _kind(expression, columns)
    except RecursionError:
        # A sum of thousands of terms: nothing is certain about it here.
        return None


def _kind(expression: exp.Expr, columns: Kinds) -> Kind:
    rule = _RULES.get(type(expression))
    if rule is not None:
        return rule(expression, columns)
    if isinstance(expression, exp.Predicate):
        return "other"
    return _function(expression, columns) if isinstance(expression, exp.Func) else None


def _column(column: exp.Expr, columns: Kinds) -> Kind:
    assert isinstance(column, exp.Column)
    first, *fields = (part.name.casefold() for part in column.parts)
    kind = columns.get(first)
    for name in fields:
        kind = kind.field(name) if isinstance(kind, Struct) else None
    return kind


def _field(dot: exp.Expr, columns: Kinds) -> Kind:
    struct = _kind(dot.this, columns)
    return struct.field(dot.expression.name.casefold()) if isinstance(struct, Struct) else None


def _cast(cast: exp.Expr, _columns: Kinds) -> Kind:
    return kind_of_type(cast.args["to"].sql("spark"))


def _literal(literal: exp.Expr, _columns: Kinds) -> Kind:
    if literal.args.get("is_string"):
        return "text"
    if "e" in literal.name.lower():
        return "floating"
    return "decimal" if "." in literal.name else "integer"


def _integer(_operator: exp.Expr, _columns: Kinds) -> Kind:
    return "integer"


def _other(_operator: exp.Expr, _columns: Kinds) -> Kind:
    return "other"


def _same(operator: exp.Expr, columns: Kinds) -> Kind:
    return _kind(operator.this, columns)


def _rounded(function: exp.Expr, columns: Kinds) -> Kind:
    """Rounding to whole numbers makes integers of doubles, to digits it makes decimals."""
    kind = summed(_kind(function.this, columns))
    to_digits = function.args.get("decimals") is not None
    if to_digits or kind not in {"floating", "decimal", "integer"}:
        return "decimal" if to_digits else None
    return "decimal" if kind == "decimal" else "integer"


def _computed(operator: exp.Expr, columns: Kinds) -> Kind:
    return computed(_kinds(_operands(operator), columns))


def _divided(operator: exp.Expr, columns: Kinds) -> Kind:
    return divided(_kinds(_operands(operator), columns))


def _chosen(function: exp.Expr, columns: Kinds) -> Kind:
    return chosen(_kinds(_operands(function), columns))


def _branches(choice: exp.Expr, columns: Kinds) -> Kind:
    return chosen(_kinds((choice.args["true"], choice.args.get("false")), columns))


def _case(case: exp.Expr, columns: Kinds) -> Kind:
    results = [branch.args["true"] for branch in case.args["ifs"]]
    return chosen(_kinds((*results, case.args.get("default")), columns))


def _decoded(decode: exp.Expr, columns: Kinds) -> Kind:
    """The results in `decode(value, search, result, …, default)`; no default is a null text."""
    pairs = decode.expressions[1:]
    results = [*_kinds(pairs[1::2], columns)]
    default = _kinds(pairs[-1:], columns) if len(pairs) % 2 else ["text"]
    return chosen([*results, *default])


def _function(call: exp.Expr, columns: Kinds) -> Kind:
    name = name_of(call)
    if name in LIKE_A_REMAINDER:
        return _computed(call, columns)
    if name in LIKE_THE_FIRST:
        return summed(_first(call, columns))
    return chosen((_first(call, columns), "integer")) if name == "zeroifnull" else _NAMED.get(name)


def _first(call: exp.Expr, columns: Kinds) -> Kind:
    return next(_kinds(_operands(call), columns), None)


def _operands(operator: exp.Expr) -> tuple[exp.Expr | None, ...]:
    # The parser keeps the name of a function that it does not know where others have an operand.
    first = None if isinstance(operator, exp.Anonymous) else operator.this
    return (first, operator.args.get("expression"), *operator.expressions)


def _kinds(parts: Iterable[exp.Expr | None], columns: Kinds) -> Iterator[Kind]:
    """Of all parts that are there; `null` takes any type."""
    return (_kind(it, columns) for it in parts if it is not None and not isinstance(it, exp.Null))


_NAMED: dict[str, Kind] = {
    **_FAMILIES,
    **dict.fromkeys(FLOATING, "floating"),
    **dict.fromkeys(DECIMALS, "decimal"),
    **dict.fromkeys(INTEGERS, "integer"),
    **dict.fromkeys(TEXTS, "text"),
}
"""Functions that always give the same family; `bigint(x)` is a cast."""

_Rule: TypeAlias = Callable[[exp.Expr, Kinds], Kind]

_RULES: dict[type[exp.Expr], _Rule] = {
    exp.Column: _column,
    exp.Dot: _field,
    exp.Literal: _literal,
    exp.Case: _case,
    exp.DecodeCase: _decoded,
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
    **dict.fromkeys((exp.Paren, exp.Nullif), _same),
    **dict.fromkeys((exp.Floor, exp.Ceil), _rounded),
    **dict.fromkeys((exp.Div, exp.SafeDivide), _divided),
    **dict.fromkeys(
        (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Neg, exp.Abs, exp.Round, exp.Negative,
         exp.SafeAdd, exp.SafeSubtract, exp.SafeMultiply),
        _computed,
    ),
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least), _chosen),
    **dict.fromkeys((exp.If, exp.Nvl2), _branches),
    **dict.fromkeys(
        (exp.IntDiv, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot,
         exp.BitwiseLeftShift, exp.BitwiseRightShift),
        _integer,
    ),
    **dict.fromkeys((exp.Interval, exp.Boolean, exp.And, exp.Or, exp.Not), _other),
}  # fmt: skip
"""By exact type: a wide table has thousands of expressions."""
