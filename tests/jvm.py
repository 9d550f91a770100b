"""Java options for tests: JVMs that live for seconds, many of them at once.

They start from an archive of loaded classes (`.venv/spark.jsa`, written by `make setup`), compile
with C1 alone and collect garbage with one thread. A command that starts Spark then takes about half
of the CPU time. Without the archive, or with one of another Java or Spark, JVMs start as usual.

    python -m tests.jvm      writes the archive
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ARCHIVE = Path(sys.prefix, "spark.jsa")
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SILENT = "-Xlog:disable -Xlog:all=error:stderr"
"""A JVM that cannot use an archive warns on standard output, which belongs to the command."""

JOB = """
import sys
from pyspark.sql import functions as F, Window
from tidegate.spark import open_session
folder = sys.argv[1]
spark = open_session("local[2]")
rows = spark.range(100).select("id", (F.col("id") % 7).alias("key"), F.lit("x").alias("text"))
rows.write.csv(folder + "/csv", header=True)
read = spark.read.csv(folder + "/csv", header=True, schema="id long, key long, text string")
total = read.groupBy("key").agg(F.sum("id").alias("total"), F.count("*"), F.avg("id"))
ranked = total.withColumn("rank", F.row_number().over(Window.orderBy("total")))
ranked.join(read, "key", "left").write.partitionBy("key").parquet(folder + "/parquet")
again = spark.read.parquet(folder + "/parquet").orderBy("id")
again.union(again).distinct().createOrReplaceTempView("again")
spark.sql("SELECT key, max(total) FROM again WHERE id > 3 GROUP BY key").toArrow()
spark.stop()
"""


def options() -> dict[str, str]:
    """Environment variables for Spark's launcher, drivers, and the daemons of a cluster."""
    shared = f" -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else ""
    return {
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
        "SPARK_SUBMIT_OPTS": f"{SHORT_LIVED} {SILENT}{shared}",
        "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED} {SILENT}{shared}",
    }


def write_archive() -> None:
    """Run a job with everything that tests often do, and keep the classes that it loaded."""
    ARCHIVE.unlink(missing_ok=True)
    dump = f"{SHORT_LIVED} {SILENT} -XX:ArchiveClassesAtExit={ARCHIVE}"
    with TemporaryDirectory(prefix="tidegate-") as folder:
        subprocess.run(
            [sys.executable, "-c", JOB, folder],
            env={**os.environ, "SPARK_SUBMIT_OPTS": dump},
            check=True,
            timeout=600,
        )


if __name__ == "__main__":
    write_archive()
