from __future__ import annotations

from typing import Any

import pytest

from kourou.errors import ConfigError
from kourou.remoting.config import ClientTls, ServerConfig, TlsConfig


def test_a_server_listens_on_loopback_and_without_tls_unless_told_otherwise() -> None:
    config = ServerConfig()
    assert (config.host, config.tls) == ("127.0.0.1", None)


@pytest.mark.parametrize(
    "option",
    [
        {"port": 65536},
        {"port": -1},
        {"connections_max": 0},
        {"idle_seconds": 0},
        {"in_flight_requests_max": -5},
        {"frame_bytes_max": 2**24 + 1},
        {"write_stall_seconds": float("nan")},
    ],
)
def test_an_impossible_setting_is_named_with_its_value(option: dict[str, Any]) -> None:
    [(name, value)] = option.items()
    with pytest.raises(ConfigError, match=f"{name}.*{value}"):
        ServerConfig(**option)


def test_tls_without_a_certificate_is_refused_unless_disabled() -> None:
    assert TlsConfig(mode="disabled").certificate is None
    for mode in ("permissive", "enforcing"):
        with pytest.raises(ConfigError, match=f"'{mode}' needs a certificate file and a key file"):
            TlsConfig(mode=mode, certificate="c.pem")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'strict' is unknown: use disabled, permissive or enforcing"):
        TlsConfig(mode="strict")  # type: ignore[arg-type]


def test_client_certificates_cannot_be_required_without_a_ca() -> None:
    with pytest.raises(ConfigError, match="no CA file"):
        TlsConfig(certificate="c.pem", key="k.pem", require_client_certificate=True)


def test_a_client_certificate_needs_its_key() -> None:
    with pytest.raises(ConfigError, match="both its certificate file and its key file"):
        ClientTls(certificate="c.pem")


def test_passwords_do_not_show() -> None:
    tls = TlsConfig(certificate="c.pem", key="k.pem", key_password="sesame")
    assert "sesame" not in repr(ServerConfig(tls=tls))
    assert "sesame" not in repr(ClientTls(certificate="c", key="k", key_password="sesame"))
