"""Fitting typed columns, as Parquet and Arrow files have them, to the declared types.

Only what loses nothing: whole numbers and decimals of another width, moments of another unit, ids
stored as floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_DIGITS = 38
"""That 128 bits, and decimals of Spark, can hold."""


@dataclass(eq=False)
class Misfit(Exception):
    """A column is of a type that is not fitted to the declared one."""

    column: str
    found: str
    declared: str


@dataclass(eq=False)
class Unfit(Exception):
    """A value would change if it was fitted to the declared type."""

    column: str
    value: str


def places_of(schema: pa.Schema, found: Sequence[str]) -> list[int]:
    """Where the declared columns are among those found, the first of each name."""
    known = [name.casefold() for name in found]
    return [known.index(name.casefold()) for name in schema.names]


def refuse_misfits(schema: pa.Schema, found: Sequence[pa.Field]) -> None:
    """Raises `Misfit` for the first column that cannot be fitted; `found` are in this order."""
    for field, it in zip(schema, found, strict=True):
        if not _fits(it.type, field.type):
            raise Misfit(field.name, str(it.type), str(field.type))


def fitted(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches with the columns of the schema, in its order. Raises `Unfit`."""
    for batch in batches:
        columns = map(_fit, schema, batch.columns)
        yield pa.Table.from_arrays(list(columns), schema=schema)


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    if types.is_dictionary(found):
        return _fits(found.value_type, wanted)
    return found == wanted or types.is_null(found) or _is_kin(found, wanted)


def _is_kin(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type may be values of another."""
    if types.is_integer(wanted):
        return _is_number(found)
    if types.is_floating(wanted):
        return bool(types.is_floating(found) and found.bit_width <= wanted.bit_width)
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(found) and (found.tz is None) == (wanted.tz is None))
    return any(alike(wanted) and alike(found) for alike in (_is_text, _is_decimal, types.is_date))


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return kind in {pa.string(), pa.large_string(), pa.string_view()}


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(types.is_decimal(kind) and kind.precision <= _DIGITS)


def _fit(field: pa.Field, values: pa.Array) -> pa.Array:
    if types.is_dictionary(values.type):
        values = _decoded(values)
    if values.type == field.type:
        return values
    try:
        return _cast(values, field.type)
    except pa.ArrowInvalid as error:
        raise Unfit(field.name, str(_first_unfit(values, field.type))) from error


def _decoded(values: pa.DictionaryArray) -> pa.Array:
    if values.type.value_type == pa.string_view():  # which Arrow does not decode
        values = pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(pa.string()))
    return values.dictionary_decode()


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if types.is_decimal(kind) and types.is_decimal(values.type):
        # In 128 bits the digits that the scale adds could overflow unnoticed.
        values = values.cast(pa.decimal256(2 * _DIGITS, kind.scale))
    return values.cast(kind)


def _first_unfit(values: pa.Array, kind: pa.DataType) -> object:
    """The first value that cannot be cast: by halves, since Arrow does not say which it was."""
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
