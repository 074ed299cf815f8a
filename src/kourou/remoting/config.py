"""What can be set about listening, connecting and TLS. Checked when made, read once by whoever starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from kourou.errors import ConfigError
from kourou.protocol.frame import FRAME_BYTES_MAX

KIB = 1024
MIB = 1024 * KIB

TlsMode = Literal["disabled", "permissive", "enforcing"]


class _Tls(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate of our own, and whom to trust; all files are PEM."""

    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    trust: str | None = None

    def __repr__(self) -> str:
        """Without the password."""
        shown = (name for name in self.__struct_fields__ if name != "key_password")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


class TlsConfig(_Tls, frozen=True, kw_only=True):
    """TLS on the same port as plain frames.

    `disabled` closes TLS clients, `permissive` serves both, `enforcing` closes plain ones. There is no
    built-in certificate: both other modes need `certificate` and `key` (PEM files). `trust` names the CA
    that signs client certificates; they are asked for when it is given, and demanded with
    `require_client_certificate`.
    """

    mode: TlsMode = "permissive"
    require_client_certificate: bool = False

    def __post_init__(self) -> None:
        if self.mode not in get_args(TlsMode):
            raise ConfigError(f"TLS mode '{self.mode}' is unknown: use disabled, permissive or enforcing")
        if self.mode != "disabled" and not (self.certificate and self.key):
            raise ConfigError(
                f"TLS mode '{self.mode}' needs a certificate file and a key file (PEM); "
                "name both, or set the mode to disabled"
            )
        if self.require_client_certificate and not self.trust:
            raise ConfigError("client certificates are required, but no CA file to trust is named")


class ClientTls(_Tls, frozen=True, kw_only=True):
    """TLS towards a server. The certificate and the host name are verified unless `verify` is False.

    `trust` is a CA file (PEM) to be used instead of the system's; `server_name` the name to verify when
    the address is not it.
    """

    server_name: str | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("a client certificate needs both its certificate file and its key file (PEM)")


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One listening port, and how much its peers may take.

    `total_in_flight_bytes_max` bounds, each for itself, what all connections together have half received,
    have asked and not been answered, have parked, and have not yet read.
    """

    host: str = "127.0.0.1"
    port: int = 0
    backlog: int = 1024

    connections_max: int = 10_000
    connections_per_peer_max: int = 2_000
    accepts_per_second_max: int = 500  # for one peer host; a second's worth may come at once

    frame_bytes_max: int = FRAME_BYTES_MAX
    in_flight_bytes_max: int = 32 * MIB  # of one connection; for those it has parked, once more
    in_flight_requests_max: int = 4096  # a parked long poll does not count
    parked_requests_max: int = 20_000
    total_in_flight_bytes_max: int = 256 * MIB

    first_frame_seconds: float = 10.0
    frame_seconds: float = 30.0
    idle_seconds: float = 120.0

    write_buffer_pause_bytes: int = 1 * MIB  # above it the peer is not read from, until half is gone
    write_buffer_bytes_max: int = 8 * MIB  # above it for `write_stall_seconds`: closed
    write_stall_seconds: float = 30.0  # no progress for so long: closed, however little is buffered

    patience_seconds: Mapping[int, float] = {}
    """By code: a request that was put off for longer is refused, not served: its sender may ask another."""

    tls: TlsConfig | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port {self.port} is not in 0 to 65535 (0 takes any free one)")
        for name in _POSITIVE:
            value = getattr(self, name)
            if not value > 0:
                raise ConfigError(f"{name} must be greater than 0, not {value}")
        if self.frame_bytes_max > FRAME_BYTES_MAX:
            raise ConfigError(
                f"frame_bytes_max is {self.frame_bytes_max}: the protocol allows {FRAME_BYTES_MAX}"
            )


_POSITIVE = (
    *("backlog", "connections_max", "connections_per_peer_max", "accepts_per_second_max"),
    *("frame_bytes_max", "in_flight_bytes_max", "in_flight_requests_max", "total_in_flight_bytes_max"),
    "parked_requests_max",
    *("first_frame_seconds", "frame_seconds", "idle_seconds"),
    *("write_buffer_pause_bytes", "write_buffer_bytes_max", "write_stall_seconds"),
)
