"""What can be set on a broker."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kourou.broker.config import KEYS, BrokerConfig
from kourou.doors.configuration import read_settings
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import ConfigError

SAMPLE = b"""
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = SYNC_FLUSH
sendMessageThreadPoolNums = 16
storePathRootDir = /data/rocketmq/store
storePathCommitLog = /data/rocketmq/store/commitlog
"""


def settings_of(content: bytes, **environment: str) -> tuple[BrokerConfig, tuple[str, ...]]:
    files = SimulatedFiles()
    file = files.open("broker.conf", create=True)
    file.pwrite(content, 0)
    settings = read_settings(KEYS, files=files, path="broker.conf", environment=environment)
    return settings.build(BrokerConfig), settings.notices


def test_the_originals_sample_file_is_read_unchanged_with_one_notice() -> None:
    config, notices = settings_of(SAMPLE)
    assert config.broker_name == "broker-a"
    assert config.flush_disk_type == "SYNC_FLUSH"
    assert config.store().root == "/data/rocketmq/store"
    assert config.store().is_sync
    assert len(notices) == 1
    assert "sendMessageThreadPoolNums" in notices[0]


def test_every_setting_has_a_key_and_the_same_meaning_both_ways() -> None:
    assert {key.field for key in KEYS.keys.values()} == {field.name for field in fields(BrokerConfig)}
    config, _ = settings_of(KEYS.as_properties(BrokerConfig(name_servers=("a:1", "b:2"))).encode())
    assert config == BrokerConfig(name_servers=("a:1", "b:2"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "127.0.0.1"),
        (b"bindAddress=::1", "::1"),
        (b"bindAddress=[::1]", "::1"),
        (b"bindAddress=127.0.0.5", "127.0.0.5"),
        (b"bindAddress=localhost", "127.0.0.1"),
        (b"bindAddress=10.0.0.7\ninsecure=true", "10.0.0.7"),
        (b"bindAddress=127.0.0.1\nbrokerIP1=10.0.0.7", "10.0.0.7"),
        (b"bindAddress=0.0.0.0\ninsecure=true\nbrokerIP1=[2001:db8::1]", "2001:db8::1"),
    ],
)
def test_clients_are_told_the_address_it_listens_on_or_the_one_they_shall_be(
    content: bytes, expected: str
) -> None:
    assert settings_of(content)[0].advertised_host == expected


def test_the_environment_names_the_name_servers() -> None:
    config, _ = settings_of(b"", NAMESRV_ADDR="127.0.0.1:9876; 127.0.0.1:9877")
    assert config.name_servers == ("127.0.0.1:9876", "127.0.0.1:9877")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"brokerNmae=x", "did you mean brokerName"),
        (b"listenPort=70000", "broker.conf:1: listenPort is '70000'"),
        (b"flushDiskType=MAYBE", "ASYNC_FLUSH, SYNC_FLUSH"),
        (b"brokerRole=SLAVE", "brokerId 0 is the master's; set brokerId to 1"),
        (b"brokerRole=SYNC_MASTER\nbrokerId=3", "brokerId 3 with brokerRole=SYNC_MASTER: a master's is 0"),
        (b"brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=nowhere", "haMasterAddress: "),
        (b"brokerRole=MASTER", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        (b"haSecret=short", "haSecret has 5 characters: 16 or more"),
        (b"haAllowedPeers=10.0.0.300", "'10.0.0.300' is no address and no network"),
        (b"haTls=true", "haTls=true needs tls.server.mode"),
        (b"authorizationEnabled=true", "authenticationEnabled"),
        (b"bindAddress=0.0.0.0", "insecure=true"),
        (b"bindAddress=0.0.0.0\ninsecure=true", "bindAddress 0.0.0.0 is not an address .* set brokerIP1"),
        (b"bindAddress=::\ninsecure=true", "bindAddress :: is not an address .* set brokerIP1"),
        (b"bindAddress=my.host\ninsecure=true", "bindAddress my.host is not an address .* set brokerIP1"),
        (b"brokerIP1=0.0.0.0", "brokerIP1 0.0.0.0 is not an address"),
        (b"brokerIP1=my.host", "brokerIP1 my.host is not an address"),
        (b"brokerName=a/b", "brokerName: name 'a/b' has illegal characters"),
        (b"namesrvAddr=nowhere", "nowhere"),
        (b"fetchNamesrvAddrByAddressServer=true", "rocketmq.namesrv.domain"),
        (b"storePathCommitLog=/disk1/log,/disk2/log", "'/disk1/log,/disk2/log', but must be one folder"),
        (b"readOnlyCommitLogStorePaths=/old/log", "readOnlyCommitLogStorePaths can only be empty here"),
    ],
)
def test_a_bad_setting_is_named_with_the_way_out(content: bytes, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        settings_of(content)


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        (b"diskMaxUsedSpaceRatio=99", "disk_max_used_percent", 95),
        (b"diskMaxUsedSpaceRatio=5", "disk_max_used_percent", 10),
        (b"diskSpaceCleanForciblyRatio=95", "disk_clean_forcibly_percent", 85),
        (b"diskSpaceWarningLevelRatio=0", "disk_warning_percent", 35),
        (b"registerNameServerPeriod=5000", "register_interval_ms", 10_000),
        (b"registerNameServerPeriod=120000", "register_interval_ms", 60_000),
        (b"readOnlyCommitLogStorePaths=", "commit_log_path", ""),
    ],
)
def test_what_the_original_brings_within_bounds_is_brought_there(
    line: bytes, field: str, expected: object
) -> None:
    assert getattr(settings_of(line)[0], field) == expected


@pytest.mark.parametrize(
    ("text", "delays_ms"),
    [("1s", (1_000,)), ("1s  90m 2h 1d", (1_000, 5_400_000, 7_200_000, 86_400_000))],
)
def test_delay_levels_are_read_as_the_original_writes_them(text: str, delays_ms: tuple[int, ...]) -> None:
    kind = KEYS.keys["messageDelayLevel"].kind
    assert kind.parse(text) == delays_ms
    assert kind.parse(kind.show(delays_ms)) == delays_ms


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "0s", "-1s", "1s,5s", "1s " * 1025])
def test_delay_levels_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        KEYS.keys["messageDelayLevel"].kind.parse(text)
