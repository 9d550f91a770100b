"""Errors as they travel: a status for each, and the same error where it arrives."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace

import msgspec
import pytest
from starlette.requests import Request

from tidegate import errors
from tidegate.errors import (
    BadValue,
    ChunkConflict,
    ChunksMissing,
    DatabaseUnreachable,
    RefusedByServer,
    RunError,
    ServeError,
    ServerTrouble,
    TidegateError,
    UnknownToken,
    UsageError,
    WorkerGaveUp,
)
from tidegate.http.error_mapping import (
    ErrorBody,
    error_body,
    error_from_body,
    visible_error,
)
from tidegate.http.responses import handle_error

EVERY = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TidegateError)
]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status(kind: type[TidegateError]) -> None:
    assert 400 <= kind.http_status < 600


def test_what_a_client_does_wrong_is_never_the_servers_fault() -> None:
    ours = {errors.ServerUnreachable, errors.RefusedByServer, errors.ServerFailed, ServeError}
    ours |= {errors.UntrustedName, errors.FilesOnServer}
    clients = [it for it in EVERY if issubclass(it, ServeError) and it not in ours]
    assert [it for it in clients if "http_status" not in vars(it)] == []


def test_an_error_arrives_as_the_same_class_with_the_same_fields() -> None:
    for error in (
        ChunkConflict("march", "sales", 3, "a" * 64, "b" * 64),
        ChunksMissing("march", "sales", (1, 2)),
        BadValue("sales", "1.csv", "quantity", "two", "int", 3),
        UnknownToken(),
    ):
        sent = msgspec.json.encode(error_body(error))
        arrived = error_from_body(msgspec.json.decode(sent, type=ErrorBody))
        assert type(arrived) is type(error)
        assert str(arrived) == str(error)
        assert [getattr(arrived, it.name) for it in fields(arrived)] == [
            getattr(error, it.name) for it in fields(error)
        ]


def test_where_things_are_in_the_deployment_stays_there() -> None:
    error = visible_error(DatabaseUnreachable("shop on db.example:5433", 60, "refused"))
    assert isinstance(error, ServerTrouble)
    assert error.retryable
    assert "db.example" not in msgspec.json.encode(error_body(error)).decode()
    assert error.http_status == 503


def test_why_a_worker_has_given_up_is_for_the_log_since_it_may_name_runs_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scope = {"type": "http", "method": "GET", "path": "/health", "headers": []}
    gave_up = WorkerGaveUp("shop", "task s1 of ben/march has died on db.example")
    answer = asyncio.run(handle_error(Request(scope), gave_up))
    assert answer.status_code == 503
    assert b"ServerTrouble" in answer.body
    assert not any(it in bytes(answer.body) for it in (b"ben", b"march", b"db.example"))
    assert "ben/march" in caplog.text


@pytest.mark.parametrize("condition", ["Tomorrow", "listed", "TidegateError.__init__", "Exception"])
def test_a_condition_that_this_client_does_not_know_keeps_its_sentence(condition: str) -> None:
    error = error_from_body(ErrorBody(condition, "what happened", {"of": 1}, retryable=False))
    assert isinstance(error, RefusedByServer)
    assert "what happened" in str(error)


def test_a_known_condition_with_other_fields_keeps_its_sentence_too() -> None:
    error = error_from_body(
        ErrorBody("ChunkConflict", "what happened", {"run": "march"}, retryable=False)
    )
    assert isinstance(error, RefusedByServer)


def test_the_statuses_of_runs_and_usage_are_not_one_for_all() -> None:
    assert "http_status" not in vars(RunError)
    assert "http_status" not in vars(UsageError)


def test_fields_that_make_no_sentence_are_left_out() -> None:
    visible_error = error_body(errors.RunTimeout("march", 5.0))
    strange = replace(visible_error, fields={"run": "march", "seconds": "soon"})
    assert str(error_from_body(strange)) == f"{visible_error.message} [RunTimeout]"
