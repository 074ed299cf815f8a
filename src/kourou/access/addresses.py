"""Patterns of client addresses, as they stand in white lists and rules.

    *  *.*.*.*  *:*:*:*:*:*:*:*      any address
    10.1.2.3                          this one
    10.1.2.*   10.1.*.*               a network; stars at the end only
    10.1.2.1-20                       a range of the last part
    10.1.2.{4,7,9}                    some of the last part
    10.0.0.0/8   2001:db8::/32        a network, in the form of 5.x
    a,b                               either of them

IPv6 addresses have the same forms, with parts of hexadecimal digits. An empty pattern matches nobody. The
address is always the one of the socket: whatever a request says of itself is no address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from kourou.errors import ConfigError

Address = IPv4Address | IPv6Address
_Test = Callable[[Address], bool]

PATTERN_CHARACTERS_MAX = 1_000
KNOWN_MAX = 1_000
_ANY = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_RANGE = re.compile(r"(?P<head>[0-9a-fA-F.:]+[.:])(?P<least>[0-9a-fA-F]{1,4})-(?P<most>[0-9a-fA-F]{1,4})")
_STARS = re.compile(
    r"(?P<head>(?:[0-9a-fA-F]{1,4}(?P<dot>[.:]))(?:[0-9a-fA-F]{1,4}(?P=dot))*)\*(?:(?P=dot)\*)*"
)


class Addresses:
    """A set of client addresses. Raises ConfigError when a pattern makes no sense."""

    __slots__ = ("_is_any", "_known", "_single", "_tests", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(each for given in patterns for each in _parts(given))
        self._is_any = False
        self._single: set[Address] = set()
        self._tests: list[_Test] = []
        self._known: dict[
            str, bool
        ] = {}  # to read an address takes 2 us, and the same ones come all the time
        for pattern in self.patterns:
            self._add(pattern)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def __contains__(self, host: str) -> bool:
        if not self.patterns:
            return False
        if self._is_any:
            return True
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[host] = self._matches(host)
        return known

    def _matches(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return address in self._single or any(test(address) for test in self._tests)

    def _add(self, pattern: str) -> None:
        if pattern in _ANY:
            self._is_any = True
        elif "/" in pattern:
            self._tests.append(partial(_is_within, _network(pattern)))
        elif "*" in pattern:
            self._tests.append(partial(_is_within, _network(_with_prefix(pattern))))
        elif "-" in pattern:
            self._tests.append(_between(pattern))
        else:
            self._single.add(_single(pattern))


def _parts(given: str) -> list[str]:
    """The alternatives of a pattern: `a,b` are two, `10.1.2.{4,7}` are two as well."""
    if len(given) > PATTERN_CHARACTERS_MAX:
        raise _bad(given[:60] + "…")
    found: list[str] = []
    for each in re.split(r",(?![^{]*})", given):
        part = each.strip()
        head, brace, rest = part.partition("{")
        if not brace:
            found += [part] if part else []
        elif rest.endswith("}") and head.endswith((".", ":")):
            found += [head + last.strip() for last in rest[:-1].split(",")]
        else:
            raise _bad(part)
    return found


def _single(pattern: str) -> Address:
    try:
        return ip_address(pattern)
    except ValueError:
        raise _bad(pattern) from None


def _network(pattern: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(pattern, strict=False)
    except ValueError:
        raise _bad(pattern) from None


def _with_prefix(pattern: str) -> str:
    """`10.1.*.*` as `10.1.0.0/16`."""
    matched = _STARS.fullmatch(pattern)
    if matched is None:
        raise _bad(pattern)
    dot = matched["dot"]
    known = matched["head"].rstrip(dot).split(dot)
    parts, bits = (4, 8) if dot == "." else (8, 16)
    if pattern.count("*") + len(known) != parts:
        raise _bad(pattern)
    return f"{dot.join(known + ['0'] * (parts - len(known)))}/{bits * len(known)}"


def _between(pattern: str) -> _Test:
    matched = _RANGE.fullmatch(pattern)
    if matched is None:
        raise _bad(pattern)
    least, most = _single(matched["head"] + matched["least"]), _single(matched["head"] + matched["most"])
    if int(least) > int(most):
        raise _bad(pattern)
    return partial(_is_between, least.version, int(least), int(most))


def _is_within(network: IPv4Network | IPv6Network, address: Address) -> bool:
    return address in network


def _is_between(version: int, least: int, most: int, address: Address) -> bool:
    return address.version == version and least <= int(address) <= most


def _bad(pattern: str) -> ConfigError:
    return ConfigError(
        f"{pattern!r} is no pattern of addresses: write 10.1.2.3, 10.1.2.*, 10.1.2.1-20, 10.1.2.{{4,7}}, "
        "10.0.0.0/8, or * for any"
    )
