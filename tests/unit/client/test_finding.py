from __future__ import annotations

import pytest

from kourou.client.finding import (
    Finding,
    address_server_url,
    find_name_servers,
    parse_address_list,
)
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import ConfigError


def files(**contents: str) -> SimulatedFiles:
    disk = SimulatedFiles()
    disk.make_folders("/etc")
    for name, content in contents.items():
        disk.write_atomically(f"/etc/kourou.{name}", content.encode())
    return disk


def test_the_first_of_the_four_ways_that_speaks_wins() -> None:
    disk = files(properties="rocketmq.namesrv.addr=file:1\nrocketmq.namesrv.domain=domain")
    environment = {"KOUROU_CONFIG": "/etc/kourou.properties", "NAMESRV_ADDR": "variable:1"}
    properties = {"rocketmq.namesrv.addr": "dict:1"}
    assert find_name_servers("code:1", properties, environment, disk) == Finding(("code:1",))
    assert find_name_servers(None, properties, environment, disk) == Finding(("dict:1",))
    assert find_name_servers(None, None, environment, disk) == Finding(("file:1",))
    assert find_name_servers(None, {"rocketmq.namesrv.addr": " "}, environment, disk) == Finding(
        ("variable:1",)
    )
    del environment["NAMESRV_ADDR"]
    assert find_name_servers(None, {"rocketmq.namesrv.addr": " "}, environment, disk) == Finding(
        (), "http://domain:8080/rocketmq/nsaddr"
    )


@pytest.mark.parametrize(
    "content",
    [
        '"rocketmq.namesrv.addr" = "a:1;b:2"',
        '[rocketmq.namesrv]\naddr = "a:1;b:2"',
        'rocketmq.namesrv.addr = ["a:1", "b:2"]',
    ],
)
def test_a_toml_file_says_it_in_any_of_toml_s_ways(content: str) -> None:
    disk = files(toml=content)
    found = find_name_servers(None, None, {"KOUROU_CONFIG": "/etc/kourou.toml"}, disk)
    assert found.addresses == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/etc/absent.toml", "KOUROU_CONFIG names '/etc/absent.toml', which cannot be read"),
        ("/etc/kourou.toml", "cannot be understood"),
        ("/etc/kourou.properties", "cannot be understood"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(path: str, why: str) -> None:
    disk = files(toml="= nonsense", properties="a=\\u00")
    with pytest.raises(ConfigError, match=why):
        find_name_servers(None, None, {"KOUROU_CONFIG": path}, disk)


def test_a_file_nobody_needs_is_not_read() -> None:
    assert find_name_servers("a:1", None, {"KOUROU_CONFIG": "/absent"}, files()).addresses == ("a:1",)


def test_nobody_is_asked_whom_the_user_did_not_name() -> None:
    with pytest.raises(ConfigError, match=r"name_server='host:9876'.*NAMESRV_ADDR.*KOUROU_CONFIG"):
        find_name_servers(None, None, {}, files())


@pytest.mark.parametrize(
    ("domain", "subgroup", "url"),
    [
        ("names.example", "", "http://names.example:8080/rocketmq/nsaddr"),
        ("names.example:80", "", "http://names.example:80/rocketmq/nsaddr"),
        ("names.example", "unit-7", "http://names.example:8080/rocketmq/unit-7"),
        ("[::1]", "", "http://[::1]:8080/rocketmq/nsaddr"),
        ("[::1]:81", "", "http://[::1]:81/rocketmq/nsaddr"),
    ],
)
def test_an_address_server_has_port_8080_unless_it_says_another(domain: str, subgroup: str, url: str) -> None:
    assert address_server_url(domain, subgroup) == url


@pytest.mark.parametrize(
    ("page", "addresses"),
    [("a:1;b:2\n", ("a:1", "b:2")), ("\r\n a:1 \r\nmore", ("a:1",)), ("", ()), ("\n\n", ())],
)
def test_the_first_line_of_its_page_counts(page: str, addresses: tuple[str, ...]) -> None:
    assert parse_address_list(page) == addresses
