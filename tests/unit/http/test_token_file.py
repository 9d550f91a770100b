"""Tokens are added and withdrawn while a server runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tidegate.errors import InvalidTokens, UnknownToken
from tidegate.http.auth.token_file import FRESH, LOOK, Mark, TokenFile
from tidegate.http.auth.tokens import digest_of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Tokens:
    """A file of tokens, and what is known by it one look later."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.clock = Clock()
        self.write("one")
        self.known = TokenFile(file, self.clock)

    def write(self, *tokens: str) -> None:
        """As a careful editor does: another file takes the place of this one."""
        other = self.file.with_suffix(".new")
        other.write_text("".join(f"ann: {digest_of(token)}\n" for token in tokens))
        other.replace(self.file)

    def is_known(self, token: str) -> bool:
        self.clock.now += LOOK
        try:
            return self.known.client_of(f"Bearer {token}") == "ann"
        except UnknownToken:
            return False


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "tokens")


def test_a_token_that_is_withdrawn_is_known_no_longer(tokens: Tokens) -> None:
    assert tokens.is_known("one")
    tokens.write("two")
    assert not tokens.is_known("one")
    assert tokens.is_known("two")


def test_the_last_token_may_be_withdrawn(tokens: Tokens) -> None:
    tokens.write()
    assert not tokens.is_known("one")


def test_a_file_that_is_written_in_place_within_one_tick_is_read_again(tokens: Tokens) -> None:
    at = tokens.file.stat()
    assert tokens.is_known("one")
    tokens.file.write_text(f"ann: {digest_of('two')}\n")  # as long as before
    os.utime(tokens.file, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert not tokens.is_known("one")


def test_a_file_is_looked_at_once_within_a_second(tokens: Tokens) -> None:
    tokens.write("two")
    assert tokens.known.client_of("Bearer one") == "ann"
    assert not tokens.is_known("one")


@pytest.mark.parametrize("text", [None, "ann: a token in clear\n", "\x00\n", "\udcff"])
def test_a_file_that_cannot_be_used_keeps_the_tokens_and_is_logged_once(
    text: str | None, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    tokens.file.unlink()
    if text is not None:
        tokens.file.write_text(text, errors="surrogateescape")
    with caplog.at_level(logging.WARNING):
        assert all(tokens.is_known("one") for _ in range(3))
    (said,) = caplog.messages
    assert str(tokens.file) in said
    assert "a token in clear" not in said
    tokens.write("two")
    assert tokens.is_known("two")
    assert not tokens.is_known("one")


def test_a_file_that_names_no_client_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("")
    with pytest.raises(InvalidTokens):
        TokenFile(file)


def test_a_file_counts_as_settled_some_time_after_its_last_change() -> None:
    mark = Mark(changed=1000, inode=(1, 2), size=3)
    assert mark.may_hide_a_change(1000 + FRESH - 1)
    assert not mark.may_hide_a_change(1000 + FRESH)
