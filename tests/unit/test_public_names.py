"""What `import tidegate` offers, and what it must not load for that."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidegate


@pytest.mark.parametrize("name", tidegate.__all__)
def test_every_public_name_can_be_used_from_the_top(name: str) -> None:
    assert getattr(tidegate, name) is not None
    assert name in dir(tidegate)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="dance"):
        tidegate.dance  # noqa: B018


def test_declaring_a_pipeline_loads_neither_spark_nor_postgresql() -> None:
    code = (
        "import sys, tidegate as tg; tg.Pipeline('shop').source('sales', 'id bigint').sink('all');"
        "sys.exit(bool({'pyspark', 'psycopg'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
