"""The console before brokers that ask who their peers are: seen, changed, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kourou
from tests.console.cluster import Person, Program, console_of, first_login, notices, token_for

OPERATOR = kourou.Credentials("operator", "operators-secret")
SECRETS = ("operators-secret", "marys-secret", "shops-secret")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """An admin of a console before a broker with users of 5.x."""
    settings: dict[str, Any] = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "first_user": '{"username":"operator","password":"operators-secret"}',
    }
    yield from admin_before(tmp_path_factory.mktemp("users"), settings)


@pytest.fixture(scope="module")
def acl_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """The same before one with an ACL file of 4.x."""
    folder = tmp_path_factory.mktemp("acl")
    path = folder / "plain_acl.yml"
    path.write_text("accounts:\n  - {accessKey: operator, secretKey: operators-secret, admin: true}\n")
    yield from admin_before(folder, {"acl_enabled": True, "acl_path": str(path)})


def admin_before(folder: Path, settings: dict[str, Any]) -> Iterator[Person]:
    with (
        kourou.LocalBroker(folder / "data", **settings) as broker,
        console_of(broker.name_server, folder / "console", access=OPERATOR) as running,
    ):
        first_login(running)
        person = Person(running)
        yield person
        person.close()


def said(page: Any) -> str:
    return " ".join(f"{kind}: {text}" for kind, text in notices(page.text))


def test_a_user_is_made_allowed_kept_out_and_deleted(users: Person) -> None:
    made = users.post("/access/create-user", name="mary", password="marys-secret")
    assert "good: User mary is made." in said(made)
    assert "kourou user create mary --yes" in made.text
    allowed = users.post(
        "/access/grant", name="mary", resources="Topic:orders, Group:*", actions="Pub,Sub", groups="shop"
    )
    assert "good: The policies of mary are changed." in said(allowed)
    assert "Topic:orders" in allowed.text
    assert "Group:*" in allowed.text
    kept_out = users.post("/access/update-user", name="mary", status="disable")
    assert "Let in" in kept_out.text
    revoked = users.post("/access/revoke", name="User:mary", resource="Topic:orders")
    assert "Topic:orders</td>" not in revoked.text
    deleted = users.post("/access/delete-user", name="mary")
    assert "good: User mary is deleted." in said(deleted)
    assert ">mary<" not in users.get("/access").text


def test_an_account_of_the_file_is_made_and_deleted(acl_file: Person) -> None:
    fields = {"default_topic_perm": "DENY", "topic_perms": "orders=PUB|SUB", "secret_key": "shops-secret"}
    made = acl_file.post("/access/save-account", access_key="shop-account", **fields)
    assert "good: Account shop-account is saved." in said(made)
    assert "orders=PUB|SUB" in made.text
    deleted = acl_file.post("/access/delete-account", access_key="shop-account")
    assert "good: Account shop-account is deleted." in said(deleted)
    assert "shop-account</td>" not in deleted.text


def test_a46_no_secret_of_a_broker_is_told_or_kept(users: Person, acl_file: Person) -> None:
    for person in (users, acl_file):
        pages = ("/access", "/access?tab=policies", "/access?tab=accounts", "/audit", "/api/v1/audit")
        told = "".join(person.get(path).text for path in pages)
        kept = "".join(path.read_text() for path in person.running.folder.iterdir())
        for secret in SECRETS:
            assert secret not in told + kept


def test_servers_without_users_say_so(acl_file: Person, users: Person) -> None:
    assert "No server has any" in acl_file.get("/access").text
    assert "No server has any" in users.get("/access?tab=accounts").text


def test_the_interface_does_the_same(users: Person) -> None:
    with Program(users.running, token_for(users)) as program:
        assert program.put("/access/users/john", json={"password": "johns-secret-1"}).status_code == 200
        names = {user["name"] for user in program.get("/access/users").json()}
        assert "john" in names
        assert program.delete("/access/users/john").status_code == 200
        sent = program.post("/topics/orders/messages", json={"body": "signed by the console"})
        assert sent.status_code == 200, sent.text


def test_a_console_brokers_do_not_know_shows_why(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text("accounts:\n  - {accessKey: operator, secretKey: operators-secret, admin: true}\n")
    settings: dict[str, Any] = {"acl_enabled": True, "acl_path": str(path)}
    with (
        kourou.LocalBroker(tmp_path / "data", **settings) as broker,
        console_of(broker.name_server, tmp_path / "console") as running,
    ):
        first_login(running)
        person = Person(running)
        for page in ("/topics", "/groups", "/brokers"):
            answer = person.get(page)
            assert answer.status_code in (200, 403), answer.status_code
            assert "Traceback" not in answer.text
        assert person.get("/topics").status_code == 403
        assert person.get("/").status_code == 200, "the first page says what is wrong"
        person.close()
