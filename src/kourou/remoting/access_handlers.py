"""Accounts shown and changed by operators: the ACL file of 4.x (50 to 54), users and policies of 5.x (3001+).

For broker and name server alike. No secret leaves the server. Every change is in the log, with who asked for
it; it counts at once, here: a cluster's other servers have accounts of their own, as in the original.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec
from msgspec import UNSET

from kourou.access.acl_files import AclFiles
from kourou.access.plain_acl import PlainAccount
from kourou.access.signatures import ACCESS_KEY
from kourou.access.users import Users
from kourou.errors import ConfigError, Refused
from kourou.protocol.access_messages import (
    AccountNamed,
    AclConfig,
    AclInfo,
    AclVersionReply,
    DeleteAcl,
    ListAcls,
    ListUsers,
    PlainAccessConfig,
    SaveAccount,
    SaveGlobalWhiteList,
    SubjectNamed,
    UserInfo,
    UserNamed,
)
from kourou.protocol.bodies import Body, DataVersion
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import printable
from kourou.remoting.access import Access
from kourou.remoting.answer import Answer, Handler

UPDATE_FAILED = 209
DELETE_FAILED = 210
WHITE_LIST_FAILED = 211
"""What 4.x answers when one of its three changes fails; 5.x gave the numbers another meaning."""

logger = logging.getLogger(__name__)


def access_handlers(
    access: Access, *, name: str, cluster: str, address: Callable[[], str]
) -> Mapping[int, Handler]:
    """What there is to ask about accounts; with access control off, nothing. `name` is the server's."""
    plain = PlainAclHandlers(access, name, cluster, address)
    users = UserHandlers(access)
    code = RequestCode
    return {
        code.UPDATE_AND_CREATE_ACL_CONFIG: plain.save,
        code.DELETE_ACL_CONFIG: plain.delete,
        code.GET_BROKER_CLUSTER_ACL_INFO: plain.version,
        code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: plain.save_white_list,
        code.GET_BROKER_CLUSTER_ACL_CONFIG: plain.show,
        code.AUTH_CREATE_USER: users.create,
        code.AUTH_UPDATE_USER: users.update,
        code.AUTH_DELETE_USER: users.delete,
        code.AUTH_GET_USER: users.get,
        code.AUTH_LIST_USER: users.list,
        code.AUTH_CREATE_ACL: users.create_acl,
        code.AUTH_UPDATE_ACL: users.update_acl,
        code.AUTH_DELETE_ACL: users.delete_acl,
        code.AUTH_GET_ACL: users.get_acl,
        code.AUTH_LIST_ACL: users.list_acl,
    }


class PlainAclHandlers:
    """`plain_acl.yml`."""

    def __init__(self, access: Access, name: str, cluster: str, address: Callable[[], str]) -> None:
        self._access = access
        self._name = name
        self._cluster = cluster
        self._address = address

    def save(self, request: Command, answer: Answer) -> None:
        said = request.parse(SaveAccount)
        files = self._files()
        try:
            files.save(said)
        except ConfigError as error:
            raise Refused(UPDATE_FAILED, str(error)) from None
        self._changed(request, answer, f"saved account {printable(said.access_key)}")

    def delete(self, request: Command, answer: Answer) -> None:
        name = request.parse(AccountNamed).access_key
        if not self._files().delete(name):
            raise Refused(DELETE_FAILED, f"there is no account {printable(name)}")
        self._changed(request, answer, f"deleted account {printable(name)}")

    def save_white_list(self, request: Command, answer: Answer) -> None:
        said = request.parse(SaveGlobalWhiteList)
        patterns = [each.strip() for each in said.global_white_addrs.split(",") if each.strip()]
        try:
            self._files().save_white_list(patterns, said.acl_file_full_path)
        except ConfigError as error:
            raise Refused(WHITE_LIST_FAILED, str(error)) from None
        self._changed(request, answer, f"set the global white list to {printable(','.join(patterns))}")

    def version(self, request: Command, answer: Answer) -> None:
        files = self._files()
        version = DataVersion(timestamp=files.changed_ms, counter=files.changes)
        reply = AclVersionReply(
            version=version.encode().decode(),
            all_acl_file_version=msgspec.json.encode(dict.fromkeys(files.paths, version)).decode(),
            broker_name=self._name,
            broker_addr=self._address(),
            cluster_name=self._cluster,
        )
        answer(request.reply(reply))

    def show(self, request: Command, answer: Answer) -> None:
        files = self._files()
        config = AclConfig(
            global_white_addrs=files.white_patterns,
            plain_access_configs=[_shown(each) for each in files.plain_accounts],
        )
        answer(request.reply(body=config.encode()))

    def _files(self) -> AclFiles:
        files = self._access.acl_files
        if files is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "there is no ACL file here: it is read with aclEnable=true"
            )
        return files

    def _changed(self, request: Command, answer: Answer, what: str) -> None:
        _changed(self._access, request, answer, what)


