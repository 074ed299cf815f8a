"""A file of users that cannot be used changes nothing, in whatever way it cannot."""

from __future__ import annotations

import pytest

from kourou.access.users import Users
from kourou.doors.memory_files import MemoryFiles
from kourou.errors import ConfigError
from kourou.protocol.access_messages import UserInfo

PATH = "/data/users.json"


@pytest.mark.parametrize(
    "content",
    [
        b'{"users":[{"username":"\xff","secret":"x"}]}',
        b'{"users":[{"username":"somebody","secret":"sealed by another"}]}',
        b'{"users":[{"username":"somebody","secret":"SECRET"}],"acls":[{"subject":"User:somebody","policies":'
        b'[{"entries":[{"resource":"Topic:a","actions":["Fly"],"decision":"Allow"}]}]}]}',
    ],
    ids=["not UTF-8", "another key", "unknown action"],
)
def test_a_file_that_cannot_be_used_leaves_the_users_as_they_were(content: bytes) -> None:
    files = MemoryFiles()
    files.make_folders("/data")
    users = Users(PATH, files, bytes)
    users.load()
    users.create(UserInfo(username="somebody", password="a password"))
    before = files.read(PATH)
    sealed = before.partition(b'"secret":"')[2].partition(b'"')[0]
    files.write_atomically(PATH, content.replace(b"SECRET", sealed))
    with pytest.raises(ConfigError, match=r"users\.json"):
        users.load()
    assert users.is_there("somebody")
    assert list(users.accounts.by_name) == ["somebody"]
