"""The spool: chunks while they arrive."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from time import time

from tidegate.serve.spool import FORGOTTEN, Spool


def there(root: Path) -> list[Path]:
    return [it for it in root.rglob("*") if it.is_file()]


def test_a_file_has_exactly_the_bytes_that_came_and_is_gone_when_it_is_removed(
    tmp_path: Path,
) -> None:
    zipped = gzip.compress(b"a,b\n")
    file = Spool(str(tmp_path)).file(".csv.gz")
    file.write(zipped[:5])
    file.write(zipped[5:])
    file.close()
    assert Path(file.path).read_bytes() == zipped
    file.remove()
    file.remove()
    assert there(tmp_path) == []


def test_a_file_that_is_removed_while_it_is_written_leaves_nothing(tmp_path: Path) -> None:
    file = Spool(str(tmp_path)).file(".csv")
    file.write(b"a,b\n")
    file.remove()
    assert there(tmp_path) == []


def test_what_a_server_has_left_goes_once_nobody_can_be_writing_it(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    young, old = spool.file(".csv"), spool.file(".csv")
    for file in (young, old):
        file.close()
    os.utime(old.path, (0, time() - FORGOTTEN - 60))
    assert spool.tidy() == 1
    assert [str(it) for it in there(tmp_path)] == [young.path]


def test_a_folder_for_a_result_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    with Spool(str(tmp_path)).folder() as folder:
        (folder / "best.csv").write_text("a\n")
        assert there(tmp_path)
    assert there(tmp_path) == []
