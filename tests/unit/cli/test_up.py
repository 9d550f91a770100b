"""`tidegate up` and `drain`: what is refused before anything is started."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from tidegate.cli import app


def invoked(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(it) for it in arguments])


def test_several_workers_on_a_cluster_have_to_share_it(tmp_path: Path) -> None:
    done = invoked("up", "coffee", "--deployment", tmp_path / "d", "--spark", "spark://h:7077")

    assert done.exit_code == 2
    assert "--cores" in done.stderr
    assert not (tmp_path / "d").exists()


def test_an_address_that_others_reach_needs_tokens(tmp_path: Path) -> None:
    done = invoked("up", "coffee", "--deployment", tmp_path / "d", "--listen", "0.0.0.0:8420")

    assert done.exit_code != 0
    assert "--tokens" in done.stderr
    assert not (tmp_path / "d").exists()


def test_nobody_can_be_drained_where_nobody_coordinates(tmp_path: Path) -> None:
    done = invoked("drain", "worker-1", "--deployment", tmp_path)

    assert done.exit_code == 1
    assert "tidegate up" in done.stderr


def test_a_worker_elsewhere_needs_the_secret(tmp_path: Path) -> None:
    address = "tcp://127.0.0.1:7001"
    done = invoked("drain", "worker-1", "--deployment", tmp_path, "--group", address)

    assert done.exit_code == 1
    assert "TIDEGATE_SECRET" in done.stderr
