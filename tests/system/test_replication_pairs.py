"""Pairs over real sockets, as real processes: TLS on the HA port, consumers while the master is away."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

import kourou
from kourou.broker.broker import Broker
from kourou.broker.config import BrokerConfig
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.doors.files import RealFiles
from kourou.doors.network import RealNetwork
from kourou.doors.processes import free_port
from kourou.errors import ConfigError
from kourou.store.store import Draft
from tests.kourou_process import kourou as run_kourou
from tests.kourou_process import serving_broker, serving_name_server
from tests.remoting.certificates import Authority

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
SECRET = "a secret that is long enough"


async def started(folder: Path, **settings: Any) -> Broker:
    usual: dict[str, Any] = {"broker_name": "pair", "port": 0, "segment_bytes": 1 << 20}
    broker = Broker(
        BrokerConfig(**{**usual, "store_path": str(folder), **settings}),
        network=RealNetwork(),
        clock=RealClock(),
        files=RealFiles(),
        chance=Chance(),
        process_id=os.getpid(),
    )
    await broker.start()
    return broker


async def until(happened: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it never came so"
        await asyncio.sleep(0.02)


def append(broker: Broker, count: int) -> None:
    host = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    for number in range(count):
        broker.store.append(Draft("t", number % 4, b"%d " % number * 200, b"", 0, 0, 1, host, host))


@pytest.mark.parametrize("loop", LOOPS)
def test_the_log_is_copied_over_tls_to_those_with_a_certificate_only(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = authority.issue("node", "127.0.0.1")
    tls: dict[str, Any] = {
        "tls_mode": "enforcing",
        "tls_certificate": mine.certificate,
        "tls_key": mine.key,
        "tls_trust": authority.ca,
        "tls_client_certificate": "require",
        "tls_to_others": True,
        "tls_others_trust": authority.ca,
        "tls_own_certificate": mine.certificate,
        "tls_own_key": mine.key,
        "ha_tls": True,
        "ha_secret": SECRET,
    }

    async def story() -> None:
        master = await started(tmp_path / "master", broker_role="SYNC_MASTER", **tls)
        following = {"broker_role": "SLAVE", "ha_master_address": master.ha_address}
        slave = await started(tmp_path / "slave", broker_id=1, **following, **tls)
        plain = await started(tmp_path / "plain", broker_id=2, **following, ha_secret=SECRET)
        append(master, 3000)
        await until(lambda: slave.store.wrote == master.store.wrote > 2 << 20)
        await until(lambda: plain.ha_status().counters.get("refused", 0) > 0 or plain_is_turned_away(master))
        assert plain.store.wrote == 0
        assert [link.broker_id for link in master.ha_status().links] == [1]
        for broker in (plain, slave, master):
            await broker.stop()

    def plain_is_turned_away(master: Broker) -> bool:
        return master.ha_status().counters.get("refused: tls", 0) > 0

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(story())
    for path in (tmp_path / "master" / "commitlog").iterdir():
        assert path.read_bytes() == (tmp_path / "slave" / "commitlog" / path.name).read_bytes()


def test_the_ha_port_stays_on_loopback_where_strangers_could_reach_it() -> None:
    exposed: dict[str, Any] = {
        "host": "0.0.0.0",
        "advertised_host": "10.0.0.1",
        "authentication_enabled": True,
    }
    assert BrokerConfig(**exposed).replication().host == "127.0.0.1"
    ways: list[dict[str, Any]] = [
        {"ha_secret": SECRET},
        {"ha_allowed_peers": ("10.0.0.2",)},
        {"insecure": True},
    ]
    for asked in ways:
        assert BrokerConfig(**exposed, **asked).replication().host == "0.0.0.0"
    with pytest.raises(ConfigError, match=r"haTls=true needs tls.server.mode"):
        BrokerConfig(ha_tls=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("brokerRole=SLAVE", "brokerId 0 is the master's; set brokerId to 1"),
        ("brokerRole=SYNC_MASTER\nbrokerId=3", "brokerId 3 with brokerRole=SYNC_MASTER: a master's is 0"),
    ],
)
def test_bad_settings_end_the_start_with_the_way_out(settings: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(f"{settings}\nlistenPort=0\n")
    done = run_kourou("broker", "-c", "broker.conf", folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "kourou-data").exists()


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    with serving_name_server(tmp_path) as server:
        yield server.address("listens on")


def test_consumers_go_to_the_slave_when_the_master_is_gone_and_keep_their_place(
    names: str, tmp_path: Path
) -> None:
    """kill -9 of the master; its consumers read on from the slave, and from the master when that is back."""
    with ExitStack() as stack:
        ports = [free_ports(), free_ports()]
        folders = [tmp_path / "master", tmp_path / "slave"]
        for folder in folders:
            folder.mkdir()
        settings = f"brokerName=pair\nnamesrvAddr={names}\nhaMetadataInterval=200\n"
        as_master = f"{settings}brokerRole=SYNC_MASTER\nlistenPort={ports[0]}\n"
        as_slave = f"{settings}brokerRole=SLAVE\nbrokerId=1\nlistenPort={ports[1]}\n"
        master = stack.enter_context(serving_broker(folders[0], settings=as_master))
        stack.enter_context(serving_broker(folders[1], settings=as_slave))
        send(names, range(20))
        with kourou.PullConsumer("readers", "t", names) as consumer:
            consumer.seek("earliest")
            seen = receive(consumer, 12)
            consumer.commit()
            time.sleep(0.8)  # the slave learns of the topic and the offsets
            master.kill()
            seen += receive(consumer, 20 - len(seen))
            consumer.commit()
            assert sorted(seen) == [b"%03d" % number for number in range(20)]
            stack.enter_context(serving_broker(folders[0], settings=as_master))
            send(names, range(20, 30))
            seen += receive(consumer, 10)
        assert sorted(set(seen)) == [b"%03d" % number for number in range(30)]
        assert len(seen) == 30, "a consumer that went to the slave and back got something twice"


def test_a_second_master_of_the_same_name_does_not_start(names: str, tmp_path: Path) -> None:
    settings = f"brokerName=twin\nnamesrvAddr={names}\nlistenPort=0\n"
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
    with serving_broker(tmp_path / "one", settings=settings) as first:
        address = first.address("listens on")
        (tmp_path / "two" / "broker.conf").write_text(settings)
        done = run_kourou("broker", "-c", "broker.conf", folder=tmp_path / "two")
        assert done.returncode == 2
        assert f"brokerName twin has a master already, at {address}" in done.stderr
        assert "Traceback" not in done.stderr
        first.kill()
    with serving_broker(tmp_path / "two", settings=settings):
        pass  # its entry is still at the name server, but nobody answers there


def send(names: str, numbers: range) -> None:
    """Each is sent until a slave has it."""
    with kourou.Producer("senders", name_server=names, send_timeout=5.0) as producer:
        deadline = time.monotonic() + 20
        for number in numbers:
            if number == numbers[0]:
                wait_for_slave(producer, deadline)
            assert producer.send(kourou.Message("t", b"%03d" % number)).status is kourou.SendStatus.SEND_OK


def wait_for_slave(producer: kourou.Producer, deadline: float) -> None:
    while True:
        try:
            if producer.send(kourou.Message("probe", b"?")).status is kourou.SendStatus.SEND_OK:
                return
        except kourou.MQError:
            pass
        assert time.monotonic() < deadline, "no slave came"
        time.sleep(0.1)


def receive(consumer: kourou.PullConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        try:
            found += [message.body for message in consumer.receive(count - len(found), timeout=0.3)]
        except kourou.MQError:
            time.sleep(0.1)
    return found


def free_ports() -> int:
    """A port that is free, with the one two below it and the one above."""
    return free_port((-2, 1))
