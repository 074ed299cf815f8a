"""Name servers by way of a list. How it is asked for is in test_registration.py."""

from __future__ import annotations

import pytest

from kourou.broker.address_list import list_url, parse_list
from kourou.errors import ConfigError


@pytest.mark.parametrize(
    ("domain", "path", "url"),
    [
        ("jmenv.example", "nsaddr", "http://jmenv.example:8080/rocketmq/nsaddr"),
        ("jmenv.example:80", "nsaddr", "http://jmenv.example:80/rocketmq/nsaddr"),
        ("10.0.0.1", "nsaddr-unit", "http://10.0.0.1:8080/rocketmq/nsaddr-unit"),
    ],
)
def test_the_list_is_where_the_original_looks_for_it(domain: str, path: str, url: str) -> None:
    assert list_url(domain, path) == url


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ("a:1",)),
        (" a:1 ; b:2;\n", ("a:1", "b:2")),
        ("[::1]:9876", ("[::1]:9876",)),
        ("", ()),
        (" ; \n", ()),
    ],
)
def test_an_answer_is_addresses_parted_by_semicolons(text: str, addresses: tuple[str, ...]) -> None:
    assert parse_list(text) == addresses


@pytest.mark.parametrize("text", ["nowhere", "a:1;b", "a:99999", "<html>"])
def test_an_answer_with_something_else_in_it_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_list(text)
