"""What an account may do."""

from __future__ import annotations

import pytest

from kourou.access.addresses import Addresses
from kourou.access.rules import (
    ALL,
    GET,
    PUB,
    SUB,
    Entry,
    Need,
    Pattern,
    Policy,
    parse_pattern,
    topic_need,
)
from kourou.errors import ConfigError

HERE = "10.1.2.3"


def allow(resource: str, actions: int = ALL, **more: object) -> Entry:
    return Entry(parse_pattern(resource), actions, **more)  # type: ignore[arg-type]


def deny(resource: str, actions: int = ALL) -> Entry:
    return Entry(parse_pattern(resource), actions, is_allowed=False)


def test_nobody_is_allowed_what_nobody_speaks_of() -> None:
    assert not Policy([]).allows(Need("Topic", "orders", PUB), HERE)
    assert not Policy([allow("Group:*")]).allows(Need("Topic", "orders", PUB), HERE)
    assert not Policy([allow("Topic:orders", SUB)]).allows(Need("Topic", "orders", PUB), HERE)


def test_one_of_several_actions_is_enough() -> None:
    policy = Policy([allow("Topic:orders", GET)])
    assert policy.allows(Need("Topic", "orders", PUB | SUB | GET), HERE)


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        ([allow("Topic:*"), deny("Topic:order*")], False),
        ([allow("Topic:order*"), deny("Topic:*")], True),
        ([allow("Topic:orders"), deny("Topic:order*")], True),
        ([allow("Topic:order*"), deny("Topic:orde*")], True),
        ([allow("Topic:orders"), deny("Topic:orders")], False),
        ([allow("*"), deny("Topic:orders")], False),
        ([deny("*"), allow("Topic:orders")], True),
    ],
)
def test_the_more_exact_entry_counts_and_within_a_tier_a_denial(
    entries: list[Entry], is_allowed: bool
) -> None:
    assert Policy(entries).allows(Need("Topic", "orders", PUB), HERE) is is_allowed
    assert Policy(entries[::-1]).allows(Need("Topic", "orders", PUB), HERE) is is_allowed


def test_default_entries_count_where_custom_ones_are_silent() -> None:
    policy = Policy([deny("Topic:secret")], [allow("Topic:*")])
    assert policy.allows(Need("Topic", "orders", PUB), HERE)
    assert not policy.allows(Need("Topic", "secret", PUB), HERE)


def test_names_are_compared_exactly() -> None:
    policy = Policy([allow("Topic:order"), allow("Topic:log-*")])
    assert policy.allows(Need("Topic", "order", PUB), HERE)
    for name in ("orders", "Order", "order ", "\u043erder", "log", "order*"):
        assert not policy.allows(Need("Topic", name, PUB), HERE), name
    assert policy.allows(Need("Topic", "log-", PUB), HERE)


def test_an_entry_may_be_for_some_addresses_only() -> None:
    policy = Policy([allow("Topic:orders", PUB, addresses=Addresses(["10.1.2.*"]))])
    assert policy.allows(Need("Topic", "orders", PUB), HERE)
    assert not policy.allows(Need("Topic", "orders", PUB), "10.9.9.9")


def test_an_entry_that_says_only_keeps_all_others_out() -> None:
    rule = allow("Topic:TOPIC_ORDER", PUB, groups=frozenset({"OrderProducerGroup"}), is_only=True)
    policy = Policy([rule], [allow("Topic:*")])
    assert policy.allows(Need("Topic", "TOPIC_ORDER", PUB, "OrderProducerGroup"), HERE)
    assert not policy.allows(Need("Topic", "TOPIC_ORDER", PUB, "AnotherGroup"), HERE)
    assert policy.allows(Need("Topic", "TOPIC_ORDER", SUB, "AnotherGroup"), HERE), "it speaks of PUB only"
    assert policy.allows(Need("Topic", "OTHER", PUB, "AnotherGroup"), HERE)


def test_a_rule_about_groups_does_not_hinder_what_no_group_does() -> None:
    policy = Policy([allow("Topic:t", PUB | GET, groups=frozenset({"a"}), is_only=True)])
    assert policy.allows(Need("Topic", "t", PUB | SUB | GET), HERE), "to look up a route"
    assert not policy.allows(Need("Topic", "t", PUB, ""), HERE), "to send without saying who it is"


def test_two_rules_for_one_topic_let_both_groups_in() -> None:
    rules = [
        allow("Topic:t", PUB, groups=frozenset({"a"}), is_only=True),
        allow("Topic:t", PUB, groups=frozenset({"b"}), is_only=True),
    ]
    policy = Policy(rules, [allow("Topic:*")])
    assert [policy.allows(Need("Topic", "t", PUB, group), HERE) for group in "abc"] == [True, True, False]


def test_retry_and_dead_letter_topics_are_their_groups() -> None:
    assert topic_need("%RETRY%g", SUB) == Need("Group", "g", SUB)
    assert topic_need("%DLQ%g", SUB) == Need("Group", "g", SUB)
    assert topic_need("%RETRY%g", PUB, "p") == Need("Group", "g", SUB), "to send there is to receive again"
    assert topic_need("orders", PUB, "p") == Need("Topic", "orders", PUB, "p")


def test_resources_are_read_and_written() -> None:
    for text in ("Topic:orders", "Topic:order*", "Topic:*", "Group:g", "Cluster:DefaultCluster", "*"):
        assert str(parse_pattern(text)) == text
    assert parse_pattern("topic:orders") == Pattern("Topic", "orders")


@pytest.mark.parametrize("text", ["", "orders", "Topic", "Topic:", "Thing:x", "Topic:a*b", "Topic:**"])
def test_what_is_no_resource_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="no resource"):
        parse_pattern(text)
