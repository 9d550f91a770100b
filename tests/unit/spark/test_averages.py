"""The types of sums and averages of decimals, as Spark has them."""

import pytest
from pyspark.sql.types import DecimalType

from tidegate.spark.jobs.averages import average_type, sum_type


@pytest.mark.parametrize(
    ("argument", "total", "average"),
    [
        ((10, 2), (20, 2), (14, 6)),
        ((30, 20), (38, 20), (34, 24)),
        ((38, 0), (38, 0), (38, 4)),
        ((38, 36), (38, 36), (38, 38)),
    ],
)
def test_sums_and_averages_widen_up_to_38_digits(
    argument: tuple[int, int], total: tuple[int, int], average: tuple[int, int]
) -> None:
    assert sum_type(DecimalType(*argument)) == DecimalType(*total)
    assert average_type(DecimalType(*argument)) == DecimalType(*average)
