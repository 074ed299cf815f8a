"""Patterns of client addresses."""

from __future__ import annotations

import pytest

from kourou.access.addresses import Addresses
from kourou.errors import ConfigError


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", ["10.1.2.3", "::1"], []),
        ("*.*.*.*", ["10.1.2.3"], []),
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.30", "10.1.2.2"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.1", "110.1.2.3"]),
        ("10.1.*.*", ["10.1.200.3"], ["10.2.0.1"]),
        ("10.1.2.1-20", ["10.1.2.1", "10.1.2.20"], ["10.1.2.0", "10.1.2.21"]),
        ("10.1.2.{4,7}", ["10.1.2.4", "10.1.2.7"], ["10.1.2.5", "10.1.2.47"]),
        ("10.1.2.3,10.9.*.*", ["10.1.2.3", "10.9.9.9"], ["10.1.2.4"]),
        ("10.0.0.0/8", ["10.255.0.1"], ["11.0.0.1"]),
        ("2001:db8:1:2:3:4:5:*", ["2001:db8:1:2:3:4:5:6"], ["2001:db8:1:2:3:4:6:6"]),
        ("2001:db8::/32", ["2001:db8::7"], ["2001:db9::7", "10.1.2.3"]),
        ("::1", ["::1"], ["127.0.0.1"]),
    ],
)
def test_a_pattern_means_what_the_original_means(pattern: str, inside: list[str], outside: list[str]) -> None:
    addresses = Addresses([pattern])
    assert all(each in addresses for each in inside)
    assert not any(each in addresses for each in outside)
    assert all(each in addresses for each in inside), "also when it is known"


def test_nothing_matches_nobody() -> None:
    assert "127.0.0.1" not in Addresses(())
    assert "127.0.0.1" not in Addresses([""])
    assert not Addresses([""])


def test_a_mapped_ipv4_address_is_that_address() -> None:
    assert "::ffff:10.1.2.3" in Addresses(["10.1.2.*"])


@pytest.mark.parametrize("host", ["", "localhost", "10.1.2", "10.1.2.3.4", "10.1.2.3\n", "010.1.2.3"])
def test_what_is_no_address_is_in_no_list(host: str) -> None:
    assert host not in Addresses(["10.1.2.*"])


@pytest.mark.parametrize(
    "pattern",
    ["10.*.2.3", "10.1.2", "10.1.2.20-1", "10.1.2.{4", "a.b.c.d", "10.1.2.*.*", "1.2.3.300", "10.1.2.1-300"],
)
def test_a_pattern_that_makes_no_sense_is_named(pattern: str) -> None:
    with pytest.raises(ConfigError, match="no pattern of addresses"):
        Addresses([pattern])
