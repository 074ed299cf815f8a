"""How a Spark process reaches the cluster: driver and executors alike, each for itself.

What goes to executors with a task is only where to look: secrets are read by each process from its own file
or environment, so that no plan, log or table definition has them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kourou.client.cluster_settings import ClusterSettings
from kourou.client.finding import find_name_servers, parse_addresses
from kourou.client.signing import Credentials
from kourou.doors.files import RealFiles
from kourou.errors import ConfigError, ProtocolError
from kourou.protocol import java_properties
from kourou.remoting.config import ClientTls

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCESS_NAMES = (
    "namesrvAddr",
    "namespace",
    "credentialsFile",
    "tls",
    "tlsTrust",
    "tlsCertificate",
    "tlsKey",
    "tlsServerName",
)
SECRET_NAMES = ("accessKey", "secretKey", "securityToken")

ACCESS_KEY_VARIABLE = "KOUROU_ACCESS_KEY"
SECRET_KEY_VARIABLE = "KOUROU_SECRET_KEY"  # noqa: S105  # the name of a variable
TOKEN_VARIABLE = "KOUROU_SECURITY_TOKEN"  # noqa: S105


class Texts(Protocol):
    """Options, of a source or a sink."""

    def text(self, name: str) -> str | None: ...
    def flag(self, name: str, default: bool) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """Where the cluster is and how to talk to it; goes to executors as it is."""

    name_server: str
    namespace: str | None = None
    credentials_file: str | None = None
    tls: ClientTls | None = None

    @classmethod
    def given(cls, options: Texts) -> ClusterAccess:
        """What the options say; the name server may also come from the environment of the driver."""
        files = {
            name: options.text(name) for name in ("tlsTrust", "tlsCertificate", "tlsKey", "tlsServerName")
        }
        wants_tls = options.flag("tls", any(files.values()))
        return cls(
            name_server=_name_server(options.text("namesrvAddr")),
            namespace=options.text("namespace"),
            credentials_file=options.text("credentialsFile"),
            tls=ClientTls(
                trust=files["tlsTrust"],
                certificate=files["tlsCertificate"],
                key=files["tlsKey"],
                server_name=files["tlsServerName"],
            )
            if wants_tls
            else None,
        )

    def settings(self) -> ClusterSettings:
        """As clients of ours take it, with the secrets this process has."""
        return ClusterSettings(
            namespace=self.namespace,
            tls=self.tls,
            access=credentials(self.credentials_file, os.environ),
        )


def _name_server(text: str | None) -> str:
    """The addresses, found on the driver: an executor's environment may say something else."""
    if text is not None:
        return ";".join(parse_addresses(text.replace(",", ";")))
    try:
        found = find_name_servers(None)
    except ConfigError:
        found = None
    if found is None or not found.addresses:
        raise ConfigError(
            "where is the cluster? Give the option namesrvAddr ('host:9876'), or set the environment "
            "variable NAMESRV_ADDR where the driver runs"
        )
    return ";".join(found.addresses)


def credentials(path: str | None, environment: Mapping[str, str]) -> Credentials | None:
    """From the file, or else the environment; None when neither says anything."""
    if path is None:
        access_key, secret_key = (
            environment.get(name) for name in (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE)
        )
        if not access_key or not secret_key:
            return None
        return Credentials(access_key, secret_key, environment.get(TOKEN_VARIABLE) or None)
    try:
        said = java_properties.parse(RealFiles().read(path))
    except (OSError, ProtocolError) as error:
        raise ConfigError(
            f"credentialsFile names '{path}', which this process cannot read: {error}; it must be there on "
            "the driver and on every executor"
        ) from None
    if not said.get("accessKey") or not said.get("secretKey"):
        raise ConfigError(
            f"'{path}', named by credentialsFile, must have two lines: accessKey=… and secretKey=…"
        )
    return Credentials(said["accessKey"], said["secretKey"], said.get("securityToken") or None)
