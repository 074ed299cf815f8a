"""What two of our own nodes say to each other before bytes of the log flow.

    master   MasterHello   who I am, my term, where my log begins and ends, a number used once
    slave    SlaveHello    the same of me, and proof that I know the secret
    master   Accepted      proof that I know it, too                       or Refusal, with the reason
    slave    Compare       of some of my records: place, size, CRC         as often as it needs
    master   Compared      which of them I have, too
    slave    Begin         send me everything from here on

The proof is an HMAC over all that both have said, so nothing said can be changed on the way; the secret
itself never travels. What flows afterwards is as safe as the way is: use TLS where strangers have access.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

from kourou.errors import ProtocolError

VERSION: Final = 1
NONCE_BYTES: Final = 16
SAMPLES_MAX: Final = 4_096


class MasterHello(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="master"):
    version: int = VERSION
    cluster_name: str
    broker_name: str
    member: str
    """Where clients reach it."""
    term: int
    start: int
    end: int
    segment_bytes: int
    nonce: str
    wants_proof: bool = False
    role: str = ""
    """SYNC_MASTER or ASYNC_MASTER, which a slave is, too, when it takes its place."""


class SlaveHello(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="slave"):
    version: int = VERSION
    cluster_name: str
    broker_name: str
    member: str
    broker_id: int
    term: int
    start: int
    end: int
    segment_bytes: int
    nonce: str
    proof: str = ""


class Accepted(msgspec.Struct, frozen=True, tag_field="kind", tag="accepted"):
    proof: str = ""


class Refusal(msgspec.Struct, frozen=True, tag_field="kind", tag="refusal"):
    reason: str


class Compare(msgspec.Struct, frozen=True, tag_field="kind", tag="compare"):
    samples: list[tuple[int, int, int]]
    """Place, size and CRC-32 of bytes of the slave's log."""


class Compared(msgspec.Struct, frozen=True, tag_field="kind", tag="compared"):
    equal: list[bool]


class Begin(msgspec.Struct, frozen=True, tag_field="kind", tag="begin"):
    place: int


Words = MasterHello | SlaveHello | Accepted | Refusal | Compare | Compared | Begin

_decoder: msgspec.json.Decoder[Words] = msgspec.json.Decoder(Words)
encode = msgspec.json.encode


def decode(text: bytes) -> Words:
    """Raises ProtocolError when it makes no sense."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"words of a handshake that make no sense: {error}") from None


def proof(secret: str, side: str, master: MasterHello, slave: SlaveHello) -> str:
    """That whoever says it knows the secret, and has heard the same words."""
    if not secret:
        return ""
    said = encode([side, master, msgspec.structs.replace(slave, proof="")])
    return hmac.new(secret.encode(), said, hashlib.sha256).hexdigest()


def is_proof(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
