"""A chunk checker that fails in the way that the name of a file requests."""

import os
import resource
import runpy
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.errors import base

if TYPE_CHECKING:
    from tidegate.spark.checker.limits import ChunkLimits
    from tidegate.spark.checker.protocol import Check, Copied, NeedsSpark

MAIN = Path(base.__file__).parents[1] / "spark" / "checker" / "main.py"

chunks = 0
kept: list[bytes] = []


def check(request: "Check", limits: "ChunkLimits", _: object) -> "Copied | NeedsSpark":
    from tidegate.spark.checker.protocol import Copied
    from tidegate.spark.ingest.ingest import check_chunk

    global chunks  # noqa: PLW0603
    chunks += 1
    name = Path(request.file).stem
    if name == "abort" or (name == "abort-if-used" and chunks > 1):
        unfinished = Path(request.root, f"{request.name}.parquet.writing")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text("half of it")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()
    if name == "hang":
        time.sleep(600)
    if name == "need-memory":
        raise MemoryError
    if name == "need-what-was-kept" and kept:
        raise MemoryError
    if name == "keep":
        kept.append(b"x" * (limits.memory_bytes // 3))
    if name == "lie":
        return Copied(("../elsewhere.parquet",), 1, 1)
    if name == "break":
        raise PermissionError("the root is not ours")
    return check_chunk(request, limits)


def main() -> None:
    if "start-failing" in sys.argv[0]:
        sys.exit("it cannot start")
    runpy.run_path(str(MAIN))["without_pyspark"]()
    from tidegate.spark.checker import checker

    vars(checker)["check_chunk"] = check
    checker.main()


if __name__ == "__main__":
    main()
