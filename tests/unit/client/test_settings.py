from __future__ import annotations

import pytest

from kourou.client.settings import (
    checked_consumer_group,
    checked_count,
    checked_group,
    checked_producer_group,
    checked_seconds,
    name_server_addresses,
)
from kourou.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1", ("a:1",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 ; ;b:2;", ("a:1", "b:2")),
        ("a:1;a:1", ("a:1",)),
        (["a:1", "[::1]:2;c:3"], ("a:1", "[::1]:2", "c:3")),
    ],
)
def test_name_servers_may_be_given_in_several_ways(given: str | list[str], expected: tuple[str, ...]) -> None:
    assert name_server_addresses(given) == expected


def test_without_a_name_server_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "e:1;e:2")
    assert name_server_addresses(None) == ("e:1", "e:2")
    assert name_server_addresses("g:1") == ("g:1",)


@pytest.mark.parametrize("given", [None, "", " ; ", []])
def test_no_name_server_at_all_is_an_error_that_says_what_to_do(given: str | list[str] | None) -> None:
    with pytest.raises(ConfigError, match=r"name_server='host:9876'.*NAMESRV_ADDR"):
        name_server_addresses(given)


@pytest.mark.parametrize("given", ["localhost", "a:99999", "::1:9876", "a:b"])
def test_what_is_no_address_is_named(given: str) -> None:
    with pytest.raises(ConfigError, match=given):
        name_server_addresses(given)


@pytest.mark.parametrize("seconds", [0, -1.5, float("nan"), "3", None])
def test_seconds_are_more_than_none(seconds: object) -> None:
    with pytest.raises(ConfigError, match="send_timeout is"):
        checked_seconds("send_timeout", seconds)
    assert checked_seconds("send_timeout", 2) == 2.0


def test_groups_are_named_as_in_the_original() -> None:
    """Whose retry topic has to be one is shorter; and nobody is a member of everybody's group."""
    assert checked_group("g" * 120)
    assert checked_group("DEFAULT_CONSUMER")  # to look at: an Apache cluster has it
    assert checked_producer_group("g" * 255)
    for check, group in (
        (checked_group, "g" * 121),
        (checked_producer_group, "g" * 256),
        (checked_consumer_group, "DEFAULT_CONSUMER"),
        (checked_producer_group, "DEFAULT_PRODUCER"),
    ):
        with pytest.raises(ConfigError, match=r"longer than|nobody's in particular"):
            check(group)


@pytest.mark.parametrize("count", [-1, 1.5, "2", None])
def test_counts_are_whole_numbers(count: object) -> None:
    with pytest.raises(ConfigError, match="retries is"):
        checked_count("retries", count)
    assert checked_count("retries", 0) == 0
