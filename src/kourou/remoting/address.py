"""Addresses as people and RocketMQ write them: `host:port`, `[v6]:port`; and as records store them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.errors import ConfigError
from kourou.protocol.record import pack_host

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

NO_HOST = "0.0.0.0"  # noqa: S104 - a place for an address that is not known, nothing is bound
_MAPPED = "::ffff:"


def parse_address(text: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` as (host, port); raises ConfigError naming the value."""
    if "://" in text:
        raise ConfigError(f"address '{text}' is a URL; give host and port alone, as in 127.0.0.1:9876")
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"address '{text}' is ambiguous: write an IPv6 address as [{host}]:{port_text}")
    if not colon or not host or any(letter.isspace() for letter in host):
        raise ConfigError(f"address '{text}' is not of the form host:port, for example 127.0.0.1:9876")
    _check_host(host, text)
    if not (port_text.isascii() and port_text.isdecimal() and len(port_text) <= 5):
        raise ConfigError(
            f"address '{text}' has the port '{port_text}', which is not a number from 1 to 65535"
        )
    port = int(port_text)
    if not 1 <= port <= 65535:
        raise ConfigError(f"address '{text}' has the port {port}, which is not in 1 to 65535")
    return host, port


def _check_host(host: str, text: str) -> None:
    """That what looks like an IP address is one: a resolver takes 1.2.3 for 1.2.0.3, which nobody means."""
    if not host.strip("0123456789.") and not is_ip_address(host):
        raise ConfigError(
            f"address '{text}' has the host '{host}', which is no IPv4 address:"
            " that is four numbers from 0 to 255, for example 127.0.0.1"
        )
    if ":" in host and not is_ip_address(host):
        raise ConfigError(
            f"address '{text}' has the host '{host}', which is no IPv6 address, as [::1] is one"
        )


def format_address(host: str, port: int) -> str:
    """The opposite of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_host(host: str) -> str:
    """An IPv4 peer of an IPv6 listener as the IPv4 address it is; a link-local one without its zone."""
    if host.startswith(_MAPPED) and "." in host:
        return host[len(_MAPPED) :]
    return host.partition("%")[0]


def pack_address(host: str, port: int) -> bytes:
    """A host as records store it; a name becomes 0.0.0.0."""
    return pack_host(host if is_ip_address(host) else NO_HOST, port)


def is_ip_address(host: str) -> bool:
    """Whether it is an address, not a name; brackets around an IPv6 one do not matter."""
    return _ip_address(host) is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    address = _ip_address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_unspecified(host: str) -> bool:
    """Whether it stands for every address of this machine, and so for none that one could connect to."""
    address = _ip_address(host)
    return address is not None and address.is_unspecified


def _ip_address(host: str) -> IPv4Address | IPv6Address | None:
    from ipaddress import ip_address  # when there is an address: an import of a client costs enough

    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
