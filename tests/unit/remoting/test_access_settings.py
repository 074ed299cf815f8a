"""What a server can be told about access control."""

from __future__ import annotations

import pytest

from kourou.broker.config import BrokerConfig
from kourou.errors import ConfigError
from kourou.nameserver.config import NameServerConfig
from kourou.remoting.access_settings import AccessSettings


def test_nothing_is_asked_unless_it_was_switched_on() -> None:
    assert not AccessSettings().is_access_controlled
    assert AccessSettings(acl_enabled=True).is_access_controlled
    assert AccessSettings(authentication_enabled=True).is_access_controlled


def test_a_server_that_asks_who_its_peers_are_may_listen_where_they_can_reach_it() -> None:
    for settings in ({}, {"tls_mode": "permissive", "tls_certificate": "c", "tls_key": "k"}):
        with pytest.raises(ConfigError, match=r"Three ways out.*127\.0\.0\.1.*aclEnable.*--insecure"):
            NameServerConfig(host="0.0.0.0", **settings)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="Three ways out"):
            BrokerConfig(host="0.0.0.0", advertised_host="10.0.0.1", **settings)  # type: ignore[arg-type]
    assert NameServerConfig(host="0.0.0.0", acl_enabled=True).host == "0.0.0.0"
    assert BrokerConfig(host="0.0.0.0", advertised_host="10.0.0.1", authentication_enabled=True)
    assert BrokerConfig(host="0.0.0.0", advertised_host="10.0.0.1", insecure=True)


def test_access_control_does_not_open_the_address_list_or_the_metrics() -> None:
    with pytest.raises(ConfigError, match="addressServer"):
        NameServerConfig(acl_enabled=True, address_server="0.0.0.0:8080", address_server_list="a:1")
    with pytest.raises(ConfigError, match="metricsPromExporterHost"):
        BrokerConfig(acl_enabled=True, metrics_exporter="PROM", metrics_host="0.0.0.0")


def test_settings_that_contradict_each_other_are_named() -> None:
    with pytest.raises(ConfigError, match="authenticationEnabled"):
        AccessSettings(authorization_enabled=True)
    with pytest.raises(ConfigError, match=r"tls\.server\.need\.client\.auth"):
        AccessSettings(certificate_users=True)


@pytest.mark.parametrize(
    "given", ["not JSON canary", '{"accessKey":"canary"}', '{"accessKey":1,"secretKey":2}']
)
def test_bad_credentials_are_named_and_not_shown(given: str) -> None:
    with pytest.raises(ConfigError, match="innerClientAuthenticationCredentials") as raised:
        AccessSettings(own_credentials=given)
    assert "canary" not in str(raised.value)


def test_the_first_user_is_a_super_user() -> None:
    user = AccessSettings(first_user='{"username":"u","password":"p"}').initial_user()
    assert user is not None
    assert (user.username, user.user_type) == ("u", "Super")
    with pytest.raises(ConfigError, match="initAuthenticationUser"):
        AccessSettings(first_user='{"username":"u"}')


def test_another_server_beside_it_can_have_the_same() -> None:
    settings = BrokerConfig(acl_enabled=True, acl_path="x.yml", replay_window_seconds=9)
    other = NameServerConfig(**settings.about_access())
    assert (other.acl_enabled, other.acl_path, other.replay_window_seconds) == (True, "x.yml", 9)
    assert other.port == 9876


def test_use_tls_means_what_tls_enable_means() -> None:
    assert BrokerConfig().client_tls() is None
    for settings in ({"use_tls": True}, {"tls_to_others": True}):
        tls = BrokerConfig(tls_others_trust="ca.pem", **settings).client_tls()  # type: ignore[arg-type]
        assert tls is not None
        assert tls.trust == "ca.pem"
