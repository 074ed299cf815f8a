"""Every layout is a set of files that the servers take as they are."""

from __future__ import annotations

import pytest

from kourou.broker.config import KEYS as BROKER_KEYS
from kourou.broker.config import BrokerConfig
from kourou.doors.configuration import read_settings
from kourou.doors.memory_files import MemoryFiles
from kourou.errors import ConfigError
from kourou.local.layouts import LAYOUTS, Place, Server, planned
from kourou.nameserver.config import KEYS as NAME_SERVER_KEYS
from kourou.nameserver.config import NameServerConfig


def places() -> object:
    given: dict[str, Place] = {}

    def place(kind: str, name: str) -> Place:
        port = 9876 + len(given) if kind == "nameserver" else 10911 + 10 * len(given)
        return given.setdefault(name, Place("127.0.0.1", port, f"/data/{name}"))

    return place


def configured(server: Server) -> BrokerConfig | NameServerConfig:
    files = MemoryFiles()
    files.write_atomically("server.conf", server.configuration().encode())
    is_broker = server.kind == "broker"
    keys = BROKER_KEYS if is_broker else NAME_SERVER_KEYS
    settings = read_settings(keys, files=files, path="server.conf", environment={}, flags={})
    assert not settings.notices
    return settings.build(BrokerConfig) if is_broker else settings.build(NameServerConfig)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_its_files_are_taken_as_they_are(layout: str) -> None:
    servers = planned(layout, places(), name_servers=2)  # type: ignore[arg-type]
    configs = [configured(server) for server in servers]
    brokers = [config for config in configs if isinstance(config, BrokerConfig)]
    assert len(configs) - len(brokers) == 2
    assert all(broker.name_servers == ("127.0.0.1:9876", "127.0.0.1:9877") for broker in brokers)
    assert len({broker.store_path for broker in brokers}) == len(brokers)
    used = [port for broker in brokers for port in (broker.port, broker.port - 2, broker.ha_port)]
    assert len(set(used)) == len(used), "no two of them want the same port"


def test_a_pair_is_a_master_and_a_slave_of_the_same_name() -> None:
    servers = planned("2m-2s-sync", places())  # type: ignore[arg-type]
    brokers = [config for server in servers if isinstance(config := configured(server), BrokerConfig)]
    assert [(each.broker_name, each.broker_role, each.broker_id) for each in brokers] == [
        ("broker-a", "SYNC_MASTER", 0),
        ("broker-b", "SYNC_MASTER", 0),
        ("broker-a", "SLAVE", 1),
        ("broker-b", "SLAVE", 1),
    ]


def test_those_that_elect_know_each_other() -> None:
    servers = planned("3n-auto", places())  # type: ignore[arg-type]
    brokers = [config for server in servers if isinstance(config := configured(server), BrokerConfig)]
    members = {each.election_members for each in brokers}
    assert len(members) == 1
    assert set(next(iter(members))) == {f"127.0.0.1:{each.port}" for each in brokers}


def test_an_unknown_layout_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no layout '4m'; there are 1m, 2m"):
        planned("4m", places())  # type: ignore[arg-type]
