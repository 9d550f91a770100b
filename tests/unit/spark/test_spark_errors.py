"""Spark's long errors in one line."""

from tidegate.spark.jobs.spark_errors import cause_of, is_in_the_data

TASK_FAILURE = """An error occurred while calling o316.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030
	at org.apache.spark.sql.execution.Whatever(Whatever.scala:1)
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error. SQLSTATE: KD001
Caused by: org.apache.spark.SparkRuntimeException: [MALFORMED_CSV_RECORD] Malformed CSV record: x,1 SQLSTATE: KD000
	... 27 more
"""  # noqa: E501 - Spark's own lines


def test_of_nested_conditions_the_innermost_is_reported() -> None:
    assert cause_of(RuntimeError(TASK_FAILURE)) == (
        "MALFORMED_CSV_RECORD",
        "Malformed CSV record: x,1",
    )


def test_the_java_exception_below_the_innermost_condition_is_reported_too() -> None:
    text = (
        "[TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030\n"
        "Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
        "Caused by: java.io.IOException: No space left on device\n\t... 27 more"
    )
    assert cause_of(RuntimeError(text)) == (
        "TASK_WRITE_FAILED",
        "Task failed while writing rows: No space left on device",
    )


def test_plans_and_positions_behind_the_first_sentence_are_left_out() -> None:
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] No `a`. Try [`b`]. SQLSTATE: 42703; line 1\n'Project"
    )
    assert cause_of(ValueError(text)) == (
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "No `a`. Try [`b`].",
    )


def test_what_has_no_condition_is_named_by_its_class() -> None:
    assert cause_of(KeyError("amount")) == ("KeyError", "'amount'")
    assert cause_of(ValueError()) == ("ValueError", "ValueError")


def test_a_long_sentence_is_shortened() -> None:
    condition, reason = cause_of(ValueError("x" * 5000))
    assert condition == "ValueError"
    assert len(reason) == 400


def test_an_overflow_is_in_the_data_and_a_full_disk_is_not() -> None:
    overflow = (
        "[TASK_WRITE_FAILED] … SQLSTATE: 58030\nCaused by: [ARITHMETIC_OVERFLOW] x SQLSTATE: 22003"
    )
    assert is_in_the_data(ValueError(overflow))
    assert not is_in_the_data(RuntimeError(TASK_FAILURE))
    assert not is_in_the_data(OSError("No space left on device"))
