"""Converts typed columns of Parquet and Arrow files to the declared types, without loss.

Integers and decimals of another width, timestamps of another unit, ids stored as floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_DIGITS = 38
"""The most digits of a decimal in 128 bits, and in Spark."""


@dataclass(eq=False)
class IncompatibleType(Exception):
    """A column has a type that is not converted to the declared one."""

    column: str
    found: str
    declared: str


@dataclass(eq=False)
class LossyValue(Exception):
    """A value would change if it was converted to the declared type."""

    column: str
    value: str


def positions_of(schema: pa.Schema, found: Sequence[str]) -> list[int]:
    """The positions of the declared columns among those found, the first of each name."""
    known = [name.casefold() for name in found]
    return [known.index(name.casefold()) for name in schema.names]


def refuse_incompatible(schema: pa.Schema, found: Sequence[pa.Field]) -> None:
    """Raise `IncompatibleType` for the first column that cannot be converted."""
    for field, it in zip(schema, found, strict=True):
        if not _is_convertible(it.type, field.type):
            raise IncompatibleType(field.name, str(it.type), str(field.type))


def converted(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches with the columns of the schema, in its order. Raises `LossyValue`."""
    for batch in batches:
        columns = map(_convert, schema, batch.columns)
        yield pa.Table.from_arrays(list(columns), schema=schema)


def _is_convertible(found: pa.DataType, declared: pa.DataType) -> bool:
    if types.is_dictionary(found):
        return _is_convertible(found.value_type, declared)
    return found == declared or types.is_null(found) or _is_related(found, declared)


def _is_related(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of one type may be values of another."""
    if types.is_integer(declared):
        return _is_number(found)
    if types.is_floating(declared):
        return bool(types.is_floating(found) and found.bit_width <= declared.bit_width)
    if types.is_timestamp(declared):
        return bool(types.is_timestamp(found) and (found.tz is None) == (declared.tz is None))
    return any(alike(declared) and alike(found) for alike in (_is_text, _is_decimal, types.is_date))


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return kind in {pa.string(), pa.large_string(), pa.string_view()}


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(types.is_decimal(kind) and kind.precision <= _DIGITS)


def _convert(field: pa.Field, values: pa.Array) -> pa.Array:
    if types.is_dictionary(values.type):
        values = _decoded(values)
    if values.type == field.type:
        return values
    try:
        return _cast(values, field.type)
    except pa.ArrowInvalid as error:
        raise LossyValue(field.name, str(_first_lossy(values, field.type))) from error


def _decoded(values: pa.DictionaryArray) -> pa.Array:
    if values.type.value_type == pa.string_view():  # which Arrow does not decode
        values = pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(pa.string()))
    return values.dictionary_decode()


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if types.is_decimal(kind) and types.is_decimal(values.type):
        # In 128 bits the digits added by the scale could overflow silently.
        values = values.cast(pa.decimal256(2 * _DIGITS, kind.scale))
    return values.cast(kind)


def _first_lossy(values: pa.Array, kind: pa.DataType) -> object:
    """The first value that cannot be cast, found by bisection: Arrow does not report it."""
    while len(values) > 1:
        half = len(values) // 2
        first = values.slice(0, half)
        values = values.slice(half) if _casts(first, kind) else first
    return values[0].as_py()


def _casts(values: pa.Array, kind: pa.DataType) -> bool:
    try:
        _cast(values, kind)
    except pa.ArrowInvalid:
        return False
    return True
