"""Peers read all settings and change a few; never a path, an address or a secret."""

from __future__ import annotations

import errno

import pytest

from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Denied, Refused
from kourou.nameserver.config import KEYS, NameServerConfig
from kourou.nameserver.own_config import OwnConfig
from kourou.protocol import java_properties


def own(**settings: object) -> tuple[OwnConfig, SimulatedFiles]:
    files = SimulatedFiles()
    return OwnConfig(NameServerConfig(**settings), files), files  # type: ignore[arg-type]


def test_every_setting_is_shown_under_rocketmqs_name() -> None:
    config, _ = own(port=9877, order_message_enable=True)
    shown = java_properties.parse(config.as_properties())
    assert shown["listenPort"] == "9877"
    assert shown["orderMessageEnable"] == "true"
    secrets = {key.name for key in KEYS.keys.values() if key.secret}
    assert shown.keys() == KEYS.keys.keys() - secrets
    assert {"tls.server.keyPassword", "innerClientAuthenticationCredentials"} <= secrets


def test_the_password_of_a_key_is_not_shown() -> None:
    config, _ = own(tls_key_password="canary")
    assert "canary" not in config.as_properties()


def test_an_allowed_setting_acts_at_once_and_listeners_hear_of_it() -> None:
    config, _ = own()
    heard: list[bool] = []
    config.on_change(lambda: heard.append(config.now.order_message_enable))
    config.update(b"orderMessageEnable=true\nwaitSecondsForService=5\n", "peer")
    assert config.now.order_message_enable
    assert config.now.wait_seconds_for_service == 5
    assert heard == [True]


@pytest.mark.parametrize(
    "body",
    [
        b"configStorePath=/tmp/evil",
        b"kvConfigPath=/tmp/evil",
        b"rocketmqHome=/tmp",
        b"configBlackList=",
        b"bindAddress=0.0.0.0",
        b"listenPort=1",
        b"insecure=true",
        b"tls.server.mode=disabled",
        b"addressServer=0.0.0.0:80",
        b"clusterTest=true",
        b"orderMessageEnable=true\nkvConfigPath=/tmp/evil",
        b"kvConfigPath : /tmp/evil",
        b"kvConfig\\u0050ath=/tmp/evil",
    ],
)
def test_a_dangerous_setting_is_denied_and_nothing_is_written(body: bytes) -> None:
    config, files = own(config_store_path="namesrv.properties")
    before = config.now
    with pytest.raises(Denied) as denied:
        config.update(body, "peer")
    assert denied.value.code == 16
    assert config.now is before
    assert files.list("") == []


def test_the_black_list_of_the_file_takes_more_away() -> None:
    config, _ = own(config_black_list="orderMessageEnable;enableTopicList")
    with pytest.raises(Denied, match="enableTopicList"):
        config.update(b"enableTopicList=false", "peer")


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"orderMessageEnable=perhaps", "orderMessageEnable is 'perhaps', but must be true or false"),
        (b"scanNotActiveBrokerInterval=0", "from 100 to 600000"),
        (b"waitSecondsForService=-1", "from 0 to 3600"),
        (b"waitSecondsForService=1e3", "from 0 to 3600"),
        (b"orderMessageEnabled=true", "did you mean orderMessageEnable"),
        (b"ORDERMESSAGEENABLE=true", "did you mean orderMessageEnable"),
        (b"include=/etc/passwd", "no setting 'include'"),
        (b"a=\\u00", "four hex"),
        (b"x" * 70_000, "at most 65536"),
    ],
)
def test_a_bad_change_is_refused_by_name_and_changes_nothing(body: bytes, remark: str) -> None:
    config, _ = own()
    before = config.now
    with pytest.raises(Refused, match=remark) as refused:
        config.update(b"enableTopicList=false\n" + body, "peer")
    assert refused.value.code == 1
    assert config.now is before


def test_a_setting_of_the_original_without_meaning_here_is_taken() -> None:
    config, _ = own()
    config.update(b"serverWorkerThreads=16\nenableTopicList=false", "peer")
    assert not config.now.enable_topic_list


def test_changes_are_kept_where_the_file_says_so() -> None:
    config, files = own(config_store_path="namesrv.properties")
    config.update(b"enableTopicList=false", "peer")
    assert java_properties.parse(files.read("namesrv.properties"))["enableTopicList"] == "false"


def test_a_change_that_cannot_be_kept_is_refused() -> None:
    config, files = own(config_store_path="namesrv.properties")
    files.fail("open", error=errno.EACCES)
    with pytest.raises(Refused, match="Permission denied"):
        config.update(b"enableTopicList=false", "peer")
    assert config.now.enable_topic_list
