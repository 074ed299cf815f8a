"""What can be set about replication."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from kourou.errors import ConfigError
from kourou.remoting.config import ClientTls, TlsConfig

ASYNC_MASTER = "ASYNC_MASTER"
SYNC_MASTER = "SYNC_MASTER"
SLAVE = "SLAVE"

KIB = 1024
MIB = 1024 * KIB

SECRET_CHARACTERS_MIN = 16


@dataclass(frozen=True, kw_only=True)
class ReplicationConfig:
    """One broker's share in keeping a log on several machines."""

    cluster_name: str
    broker_name: str
    host: str
    """Where slaves connect."""
    segment_bytes: int
    in_sync_replicas: int = 2
    """How many brokers, the master included, must have a message of a SYNC_MASTER."""
    gap_bytes_max: int = 256 * MIB
    """A slave further behind is not waited for."""
    slave_timeout_ms: int = 3_000
    heartbeat_ms: int = 5_000
    silence_ms_max: int = 15_000
    """A peer that says nothing for so long is hung up on."""
    batch_bytes: int = 32 * KIB
    """Of one frame to a slave of the original's, whose buffer has 4 MiB."""
    flow_control: bool = False
    bytes_a_second_max: int = 100 * MIB
    links_max: int = 16
    allowed_peers: tuple[str, ...] = ()
    """Addresses and networks slaves may come from; empty: any."""
    secret: str = ""
    """What our own nodes show each other that they know; slaves of the original's are then refused."""
    tls: TlsConfig | None = None
    client_tls: ClientTls | None = None
    is_closed: bool = False
    """Nobody is served: access control is on, and slaves are not asked who they are."""
    is_strict: bool = False
    """Readers of a SYNC_MASTER wait for its slaves, however long."""
    is_elected: bool = False
    """Another member of the set may lead at any time (`election.py`)."""

    def __post_init__(self) -> None:
        for peer in self.allowed_peers:
            try:
                ipaddress.ip_network(peer, strict=False)
            except ValueError:
                raise ConfigError(
                    f"haAllowedPeers: '{peer}' is no address and no network; write 10.0.0.7 or 10.0.0.0/24"
                ) from None
        if self.secret and len(self.secret) < SECRET_CHARACTERS_MIN:
            raise ConfigError(
                f"haSecret has {len(self.secret)} characters: {SECRET_CHARACTERS_MIN} or more are needed "
                "(python -c 'import secrets; print(secrets.token_hex(16))')"
            )

    def allows(self, host: str) -> bool:
        """Whether a slave may come from this address."""
        if not self.allowed_peers:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in ipaddress.ip_network(peer, strict=False) for peer in self.allowed_peers)
