"""The original's namesrv.conf is read unchanged; what cannot be is said with its place and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.doors.configuration import read_settings
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import ConfigError
from kourou.nameserver.config import KEYS, NameServerConfig

ORIGINAL = b"""# as shipped, more or less
rocketmqHome=/opt/rocketmq
listenPort=9877
kvConfigPath=/var/lib/namesrv/kvConfig.json
serverWorkerThreads=8
serverSelectorThreads=3
clientRequestThreadPoolNums=8
useEpollNativeSelector=true
orderMessageEnable=true
clusterTest=false
productEnvName=center
scanNotActiveBrokerInterval=5000
serverChannelMaxIdleTimeSeconds=120
enableControllerInNamesrv=false
"""


def load(content: bytes, **more: Any) -> tuple[NameServerConfig, Any]:
    files = SimulatedFiles()
    files.write_atomically("namesrv.conf", content)
    settings = read_settings(KEYS, files=files, path="namesrv.conf", **more)
    return settings.build(NameServerConfig), settings


def test_by_default_it_listens_on_loopback_where_rocketmq_does() -> None:
    config = NameServerConfig()
    assert (config.host, config.port, config.scan_interval_ms) == ("127.0.0.1", 9876, 10_000)


def test_a_file_of_the_original_is_read_unchanged_with_one_notice() -> None:
    config, settings = load(ORIGINAL)
    assert config.port == 9877
    assert config.kv_config_path == "/var/lib/namesrv/kvConfig.json"
    assert config.order_message_enable
    assert config.scan_interval_ms == 5000
    (notice,) = settings.notices
    assert "serverWorkerThreads" in notice
    assert "rocketmqHome" in notice


def test_every_key_has_a_field_and_every_field_a_key() -> None:
    assert set(KEYS.by_field) == set(NameServerConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"enableControllerInNamesrv = true\n",
            r"namesrv\.conf:1: enableControllerInNamesrv can only be false",
        ),
        (b"\nlistenport=1\n", r"namesrv\.conf:2: .* no setting 'listenport'; did you mean listenPort\?"),
        (b"listenPort=65536\n", r"listenPort is '65536', but must be a whole number from 0 to 65535"),
        (b"bindAddress=0.0.0.0\n", r"bindAddress 0\.0\.0\.0 .*127\.0\.0\.1.*certificate.*--insecure"),
        (b"addressServer=0.0.0.0:80\n", r"addressServer 0\.0\.0\.0 .*--insecure"),
        (b"addressServer=here\n", "must be host:port"),
        (b"clusterTest=true\n", "productEnvAddress"),
        (b"tls.server.mode=permissive\n", r"tls\.server\.certPath"),
        (b"tls.server.need.client.auth=require\n", r"tls\.server\.trustCertPath"),
        (b"insecure=true\nbindAddress=0.0.0.0\naddressServer=127.0.0.1:80\n", "addressServerList"),
    ],
)
def test_what_cannot_be_is_said_with_its_place_and_a_way_out(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(content)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost", "127.8.8.8"])
def test_loopback_is_always_allowed(host: str) -> None:
    assert NameServerConfig(host=host).host == host


def test_the_network_is_allowed_with_insecure_or_with_client_certificates() -> None:
    assert NameServerConfig(host="0.0.0.0", insecure=True)
    assert NameServerConfig(
        host="192.0.2.1",
        tls_mode="enforcing",
        tls_certificate="c.pem",
        tls_key="k.pem",
        tls_client_certificate="require",
        tls_trust="ca.pem",
    )


def test_flags_beat_the_environment_which_beats_the_file() -> None:
    variables = {"KOUROU_NAMESERVER_LISTEN_PORT": "2", "KOUROU_NAMESERVER_ORDER_MESSAGE_ENABLE": "false"}
    config, settings = load(ORIGINAL, environment=variables, flags={"port": 3, "insecure": None})
    assert (config.port, config.order_message_enable, config.scan_interval_ms) == (3, False, 5000)
    origins = {name: setting.origin for name, setting in settings.explain(config)}
    assert origins["listenPort"] == "flag --port"
    assert origins["orderMessageEnable"] == "environment KOUROU_NAMESERVER_ORDER_MESSAGE_ENABLE"
    assert origins["scanNotActiveBrokerInterval"] == "namesrv.conf:12"
    assert origins["serverSocketBacklog"] == "default"
