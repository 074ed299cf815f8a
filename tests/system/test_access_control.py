"""Access control over real sockets: name server, broker and our client, each a process or part of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kourou
from kourou.admin import accounts
from kourou.admin.connection import Connection
from kourou.protocol.access_messages import SaveAccount
from tests.guarded_cluster import ADMIN, PLAIN_ACL, READER, SHOP, Guarded, guarded_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_cluster(tmp_path_factory.mktemp("guarded")) as guarded:
        with kourou.Producer("operators", guarded.name_server, access=ADMIN) as producer:
            for topic in ("Orders", "Prices", "TOPIC_ORDER", "Elsewhere", "Secret"):
                producer.send(kourou.Message(topic, b"made by the operator"))
        yield guarded


def test_a_signed_send_is_taken_and_others_are_refused(cluster: Guarded) -> None:
    with kourou.Producer("g", cluster.name_server, access=SHOP, retries=0) as producer:
        assert producer.send(kourou.Message("Orders", b"x")).status is kourou.SendStatus.SEND_OK
        for topic in ("Prices", "Secret"):
            with pytest.raises(kourou.Denied, match="shop-account"):
                producer.send(kourou.Message(topic, b"x"))
    for stranger in (
        None,
        kourou.Credentials("shop-account", "a guess"),
        kourou.Credentials("nobody-here", "x"),
    ):
        with (
            kourou.Producer("g", cluster.name_server, access=stranger, retries=0) as producer,
            pytest.raises(kourou.Denied),
        ):
            producer.send(kourou.Message("Orders", b"x"))


def test_with_one_rule_one_producer_group_may_send_and_no_other(cluster: Guarded) -> None:
    with kourou.Producer("OrderProducerGroup", cluster.name_server, access=SHOP, retries=0) as producer:
        assert producer.send(kourou.Message("TOPIC_ORDER", b"x")).status is kourou.SendStatus.SEND_OK
        with pytest.raises(kourou.Denied):  # the rule for it names another network
            producer.send(kourou.Message("Elsewhere", b"x"))
    with (
        kourou.Producer("AnotherGroup", cluster.name_server, access=SHOP, retries=0) as producer,
        pytest.raises(kourou.Denied, match="AnotherGroup"),
    ):
        producer.send(kourou.Message("TOPIC_ORDER", b"x"))


def test_a_consumer_receives_what_its_account_may_read(cluster: Guarded) -> None:
    with kourou.Producer("g", cluster.name_server, access=SHOP) as producer:
        producer.send(kourou.Message("Orders", b"for the reader"))
    received = []
    with kourou.PushConsumer("readers", cluster.name_server, access=READER, start="earliest") as consumer:

        @consumer.on("Orders")
        def take(message: kourou.ReceivedMessage) -> None:
            received.append(message.body)

        consumer.start()
        _until(lambda: b"for the reader" in received)


def test_accounts_are_read_again_when_the_file_changes(cluster: Guarded) -> None:
    new = kourou.Credentials("newcomer", "newcomers-secret")
    with kourou.Producer("g", cluster.name_server, access=new, retries=0) as producer:
        with pytest.raises(kourou.Denied):
            producer.send(kourou.Message("Orders", b"x"))
        account = "  - {accessKey: newcomer, secretKey: newcomers-secret, defaultTopicPerm: PUB}\n"
        cluster.acl.write_text(PLAIN_ACL + account)
        _until(lambda: _is_taken(producer))
        cluster.acl.write_text("accounts: [this is: {not YAML")  # what is in force stays in force
        time.sleep(1.3)
        assert _is_taken(producer)
        cluster.acl.write_text(PLAIN_ACL)
        _until(lambda: not _is_taken(producer))


def test_no_secret_is_in_any_log(cluster: Guarded) -> None:
    for process in cluster.processes:
        for account in (ADMIN, SHOP, READER):
            assert account.secret_key not in process.log
        assert "Traceback" not in process.log


def _is_taken(producer: kourou.Producer) -> bool:
    try:
        producer.send(kourou.Message("Orders", b"x"))
    except kourou.Denied:
        return False
    return True


def _until(happened: object) -> None:
    assert callable(happened)
    deadline = time.monotonic() + 15
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_operators_see_and_change_accounts_and_no_secret_comes_back(cluster: Guarded) -> None:
    with Connection(cluster.name_server, access=ADMIN) as connection:
        config = accounts.accounts(connection, cluster.broker)
        assert {each.access_key for each in config.plain_access_configs} >= {"operator", "shop-account"}
        assert "secret" not in config.encode().decode().replace("secretKey", "")
        new = SaveAccount(access_key="by-request", secret_key="requested-secret", default_topic_perm="PUB")
        accounts.save_account(connection, cluster.broker, new)
        access = kourou.Credentials("by-request", "requested-secret")
        with kourou.Producer("g", cluster.name_server, access=access, retries=0) as producer:
            _until(lambda: _is_taken(producer))  # the name server reads the same file within a second
        accounts.delete_account(connection, cluster.broker, "by-request")
        with pytest.raises(kourou.Refused, match="no account"):
            accounts.delete_account(connection, cluster.broker, "by-request")
    with Connection(cluster.name_server, access=SHOP) as connection, pytest.raises(kourou.Denied):
        accounts.accounts(connection, cluster.broker)


def test_users_and_policies_are_made_by_requests(tmp_path: Path) -> None:
    settings = {
        "aclEnable": "false",
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authConfigPath": tmp_path / "auth",
        "initAuthenticationUser": '{"username":"operator","password":"operators-secret"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner-user","secretKey":"inners-secret"}',
    }
    with guarded_cluster(tmp_path / "cluster", **settings) as cluster:
        with kourou.Producer("operators", cluster.name_server, access=ADMIN) as producer:
            producer.send(kourou.Message("Orders", b"made by the operator"))
        with Connection(cluster.name_server, access=ADMIN) as connection:
            accounts.create_user(connection, cluster.broker, "shop-account", "shops-secret")
            accounts.allow(
                connection, cluster.broker, "shop-account", ["Topic:Orders"], ["Pub", "Get"], groups=["g"]
            )
            names = [user.username for user in accounts.users(connection, cluster.broker)]
            assert names == ["inner-user", "operator", "shop-account"]
            (acl,) = accounts.policies(connection, cluster.broker, "shop")
            assert acl.policies[0].entries[0].groups == ["g"]
        with kourou.Producer("g", cluster.name_server, access=SHOP, retries=0) as producer:
            _until(lambda: _is_taken(producer))
        with (
            kourou.Producer("other", cluster.name_server, access=SHOP, retries=0) as producer,
            pytest.raises(kourou.Denied),
        ):
            producer.send(kourou.Message("Orders", b"x"))
        with Connection(cluster.name_server, access=ADMIN) as connection:
            accounts.update_user(connection, cluster.broker, "shop-account", user_status="disable")
        with kourou.Producer("g", cluster.name_server, access=SHOP, retries=0) as producer:
            _until(lambda: not _is_taken(producer))
        assert (tmp_path / "auth" / "users.json").stat().st_mode & 0o077 == 0
        assert "shops-secret" not in (tmp_path / "auth" / "users.json").read_text()
