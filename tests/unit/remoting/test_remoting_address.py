from __future__ import annotations

import re

import pytest

from kourou.errors import ConfigError
from kourou.remoting.address import (
    format_address,
    is_ip_address,
    is_loopback,
    is_unspecified,
    pack_address,
    parse_address,
    plain_host,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        ("broker-a.example:1", "broker-a.example", 1),
        ("[::1]:65535", "::1", 65535),
        (" localhost:80 ", "localhost", 80),
        ("1.2.3.example:80", "1.2.3.example", 80),
        ("10-0-0-1:80", "10-0-0-1", 80),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
    ],
)
def test_an_address_is_read_and_written_the_same(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)
    assert format_address(host, port) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "host",
        "host:",
        ":80",
        "host:x",
        "host:0",
        "host:65536",
        "host:-1",
        "::1:80",
        "a b:80",
        "host:٣",
        "h:+5",
    ],
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        parse_address(text)


@pytest.mark.parametrize("host", ["1.2.3", "1.2.3.4.5", "256.1.1.1", "127.0.0.01", "1..2", "5", "."])
def test_numbers_that_are_no_ipv4_address_are_no_host(host: str) -> None:
    with pytest.raises(ConfigError, match=rf"the host '{re.escape(host)}', which is no IPv4 address"):
        parse_address(f"{host}:9876")


@pytest.mark.parametrize("host", ["12345::1", "1.2.3:4", "::1::2"])
def test_what_has_colons_and_is_no_ipv6_address_is_no_host(host: str) -> None:
    with pytest.raises(ConfigError, match=rf"the host '{re.escape(host)}', which is no IPv6 address"):
        parse_address(f"[{host}]:9876")


def test_an_ipv6_address_without_brackets_is_told_how_to_be_written() -> None:
    with pytest.raises(ConfigError, match=r"write an IPv6 address as \[fe80::1\]:9876"):
        parse_address("fe80::1:9876")


def test_peers_of_a_dual_stack_listener_are_known_by_their_plain_address() -> None:
    assert plain_host("::ffff:10.1.2.3") == "10.1.2.3"
    assert plain_host("fe80::1%eth0") == "fe80::1"
    assert plain_host("2001:db8::1") == "2001:db8::1"


def test_a_host_is_packed_as_records_store_it() -> None:
    assert pack_address("10.1.2.3", 10911) == bytes([10, 1, 2, 3, 0, 0, 0x2A, 0x9F])
    assert pack_address("::1", 1) == bytes(15) + b"\x01" + b"\x00\x00\x00\x01"
    assert pack_address("a-name", 1) == bytes(4) + b"\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("host", "is_address", "loopback", "unspecified"),
    [
        ("127.0.0.1", True, True, False),
        ("127.9.9.9", True, True, False),
        ("[::1]", True, True, False),
        ("localhost", False, True, False),
        ("0.0.0.0", True, False, True),
        ("::", True, False, True),
        ("10.0.0.7", True, False, False),
        ("my.host", False, False, False),
        ("", False, False, False),
    ],
)
def test_what_a_host_stands_for(host: str, is_address: bool, loopback: bool, unspecified: bool) -> None:
    assert (is_ip_address(host), is_loopback(host), is_unspecified(host)) == (
        is_address,
        loopback,
        unspecified,
    )
