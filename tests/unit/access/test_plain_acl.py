"""The original's ACL file, read unchanged."""

from __future__ import annotations

import pytest

from kourou.access.accounts import Account
from kourou.access.plain_acl import accounts_in, dump, parse
from kourou.access.rules import ADMIN, GET, PUB, SUB, UPDATE, Need
from kourou.errors import ConfigError

# As it comes with RocketMQ 4.9 (distribution/conf/plain_acl.yml).
SAMPLE = b"""\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def account(name: str = "RocketMQ", data: bytes = SAMPLE) -> Account:
    found = accounts_in(parse(data, "plain_acl.yml"), "plain_acl.yml").get(name)
    assert found is not None
    return found


def may(account: Account, kind: str, name: str, action: int) -> bool:
    return account.policy.allows(Need(kind, name, action), "10.1.2.3")  # type: ignore[arg-type]


def test_the_sample_of_the_original_means_what_it_means_there() -> None:
    somebody = account()
    assert somebody.secret == b"12345678", "a number without quotes is text here"
    assert not somebody.is_super
    assert [may(somebody, "Topic", name, PUB) for name in ("topicA", "topicB", "topicC", "other")] == [
        False,
        True,
        False,
        False,
    ]
    assert [may(somebody, "Topic", name, SUB) for name in ("topicA", "topicB", "topicC", "other")] == [
        False,
        True,
        True,
        False,
    ]
    assert [may(somebody, "Group", name, SUB) for name in ("groupA", "groupB", "groupC", "other")] == [
        False,
        True,
        True,
        True,
    ]
    assert account("rocketmq2").is_super
    assert "192.168.1.7" in account("rocketmq2").white
    assert "10.10.103.9" in accounts_in(parse(SAMPLE, "f"), "f").white


def test_everybody_may_look_and_only_an_admin_may_change() -> None:
    assert may(account(), "Cluster", "*", GET)
    assert not may(account(), "Cluster", "*", UPDATE)
    assert not may(account(), "Cluster", "*", ADMIN)


def test_an_admin_with_perms_of_its_own_sends_and_receives_by_those() -> None:
    data = b"accounts: [{accessKey: operator, secretKey: secret-x, admin: true, topicPerms: [a=PUB]}]"
    admin = account("operator", data)
    assert not admin.is_super
    assert may(admin, "Topic", "a", PUB)
    assert not may(admin, "Topic", "b", PUB)
    assert may(admin, "Cluster", "*", ADMIN)


def test_one_rule_is_enough_for_a_group() -> None:
    data = b"""
accounts:
  - accessKey: shop-account
    secretKey: secret-x
    defaultTopicPerm: PUB|SUB
    rules:
      - {topic: TOPIC_ORDER, perm: PUB, group: OrderProducerGroup}
      - {topic: audit-*, perm: PUB, group: [a, b], address: [10.1.2.*, 10.9.9.9]}
"""
    policy = account("shop-account", data).policy
    assert policy.allows(Need("Topic", "TOPIC_ORDER", PUB, "OrderProducerGroup"), "10.1.2.3")
    assert not policy.allows(Need("Topic", "TOPIC_ORDER", PUB, "AnotherGroup"), "10.1.2.3")
    assert policy.allows(Need("Topic", "audit-1", PUB, "a"), "10.9.9.9")
    assert not policy.allows(Need("Topic", "audit-1", PUB, "a"), "10.9.9.8")
    assert not policy.allows(Need("Topic", "audit-1", PUB, "c"), "10.9.9.9")


def test_an_empty_file_knows_nobody() -> None:
    assert not accounts_in(parse(b"", "f"), "f").by_name


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"accounts: [{accessKey: short, secretKey: long-enough}]", "at least 7 characters"),
        (b"accounts: [{accessKey: long-enough}]", "secretKey"),
        (b"accounts: [{accessKey: operator, secretKey: secret-x, defaultTopicPerm: ALL}]", "no permission"),
        (b"accounts: [{accessKey: operator, secretKey: secret-x, topicPerms: [a]}]", "name=PUB"),
        (b"accounts: [{accessKey: operator, secretKey: secret-x, rules: [{topic: a, perm: DENY}]}]", "rule"),
        (b"globalWhiteRemoteAddresses: [10.1]", "no pattern of addresses"),
        (b"accounts: {", "YAML"),
        (b"- a", "plain_acl.yml"),
        (b"accounts: !!python/object/apply:os.system [id]", "YAML"),
    ],
)
def test_a_bad_file_is_an_error_that_names_the_place(data: bytes, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as raised:
        accounts_in(parse(data, "plain_acl.yml"), "plain_acl.yml")
    assert "plain_acl.yml" in str(raised.value)
    assert "secret-x" not in str(raised.value)


def test_what_is_written_is_read_again() -> None:
    acl = parse(SAMPLE, "f")
    assert parse(dump(acl), "f") == acl
    assert "12345678" not in repr(acl)
    assert "12345678" not in repr(acl.accounts)
