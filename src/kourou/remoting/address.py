"""Addresses as people and RocketMQ write them: `host:port`, `[v6]:port`; and as records store them."""

from __future__ import annotations

import socket
from struct import Struct

from kourou.errors import ConfigError

_PORT = Struct(">i")
_NO_HOST = bytes(4)
_MAPPED = "::ffff:"


def parse_address(text: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` as (host, port); raises ConfigError naming the value."""
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"address '{text}' is ambiguous: write an IPv6 address as [{host}]:{port_text}")
    if not colon or not host or any(letter.isspace() for letter in host):
        raise ConfigError(f"address '{text}' is not of the form host:port, for example 127.0.0.1:9876")
    if not (port_text.isascii() and port_text.isdecimal() and len(port_text) <= 5):
        raise ConfigError(
            f"address '{text}' has the port '{port_text}', which is not a number from 1 to 65535"
        )
    port = int(port_text)
    if not 1 <= port <= 65535:
        raise ConfigError(f"address '{text}' has the port {port}, which is not in 1 to 65535")
    return host, port


def format_address(host: str, port: int) -> str:
    """The opposite of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_host(host: str) -> str:
    """An IPv4 peer of an IPv6 listener as the IPv4 address it is; a link-local one without its zone."""
    if host.startswith(_MAPPED) and "." in host:
        return host[len(_MAPPED) :]
    return host.partition("%")[0]


def pack_address(host: str, port: int) -> bytes:
    """A host as records store it: 4 or 16 address bytes, then the port as i32; a name becomes 0.0.0.0."""
    try:
        packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except OSError:
        packed = _NO_HOST
    return packed + _PORT.pack(port)
