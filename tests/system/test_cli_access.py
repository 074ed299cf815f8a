"""`kourou user`, `kourou acl` and their verbs of mqadmin, against servers that ask who their peers are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.cli.main import run

OPERATOR = kourou.Credentials("operator", "operators-secret")
FIRST_USER = '{"username":"operator","password":"operators-secret"}'
PLAIN_ACL = """
accounts:
  - {accessKey: operator, secretKey: operators-secret, admin: true}
"""


@pytest.fixture(scope="module", params=["users", "file"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("access")
    if request.param == "users":
        settings: dict[str, Any] = {
            "authentication_enabled": True,
            "authorization_enabled": True,
            "first_user": FIRST_USER,
        }
    else:
        (folder / "plain_acl.yml").write_text(PLAIN_ACL)
        settings = {"acl_enabled": True, "acl_path": str(folder / "plain_acl.yml")}
    with kourou.LocalBroker(folder / "data", **settings) as running:
        yield request.param, running


@pytest.fixture(autouse=True)
def _as_operator(
    broker: tuple[str, kourou.LocalBroker], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", broker[1].name_server)
    monkeypatch.setenv("KOUROU_ACCESS_KEY", OPERATOR.access_key)
    monkeypatch.setenv("KOUROU_SECRET_KEY", OPERATOR.secret_key)
    monkeypatch.setenv("KOUROU_CONTEXTS", str(tmp_path / "none.toml"))


def test_commands_are_signed_and_strangers_are_denied(
    broker: tuple[str, kourou.LocalBroker],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run(["topic", "create", "guarded"]) == 0
    assert run(["message", "send", "guarded", "hello"]) == 0
    assert run(["topic", "stats", "guarded"]) == 0
    assert run(["mqadmin", "topicStatus", "-t", "guarded"]) == 0
    monkeypatch.setenv("KOUROU_SECRET_KEY", "a guess")
    assert run(["topic", "stats", "guarded"]) == 4
    monkeypatch.delenv("KOUROU_ACCESS_KEY")
    assert run(["topic", "stats", "guarded"]) == 2  # half of a name is none
    monkeypatch.delenv("KOUROU_SECRET_KEY")
    assert run(["topic", "stats", "guarded"]) == 4
    assert "operators-secret" not in capsys.readouterr().err


def test_a_user_is_made_allowed_changed_and_deleted(
    broker: tuple[str, kourou.LocalBroker], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kind, running = broker
    if kind != "users":
        assert run(["user", "ls"]) == 1
        assert "authenticationEnabled=true" in capsys.readouterr().err
        return
    secret = tmp_path / "secret"
    secret.write_text("the-shops-secret\n")
    assert run(["topic", "create", "orders"]) == 0
    assert run(["user", "create", "shop", "--password-file", str(secret), "--yes"]) == 0
    assert run(["acl", "grant", "shop", "Pub", "Topic:orders", "--yes"]) == 0
    capsys.readouterr()
    assert run(["acl", "ls", "--user", "shop", "-o", "json"]) == 0
    grants = json.loads(capsys.readouterr().out)
    assert {(each["resource"], tuple(each["actions"]), each["decision"]) for each in grants} == {
        ("Topic:orders", ("Pub",), "Allow")
    }
    shop = kourou.Credentials("shop", "the-shops-secret")
    with kourou.Producer("g", running.name_server, access=shop, retries=0) as producer:
        producer.send(kourou.Message("orders", b"x"))
        with pytest.raises(kourou.Denied):
            producer.send(kourou.Message("guarded", b"x"))
        assert run(["acl", "revoke", "shop", "Topic:orders", "--yes"]) == 0
        with pytest.raises(kourou.Denied):
            producer.send(kourou.Message("orders", b"x"))
    assert run(["user", "update", "shop", "--disable", "--yes"]) == 0
    capsys.readouterr()
    assert run(["user", "ls", "--match", "shop", "-o", "json"]) == 0
    printed = capsys.readouterr().out
    assert {each["status"] for each in json.loads(printed)} == {"disable"}
    assert "secret" not in printed
    assert run(["user", "rm", "shop", "--yes"]) == 0
    assert run(["acl", "grant", "shop", "Dance", "Topic:orders", "--yes"]) == 2


def test_an_account_of_the_file_is_made_and_deleted(
    broker: tuple[str, kourou.LocalBroker], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kind, running = broker
    if kind != "file":
        assert run(["acl", "account", "ls"]) == 1
        return
    secret = tmp_path / "secret"
    secret.write_text("the-shops-secret\n")
    words = ["--secret-key-file", str(secret), "--topic-perm", "orders=PUB"]
    assert run(["acl", "account", "save", "shop-account", *words, "-b", running.address, "--yes"]) == 0
    capsys.readouterr()
    assert run(["acl", "account", "ls", "-b", running.address, "-o", "json"]) == 0
    printed = capsys.readouterr().out
    (account,) = [each for each in json.loads(printed) if each["access_key"] == "shop-account"]
    assert account["topic_perms"] == ["orders=PUB"]
    assert "secret" not in printed
    remove = ["acl", "account", "rm", "shop-account", "-b", running.address]
    for answer, code, said in (
        ("--dry-run", 0, f"nothing was changed; {running.address} would be told"),
        ("", 2, "Account 'shop-account' goes, at 1 server. There is nobody to ask"),
        ("--yes", 0, f"account 'shop-account' is gone from {running.address}"),
    ):
        assert run([*remove, *answer.split()]) == code
        assert said in capsys.readouterr().err


def test_mqadmin_has_its_verbs_for_them(
    broker: tuple[str, kourou.LocalBroker], capsys: pytest.CaptureFixture[str]
) -> None:
    kind, running = broker
    where = ["-b", running.address]
    if kind == "users":
        verbs = [
            ["createUser", *where, "-u", "till", "-p", "the-tills-secret", "-t", "Normal"],
            ["createAcl", *where, "-s", "User:till", "-r", "Topic:a,Topic:b", "-a", "Pub,Sub", "-d", "Allow"],
            ["updateAcl", *where, "-s", "User:till", "-r", "Topic:a", "-a", "Pub", "-d", "Deny"],
            ["listUser", *where],
            ["getUser", *where, "-u", "till"],
            ["listAcl", *where],
            ["getAcl", *where, "-s", "User:till"],
            ["updateUser", *where, "-u", "till", "-s", "disable"],
            ["deleteAcl", *where, "-s", "User:till", "-r", "Topic:a"],
            ["deleteUser", *where, "-u", "till"],
        ]
        headings = "#UserName", "#Subject"
    else:
        verbs = [
            ["updateAclConfig", *where, "-a", "till-account", "-s", "the-tills-secret", "-t", "a=PUB,b=SUB"],
            ["getAccessConfigSubCommand", *where],
            ["clusterAclConfigVersion", *where],
            ["deleteAclConfig", *where, "-a", "till-account"],
        ]
        headings = "accessKey", "#AclConfigVersionNum"
    for words in verbs:
        assert run(["mqadmin", *words]) == 0, words
    printed = capsys.readouterr().out
    assert all(heading in printed for heading in headings)
    assert "the-tills-secret" not in printed
