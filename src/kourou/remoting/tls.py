"""Certificates and TLS contexts, for servers, clients and blocking clients. Nothing here touches a socket.

Never less than TLS 1.2, no renegotiation, no compression, and no certificate but the one that was named.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from kourou.doors.network import file_stamps
from kourou.errors import ConfigError
from kourou.remoting.config import ClientTls, TlsConfig

CERTIFICATE_NAME: Final = "certificate name"
"""Under it a TLS connection keeps, among its facts, whom the client's certificate names."""


class Certificates:
    """A server's certificate, key and trusted CA, as they are on disk now.

    `context` is the one for new handshakes; connections made earlier keep theirs.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._stamps = self._look()
        self.context = _server_context(config)

    def reload(self) -> None:
        """Read the files again. Raises ConfigError, and keeps what it has, when they cannot be used."""
        stamps = self._look()
        self.context = _server_context(self._config)
        self._stamps = stamps

    def reload_if_changed(self) -> bool:
        """Like `reload`, when a file has changed since it was last tried."""
        stamps = self._look()
        if stamps == self._stamps:
            return False
        self._stamps = stamps  # a bad file is complained about once, and tried again when it changes
        self.context = _server_context(self._config)
        return True

    def _look(self) -> tuple[object, ...]:
        return file_stamps((self._config.certificate, self._config.key, self._config.trust))


def common_name(certificate: Any) -> str:
    """Whom a certificate, as `getpeercert` tells it, is for; nothing when there is none that was verified."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[-1] if names else ""


def client_context(config: ClientTls) -> ssl.SSLContext:
    """What a client verifies, and shows. Raises ConfigError when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and host name
    _harden(context)
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif config.trust is None:
        context.load_default_certs()
    if config.verify and config.trust is not None:
        _load_trust(context, config.trust)
    if config.certificate is not None and config.key is not None:
        _load_certificate(context, config.certificate, config.key, config.key_password)
    return context


def _server_context(config: TlsConfig) -> ssl.SSLContext:
    assert config.certificate is not None
    assert config.key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    _load_certificate(context, config.certificate, config.key, config.key_password)
    if config.trust is not None:
        _load_trust(context, config.trust)
        required = config.require_client_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    was_asked = False

    def answer() -> str:
        """Without an answer OpenSSL would ask at the terminal, and a service would hang."""
        nonlocal was_asked
        was_asked = True
        if password is None:
            raise ConfigError(f"key '{key}' is encrypted: give its password, or an unencrypted key")
        return password

    try:
        context.load_cert_chain(certificate, key, answer)
    except ssl.SSLError as error:
        raise ConfigError(_what_is_wrong(error, certificate, key, was_asked)) from None
    except OSError as error:
        raise ConfigError(
            f"certificate '{certificate}' or key '{key}' cannot be read: {error.strerror or error}"
        ) from None


def _what_is_wrong(error: ssl.SSLError, certificate: str, key: str, is_encrypted: bool) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"key '{key}' does not belong to certificate '{certificate}': name the pair that does"
    if is_encrypted:
        return f"the password given does not open key '{key}'"
    return f"'{certificate}' and '{key}' are not a PEM certificate and its PEM key"


def _load_trust(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise ConfigError(f"CA file '{path}' holds no PEM certificate") from None
    except OSError as error:
        raise ConfigError(f"CA file '{path}' cannot be read: {error.strerror or error}") from None
