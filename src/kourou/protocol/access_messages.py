"""Requests about accounts: the five of 4.x (50 to 54) and the users and policies of 5.x (3001 to 3010)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from kourou.protocol.bodies import Body
from kourou.protocol.headers import WireHeader

# ---------------------------------------------------------------------------------------------------- 4.x


class SaveAccount(WireHeader, frozen=True):
    """UPDATE_AND_CREATE_ACL_CONFIG (50). Lists of permissions are parted by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"<SaveAccount {self.access_key}>"


class AccountNamed(WireHeader, frozen=True):
    """DELETE_ACL_CONFIG (51)."""

    access_key: str


class AclVersionReply(WireHeader, frozen=True):
    """Reply of GET_BROKER_CLUSTER_ACL_INFO (52). Both versions are JSON."""

    version: str
    all_acl_file_version: str
    broker_name: str
    broker_addr: str
    cluster_name: str


class SaveGlobalWhiteList(WireHeader, frozen=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53)."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class PlainAccessConfig(Body, kw_only=True):
    """An account as it is shown: without its secret."""

    access_key: str
    admin: bool = False
    default_group_perm: str | UnsetType = UNSET
    default_topic_perm: str | UnsetType = UNSET
    group_perms: list[str] = field(default_factory=list)
    secret_key: str = ""
    topic_perms: list[str] = field(default_factory=list)
    white_remote_address: str | UnsetType = UNSET


class AclConfig(Body, kw_only=True):
    """Reply of GET_BROKER_CLUSTER_ACL_CONFIG (54)."""

    global_white_addrs: list[str] = field(default_factory=list)
    plain_access_configs: list[PlainAccessConfig] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------- 5.x


class UserNamed(WireHeader, frozen=True):
    """AUTH_CREATE_USER (3001), AUTH_UPDATE_USER (3002), AUTH_DELETE_USER (3003), AUTH_GET_USER (3004)."""

    username: str


class ListUsers(WireHeader, frozen=True):
    """AUTH_LIST_USER (3005)."""

    filter: str | None = None


class SubjectNamed(WireHeader, frozen=True):
    """AUTH_CREATE_ACL (3006), AUTH_UPDATE_ACL (3007), AUTH_GET_ACL (3009)."""

    subject: str


class DeleteAcl(WireHeader, frozen=True):
    """AUTH_DELETE_ACL (3008)."""

    subject: str
    policy_type: str | None = None
    resource: str | None = None


class ListAcls(WireHeader, frozen=True):
    """AUTH_LIST_ACL (3010)."""

    subject_filter: str | None = None
    resource_filter: str | None = None


class UserInfo(Body, kw_only=True, omit_defaults=True):
    """A user. The password travels to the server only."""

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None

    def __repr__(self) -> str:
        return f"<UserInfo {self.username}>"


class PolicyEntryInfo(Body, kw_only=True, omit_defaults=True):
    """What may be done with one resource, or may not. `groups` is ours: who does it."""

    actions: list[str] = field(default_factory=list)
    decision: str | None = None
    groups: list[str] | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class PolicyInfo(Body, kw_only=True, omit_defaults=True):
    """Entries that come before all others (`Custom`), or after them (`Default`)."""

    entries: list[PolicyEntryInfo] = field(default_factory=list)
    policy_type: str | None = None


class AclInfo(Body, kw_only=True, omit_defaults=True):
    """The policies of one subject, `User:name`."""

    policies: list[PolicyInfo] = field(default_factory=list)
    subject: str | None = None