class UserHandlers:
    """Users and policies."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def create(self, request: Command, answer: Answer) -> None:
        said = _user(request)
        self._users().create(said)
        self._changed(request, answer, f"created user {said.username}")

    def update(self, request: Command, answer: Answer) -> None:
        said = _user(request)
        self._users().update(said)
        self._changed(request, answer, f"changed user {printable(said.username or '')}")

    def delete(self, request: Command, answer: Answer) -> None:
        name = request.parse(UserNamed).username
        self._users().delete(name)
        self._changed(request, answer, f"deleted user {printable(name)}")

    def get(self, request: Command, answer: Answer) -> None:
        user = self._users().shown(request.parse(UserNamed).username)
        answer(request.reply(body=b"" if user is None else user.encode()))

    def list(self, request: Command, answer: Answer) -> None:
        answer(_listed(request, self._users().listed(request.parse(ListUsers).filter)))

    def create_acl(self, request: Command, answer: Answer) -> None:
        acl = _acl(request)
        self._users().create_acl(acl)
        self._changed(request, answer, f"created policies for {printable(acl.subject or '')}")

    def update_acl(self, request: Command, answer: Answer) -> None:
        acl = _acl(request)
        self._users().update_acl(acl)
        self._changed(request, answer, f"changed policies of {printable(acl.subject or '')}")

    def delete_acl(self, request: Command, answer: Answer) -> None:
        said = request.parse(DeleteAcl)
        self._users().delete_acl(said.subject, said.policy_type, said.resource)
        self._changed(request, answer, f"deleted policies of {printable(said.subject)}")

    def get_acl(self, request: Command, answer: Answer) -> None:
        acl = self._users().acl(request.parse(SubjectNamed).subject)
        answer(request.reply(body=b"" if acl is None else acl.encode()))

    def list_acl(self, request: Command, answer: Answer) -> None:
        said = request.parse(ListAcls)
        answer(_listed(request, self._users().acls(said.subject_filter, said.resource_filter)))

    def _users(self) -> Users:
        users = self._access.users
        if users is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "there are no users here: they come with authenticationEnabled=true",
            )
        return users

    def _changed(self, request: Command, answer: Answer, what: str) -> None:
        _changed(self._access, request, answer, what)


def _changed(access: Access, request: Command, answer: Answer, what: str) -> None:
    access.changed()
    who = printable(request.fields.get(ACCESS_KEY, "")) or "somebody without an account"
    logger.info("%s at %s: %s", who, answer.connection.peer, what)
    answer(request.reply())


def _shown(account: PlainAccount) -> PlainAccessConfig:
    return PlainAccessConfig(
        access_key=account.access_key,
        admin=account.admin,
        default_group_perm=account.default_group_perm or UNSET,
        default_topic_perm=account.default_topic_perm or UNSET,
        group_perms=account.group_perms or [],
        topic_perms=account.topic_perms or [],
        white_remote_address=account.white_remote_address or UNSET,
    )


def _user(request: Command) -> UserInfo:
    name = request.parse(UserNamed).username
    said = UserInfo.decode_request(request.body) if request.body else UserInfo()
    return msgspec.structs.replace(said, username=name)


def _acl(request: Command) -> AclInfo:
    subject = request.parse(SubjectNamed).subject
    said = AclInfo.decode_request(request.body) if request.body else AclInfo()
    return msgspec.structs.replace(said, subject=said.subject or subject)


def _listed(request: Command, found: list[UserInfo] | list[AclInfo]) -> Command:
    """A bare array; nothing at all when there is nothing, as the original."""
    return request.reply(body=b"[" + b",".join(_encoded(each) for each in found) + b"]" if found else b"")


def _encoded(body: Body) -> bytes:
    return body.encode()
