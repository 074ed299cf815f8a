"""Users and policies in the shape of 5.x."""

from __future__ import annotations

import pytest

from kourou.access.rules import PUB, SUB, Need
from kourou.access.sealing import seal, unseal
from kourou.access.users import Users
from kourou.doors.chance import Chance
from kourou.doors.memory_files import MemoryFiles
from kourou.errors import ConfigError, NotFound, Refused
from kourou.protocol.access_messages import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

PATH = "auth/users.json"
HERE = "10.1.2.3"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_folders("auth")
    return files


def users(files: MemoryFiles) -> Users:
    made = Users(PATH, files, Chance().secret_bytes)
    made.load()
    return made


def acl(*entries: PolicyEntryInfo, name: str = "shop", policy_type: str | None = None) -> AclInfo:
    return AclInfo(
        subject=f"User:{name}", policies=[PolicyInfo(entries=list(entries), policy_type=policy_type)]
    )


def entry(resource: str, *actions: str, **more: object) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource=resource, actions=list(actions), decision="Allow", **more)  # type: ignore[arg-type]


def test_users_and_policies_are_there_after_a_restart(files: MemoryFiles) -> None:
    first = users(files)
    first.create(UserInfo(username="shop", password="the secret"))
    first.create_acl(acl(entry("Topic:order*", "Pub", "Sub")))
    accounts = users(files).accounts
    shop = accounts.by_name["shop"]
    assert shop.secret == b"the secret"
    assert not shop.is_super
    assert shop.policy.allows(Need("Topic", "orders", PUB), HERE)
    assert not shop.policy.allows(Need("Topic", "other", PUB), HERE)


def test_no_secret_is_readable_on_the_disk(files: MemoryFiles) -> None:
    users(files).create(UserInfo(username="shop", password="canary-secret"))
    for name in files.list("auth"):
        assert b"canary-secret" not in files.read(f"auth/{name}")


def test_without_its_key_file_nothing_can_be_read(files: MemoryFiles) -> None:
    users(files).create(UserInfo(username="shop", password="canary-secret"))
    files.write_atomically("auth/users.key", bytes(32))
    with pytest.raises(ConfigError, match="another key"):
        users(files)


def test_a_user_is_shown_without_its_password(files: MemoryFiles) -> None:
    made = users(files)
    made.create(UserInfo(username="shop", password="canary-secret", user_type="Super"))
    shown = made.shown("shop")
    assert shown is not None
    assert b"canary" not in shown.encode()
    assert shown.user_type == "Super"
    assert made.shown("nobody") is None
    assert [user.username for user in made.listed("sh")] == ["shop"]
    assert made.listed("x") == []


def test_a_disabled_user_is_out(files: MemoryFiles) -> None:
    made = users(files)
    made.create(UserInfo(username="shop", password="p"))
    made.update(UserInfo(username="shop", user_status="disable"))
    account = made.accounts.by_name["shop"]
    assert not account.is_enabled
    assert account.secret == b"p", "what was not said stays"


def test_a_policy_for_the_same_resource_replaces_the_old_one(files: MemoryFiles) -> None:
    made = users(files)
    made.create(UserInfo(username="shop", password="p"))
    made.create_acl(acl(entry("Topic:a", "Pub"), entry("Topic:b", "Pub")))
    made.update_acl(acl(entry("Topic:a", "Sub")))
    policy = made.accounts.by_name["shop"].policy
    assert not policy.allows(Need("Topic", "a", PUB), HERE)
    assert policy.allows(Need("Topic", "a", SUB), HERE)
    assert policy.allows(Need("Topic", "b", PUB), HERE)
    made.delete_acl("User:shop", None, "Topic:b")
    assert not made.accounts.by_name["shop"].policy.allows(Need("Topic", "b", PUB), HERE)
    made.delete_acl("User:shop", None, None)
    assert made.acl("User:shop") is None


