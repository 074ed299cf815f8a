"""What every server can be told about its port, under RocketMQ's names: where it is, TLS, who may come.

The original takes the TLS keys as system properties; here they stand in the same file as the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kourou.doors.configuration import Key, one_of, text, whole_number, yes_no
from kourou.errors import ConfigError
from kourou.remoting.address import is_loopback
from kourou.remoting.config import TlsConfig

_PATH = text("a file")
_ODD = frozenset(" \t,;/\\\"'")


@dataclass(frozen=True, kw_only=True)
class ListenSettings:
    """The part of a server's settings that is about listening. Raises ConfigError when they contradict."""

    host: str = "127.0.0.1"
    port: int = 0
    insecure: bool = False
    tls_mode: str = "disabled"
    tls_certificate: str = ""
    tls_key: str = ""
    tls_key_password: str = ""
    tls_trust: str = ""
    tls_client_certificate: str = "none"

    def __post_init__(self) -> None:
        if self.tls_mode != "disabled" and not (self.tls_certificate and self.tls_key):
            raise ConfigError(
                f"tls.server.mode={self.tls_mode} needs tls.server.certPath and tls.server.keyPath; "
                "there is no built-in test certificate"
            )
        if self.tls_client_certificate != "none" and not self.tls_trust:
            raise ConfigError(
                f"tls.server.need.client.auth={self.tls_client_certificate} needs tls.server.trustCertPath: "
                "the certificates that clients' ones are checked against"
            )

    def check_exposure(self, key: str, host: str, danger: str) -> None:
        """Refuse to listen where strangers can reach us, unless they are asked who they are."""
        if self.insecure or is_loopback(host) or (key == "bindAddress" and self._knows_its_peers):
            return
        raise ConfigError(
            f"{key} {host} would let anyone on the network {danger}. Three ways out: listen on 127.0.0.1; "
            "ask peers who they are, by signatures (aclEnable=true) or by a certificate "
            "(tls.server.mode=enforcing, tls.server.need.client.auth=require); "
            "or accept the risk with --insecure (insecure=true)"
        )

    @property
    def _knows_its_peers(self) -> bool:
        return self.tls_mode == "enforcing" and self.tls_client_certificate == "require"

    def tls(self) -> TlsConfig | None:
        """The listener's TLS; None when there is none."""
        if self.tls_mode == "disabled":
            return None
        return TlsConfig(
            mode="enforcing" if self.tls_mode == "enforcing" else "permissive",
            certificate=self.tls_certificate,
            key=self.tls_key,
            key_password=self.tls_key_password or None,
            trust=self.tls_trust if self.tls_client_certificate != "none" else None,
            require_client_certificate=self.tls_client_certificate == "require",
        )


LISTEN_KEYS: Final = (
    Key(
        "bindAddress",
        "host",
        text("a host name or address", lambda given: bool(given) and not set(given) & _ODD),
    ),
    Key("listenPort", "port", whole_number(0, 65535)),
    Key("insecure", "insecure", yes_no()),
    Key("tls.server.mode", "tls_mode", one_of("disabled", "permissive", "enforcing")),
    Key("tls.server.certPath", "tls_certificate", _PATH),
    Key("tls.server.keyPath", "tls_key", _PATH),
    Key("tls.server.keyPassword", "tls_key_password", text("a password"), secret=True),
    Key("tls.server.trustCertPath", "tls_trust", _PATH),
    Key("tls.server.need.client.auth", "tls_client_certificate", one_of("none", "optional", "require")),
)
