"""Access control of one server, put together."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.access.control import NOT_KNOWN, UNSIGNED, Sender, Unauthenticated
from kourou.access.credentials import Credentials
from kourou.access.signatures import ACCESS_KEY, SIGNED_AT
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.memory_files import MemoryFiles
from kourou.errors import ConfigError, Denied
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.remoting.access import Access
from kourou.remoting.access_settings import AccessSettings
from tests.guarded_cluster import ADMIN, PLAIN_ACL, SHOP

HERE = Sender("127.0.0.1")


class World:
    def __init__(self, acl: str = PLAIN_ACL, **settings: Any) -> None:
        self.clock = SimulatedClock()
        self.files = MemoryFiles(self.clock.now_ms)
        self.files.make_folders("config/acl")
        self.write(acl)
        self.access = Access(
            AccessSettings(**{"acl_enabled": True, **settings}),
            folder="config",
            files=self.files,
            clock=self.clock,
            chance=Chance(1),
        )

    def write(self, acl: str, path: str = "config/plain_acl.yml") -> None:
        self.files.write_atomically(path, acl.encode())

    def check(self, by: Credentials | None, code: int = RequestCode.GET_BROKER_CLUSTER_INFO) -> None:
        command = Command(code)
        if by is not None:
            by.sign(command)
        self.access.control.check(command, HERE)


def test_without_access_control_tables_stay_as_they_are() -> None:
    access = World(acl_enabled=False).access
    handlers: dict[int, Any] = {10: print}
    runs: dict[bytes, Any] = {}
    assert access.handlers(handlers) is handlers
    assert access.run_handlers(runs) is runs
    access.load()
    access.require(Command(1), None, None)  # type: ignore[arg-type]


def test_a_missing_file_is_named_with_the_way_out() -> None:
    world = World(acl_path="elsewhere.yml")
    with pytest.raises(ConfigError, match=r"elsewhere\.yml is not there.*aclConfigPath.*aclEnable=false"):
        world.access.load()


def test_accounts_are_read_again_a_second_after_a_change() -> None:
    world = World()
    world.access.load()
    world.access.start()
    new = Credentials("newcomer", "newcomers-secret")
    with pytest.raises(Unauthenticated):
        world.check(new)
    world.clock.advance(0.5)
    world.write("accounts: [{accessKey: newcomer, secretKey: newcomers-secret}]", "config/acl/more.yml")
    world.clock.advance(1.0)
    world.check(new)
    world.check(SHOP)
    world.clock.advance(0.5)
    world.write("accounts: [", "config/acl/more.yml")
    world.clock.advance(1.0)
    world.check(new)
    world.access.stop()


def test_one_account_in_two_files_is_an_error() -> None:
    world = World()
    world.write("accounts: [{accessKey: operator, secretKey: another-secret}]", "config/acl/more.yml")
    with pytest.raises(ConfigError, match="operator is in"):
        world.access.load()


def test_nobody_at_all_is_an_error() -> None:
    world = World("accounts: []")
    with pytest.raises(ConfigError, match="nobody is known"):
        world.access.load()


def test_whoever_is_not_known_hears_one_of_two_things() -> None:
    world = World()
    world.access.load()
    with pytest.raises(Unauthenticated) as unsigned:
        world.check(None)
    assert unsigned.value.remark == UNSIGNED
    for wrong in (Credentials("operator", "wrong"), Credentials("stranger", "operators-secret")):
        with pytest.raises(Unauthenticated) as raised:
            world.check(wrong)
        assert raised.value.remark == NOT_KNOWN


def test_a_server_signs_as_it_was_told_or_as_the_first_admin() -> None:
    world = World()
    world.access.load()
    command = Command(RequestCode.REGISTER_BROKER)
    world.access.sign(command)
    assert command.fields[ACCESS_KEY] == "operator"
    assert command.fields[SIGNED_AT] == str(world.clock.now_ms())
    told = World(own_credentials='{"accessKey":"inner","secretKey":"s"}')
    command = Command(RequestCode.REGISTER_BROKER)
    told.access.sign(command)
    assert command.fields[ACCESS_KEY] == "inner"


def test_parts_of_one_process_trust_each_other() -> None:
    world = World()
    inner = Credentials("kourou-inner", "made-up")
    world.access.trust(inner)
    world.access.load()
    world.check(inner, RequestCode.UPDATE_BROKER_CONFIG)


def test_codes_on_the_white_lists_are_not_looked_at() -> None:
    world = World(
        unauthenticated_codes=(RequestCode.GET_BROKER_CLUSTER_INFO,),
        unauthorised_codes=(RequestCode.UPDATE_BROKER_CONFIG,),
    )
    world.access.load()
    world.check(None)
    world.check(SHOP, RequestCode.UPDATE_BROKER_CONFIG)
    with pytest.raises(Denied):
        world.check(SHOP, RequestCode.DELETE_EXPIRED_COMMITLOG)
    world.check(ADMIN, RequestCode.DELETE_EXPIRED_COMMITLOG)


def test_the_first_user_and_the_servers_own_are_made_once() -> None:
    world = World(
        acl_enabled=False,
        authentication_enabled=True,
        first_user='{"username":"first","password":"p"}',
        own_credentials='{"accessKey":"inner","secretKey":"s"}',
    )
    world.access.load()
    assert world.access.users is not None
    assert [user.username for user in world.access.users.listed(None)] == ["first", "inner"]
    world.check(Credentials("first", "p"), RequestCode.AUTH_LIST_USER)
