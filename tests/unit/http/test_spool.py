"""The spool: chunks while they arrive, and what is left of those who received them."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import time

import pytest

from tidegate.http.spool import FORGOTTEN, open_spool


def there(root: Path) -> list[Path]:
    return [it for it in root.glob("uploads/*/**/*") if it.is_file()]


def test_a_file_has_exactly_the_bytes_that_came_and_is_gone_when_it_is_removed(
    tmp_path: Path,
) -> None:
    zipped = gzip.compress(b"a,b\n")
    with open_spool(str(tmp_path)) as spool:
        file = spool.file(".csv.gz")
        file.write(zipped[:5])
        file.write(zipped[5:])
        file.close()
        assert Path(file.path).read_bytes() == zipped
        file.remove()
        file.remove()
        assert there(tmp_path) == []


def test_a_file_that_is_removed_while_it_is_written_leaves_nothing(tmp_path: Path) -> None:
    with open_spool(str(tmp_path)) as spool:
        file = spool.file(".csv")
        file.write(b"a,b\n")
        file.remove()
        assert there(tmp_path) == []


def test_a_folder_for_a_result_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    with open_spool(str(tmp_path)) as spool, spool.folder() as folder:
        (folder / "best.csv").write_text("a\n")
        assert there(tmp_path)
    assert list((tmp_path / "uploads").iterdir()) == []


def test_a_path_below_a_relative_root_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_spool("data") as spool:
        assert Path(spool.file(".csv").path).is_absolute()


def test_what_a_killed_server_has_left_goes_with_the_next_and_that_of_a_living_one_stays(
    tmp_path: Path,
) -> None:
    code = (
        "import os, signal; from tidegate.http.spool import open_spool\n"
        f"with open_spool({str(tmp_path)!r}) as spool:\n"
        "    spool.file('.csv').write(b'a'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(there(tmp_path)) == 1
    with open_spool(str(tmp_path)) as living:
        assert there(tmp_path) == []
        file = living.file(".csv")
        with open_spool(str(tmp_path)):
            assert there(tmp_path) == [Path(file.path)]
    assert list((tmp_path / "uploads").iterdir()) == []


def test_where_there_are_no_locks_what_is_old_goes(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads" / "gone"
    uploads.mkdir(parents=True)
    for name in ("old", "young"):
        (uploads / name).write_text("a")
    os.utime(uploads / "old", (0, time() - FORGOTTEN - 60))
    with open_spool(tmp_path.as_uri()) as spool:
        assert [it.name for it in there(tmp_path)] == ["young"]
        file = spool.file(".csv")
        file.write(b"a")
        file.remove()
        assert [it.name for it in there(tmp_path)] == ["young"]
