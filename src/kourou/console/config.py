"""What the console is told at its start."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.client.signing import Credentials
from kourou.errors import ConfigError
from kourou.remoting.address import is_loopback
from kourou.remoting.config import ClientTls

PORT = 8080

BODY_BYTES_MAX = 8 * 1024 * 1024
"""Of a request; a message may have 4 MiB, and a third more in base64."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class ConsoleConfig:
    """Raises ConfigError when it would be open to others without being safe from them."""

    name_server: str
    folder: str
    """Accounts and the audit log are kept there."""
    host: str = "127.0.0.1"
    port: int = PORT
    allowed_hosts: tuple[str, ...] = ()
    """Names a browser may call it by, besides the one it listens on and those of this machine's loopback."""
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    access: Credentials | None = None
    """Who the console is to brokers with access control."""
    tls: ClientTls | None = None
    """How it talks to them."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS needs both a certificate and its key")
        if not is_loopback(self.host) and self.certificate is None and not self.insecure:
            raise ConfigError(
                f"the console would listen on {self.host}, where passwords can be read on the way: listen "
                "on 127.0.0.1 and reach it through a tunnel, give it --certificate and --key, or accept the "
                "risk with --insecure"
            )

    @property
    def is_tls(self) -> bool:
        return self.certificate is not None

    @property
    def hosts(self) -> frozenset[str]:
        """The names a request may be for."""
        return frozenset(
            name.lower().strip("[]") for name in (*LOOPBACK_NAMES, self.host, *self.allowed_hosts)
        )
