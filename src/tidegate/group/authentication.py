"""How both sides of a connection show that they know the group's secret without saying it.

The coordinator sends a nonce; the member answers with a nonce of its own and an HMAC over the first
one and everything it says of itself; the coordinator's HMAC covers both nonces. Nothing that was
heard on the wire once can be used again.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import replace

from tidegate.errors import WeakSecret
from tidegate.group.wire import NONCE, PROOF, Challenge, Hello

LEAST_SECRET = 16
"""Bytes."""


def new_secret() -> bytes:
    """A secret for a group, to be given to each of its processes."""
    return os.urandom(32).hex().encode()


def checked_secret(secret: bytes) -> bytes:
    """The same, if it is long enough to be one."""
    if len(secret) < LEAST_SECRET:
        raise WeakSecret(len(secret), LEAST_SECRET)
    return secret


def challenge() -> Challenge:
    """A new one for each connection."""
    return Challenge(os.urandom(NONCE))


def prove(secret: bytes, asked: Challenge, hello: Hello) -> Hello:
    """The same words with their proof."""
    return replace(hello, proof=_member_proof(secret, asked, hello))


def is_proven(secret: bytes, asked: Challenge, hello: Hello) -> bool:
    """Whether a member knows the secret."""
    return hmac.compare_digest(hello.proof, _member_proof(secret, asked, hello))


def coordinator_proof(secret: bytes, asked: Challenge, hello: Hello) -> bytes:
    """That the coordinator knows it too."""
    return hmac.digest(secret, b"tidegate coordinator" + asked.nonce + hello.nonce, "sha256")


def _member_proof(secret: bytes, asked: Challenge, hello: Hello) -> bytes:
    claims = replace(hello, proof=bytes(PROOF)).pack()
    return hmac.digest(secret, b"tidegate member" + asked.nonce + claims, "sha256")
