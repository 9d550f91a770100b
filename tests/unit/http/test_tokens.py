"""Tokens and the names of runs: who is who, and whose is what."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import InvalidRunName, InvalidTokens, UnknownToken
from tidegate.http.auth.tokens import Tokens, beginning_of, digest_of, read_tokens, stored_name

TOKENS = Tokens((("ann", digest_of("one")), ("ann", digest_of("two")), ("ben", digest_of("three"))))


@pytest.mark.parametrize(
    ("authorization", "client"),
    [("Bearer one", "ann"), ("bearer two", "ann"), ("Bearer three", "ben")],
)
def test_a_client_is_known_by_any_of_its_tokens(authorization: str, client: str) -> None:
    assert TOKENS.client_of(authorization) == client


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer four",
        "Basic one",
        "one",
        f"Bearer {digest_of('one')}",
    ],
)
def test_other_authorizations_are_refused(authorization: str | None) -> None:
    with pytest.raises(UnknownToken):
        TOKENS.client_of(authorization)


def test_a_file_of_tokens_has_digests_comments_and_empty_lines(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# ours\n\nann: {digest_of('one')}\n  ben :{digest_of('two').upper()}\n")
    assert read_tokens(file).clients == (("ann", digest_of("one")), ("ben", digest_of("two")))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ann: a token in clear\n", 1),
        (f"# ours\nann/x: {digest_of('one')}\n", 2),
        ("ann\n", 1),
        ("# nobody\n", 1),
        ("", 0),
    ],
)
def test_a_wrong_line_is_named_and_what_may_be_a_token_is_not_repeated(
    text: str, line: int, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(InvalidTokens) as wrong:
        read_tokens(file)
    assert wrong.value.line == line
    assert "a token in clear" not in str(wrong.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidTokens, match="cannot be read"):
        read_tokens(tmp_path / "nowhere")


def test_no_run_of_one_client_has_a_name_that_begins_like_anothers() -> None:
    assert stored_name("ann", "march") != stored_name("ann.b", "march")
    assert not stored_name("ann.b", "march").startswith(beginning_of("ann"))


@pytest.mark.parametrize("run", ["", ".", "..", "a/b", "../ben/march", "a b", "-x", "x" * 101, "ä"])
def test_a_name_that_could_lead_elsewhere_is_refused(run: str) -> None:
    with pytest.raises(InvalidRunName):
        stored_name("ann", run)
