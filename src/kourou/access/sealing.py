"""Secrets at rest. Signatures need them as they are, so they cannot be hashed; they are encrypted instead.

    sealed = base64(nonce 16 | secret XOR keystream | tag 32)

    keystream   HMAC-SHA-256(encrypting key, nonce | block number), one block after the other
    tag         HMAC-SHA-256(authenticating key, nonce | encrypted)

Both keys are made from one that lies in a file of its own, readable by its owner alone: a copy of the
accounts without that file is of no use to anybody.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from typing import Final

from kourou.errors import ConfigError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 16
TAG_BYTES: Final = 32


def seal(secret: bytes, key: bytes, nonce: bytes) -> str:
    """`secret` as it may lie on a disk. `nonce` must be new each time."""
    assert len(nonce) == NONCE_BYTES
    encrypted = _crypted(secret, key, nonce)
    return b64encode(nonce + encrypted + _tag(key, nonce + encrypted)).decode()


def unseal(sealed: str, key: bytes) -> bytes:
    """The secret. Raises ConfigError when it was sealed with another key, or changed."""
    try:
        data = b64decode(sealed, validate=True)
    except ValueError:
        data = b""
    content, tag = data[:-TAG_BYTES], data[-TAG_BYTES:]
    if len(content) < NONCE_BYTES or not hmac.compare_digest(tag, _tag(key, content)):
        raise ConfigError("a secret cannot be read: it was sealed with another key, or changed since")
    return _crypted(content[NONCE_BYTES:], key, content[:NONCE_BYTES])


def _crypted(data: bytes, key: bytes, nonce: bytes) -> bytes:
    own = hmac.digest(key, b"encrypt", "sha256")
    stream = b"".join(
        hmac.digest(own, nonce + block.to_bytes(4, "big"), "sha256") for block in range(len(data) // 32 + 1)
    )
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))


def _tag(key: bytes, content: bytes) -> bytes:
    return hmac.digest(hmac.digest(key, b"authenticate", "sha256"), content, "sha256")
