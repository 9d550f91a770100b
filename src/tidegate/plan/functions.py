"""Spark functions whose result always has one family of types.

Names are those of `tidegate.pipeline.sql.name_of`: the parser's own where it knows a function.
"""

from __future__ import annotations

# fmt: off
FLOATING = frozenset({
    "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "atan2", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "sqrt", "cbrt", "hypot", "exp", "expm1", "ln", "log",
    "log1p", "power", "degrees", "radians", "rint", "sign", "e", "pi", "nanvl", "months_between"
})

INTEGERS = frozenset({
    "length", "bit_length", "byte_length", "octet_length", "ascii", "unicode", "str_position",
    "levenshtein", "year", "quarter", "month", "day", "day_of_month", "day_of_week",
    "day_of_year", "week_of_year", "weekday", "hour", "minute", "second", "datediff",
    "timestampdiff", "str_to_unix", "unix_seconds", "unix_millis", "unix_micros", "unix_date",
    "array_size", "cardinality", "hash", "xxhash64", "crc32", "bitwise_count", "factorial",
    "width_bucket"
})

DECIMALS = frozenset({"to_number", "try_to_number"})

TEXTS = frozenset({
    "upper", "lower", "initcap", "trim", "ltrim", "rtrim", "pad", "substring", "left", "right",
    "replace", "translate", "repeat", "split_part", "regexp_extract", "regexp_replace",
    "regexp_substr", "json_extract_scalar", "get_json_object", "concat_ws", "time_to_str"
})

LIKE_THE_FIRST = frozenset({"bround", "positive", "nullifzero"})
"""Functions whose result is of the same family as their first argument."""

LIKE_A_REMAINDER = frozenset({"pmod", "try_mod"})
"""Functions that compute like `%`."""
# fmt: on