def test_an_entry_may_name_addresses_and_groups(files: MemoryFiles) -> None:
    made = users(files)
    made.create(UserInfo(username="shop", password="p"))
    made.create_acl(acl(entry("Topic:a", "Pub", source_ips=["10.1.2.0/24"], groups=["g"])))
    policy = made.accounts.by_name["shop"].policy
    assert policy.allows(Need("Topic", "a", PUB, "g"), HERE)
    assert not policy.allows(Need("Topic", "a", PUB, "h"), HERE)
    assert not policy.allows(Need("Topic", "a", PUB, "g"), "10.9.9.9")


def test_deleting_a_user_takes_its_policies_along(files: MemoryFiles) -> None:
    made = users(files)
    made.create(UserInfo(username="shop", password="p"))
    made.create_acl(acl(entry("Topic:a", "Pub")))
    made.delete("shop")
    made.create(UserInfo(username="shop", password="p"))
    assert made.acl("User:shop") is None


@pytest.mark.parametrize(
    "bad",
    [
        UserInfo(username="a/b", password="p"),
        UserInfo(username="", password="p"),
        UserInfo(username="shop", password=""),
        UserInfo(username="shop", password="p", user_type="Emperor"),
        UserInfo(username="shop", password="p", user_status="maybe"),
    ],
)
def test_a_bad_user_is_refused_and_nothing_changes(files: MemoryFiles, bad: UserInfo) -> None:
    made = users(files)
    with pytest.raises(Refused):
        made.create(bad)
    assert made.listed(None) == []


@pytest.mark.parametrize(
    "bad",
    [
        acl(entry("Topic", "Pub")),
        acl(entry("Topic:a")),
        acl(entry("Topic:a", "Fly")),
        acl(entry("Topic:a", "Pub", source_ips=["nowhere"])),
        acl(PolicyEntryInfo(resource="Topic:a", actions=["Pub"], decision="Perhaps")),
        acl(),
        acl(entry("Topic:a", "Pub"), name="nobody"),
        acl(entry("Topic:a", "Pub"), policy_type="Odd"),
    ],
)
def test_a_bad_policy_is_refused_and_nothing_changes(files: MemoryFiles, bad: AclInfo) -> None:
    made = users(files)
    made.create(UserInfo(username="shop", password="p"))
    with pytest.raises(Refused):
        made.create_acl(bad)
    assert made.acls(None, None) == []


def test_what_is_not_there_is_not_found(files: MemoryFiles) -> None:
    made = users(files)
    with pytest.raises(NotFound):
        made.update(UserInfo(username="nobody"))
    with pytest.raises(NotFound):
        made.delete_acl("User:nobody", None, None)


def test_a_sealed_secret_opens_with_its_key_only_and_shows_nothing() -> None:
    for secret in (b"", b"x", b"a secret of more than thirty-two bytes, which needs two blocks"):
        sealed = seal(secret, b"k" * 32, b"n" * 16)
        assert unseal(sealed, b"k" * 32) == secret
        with pytest.raises(ConfigError):
            unseal(sealed, b"l" * 32)
        with pytest.raises(ConfigError):
            unseal(sealed[:-8] + "AAAAAAA=", b"k" * 32)
    assert seal(b"s", b"k" * 32, b"1" * 16) != seal(b"s", b"k" * 32, b"2" * 16)


@pytest.mark.parametrize(
    ("old", "new"), [(b"Allow", b"Allov"), (b"order*", b"orde.*"), (b"Normal", b"normal")]
)
def test_users_that_have_rotten_are_not_believed(files: MemoryFiles, old: bytes, new: bytes) -> None:
    first = users(files)
    first.create(UserInfo(username="shop", password="the secret"))
    first.create_acl(acl(entry("Topic:order*", "Pub")))
    files.write_atomically(PATH, files.read(PATH).replace(old, new))
    with pytest.raises(ConfigError, match=r"users.json: its kourouCrc32 does not fit"):
        users(files)
