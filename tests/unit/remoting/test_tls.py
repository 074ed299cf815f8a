from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.remoting.config import ClientTls, TlsConfig
from kourou.remoting.tls import Certificates, client_context
from tests.remoting.certificates import Authority, Files


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_nothing_below_tls_1_2_is_spoken(authority: Authority) -> None:
    files = authority.issue("server", "localhost")
    for context in (
        Certificates(TlsConfig(certificate=files.certificate, key=files.key)).context,
        client_context(ClientTls()),
    ):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION


def test_a_client_verifies_certificate_and_host_unless_told_not_to(authority: Authority) -> None:
    strict = client_context(ClientTls(trust=authority.ca))
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(strict.get_ca_certs()) == 1  # ours alone, not the system's as well
    loose = client_context(ClientTls(verify=False))
    assert (loose.verify_mode, loose.check_hostname) == (ssl.CERT_NONE, False)


def test_client_certificates_are_asked_for_when_a_ca_is_named(authority: Authority) -> None:
    files = authority.issue("server", "localhost")

    def mode(**options: object) -> ssl.VerifyMode:
        config = TlsConfig(certificate=files.certificate, key=files.key, **options)  # type: ignore[arg-type]
        return Certificates(config).context.verify_mode

    assert mode() == ssl.CERT_NONE
    assert mode(trust=authority.ca) == ssl.CERT_OPTIONAL
    assert mode(trust=authority.ca, require_client_certificate=True) == ssl.CERT_REQUIRED


def test_a_file_that_is_not_there_is_named(authority: Authority) -> None:
    files = authority.issue("server", "localhost")
    with pytest.raises(
        ConfigError, match=r"'nowhere\.pem' or key '.*server\.key' cannot be read: No such file"
    ):
        Certificates(TlsConfig(certificate="nowhere.pem", key=files.key))
    with pytest.raises(ConfigError, match=r"CA file 'nowhere\.pem' cannot be read: No such file"):
        client_context(ClientTls(trust="nowhere.pem"))


def test_a_key_of_another_certificate_is_told_apart(authority: Authority) -> None:
    one, other = authority.issue("one", "localhost"), authority.issue("other", "localhost")
    with pytest.raises(ConfigError, match=r"other\.key' does not belong to certificate '.*one\.pem'"):
        Certificates(TlsConfig(certificate=one.certificate, key=other.key))


def test_what_is_no_pem_is_said_to_be_none(authority: Authority, tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("not a certificate")
    files = authority.issue("server", "localhost")
    with pytest.raises(ConfigError, match="are not a PEM certificate and its PEM key"):
        Certificates(TlsConfig(certificate=str(junk), key=files.key))
    with pytest.raises(ConfigError, match=r"CA file '.*junk\.pem' holds no PEM certificate"):
        client_context(ClientTls(trust=str(junk)))


def test_an_encrypted_key_needs_its_password_and_never_asks_at_the_terminal(authority: Authority) -> None:
    files = authority.issue("server", "localhost", password="sesame")
    Certificates(TlsConfig(certificate=files.certificate, key=files.key, key_password="sesame"))
    with pytest.raises(ConfigError, match=r"server\.key' is encrypted: give its password"):
        Certificates(TlsConfig(certificate=files.certificate, key=files.key))
    with pytest.raises(ConfigError, match=r"the password given does not open key '.*server\.key'"):
        Certificates(TlsConfig(certificate=files.certificate, key=files.key, key_password="wrong"))


def test_a_changed_certificate_is_taken_up_and_a_bad_one_is_not(authority: Authority) -> None:
    files = authority.issue("server", "localhost")
    certificates = Certificates(TlsConfig(certificate=files.certificate, key=files.key))
    first = certificates.context
    assert not certificates.reload_if_changed()
    assert certificates.context is first

    authority.issue("renewed", "localhost", files=Files(*files))
    assert certificates.reload_if_changed()
    second = certificates.context
    assert second is not first

    Path(files.key).write_text("gone wrong")
    with pytest.raises(ConfigError):
        certificates.reload_if_changed()
    assert certificates.context is second
    assert not certificates.reload_if_changed()  # said once
    with pytest.raises(ConfigError):
        certificates.reload()
    assert certificates.context is second
