"""A connection lost during a commit: nobody knows whether a chunk was recorded, so nothing goes."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.integration.runtime.shop import Client, ask, files_of
from tidegate.errors import DatabaseUnreachable, SourceEnded
from tidegate.runtime.deployment import Deployment
from tidegate.runtime.file_storage import FileStorage
from tidegate.runtime.ingestion import run_service as servers
from tidegate.runtime.ingestion.run_service import RunService
from tidegate.runtime.monitor.sweeper import sweep
from tidegate.store import ChannelName, Chunk, Connection, RunInfo, record_chunk

TEA = (1, 7)


@pytest.fixture
def client(counter: RunService, tmp_path: Path) -> Client:
    return Client(counter, "march", tmp_path)


class Losing:
    """Stands for `record_chunk`: commits it, or takes it back, and loses the connection once."""

    def __init__(self, error: Exception, *, is_committed: bool = True) -> None:
        self._error: Exception | None = error
        self._is_committed = is_committed

    def __call__(
        self,
        connection: Connection,
        run: RunInfo,
        chunk: Chunk,
        channels: list[ChannelName],
        ends: list[ChannelName],
    ) -> bool:
        is_new = record_chunk(connection, run, chunk, channels, ends)
        if (error := self._error) is None:
            return is_new
        self._error = None
        if self._is_committed:
            connection.commit()
        raise error


def unreachable() -> DatabaseUnreachable:
    return DatabaseUnreachable("shop", 60.0, "the connection is lost")


def files_recorded(place: Deployment) -> list[str]:
    (files,) = ask(place.database, "SELECT files FROM tidegate.chunk")[0]
    assert isinstance(files, list)
    return files


def test_a_chunk_whose_commit_was_not_confirmed_keeps_the_files_that_its_row_names(
    place: Deployment, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "record_chunk", Losing(unreachable()))
    with pytest.raises(DatabaseUnreachable):
        client.sales(1, TEA)
    sweep(place.database, FileStorage(place.root))
    assert files_of(place, client.id) == files_recorded(place)
    assert not client.sales(1, TEA), "it was delivered before"
    assert files_of(place, client.id) == files_recorded(place)


def test_a_commit_that_is_tried_again_keeps_the_files_of_the_first_time(
    place: Deployment, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "record_chunk", Losing(psycopg.OperationalError("lost")))
    assert client.sales(1, TEA)
    assert files_of(place, client.id) == files_recorded(place)


def test_what_was_not_committed_after_all_goes_with_its_run(
    place: Deployment, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = Losing(unreachable(), is_committed=False)
    monkeypatch.setattr(servers, "record_chunk", losing)
    with pytest.raises(DatabaseUnreachable):
        client.sales(1, TEA)
    assert client.sales(1, TEA)
    assert len(files_of(place, client.id)) == 2
    client.server.cancel("march")
    sweep(place.database, FileStorage(place.root))
    assert files_of(place, client.id) == []


def test_a_refused_chunk_leaves_no_file(place: Deployment, client: Client) -> None:
    client.sales(1, TEA)
    client.server.end("march", "sales", chunks=1)
    with pytest.raises(SourceEnded):
        client.sales(2, TEA)
    assert files_of(place, client.id) == files_recorded(place)
