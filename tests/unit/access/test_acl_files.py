"""The ACL files of 4.x, read and edited."""

from __future__ import annotations

import pytest

from kourou.access.acl_files import AclFiles
from kourou.doors.memory_files import MemoryFiles
from kourou.errors import ConfigError
from kourou.protocol.access_messages import SaveAccount
from tests.guarded_cluster import PLAIN_ACL


@pytest.fixture
def acl() -> AclFiles:
    files = MemoryFiles()
    files.make_folders("conf/acl")
    files.write_atomically("conf/plain_acl.yml", PLAIN_ACL.encode())
    files.write_atomically("conf/acl/b.yml", b"accounts: [{accessKey: another, secretKey: secret-y}]")
    made = AclFiles("conf/plain_acl.yml", files, lambda: 7)
    made.load()
    return made


def reread(acl: AclFiles) -> AclFiles:
    again = AclFiles(acl.path, acl._folder, lambda: 8)
    again.load()
    return again


def test_all_files_count_together(acl: AclFiles) -> None:
    assert acl.accounts.by_name.keys() == {"operator", "shop-account", "reader-account", "another"}
    assert acl.paths == ["conf/plain_acl.yml", "conf/acl/b.yml"]


def test_a_new_account_goes_to_the_main_file_and_a_known_one_stays_where_it_is(acl: AclFiles) -> None:
    acl.save(SaveAccount(access_key="newcomer", secret_key="secret-n", topic_perms="a=PUB, b=SUB"))
    acl.save(SaveAccount(access_key="another", admin=True))
    again = reread(acl)
    assert again._find("newcomer")[0] == "conf/plain_acl.yml"
    path, account = again._find("another")
    assert path == "conf/acl/b.yml"
    assert account is not None
    assert (account.admin, account.secret_key) == (True, "secret-y"), "what was not said stays"
    shop = again._find("shop-account")[1]
    assert shop is not None
    assert shop.rules is not None
    assert len(shop.rules) == 2, "our rules survive an edit by the original's tool"


def test_a_change_that_makes_no_sense_changes_nothing(acl: AclFiles) -> None:
    before = acl.changes
    for bad in (
        SaveAccount(access_key="newcomer"),
        SaveAccount(access_key="short", secret_key="secret-n"),
        SaveAccount(access_key="operator", default_topic_perm="ALL"),
        SaveAccount(access_key="operator", white_remote_address="nowhere"),
    ):
        with pytest.raises(ConfigError):
            acl.save(bad)
    with pytest.raises(ConfigError, match="no ACL file of this server"):
        acl.save_white_list(["*"], "/etc/passwd")
    with pytest.raises(ConfigError):
        acl.save_white_list(["nowhere"], None)
    assert acl.changes == before
    assert reread(acl).accounts.by_name.keys() == acl.accounts.by_name.keys()


def test_the_white_list_and_deletions_are_kept(acl: AclFiles) -> None:
    acl.save_white_list(["10.1.2.*"], None)
    assert acl.delete("another")
    assert not acl.delete("another")
    again = reread(acl)
    assert "10.1.2.3" in again.accounts.white
    assert "another" not in again.accounts.by_name
    assert acl.load_if_changed() is None, "our own change is no news"
