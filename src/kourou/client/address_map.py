"""Brokers at other addresses than they say: behind NAT, in containers, through a tunnel.

    {"172.17.0.2:10911": "localhost:10911", "10.0.0.5": "gateway.example"}

The whole address counts first, then its host alone. What has been found out while running is added to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kourou.errors import ConfigError
from kourou.remoting.address import format_address, parse_address


class AddressMap:
    """Says where to connect to for an address a name server told."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._whole: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        for told, real in _checked(given).items():
            if _has_port(told) != _has_port(real):
                raise ConfigError(
                    f"address_map has '{told}' for '{real}': give both with a port, or both without one"
                )
            if _has_port(told):
                parse_address(real)
                self._whole[format_address(*parse_address(told))] = real
            else:
                self._hosts[told.strip("[]")] = real.strip("[]")

    def __call__(self, address: str) -> str:
        if not self._whole and not self._hosts:
            return address
        if address in self._whole:
            return self._whole[address]
        host, port = parse_address(address)
        return format_address(self._hosts[host], port) if host in self._hosts else address

    def add(self, told: str, real: str) -> None:
        """From now on connect to `real` for `told`."""
        self._whole[told] = real


def _checked(given: object) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(
        isinstance(each, str) for pair in given.items() for each in pair
    ):
        raise ConfigError(f"address_map is {given!r}; give addresses for addresses: {{'told:1': 'real:1'}}")
    return given


def _has_port(text: str) -> bool:
    return text.rpartition("]")[2].count(":") == 1
