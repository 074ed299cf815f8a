"""Signing what is sent, for clusters that ask who it is from."""

from __future__ import annotations

from dataclasses import dataclass, field

from kourou.errors import ConfigError
from kourou.protocol.command import Command


@dataclass(frozen=True)
class Credentials:
    """Who we are to the cluster; every request is signed with it.

    `token` comes with credentials that are valid for a while only.
    """

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ConfigError(
                    f"{name} must be a text that is not empty; leave access out to sign nothing"
                )

    def sign(self, command: Command, signed_ms: int | None = None) -> None:
        """Put our name and the signature into the fields of a request that is about to be sent.

        With the time, a server that looks for repeated requests can tell an old one.
        """
        # OpenSSL is loaded by whoever signs, not by everybody who imports a client.
        from kourou.access.signatures import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SIGNED_AT, signature

        fields = dict(command.fields)
        fields.pop(SIGNATURE, None)  # a request that is sent again
        fields[ACCESS_KEY] = self.access_key
        if self.token is not None:
            fields[SECURITY_TOKEN] = self.token
        if signed_ms is not None:
            fields[SIGNED_AT] = str(signed_ms)
        fields[SIGNATURE] = signature(fields, command.body, self.secret_key)
        command.replace_fields(fields)
