"""Official Java clients work through our name server and our broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop import apache, ours
from tests.interop.round_trip import PER_WAY, java_consume, java_round_trip, java_send
from tests.remoting.certificates import Authority

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def test_a_java_client_sends_in_every_way_and_receives_each_message_once(
    version: str, tmp_path: Path
) -> None:
    with ours.name_server(tmp_path) as names, ours.broker(tmp_path, names.address) as broker:
        received = java_round_trip(version, tmp_path, names.address)
        assert {line["storeHost"] for line in received} == {f"/{broker.address}"}
        broker.stop()
        names.stop()


def test_a_java_client_works_through_kourou_start(version: str, tmp_path: Path) -> None:
    with ours.node(tmp_path, "--sync-flush") as node:
        java_round_trip(version, tmp_path, node.address)
        node.stop()


def test_a_java_consumer_gets_only_the_tag_it_asked_for(version: str, tmp_path: Path) -> None:
    with ours.node(tmp_path) as node:
        java_send(version, tmp_path, node.address, "Tagged", "sync")
        received = java_consume(
            version, tmp_path, node.address, "Tagged", PER_WAY // 2, expression="even || none", group="even"
        )
        assert sorted(line["body"] for line in received) == [f"sync-{n}" for n in range(0, PER_WAY, 2)]


def test_a_java_group_goes_on_where_it_stopped(version: str, tmp_path: Path) -> None:
    with ours.node(tmp_path) as node:
        java_send(version, tmp_path, node.address, "Resumed", "sync")
        assert len(java_consume(version, tmp_path, node.address, "Resumed", PER_WAY)) == PER_WAY
        java_send(version, tmp_path, node.address, "Resumed", "async")
        received = java_consume(version, tmp_path, node.address, "Resumed", PER_WAY)
        assert sorted(line["body"] for line in received) == [f"async-{n}" for n in range(PER_WAY)]


@pytest.mark.parametrize(
    "option",
    [
        "-Drocketmq.serialize.type=ROCKETMQ",  # the binary header
        "-Dorg.apache.rocketmq.client.sendSmartMsg=false",  # SEND_MESSAGE (10) rather than 310
        "-Dcom.rocketmq.sendMessageWithVIPChannel=true",  # through the fast port
    ],
)
def test_a_java_client_may_speak_the_other_dialects(version: str, option: str, tmp_path: Path) -> None:
    options = (option,)
    with ours.node(tmp_path) as node:
        send = ("send", node.address, "senders", "Dialect", "sync", "5", "long", "6000")
        said = apache.traffic(version, tmp_path, *send, options=options)
        assert [line["status"] for line in said if line["event"] == "sent"] == ["SEND_OK"] * 5
        consume = ("consume", node.address, "readers", "Dialect", "*", "5", "40")
        said = apache.traffic(version, tmp_path, *consume, options=options)
        received = [line["body"] for line in said if line["event"] == "received"]
        # 6,000 bytes are beyond the client's limit for plain bodies: they travelled and lie there compressed.
        assert sorted(received) == [f"long-{n}".ljust(6000, ".") for n in range(5)]


def test_a_java_client_speaks_tls(version: str, tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("server", "127.0.0.1")
    permissive: dict[str, Any] = {
        "tls.server.certPath": files.certificate,
        "tls.server.keyPath": files.key,
        "tls.server.mode": "permissive",  # the broker registers in the clear
    }
    enforcing = permissive | {"tls.server.mode": "enforcing"}
    with (
        ours.name_server(tmp_path, **permissive) as names,
        ours.broker(tmp_path, names.address, **enforcing),
    ):
        send = ("send", names.address, "senders", "Secret", "sync", "5", "tls")
        said = apache.traffic(version, tmp_path, *send, options=("-Dtls.enable=true",))
        assert [line["status"] for line in said if line["event"] == "sent"] == ["SEND_OK"] * 5
        consume = ("consume", names.address, "readers", "Secret", "*", "5", "40")
        said = apache.traffic(version, tmp_path, *consume, options=("-Dtls.enable=true",))
        assert sorted(line["body"] for line in said if line["event"] == "received") == [
            f"tls-{n}" for n in range(5)
        ]
        with pytest.raises(apache.PartFailed, match="Exception"):  # the broker takes nothing in the clear
            apache.traffic(version, tmp_path, *send)
