"""Mutual authentication by HMAC: both sides prove that they know the secret without sending it.

The coordinator sends a nonce. The member answers with a nonce of its own and an HMAC over the
coordinator's nonce and all fields of its `Hello`; the coordinator's HMAC covers both nonces. A
recorded exchange cannot be replayed.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import replace

from tidegate.errors import WeakSecret
from tidegate.group.protocol.wire import NONCE, PROOF, Challenge, Hello

MIN_SECRET = 16
"""Bytes."""


def new_secret() -> bytes:
    """A random secret for a group, to be passed to each of its processes."""
    return os.urandom(32).hex().encode()


def checked_secret(secret: bytes) -> bytes:
    """The secret, if it is long enough; else raises `WeakSecret`."""
    if len(secret) < MIN_SECRET:
        raise WeakSecret(len(secret), MIN_SECRET)
    return secret


def challenge() -> Challenge:
    """A fresh challenge, one per connection."""
    return Challenge(os.urandom(NONCE))


def prove(secret: bytes, challenge: Challenge, hello: Hello) -> Hello:
    """The hello with the member's proof."""
    return replace(hello, proof=_member_proof(secret, challenge, hello))


def is_proven(secret: bytes, challenge: Challenge, hello: Hello) -> bool:
    """Whether the proof in the hello shows knowledge of the secret."""
    return hmac.compare_digest(hello.proof, _member_proof(secret, challenge, hello))


def coordinator_proof(secret: bytes, challenge: Challenge, hello: Hello) -> bytes:
    """The proof that the coordinator knows the secret."""
    return hmac.digest(secret, b"tidegate coordinator" + challenge.nonce + hello.nonce, "sha256")


def _member_proof(secret: bytes, challenge: Challenge, hello: Hello) -> bytes:
    claims = replace(hello, proof=bytes(PROOF)).pack()
    return hmac.digest(secret, b"tidegate member" + challenge.nonce + claims, "sha256")
