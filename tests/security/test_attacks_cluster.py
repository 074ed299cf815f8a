"""A51 to A65: name server, other brokers, settings from afar, and output that is no friend of a terminal."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from kourou.broker.config import KEYS as BROKER_KEYS
from kourou.nameserver import routes
from kourou.nameserver.config import KEYS as NAME_SERVER_KEYS
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.names import printable
from tests.security.attackers import ADMIN, SHOP, guard, honest_is_served, request, signed
from tests.security.test_attacks_access import guarded_name_server
from tests.unit.broker.broker_world import BrokerWorld, Peer

SOURCES = Path(__file__).resolve().parents[2] / "src" / "kourou"


def register(name: str = "b", body: bytes = b"", address: str = "127.0.0.1:1") -> dict[str, str]:
    return {"brokerName": name, "brokerAddr": address, "clusterName": "c", "brokerId": "0"}


def test_a51_a_false_broker_is_not_registered_and_a_true_one_not_taken_away(world: BrokerWorld) -> None:
    names = guarded_name_server(world)
    assert names.begin(signed(request(RequestCode.REGISTER_BROKER, b"", **register()), ADMIN)).reply.code == 0
    for code in (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.BROKER_HEARTBEAT):
        forged = request(code, b"", **register(address="10.6.6.6:1"))
        assert names.begin(signed(forged, SHOP)).reply.code == ResponseCode.NO_PERMISSION
    info = names.begin(signed(request(RequestCode.GET_BROKER_CLUSTER_INFO), ADMIN)).reply.body
    assert b"127.0.0.1:1" in info
    assert b"10.6.6.6" not in info


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"}),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t"}),
        (RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}),
        (RequestCode.DELETE_KV_CONFIG, {"namespace": "n", "key": "k"}),
        (RequestCode.UPDATE_NAMESRV_CONFIG, {}),
    ],
)
def test_a52_a_stranger_changes_nothing_at_a_name_server(
    world: BrokerWorld, code: int, fields: dict[str, str]
) -> None:
    names = guarded_name_server(world)
    waiting = names.begin(request(code, b"orderMessageEnable=true", **fields))
    world.pass_time(6)
    assert waiting.reply.code == ResponseCode.NO_PERMISSION
    assert names.begin(signed(request(code, b"", **fields), SHOP)).reply.code == ResponseCode.NO_PERMISSION


def test_a53_topics_of_a_registration_are_bounded_also_over_many_registrations(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "TOPICS_OF_BROKER_MAX", 50)
    world.name_server()
    names = world.connect_to("127.0.0.1", 9876)

    def with_topics(first: int, count: int) -> int:
        topics = {
            f"t{number}": {"topicName": f"t{number}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
            for number in range(first, first + count)
        }
        table = {"topicConfigTable": topics, "dataVersion": {"counter": first, "timestamp": 1}}
        body = json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": []}).encode()
        return names.begin(request(RequestCode.REGISTER_BROKER, body, **register())).reply.code

    assert [with_topics(first, 20) for first in (0, 20)] == [0, 0]
    assert with_topics(40, 20) != 0
    assert with_topics(30, 20) == 0, "those it has are no new ones"
    route = {"queueDatas": [{"brokerName": "b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]}
    one_more = request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, json.dumps(route).encode(), topic="more")
    assert names.begin(one_more).reply.code != 0


def test_a53_a_body_that_inflates_without_end_is_refused(world: BrokerWorld) -> None:
    import zlib

    world.name_server()
    names = world.connect_to("127.0.0.1", 9876)
    body = zlib.compress(bytes(256 << 20))
    fields = {**register(), "compressed": "true"}
    assert names.begin(request(RequestCode.REGISTER_BROKER, body, **fields)).reply.code != 0
    assert not names.is_lost


def heartbeat(group: str, client: str, topics: int = 1) -> bytes:
    subscriptions = [
        {"topic": f"t{number}", "subString": "*", "subVersion": 1, "expressionType": "TAG"}
        for number in range(topics)
    ]
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
    }
    return json.dumps({"clientID": client, "consumerDataSet": [consumer], "producerDataSet": []}).encode()


def test_a58_a_heartbeat_names_a_bounded_number_of_subscriptions(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    assert peer.begin(request(RequestCode.HEART_BEAT, heartbeat("g", "c", 10_001))).reply.code != 0
    assert peer.begin(request(RequestCode.HEART_BEAT, heartbeat("g", "c", 10))).reply.code == 0
    assert honest_is_served(world)


def lock(client: str) -> bytes:
    queues = [{"brokerName": "broker-a", "queueId": number, "topic": "t0"} for number in range(4)]
    return json.dumps({"consumerGroup": "g", "clientId": client, "mqSet": queues}).encode()


def test_a59_queues_are_locked_by_members_only(world: BrokerWorld) -> None:
    world.start()
    world.make_topic("t0")
    member, stranger = world.connect(), world.connect()
    member.begin(request(RequestCode.HEART_BEAT, heartbeat("g", "member")))
    refused = stranger.begin(request(RequestCode.LOCK_BATCH_MQ, lock("stranger"))).reply
    assert refused.code != 0
    forged = stranger.begin(request(RequestCode.LOCK_BATCH_MQ, lock("member"))).reply
    assert forged.code != 0, "a member's name is not its connection"
    taken = member.begin(request(RequestCode.LOCK_BATCH_MQ, lock("member"))).reply
    assert taken.body.count(b'"queueId"') == 4


# --------------------------------------------------------------------------------- settings from afar


def update(peer: Peer, code: int, body: bytes) -> int:
    return peer.begin(request(code, body)).reply.code


@pytest.mark.parametrize(
    "body",
    [
        b"rocketmqHome=-c $@|sh . echo id;\nfilterServerNums=1\n",
        b"filterServerNums=1\n",
        b"rocketmqHome=/tmp\n",
        b"messageStorePlugIn=evil.Plugin\n",
    ],
)
def test_a60_no_setting_from_afar_leads_to_a_process(world: BrokerWorld, body: bytes) -> None:
    world.start()
    world.name_server()
    peer, names = world.connect(), world.connect_to("127.0.0.1", 9876)
    before = BROKER_KEYS.as_properties(world.broker.config)
    assert update(names, RequestCode.UPDATE_NAMESRV_CONFIG, b"rocketmqHome=/tmp\n") != 0
    if b"rocketmqHome" in body:
        assert update(peer, RequestCode.UPDATE_BROKER_CONFIG, body) != 0
    else:
        update(peer, RequestCode.UPDATE_BROKER_CONFIG, body)
    assert BROKER_KEYS.as_properties(world.broker.config) == before


def test_a60_no_server_part_can_start_a_process_or_run_text() -> None:
    forbidden = {"subprocess", "pickle", "marshal", "shelve", "code", "pty", "multiprocessing"}
    forbidden.add("kourou.doors.processes")  # for those who run whole clusters on a machine
    calls = {"eval", "exec", "compile", "__import__", "system", "popen"}
    found = []
    for part in ("access", "broker", "nameserver", "protocol", "remoting", "replication", "store", "doors"):
        for path in sorted((SOURCES / part).rglob("*.py")):
            if path.name == "processes.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found += [(path.name, each.name) for each in node.names if each.name in forbidden]
                elif isinstance(node, ast.ImportFrom) and node.module in forbidden:
                    found.append((path.name, node.module))
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    found += [(path.name, node.func.id)] if node.func.id in calls else []
    assert found == []


PATH_KEYS = [
    "storePathRootDir",
    "storePathCommitLog",
    "aclConfigPath",
    "authConfigPath",
    "tls.server.keyPath",
]
NS_PATH_KEYS = ["configStorePath", "kvConfigPath", "aclConfigPath", "tls.server.certPath", "bindAddress"]


def test_a61_no_path_can_be_set_from_afar_and_no_file_is_written(world: BrokerWorld) -> None:
    world.start()
    world.name_server()
    peer, names = world.connect(), world.connect_to("127.0.0.1", 9876)
    before = sorted(world.files.list("."))
    for key in PATH_KEYS:
        assert update(peer, RequestCode.UPDATE_BROKER_CONFIG, f"{key}=/tmp/evil\n".encode()) != 0, key
    for key in NS_PATH_KEYS:
        assert update(names, RequestCode.UPDATE_NAMESRV_CONFIG, f"{key}=/tmp/evil\n".encode()) != 0, key
    assert sorted(world.files.list(".")) == before


def test_a61_nothing_that_could_do_harm_is_on_the_list_of_what_may_be_set() -> None:
    for keys in (BROKER_KEYS, NAME_SERVER_KEYS):
        remote = [key for key in keys.keys.values() if key.remote]
        assert not [
            key.name for key in remote if key.secret or "ath" in key.name.lower().replace("match", "")
        ]
        assert not [
            key.name for key in remote if key.name.startswith(("tls", "acl", "auth", "bind", "insecure"))
        ]
        assert not [
            key.name for key in remote if key.kind.accepts.startswith(("a file", "a folder", "a path"))
        ]


@pytest.mark.parametrize(
    "body",
    [
        b"maxTransferCountOnMessageInMemory=0\n",
        b"maxTransferCountOnMessageInMemory=-1\n",
        b"maxTransferCountOnMessageInMemory=1000000000\n",
        b"maxTransferCountOnMessageInMemory=1e3\n",
        b"brokerPermission=99\n",
        b"longPollingEnable=maybe\n",
        b"insecure=true\n",
        b"aclEnable=false\n",
        b"authenticationEnabled=false\n",
    ],
)
def test_a62_numbers_out_of_range_and_switches_that_open_doors_are_refused(
    world: BrokerWorld, body: bytes
) -> None:
    world.start()
    before = BROKER_KEYS.as_properties(world.broker.config)
    assert update(world.connect(), RequestCode.UPDATE_BROKER_CONFIG, body) != 0
    assert BROKER_KEYS.as_properties(world.broker.config) == before


@pytest.mark.parametrize(
    "body",
    [
        b"include=/etc/passwd\n",
        b"LONGPOLLINGENABLE=false\n",
        b"brokerName=a\\nstorePathRootDir=/tmp\n",
        b"long\\u0050ollingEnablf=false\n",
        b"regionId=${env:HOME}\n",
        b"\0\0\0",
    ],
)
def test_a63_a_change_is_data_and_its_keys_are_exact(world: BrokerWorld, body: bytes) -> None:
    world.start()
    before = BROKER_KEYS.as_properties(world.broker.config)
    assert update(world.connect(), RequestCode.UPDATE_BROKER_CONFIG, body) != 0
    assert BROKER_KEYS.as_properties(world.broker.config) == before


def test_a63_a_change_is_taken_whole_or_not_at_all(world: BrokerWorld) -> None:
    world.start()
    before = BROKER_KEYS.as_properties(world.broker.config)
    body = b"longPollingEnable=false\nstorePathRootDir=/tmp\n"
    assert update(world.connect(), RequestCode.UPDATE_BROKER_CONFIG, body) != 0
    assert BROKER_KEYS.as_properties(world.broker.config) == before


def test_a64_what_a_server_says_cannot_colour_or_flood_a_terminal() -> None:
    shown = printable("\x1b[31mred\x1b]0;title\x07\r\nyes? [y/N]" + "x" * 10_000)
    assert "\x1b" not in shown
    assert "\n" not in shown
    assert "\r" not in shown
    assert len(shown) < 500


def test_a_guarded_broker_starts(world: BrokerWorld) -> None:
    assert not guard(world).is_lost
