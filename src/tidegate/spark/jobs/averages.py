"""The average of decimals from its merged sum and count, to the last digit of Spark's own.

Spark divides differently for narrow and for wide decimals, and a plain SQL division loses digits
or rounds twice where the sum has many. For `decimal(p, s)` the value is that of `avg` itself:

    p ≤ 11      unscaled values are averaged as doubles, as in Spark's optimizer
    otherwise   the exact quotient, rounded once, half up, to the result's scale
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn
from pyspark.sql.types import DecimalType

if TYPE_CHECKING:
    from pyspark.sql import Column

MAX_DIGITS = 38
DOUBLE_DIGITS = 15
"""Digits that a double holds; Spark uses doubles where the average has no more."""
_BLOCK = 18
"""Digits per step of long division: a remainder and a block fit into one decimal together."""
_NARROW, _FEW = 28, 10**6
"""Digits of a sum and number of values for which Spark's own division is exact enough."""
_WHOLE = DecimalType(MAX_DIGITS, 0)


def sum_type(argument: DecimalType) -> DecimalType:
    """The type of Spark's own sum of decimals."""
    return DecimalType(min(argument.precision + 10, MAX_DIGITS), argument.scale)


def average_type(argument: DecimalType) -> DecimalType:
    """The type of Spark's own average of decimals."""
    precision, scale = argument.precision + 4, argument.scale + 4
    return DecimalType(min(precision, MAX_DIGITS), min(scale, MAX_DIGITS))


def decimal_average(total: Column, count: Column, argument: DecimalType) -> Column:
    """`total / count` as `avg` gives it for values of the type `argument`; null for no values."""
    total = total.cast(sum_type(argument))
    return fn.when(count > 0, _average(total, count, argument))


def _average(total: Column, count: Column, argument: DecimalType) -> Column:
    result = average_type(argument)
    if result.precision <= DOUBLE_DIGITS:
        return _double_average(total, count, argument.scale).cast(result)
    exact = _long_division(total, count, argument.scale, result)
    if argument.scale > _NARROW:
        return exact
    # Dividing a sum of 28 digits gives 6 decimals more than the average has. A quotient by n is
    # a tie or at least 1/2n away from one, so while n < 10^6 the second rounding is harmless.
    narrow = total.try_cast(DecimalType(_NARROW, argument.scale))
    plain = (narrow / count.cast(DecimalType(20, 0))).cast(result)
    return fn.when(narrow.isNotNull() & (count < _FEW), plain).otherwise(exact)


def _double_average(total: Column, count: Column, scale: int) -> Column:
    power = fn.lit(float(10**scale))
    unscaled = (total * fn.lit(10**scale).cast(DecimalType(scale + 1, 0))).cast("double")
    return unscaled / count.cast("double") / power


# --- long division ---------------------------------------------------------------------------


def _long_division(total: Column, count: Column, scale: int, result: DecimalType) -> Column:
    """Schoolbook division in base 10^18, up to the digit that decides about rounding."""
    zeros = result.scale + 1 - scale
    width = -(-(MAX_DIGITS + zeros) // _BLOCK) * _BLOCK
    text = total.cast("string")
    # Not abs(): Spark rounds it to 34 digits. Nor total < 0: comparing may lose decimals.
    padded = fn.lpad(fn.concat(fn.translate(text, "-.", ""), fn.lit("0" * zeros)), width, "0")
    starts = range(1, width + 1, _BLOCK)
    blocks = fn.array(*(padded.substr(start, _BLOCK).cast(_WHOLE) for start in starts))
    digits = _rounded(_divided(blocks, count.cast(DecimalType(19, 0))), result.scale)
    sign = fn.when(text.startswith("-"), "-").otherwise("")
    return fn.concat(sign, digits).cast(result)


def _divided(blocks: Column, divisor: Column) -> Column:
    """The digits of the quotient: of each block, with the remainder of the blocks before it."""
    nothing = fn.struct(fn.lit("").alias("digits"), fn.lit(0).cast(_WHOLE).alias("rest"))

    def bring_down(done: Column, block: Column) -> Column:
        current = (done["rest"] * fn.lit(10**_BLOCK) + block).cast(_WHOLE)
        quotient = fn.call_function("div", current, divisor).cast("string")
        digits = fn.concat(done["digits"], fn.lpad(quotient, _BLOCK, "0"))
        return fn.struct(digits.alias("digits"), (current % divisor).cast(_WHOLE).alias("rest"))

    return fn.aggregate(blocks, nothing, bring_down)["digits"]


def _rounded(digits: Column, scale: int) -> Column:
    """Digits with `scale` + 1 decimals as the text of a number with `scale`, rounded half up."""
    up = fn.when(digits.substr(-1, 1) >= "5", 1).otherwise(0)
    kept = digits.substr(fn.lit(1), fn.length(digits) - 1).cast(_WHOLE) + up
    text = fn.lpad(kept.cast(_WHOLE).cast("string"), MAX_DIGITS + 1, "0")
    whole, decimals = text.substr(1, MAX_DIGITS + 1 - scale), text.substr(-scale, scale)
    return fn.concat(whole, fn.lit("."), decimals)
