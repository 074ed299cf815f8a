"""Stock clients and mqadmin, with their ACL hook, against servers of ours that ask who they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kourou
from kourou.access.credentials import Credentials
from tests.guarded_cluster import ADMIN, READER, SHOP, Guarded, guarded_cluster
from tests.interop import apache
from tests.interop.round_trip import check_each_once

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


def _signed(account: Credentials) -> tuple[str, ...]:
    return (f"-Dacl.key={account.access_key}", f"-Dacl.secret={account.secret_key}")


def _tools(folder: Path, account: Credentials) -> Path:
    """mqadmin takes its account from `conf/tools.yml` in its home."""
    conf = folder / "tools-home" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "tools.yml").write_text(f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n")
    return folder


def _send(version: str, folder: Path, cluster: Guarded, account: Credentials, group: str, topic: str) -> str:
    """`sent`, or what the client was told."""
    arguments = ("send", cluster.name_server, group, topic, "sync", "4", "sync")
    try:
        said = apache.traffic(version, folder, *arguments, options=_signed(account))
    except apache.PartFailed as error:
        return str(error)
    return "sent" if [line for line in said if line["event"] == "sent"] else "nothing"


def test_java_clients_send_and_receive_what_their_account_may(version: str, tmp_path: Path) -> None:
    with guarded_cluster(tmp_path / "ours") as cluster:
        made = apache.mqadmin(
            version,
            _tools(tmp_path, ADMIN),
            *(
                f"updateTopic -n {cluster.name_server} -b {cluster.broker} -t {topic}"
                for topic in ("Orders", "TOPIC_ORDER", "Secret")
            ),
        )
        assert all("success" in text for text in made), made
        assert _send(version, tmp_path, cluster, SHOP, "AnyGroup", "Orders") == "sent"
        assert _send(version, tmp_path, cluster, SHOP, "OrderProducerGroup", "TOPIC_ORDER") == "sent"
        refused = _send(version, tmp_path, cluster, SHOP, "AnotherGroup", "TOPIC_ORDER")
        assert "CODE: 16" in refused, refused
        assert "No permission" in refused, refused
        assert "CODE: 16" in _send(version, tmp_path, cluster, SHOP, "AnyGroup", "Secret")
        wrong = Credentials("shop-account", "a-wrong-secret")
        assert _send(version, tmp_path, cluster, wrong, "AnyGroup", "Orders") != "sent"
        arguments = ("consume", cluster.name_server, "readers", "Orders", "*", "4", "40")
        said = apache.traffic(version, tmp_path, *arguments, options=_signed(READER))
        check_each_once(
            [line for line in said if line["event"] == "received"], [f"sync-{n}" for n in range(4)]
        )


def test_mqadmin_works_for_the_operator_and_not_for_others(version: str, tmp_path: Path) -> None:
    with guarded_cluster(tmp_path / "ours") as cluster:
        verbs = (
            f"updateTopic -n {cluster.name_server} -b {cluster.broker} -t Made -r 2 -w 2",
            f"topicRoute -n {cluster.name_server} -t Made",
            f"clusterList -n {cluster.name_server}",
            f"updateSubGroup -n {cluster.name_server} -b {cluster.broker} -g made-group",
            f"wipeWritePerm -n {cluster.name_server} -b guarded",
            f"addWritePerm -n {cluster.name_server} -b guarded",
        )
        made, route, brokers, group, wiped, given = apache.mqadmin(
            version, _tools(tmp_path / "a", ADMIN), *verbs
        )
        assert "success" in made
        assert '"readQueueNums":2' in route
        assert "guarded" in brokers
        assert "success" in group
        assert "OK" in wiped
        assert "OK" in given
        made, route, _, group, wiped, _ = apache.mqadmin(version, _tools(tmp_path / "b", SHOP), *verbs)
        assert "success" not in made + group
        assert "OK" not in wiped
        assert "CODE: 16" in made + group + wiped
        assert '"readQueueNums":2' in route


def test_the_admin_verbs_of_4_9_edit_the_accounts(tmp_path: Path) -> None:
    version = "4.9.7"
    with guarded_cluster(tmp_path / "ours") as cluster:
        where = f"-n {cluster.name_server} -b {cluster.broker}"
        made, told, white, gone = apache.mqadmin(
            version,
            _tools(tmp_path, ADMIN),
            f"updateAclConfig {where} -a newcomer -s newcomers-secret -i SUB -t Orders=PUB",
            f"clusterAclConfigVersion {where}",
            f"updateGlobalWhiteAddr {where} -g 10.9.8.*",
            f"deleteAclConfig {where} -a newcomer",
        )
        assert "success" in made
        assert "guarded" in told
        assert "success" in white
        assert "success" in gone
        text = cluster.acl.read_text()
        assert "10.9.8.*" in text
        assert "newcomer" not in text


FIVE = {
    "aclEnable": "false",
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"operator","password":"operators-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner-user","secretKey":"inners-secret"}',
}


def test_the_admin_verbs_of_5_make_users_and_policies(tmp_path: Path) -> None:
    version = "5.3.3"
    folder = tmp_path / "ours"
    with guarded_cluster(folder, **FIVE, authConfigPath=folder / "auth") as cluster:
        where = f"-n {cluster.name_server} -b {cluster.broker}"
        said = apache.mqadmin(
            version,
            _tools(tmp_path, ADMIN),
            f"updateTopic {where} -t Orders",
            f"createUser {where} -u shop-account -p shops-secret -t Normal",
            f"createAcl {where} -s User:shop-account -r Topic:Ord* -a Pub,Get -d Allow",
            f"listUser {where}",
            f"listAcl {where}",
            f"getUser {where} -u shop-account",
        )
        created = "\n".join(said)
        assert "shop-account" in said[3]
        assert "operator" in said[3]
        assert "Topic:Ord*" in said[4]
        assert "Normal" in said[5]
        assert "shops-secret" not in "\n".join(said[3:])
        assert _send(version, tmp_path, cluster, SHOP, "g", "Orders") == "sent", created
        (gone,) = apache.mqadmin(version, tmp_path, f"deleteAcl {where} -s User:shop-account -r Topic:Ord*")
        assert "success" in gone.lower()
        assert _send(version, tmp_path, cluster, SHOP, "g", "Orders") != "sent"


CPP_SENDER = """
import sys
from rocketmq.client import Message, Producer

name_server, group, topic, key, secret = sys.argv[1:]
producer = Producer(group)
producer.set_namesrv_addr(name_server)
producer.set_session_credentials(key, secret, "ALIYUN")
producer.start()
message = Message(topic)
message.set_body("from C++")
try:
    print("status", producer.send_sync(message).status)
except Exception as error:
    print("refused", error)
producer.shutdown()
"""


def test_the_cpp_client_signs_too(tmp_path: Path) -> None:
    with guarded_cluster(tmp_path / "ours") as cluster:
        with kourou.Producer("operators", cluster.name_server, access=ADMIN) as producer:
            producer.send(kourou.Message("TOPIC_ORDER", b"made by the operator"))

        def sent(group: str, secret: str) -> bool:
            arguments = (cluster.name_server, group, "TOPIC_ORDER", SHOP.access_key, secret)
            done = subprocess.run(
                [sys.executable, "-c", CPP_SENDER, *arguments],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                env={**os.environ, "HOME": str(tmp_path)},  # it writes its logs there
            )
            return "status 0" in done.stdout

        assert sent("OrderProducerGroup", SHOP.secret_key)
        assert not sent("AnotherGroup", SHOP.secret_key)
        assert not sent("OrderProducerGroup", "a-wrong-secret")
