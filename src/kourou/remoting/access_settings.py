"""What every server can be told about access control, under RocketMQ's names.

`aclEnable` is that of 4.x, with its `plain_acl.yml`; `authenticationEnabled` and `authorizationEnabled` are
those of 5.x, with users and policies. Both may be on: then an account of either will do.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

import msgspec

from kourou.access.credentials import Credentials
from kourou.doors.configuration import Key, Kind, text, whole_number, yes_no
from kourou.errors import ConfigError
from kourou.protocol.access_messages import UserInfo
from kourou.remoting.listen_settings import ListenSettings

Said = TypeVar("Said", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class AccessSettings(ListenSettings):
    """The part of a server's settings that says whom it serves. Raises ConfigError when they contradict."""

    acl_enabled: bool = False
    acl_path: str = ""
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    auth_path: str = ""
    first_user: str = ""
    own_credentials: str = ""
    unauthenticated_codes: tuple[int, ...] = ()
    unauthorised_codes: tuple[int, ...] = ()
    certificate_users: bool = False
    replay_window_seconds: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError(
                "authorizationEnabled=true needs authenticationEnabled=true: rights are no use while "
                "anybody can say to be anybody"
            )
        if self.certificate_users and self.tls_client_certificate == "none":
            raise ConfigError(
                "tls.server.certificateUsers=true needs tls.server.need.client.auth=require or optional, "
                "and tls.server.trustCertPath"
            )
        self.credentials()
        self.initial_user()

    @property
    def is_access_controlled(self) -> bool:
        return self.acl_enabled or self.authentication_enabled

    def about_access(self) -> dict[str, Any]:
        """The settings of this class alone, for another server beside this one."""
        own = {each.name for each in fields(AccessSettings)} - {each.name for each in fields(ListenSettings)}
        shared = own - {"certificate_users"}  # it hangs together with TLS, which each server has its own of
        return {name: getattr(self, name) for name in shared}

    @property
    def _knows_its_peers(self) -> bool:
        return self.is_access_controlled or super()._knows_its_peers

    def credentials(self) -> Credentials | None:
        """What this server itself signs with, when it calls others."""
        if not self.own_credentials:
            return None
        said = _decoded(self.own_credentials, _SaidCredentials, "innerClientAuthenticationCredentials")
        return Credentials(said.access_key, said.secret_key, said.security_token)

    def initial_user(self) -> UserInfo | None:
        """The first user, a super user, made when it is not there."""
        if not self.first_user:
            return None
        said = _decoded(self.first_user, UserInfo, "initAuthenticationUser")
        if not said.username or not said.password:
            raise ConfigError('initAuthenticationUser must be {"username":"…","password":"…"}')
        return UserInfo(username=said.username, password=said.password, user_type="Super")


class _SaidCredentials(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return "<credentials>"


def _decoded(given: str, kind: type[Said], key: str) -> Said:
    try:
        return msgspec.json.decode(given, type=kind)
    except msgspec.MsgspecError:  # its text might show the secret
        raise ConfigError(f"{key} is not the JSON that is wanted there") from None


def _codes() -> Kind:
    def parse(given: str) -> tuple[int, ...]:
        return tuple(
            whole_number(0, 2**31 - 1).parse(each.strip()) for each in given.split(",") if each.strip()
        )

    return Kind("request codes parted by ','", parse, lambda codes: ",".join(map(str, codes)))


ACCESS_KEYS: Final = (
    Key("aclEnable", "acl_enabled", yes_no()),
    Key("aclConfigPath", "acl_path", text("a file (plain_acl.yml)")),
    Key("authenticationEnabled", "authentication_enabled", yes_no()),
    Key("authorizationEnabled", "authorization_enabled", yes_no()),
    Key("authConfigPath", "auth_path", text("a folder")),
    Key("initAuthenticationUser", "first_user", text("a user as JSON"), secret=True),
    Key("innerClientAuthenticationCredentials", "own_credentials", text("credentials as JSON"), secret=True),
    Key("authenticationWhitelist", "unauthenticated_codes", _codes()),
    Key("authorizationWhitelist", "unauthorised_codes", _codes()),
    Key("tls.server.certificateUsers", "certificate_users", yes_no()),
    Key("aclReplayWindowSeconds", "replay_window_seconds", whole_number(0, 3600)),
)
