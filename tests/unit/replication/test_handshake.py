"""What nodes say to each other first, and how they prove that they belong together."""

from __future__ import annotations

import msgspec
import pytest

from kourou.errors import ConfigError, ProtocolError
from kourou.replication import handshake
from kourou.replication.config import ReplicationConfig
from kourou.replication.handshake import MasterHello, SlaveHello

SECRET = "a secret that is long enough"
MASTER = MasterHello(
    cluster_name="c",
    broker_name="b",
    member="10.0.0.1:10911",
    term=3,
    start=0,
    end=900,
    segment_bytes=1 << 30,
    nonce="aa",
    wants_proof=True,
)
SLAVE = SlaveHello(
    cluster_name="c",
    broker_name="b",
    member="10.0.0.2:10911",
    broker_id=1,
    term=2,
    start=0,
    end=800,
    segment_bytes=1 << 30,
    nonce="bb",
)


def test_what_was_said_is_understood() -> None:
    for said in (MASTER, SLAVE, handshake.Accepted("p"), handshake.Refusal("no"), handshake.Begin(7)):
        assert handshake.decode(handshake.encode(said)) == said
    compare = handshake.Compare([(1, 2, 3)])
    assert handshake.decode(handshake.encode(compare)) == compare


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"kind":"begin"}', b'{"kind":"x"}', b"[" * 5000, b"\xff"]
)
def test_nonsense_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        handshake.decode(text)


def test_a_proof_needs_the_secret_the_side_and_every_word() -> None:
    proof = handshake.proof(SECRET, "slave", MASTER, SLAVE)
    assert handshake.is_proof(proof, handshake.proof(SECRET, "slave", MASTER, SLAVE))
    others = [
        handshake.proof(SECRET + "!", "slave", MASTER, SLAVE),
        handshake.proof(SECRET, "master", MASTER, SLAVE),
        handshake.proof(SECRET, "slave", msgspec.structs.replace(MASTER, nonce="cc"), SLAVE),
        handshake.proof(SECRET, "slave", msgspec.structs.replace(MASTER, term=4), SLAVE),
        handshake.proof(SECRET, "slave", MASTER, msgspec.structs.replace(SLAVE, nonce="cc")),
        handshake.proof(SECRET, "slave", MASTER, msgspec.structs.replace(SLAVE, broker_id=2)),
        "",
    ]
    assert not any(handshake.is_proof(other, proof) for other in others)
    assert SECRET not in proof


def test_without_a_secret_there_is_nothing_to_prove() -> None:
    assert handshake.proof("", "slave", MASTER, SLAVE) == ""


def config(**settings: object) -> ReplicationConfig:
    usual = {"cluster_name": "c", "broker_name": "b", "host": "127.0.0.1", "segment_bytes": 1 << 20}
    return ReplicationConfig(**{**usual, **settings})  # type: ignore[arg-type]


def test_peers_are_allowed_by_address_and_network() -> None:
    some = config(allowed_peers=("10.0.0.7", "192.168.0.0/24", "::1"))
    assert [some.allows(host) for host in ("10.0.0.7", "192.168.0.200", "::1")] == [True, True, True]
    assert [some.allows(host) for host in ("10.0.0.8", "192.168.1.1", "nonsense")] == [False, False, False]
    assert config().allows("10.0.0.8")


def test_bad_settings_are_named_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="haAllowedPeers: 'x' is no address"):
        config(allowed_peers=("x",))
    with pytest.raises(ConfigError, match="haSecret has 5 characters: 16 or more"):
        config(secret="short")
