"""The types that the planner infers without Spark are those of Spark."""

import pytest

from tidegate.errors import SourceLine
from tidegate.pipeline.schema import read_schema
from tidegate.pipeline.sql import parse
from tidegate.plan.kinds import kind_of, kind_of_type
from tidegate.spark import Session
from tidegate.spark.analyze.schemas import empty_source

HERE = SourceLine(__file__, 1)
FIELDS = read_schema("types", """
    d double, f float, m decimal(10,2), n bigint, i int, t string, dt date, ts timestamp_ntz,
    b boolean, p struct<x: double, m: decimal(5,1), q: struct<y: float>>, a array<double>
""", HERE)  # fmt: skip

NUMBERS = """
    d; f; m; n; i; t; p.x; p.m; p.q.y; 1; 1.5; 1e3; 1.5D; 2BD; 3L; 1.0f; -n; -t; n + 1.5; m * d;
    f + i; f * f; m % 2; t + 1; t + m; t + d; t * 2.5; t % 2; t / 2; t / m; n / 2; m / n; n div 2;
    m div 2; n & 1; n << 1; abs(t); abs(m); round(d, 2); round(t, 1); bround(m, 1); bround(d, 1);
    floor(t); floor(m); floor(d); floor(d, 1); ceil(d); ceil(d, 1); negative(n); positive(d)
"""
CHOICES = """
    coalesce(t, 1); coalesce(t, m); coalesce(t, d); coalesce(null, d); ifnull(d, n); nvl(n, d);
    nvl2(n, d, m); nullif(t, 1); nullif(n, d); nullifzero(m); zeroifnull(m); zeroifnull(t);
    if(b, t, 1); if(b, null, n); case when b then t else 1.5 end; case n when 1 then m end;
    decode(n, 1, d, m); decode(n, 1, m); decode(n, 1, n); greatest(n, m, d); least(f, n)
"""
FUNCTIONS = """
    sin(n); cos(n); tan(n); cot(n); sec(n); csc(n); asin(n); acos(n); atan(n); atan2(n, n);
    sinh(n); cosh(n); tanh(n); asinh(n); acosh(n); atanh(n); sqrt(n); cbrt(n); hypot(n, n);
    exp(n); expm1(n); ln(n); log(2, n); log2(n); log10(n); log1p(n); pow(n, 2); degrees(n);
    radians(n); rint(n); sign(m); e(); pi(); nanvl(f, 1); months_between(dt, dt);
    try_add(n, d); try_add(m, n); try_subtract(n, m); try_multiply(d, n); try_divide(n, 2);
    try_divide(m, 2); mod(n, 2); pmod(n, 2); pmod(m, d); try_mod(n, 2); double(t); decimal(t);
    bigint(t); try_cast(t as float); cast(t as decimal); t::double; to_number(t, '9');
    length(t); bit_length(t); octet_length(t); ascii(t); instr(t, t); levenshtein(t, t);
    year(dt); quarter(dt); month(dt); day(dt); dayofweek(dt); dayofyear(dt); weekofyear(dt);
    weekday(dt); hour(ts); minute(ts); second(ts); datediff(dt, dt); timestampdiff(day, ts, ts);
    unix_timestamp(ts); unix_seconds(timestamp(ts)); unix_date(dt); size(a); cardinality(a);
    hash(t); xxhash64(t); crc32(t); bit_count(n); factorial(i); width_bucket(d, 1, 2, 3);
    upper(t); lower(t); initcap(t); trim(t); ltrim(t); rtrim(t); lpad(t, 2, 'a'); left(t, 2);
    right(t, 2); substring(t, 1, 2); replace(t, 'a', 'b'); translate(t, 'a', 'b'); repeat(t, 2);
    split_part(t, ',', 1); regexp_extract(t, 'a', 0); regexp_replace(t, 'a', 'b');
    regexp_substr(t, 'a'); get_json_object(t, '$.a'); concat_ws(',', t, t); date_format(ts, 'y')
"""
OTHERS = "dt; b; a; n > 1; not b; b and b; dt - dt; ts - ts; i * interval 1 day; d * interval 1 day"


@pytest.mark.parametrize("texts", [NUMBERS, CHOICES, FUNCTIONS, OTHERS])
def test_what_is_certain_without_spark_is_true(spark: Session, texts: str) -> None:
    known = {field.name: kind_of_type(field.type) for field in FIELDS}
    expressions = [text.strip() for text in texts.split(";")]
    schema = empty_source(spark, FIELDS).selectExpr(*expressions).schema
    wanted = {sql: kind_of_type(it.dataType.simpleString())
              for sql, it in zip(expressions, schema, strict=True)}  # fmt: skip
    assert {sql: kind_of(parse(sql, HERE), known) for sql in expressions} == wanted
