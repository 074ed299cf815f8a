"""Certificates for tests, made on the spot: a CA, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Files(NamedTuple):
    certificate: str
    key: str


class Authority:
    """A CA of its own; `ca` is the file to trust."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        path = folder / f"{name.replace(' ', '-')}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.ca = str(path)

    def issue(
        self,
        name: str,
        *hosts: str,
        password: str | None = None,
        is_expired: bool = False,
        files: Files | None = None,
    ) -> Files:
        """A certificate for `hosts` signed by this CA; written over `files` when given."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key.public_key(), -DAY / 2 if is_expired else DAY)
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(ours, critical=False)  # Python 3.13 insists
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_general, hosts)), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        files = files or Files(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        Path(files.certificate).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        how = (
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption()
        )
        Path(files.key).write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
        )
        return files


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: datetime.timedelta = DAY
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + lasts)
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
