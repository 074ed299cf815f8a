"""A36, A37, A48, A69, A71: folders, disks, certificates and the pages for monitoring."""

from __future__ import annotations

import errno
import socket
import time
from pathlib import Path

import pytest

import kourou
from kourou.errors import StoreLocked
from kourou.protocol.codes import ResponseCode
from kourou.remoting.figures import OVERFLOW
from tests.interop.ours import name_server as our_name_server
from tests.kourou_process import kourou as command
from tests.kourou_process import serving
from tests.remoting.certificates import Authority
from tests.security.attackers import honest_is_served
from tests.unit.broker.broker_world import BrokerWorld, send


def test_a36_a_store_in_use_is_not_opened_twice(tmp_path: Path) -> None:
    with kourou.LocalBroker(data=tmp_path / "data"), pytest.raises(StoreLocked):
        kourou.LocalBroker(data=tmp_path / "data").start()


def test_a36_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where a folder should be")
    done = command("broker", "--port", "0", "--data", tmp_path / "store", folder=tmp_path)
    assert done.returncode in (2, 74)
    assert "store" in done.stderr
    assert "Traceback" not in done.stderr


def test_a37_a_full_disk_refuses_writers_and_serves_readers_and_operators(world: BrokerWorld) -> None:
    world.start()
    peer = world.connect()
    peer.send("orders", b"kept")
    world.broker.store._refuse(OSError(errno.ENOSPC, "full"))
    refused = peer.begin(send("orders", b"more")).reply
    assert refused.code != 0
    assert peer.bodies() == [b"kept"]
    assert peer.create_topic("made").code in (0, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY)


def test_a48_a_client_certificate_of_a_stranger_is_no_user_and_ours_is(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "elsewhere", "another CA")
    server = authority.issue("server", "127.0.0.1")
    ours, theirs = authority.issue("operator"), stranger.issue("operator")
    acl = tmp_path / "plain_acl.yml"
    acl.write_text("accounts: [{accessKey: operator, secretKey: operators-secret, admin: true}]\n")
    settings = {
        "aclEnable": "true",
        "aclConfigPath": acl,
        "tls.server.mode": "enforcing",
        "tls.server.certPath": server.certificate,
        "tls.server.keyPath": server.key,
        "tls.server.trustCertPath": authority.ca,
        "tls.server.need.client.auth": "optional",
        "tls.server.certificateUsers": "true",
    }
    with our_name_server(tmp_path, **settings) as names:
        address = names.address
        with_ours = kourou.ClientTls(trust=authority.ca, certificate=ours.certificate, key=ours.key)
        without = kourou.ClientTls(trust=authority.ca)
        forged = kourou.ClientTls(trust=authority.ca, certificate=theirs.certificate, key=theirs.key)
        expected = (
            (with_ours, kourou.NotFound),  # it was asked, and knows no such topic
            (without, kourou.Denied),
            (forged, kourou.Unreachable),
        )
        for tls, error in expected:
            with kourou.Producer("g", address, tls=tls, retries=0) as producer, pytest.raises(error):
                producer.send(kourou.Message("t", b"x"))


REQUESTS = {
    "both lengths": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a body": b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd",
    "a blank before the colon": b"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n",
    "HTTP/0.9": b"GET /metrics\r\n\r\n",
    "no host": b"GET /metrics HTTP/1.1\r\n\r\n",
    "a post": b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "a megabyte": b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (1 << 20) + b"\r\n\r\n",
    "many fields": b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 100_000 + b"\r\n",
    "another place": b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "not even HTTP": b"\x16\x03\x01\x02\x00\r\n\r\n",
}


def test_a69_odd_requests_for_a_page_are_refused_and_the_line_closed(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=0\nmetricsExporterType=PROM\nmetricsPromExporterPort=0\n")
    with serving("nameserver", "-c", conf, folder=tmp_path, until="listens on") as process:
        address = next(
            line.split("http://")[1].split("/")[0]
            for line in process.log.splitlines()
            if "metrics at" in line
        )
        host, _, port = address.partition(":")
        for name, data in REQUESTS.items():
            with socket.create_connection((host, int(port)), timeout=5) as connected:
                answer = b""
                try:
                    connected.sendall(data)
                    while chunk := connected.recv(65_536):
                        answer += chunk
                except ConnectionError:
                    pass
                first = answer.split(b"\r\n")[0]
                assert not first or first.split()[1] in (b"400", b"404", b"405", b"421", b"431"), name
                assert b"root:" not in answer
        _get(host, int(port), "127.0.0.1", b"200 OK")


def _get(host: str, port: int, asked_for: str, expected: bytes) -> None:
    with socket.create_connection((host, port), timeout=5) as connected:
        request = f"GET /health HTTP/1.1\r\nHost: {asked_for}\r\nConnection: close\r\n\r\n"
        connected.sendall(request.encode())
        assert expected in connected.recv(65_536), asked_for


def test_a68_a_name_that_was_pointed_at_this_machine_reads_no_metrics(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=0\nmetricsExporterType=PROM\nmetricsPromExporterPort=0\n")
    with serving("nameserver", "-c", conf, folder=tmp_path, until="listens on") as process:
        line = next(line for line in process.log.splitlines() if "metrics at" in line)
        port = int(line.split("http://")[1].split("/")[0].rpartition(":")[2])
        for name in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil"):
            _get("127.0.0.1", port, name, b"421 Misdirected Request")
        for name in ("127.0.0.1", f"127.0.0.1:{port}", "localhost", f"LOCALHOST:{port}", "[::1]:80"):
            _get("127.0.0.1", port, name, b"200 OK")


def test_a71_names_without_end_do_not_make_a_page_without_end(world: BrokerWorld) -> None:
    world.start(metrics_series_max=100)
    for number in range(1_000):
        world.broker.stats.put(f"topic-{number}", 1, 100)
        world.broker.stats.got(f"topic-{number}", f"group-{number}", 1, 100)
    began = time.monotonic()
    figures = world.broker.metrics.figures()
    page = figures.exposition()
    assert page.count(b"rocketmq_messages_in_total{") == 101
    assert figures.value("rocketmq_messages_in_total", topic=OVERFLOW) == 900
    assert figures.value("rocketmq_messages_out_total") == 1_000
    assert time.monotonic() - began < 10.0
    assert honest_is_served(world)
