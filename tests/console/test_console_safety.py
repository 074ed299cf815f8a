"""Who may come in, what they may do, and what an attacker gets: the console's rows of the attack list."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import kourou
from kourou.console import patience
from kourou.console.deeds.catalogue import DEEDS
from kourou.console.login import Role
from kourou.console.pages import PAGES
from tests.console.cluster import (
    PASSWORD,
    Person,
    Program,
    Running,
    console_of,
    csrf_in,
    first_login,
    notices,
    running_console,
    token_for,
)
from tests.remoting.certificates import Authority

CHANGING = sorted(page.path for page in PAGES if page.method == "POST")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Running]:
    """A console nobody has been to yet."""
    with running_console(tmp_path / "console") as running:
        yield running


def test_the_first_one_comes_in_with_the_printed_password_and_has_to_choose_another(fresh: Running) -> None:
    with fresh.client() as client:
        assert "one-time password" in client.get("/").text
        assert client.post("/login", data={"user": "admin", "password": "admin"}).status_code == 403
        page = client.post("/login", data={"user": "admin", "password": fresh.first_password})
        assert page.url.path == "/password"
        for path in ("/", "/topics", "/users", "/api"):
            assert client.get(path).url.path == "/password", "nothing else before it is chosen"
        refused = client.get("/api/v1/topics")
        assert refused.status_code == 403
        assert "choose one of your own at /password" in refused.json()["error"]["message"]
        token = csrf_in(page.text)
        for password, again in (
            ("short", "short"),
            ("long enough indeed", "but not the same"),
            ("admin12345", "admin12345"),
        ):
            refused = client.post("/password", data={"csrf": token, "password": password, "again": again})
            assert refused.status_code == 400
            assert 'class="notice bad"' in refused.text
        client.post("/password", data={"csrf": token, "password": PASSWORD, "again": PASSWORD})
        assert client.get("/").url.path == "/"
    with fresh.client() as again_later:
        used = again_later.post("/login", data={"user": "admin", "password": fresh.first_password})
        assert used.status_code == 403, "it was for one time"


def test_what_is_kept_is_the_owners_alone_and_holds_no_secret(fresh: Running) -> None:
    first_login(fresh)
    person = Person(fresh)
    token = token_for(person)
    person.close()
    assert stat.S_IMODE(fresh.folder.stat().st_mode) == 0o700
    kept = [path for path in fresh.folder.rglob("*") if path.is_file()]
    assert {path.name for path in kept} >= {"accounts.json", "audit.jsonl"}
    for path in kept:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        text = path.read_text()
        assert PASSWORD not in text
        assert token not in text
        assert fresh.first_password not in text
    assert "$argon2id$" in (fresh.folder / "accounts.json").read_text()


def test_a44_guessing_has_to_wait_and_locks_nobody_else_out(fresh: Running) -> None:
    first_login(fresh)
    with fresh.client() as client:
        answers = [
            client.post("/login", data={"user": "admin", "password": f"guess {number}"}).status_code
            for number in range(7)
        ]
        assert answers == [403] * 5 + [429] * 2
        right = client.post("/login", data={"user": "admin", "password": PASSWORD})
        assert right.status_code == 429, "also with the right one, or it would be an oracle"
        assert 1 <= int(right.headers["retry-after"]) <= 60
        others = [
            client.post("/login", data={"user": f"user-{number}", "password": "x"}).status_code
            for number in range(20)
        ]
        assert others[0] == 403
        assert others[-1] == 429, "one address cannot go through all names"


def test_a43_a_name_that_does_not_exist_is_told_like_a_wrong_password(console: Running) -> None:
    with console.client() as client:
        pages = [
            client.post("/login", data={"user": user, "password": "not the right one"}).text
            for user in ("admin", "nobody")
        ]
    assert pages[0].replace("admin", "nobody") == pages[1]


def test_a50_a_session_has_a_new_name_and_dies_with_logout_and_with_the_password(fresh: Running) -> None:
    first_login(fresh)
    with fresh.client() as client:
        client.cookies.set("kourou_session", "f" * 64)
        page = client.post("/login", data={"user": "admin", "password": PASSWORD})
        cookie = dict(page.history[0].cookies)["kourou_session"]
        assert cookie != "f" * 64
        header = page.history[0].headers["set-cookie"].lower()
        assert "httponly" in header
        assert "samesite=strict" in header
    with fresh.client() as thief:
        thief.cookies.set("kourou_session", cookie)
        assert thief.get("/topics").url.path == "/topics"
        person = Person(fresh)
        changed = {"present": PASSWORD, "password": "another good one", "again": "another good one"}
        assert person.post("/password", **changed).status_code == 200
        assert thief.get("/topics").url.path == "/login", "dead after the password has changed"
        stolen = person.client.cookies["kourou_session"]
        person.post("/logout")
        thief.cookies.set("kourou_session", stolen)
        assert thief.get("/topics").url.path == "/login", "dead after logout"
        person.close()


@pytest.mark.parametrize("path", [path for path in CHANGING if path != "/login"])
def test_a66_a_change_another_site_sends_is_refused(admin: Person, path: str) -> None:
    entries = len(admin.get("/api/v1/audit").json()["entries"])
    fields = {
        "topic": "from-elsewhere",
        "group": "from-elsewhere",
        "user": "evil",
        "role": "admin",
        "key": "a",
        "value": "b",
        "broker": "broker-a",
    }
    without_token = admin.client.post(path, data=fields)
    assert without_token.status_code == 403 or (
        "bad",
        "this form is too old; load the page again and repeat",
    ) in notices(without_token.text)
    for header in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        sent = admin.client.post(
            path, data={"csrf": admin.csrf, **fields}, headers=header, follow_redirects=False
        )
        assert sent.status_code in (303, 403), sent.text
        page = admin.get("/")
        assert "another site sent this" in sent.text + page.text
    assert len(admin.get("/api/v1/audit").json()["entries"]) == entries, "nothing was done"


def test_a66_a_login_another_site_sends_is_refused(console: Running) -> None:
    with console.client() as client:
        sent = client.post(
            "/login", data={"user": "admin", "password": PASSWORD}, headers={"origin": "https://evil.example"}
        )
        assert sent.status_code == 403
        assert "kourou_session" not in client.cookies


@pytest.mark.parametrize("deed", [deed for deed in DEEDS if deed.is_change], ids=lambda deed: deed.name)
def test_a66_a_change_by_the_interface_needs_the_sessions_token_and_json(admin: Person, deed) -> None:  # type: ignore[no-untyped-def]
    path = "/api/v1" + re.sub(r"{\w+}", "no-such-thing", deed.path)
    bare = admin.client.request(deed.method, path, json={})
    assert bare.status_code == 403
    plain = admin.client.request(
        deed.method, path, content="{}", headers={"content-type": "text/plain", "x-csrf-token": admin.csrf}
    )
    assert plain.status_code == 400
    assert "application/json" in plain.json()["error"]["message"]


def test_a66_looking_changes_nothing(admin: Person) -> None:
    for path in CHANGING:
        assert admin.get(path).status_code in (200, 400, 404, 405), path
    before = len(admin.get("/api/v1/audit").json()["entries"])
    for deed in DEEDS:
        if not deed.is_change:
            admin.get("/api/v1" + re.sub(r"{\w+}", "no-such-thing", deed.path))
    assert len(admin.get("/api/v1/audit").json()["entries"]) == before


def test_a67_what_comes_from_outside_is_shown_as_text(admin: Person) -> None:
    evil = "<script>alert(1)</script>"
    admin.post(
        "/topics/send",
        topic="orders",
        body=f'{{"a": "{evil}"}}',
        keys="evil-key<img/src=x>",
        tags="<b>tag",
        properties=f"note={evil}",
    )
    pages = [
        "/messages?by=key&topic=orders&key=evil-key%3Cimg/src%3Dx%3E",
        f"/topics?search={evil}",
        f"/groups?search={evil}",
        f"/find?q={evil}",
        f"/messages?by=id&message_id={evil}",
        f"/traces?message_id={evil}",
        f"/audit?search={evil}",
        f"/topics/{evil}",
        f"/login?to={evil}",
    ]
    for path in pages:
        page = admin.get(path)
        assert evil not in page.text, path
        assert "<img/src" not in page.text, path
        assert "<b>tag" not in page.text, path
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
    found = re.search(r'href="(/messages/[0-9A-F]+)"', admin.get(pages[0]).text)
    assert found is not None
    shown = admin.get(found[1]).text
    assert evil not in shown
    assert "&lt;script&gt;" in shown


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "localhost@evil"]
)
def test_a68_a_name_that_was_pointed_here_is_refused(console: Running, host: str) -> None:
    with console.client() as client:
        for path in ("/", "/login", "/static/console.js", "/api/v1/topics"):
            assert client.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "LOCALHOST:1234", "[::1]:8080"])
def test_names_of_this_machine_are_known(console: Running, host: str) -> None:
    with console.client() as client:
        assert client.get("/login", headers={"host": host}).status_code == 200


POST = b"POST /login HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


def raw(console: Running, data: bytes) -> bytes:
    host, _, port = console.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(data)
        connection.settimeout(5)
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except TimeoutError:
            answer += b"(still open)"
        except ConnectionResetError:
            pass
    return answer


@pytest.mark.parametrize(
    ("name", "request_bytes"),
    [
        ("both lengths", POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("two lengths", POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd"),
        ("bad chunk", POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        ("a megabyte of header", GET + b"X: " + b"a" * 1_000_000 + b"\r\n\r\n"),
        ("many headers", GET + b"a: b\r\n" * 2000 + b"\r\n"),
        ("HTTP/0.9", b"GET /\r\n\r\n"),
        ("two hosts", GET + b"Host: evil\r\n\r\n"),
        ("odd method", b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a69_what_could_be_read_in_two_ways_is_refused_and_the_line_closed(
    console: Running, name: str, request_bytes: bytes
) -> None:
    answer = raw(console, request_bytes)
    assert re.match(rb"HTTP/1\.1 4\d\d ", answer), answer[:200]
    assert not answer.endswith(b"(still open)")
    assert b"Traceback" not in answer


def test_a12_a_head_that_never_ends_is_hung_up_on(console: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "HEAD_SECONDS_MAX", 0.5)
    host, _, port = console.url.removeprefix("http://").rpartition(":")
    for begun in (b"", b"GET / HT", b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with socket.create_connection((host, int(port)), 5) as slow:
            slow.sendall(begun)
            if begun.endswith(b"\r\n\r\n"):  # a whole request first, then half of another
                assert slow.recv(65536).startswith(b"HTTP/1.1 200")
                slow.sendall(b"GET /log")
            slow.settimeout(5)
            received = b"".join(iter(lambda: slow.recv(65536), b""))
            assert b"HTTP/1.1 200" not in received
    with console.client() as client:
        assert client.get("/login").status_code == 200


def test_over_tls_cookies_are_for_tls_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("localhost", "localhost", "127.0.0.1")
    with (
        kourou.LocalBroker(memory=True) as broker,
        console_of(
            broker.name_server, tmp_path / "console", certificate=files.certificate, key=files.key
        ) as running,
        httpx.Client(
            base_url=running.url, verify=ssl.create_default_context(cafile=authority.ca), timeout=20
        ) as client,
    ):
        assert running.url.startswith("https://")
        entered = client.post("/login", data={"user": "admin", "password": running.first_password})
        assert entered.status_code == 303
        assert "secure" in entered.headers["set-cookie"].lower()
        assert "max-age" in entered.headers["strict-transport-security"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../login.py",
        "/static/%2e%2e/login.py",
        "/static/..%2f..%2fadmin/cluster.py",
        "/static//etc/passwd",
        "/static/%00",
    ],
)
def test_a69_no_file_outside_the_static_folder_is_served(console: Running, path: str) -> None:
    answer = raw(console, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert b"import " not in answer
    assert b"root:" not in answer
    assert b" 200 " not in answer.split(b"\r\n")[0]


def test_a_body_beyond_the_bound_is_refused(console: Running, program: Program) -> None:
    huge = b"x" * (9 * 1024 * 1024)

    def chunks() -> Iterator[bytes]:
        for _ in range(9):
            yield b"x" * 1024 * 1024

    assert program.post("/topics/orders/messages", content=huge).status_code == 413
    with contextlib.suppress(httpx.WriteError):  # it may hang up before all was sent, which is as good
        assert program.post("/topics/orders/messages", content=chunks()).status_code == 413


def test_a70_an_export_is_a_file_in_which_no_cell_is_a_formula(console: Running, admin: Person) -> None:
    exported = admin.get("/dead-letters/mailing/export?format=csv")
    assert exported.headers["content-disposition"].startswith("attachment")
    assert len(exported.text.splitlines()) == 4
    from kourou.console.pages.letters import _cells
    from tests.console.cluster import stored

    cells = _cells(stored(console.name_server, b'=cmd|"/c calc"!A1', keys="+1"))
    assert '\'=cmd|"/c calc"!A1' in cells
    assert "'+1" in cells
    lines = admin.get("/dead-letters/mailing/export?format=jsonl").text.splitlines()
    assert {json.loads(line)["body"] for line in lines} == {f"to nobody {number}" for number in range(3)}


ROLES = {"viewer": Role.VIEWER, "operator": Role.OPERATOR}


@pytest.mark.parametrize("role", ROLES)
def test_a39_nobody_does_what_their_role_does_not_allow(role: str, viewer: Person, operator: Person) -> None:
    person = {"viewer": viewer, "operator": operator}[role]
    for page in PAGES:
        if page.is_public or ROLES[role].allows(page.role) or page.path in ("/password", "/logout"):
            continue
        path = re.sub(r"{\w+}", "broker-a", page.path)
        answer = person.post(path) if page.method == "POST" else person.get(path)
        told = answer.text + person.get("/").text
        assert f"this needs the role {page.role}" in told, f"{page.method} {page.path}"
    for deed in DEEDS:
        path = "/api/v1" + re.sub(r"{\w+}", "broker-a", deed.path)
        answer = person.client.request(
            deed.method, path, json={} if deed.is_change else None, headers={"x-csrf-token": person.csrf}
        )
        refused = answer.status_code == 403 and "needs the role" in answer.text
        assert refused is not ROLES[role].allows(deed.role), (
            f"{deed.name}: {answer.status_code} {answer.text}"
        )


def test_a72_the_console_connects_to_nobody_it_was_not_started_for(viewer: Person) -> None:
    """There is no field for an address: brokers are found by name, ids of other hosts are not followed."""
    elsewhere = "0A000001" + "00002A9F" + "0000000000000001"
    page = viewer.get(f"/messages/{elsewhere}")
    assert page.status_code == 400
    assert viewer.get("/brokers/10.0.0.1:10911").status_code == 404
    assert viewer.get("/api/v1/brokers/10.0.0.1:10911/settings").status_code == 404


def test_a45_an_address_a_proxy_claims_is_not_believed(console: Running, admin: Person) -> None:
    with console.client() as client:
        client.post(
            "/login", data={"user": "mallory", "password": "x"}, headers={"x-forwarded-for": "10.9.8.7"}
        )
    entry = next(each for each in admin.get("/api/v1/audit").json()["entries"] if each["on"] == "mallory")
    assert entry["address"] == "127.0.0.1"


def test_a46_no_secret_is_told_to_anybody(console: Running, admin: Person) -> None:
    token = token_for(admin, "canary")
    hashes = re.findall(r"\$argon2id\$[^\"]+", (console.folder / "accounts.json").read_text())
    digests = re.findall(r'"digest": "(\w+)"', (console.folder / "accounts.json").read_text())
    assert hashes
    assert digests
    for path in (
        "/users",
        "/account",
        "/audit",
        "/api/v1/users",
        "/api/v1/audit",
        "/brokers/broker-a?tab=settings",
    ):
        page = admin.get(path).text
        for secret in (token, PASSWORD, *hashes, *digests):
            assert secret not in page, path


def test_every_change_is_in_the_audit_log_also_one_that_failed(admin: Person, operator: Person) -> None:
    operator.post("/topics/save", topic="audited", read_queues=2, write_queues=2, perm=6)
    operator.post("/topics/delete", topic="audited")
    operator.post("/groups/reset", group="no-such-group", topic="orders", where="earliest")
    newest = admin.get("/api/v1/audit").json()["entries"][:3]
    assert [(each["user"], each["deed"], each["on"]) for each in newest] == [
        ("otto", "group.reset", "no-such-group"),
        ("otto", "topic.delete", "audited"),
        ("otto", "topic.save", "audited"),
    ]
    assert [each["result"] == "ok" for each in newest] == [False, True, True]
    assert newest[2]["details"]["read_queues"] == "2"
    assert "csrf" not in newest[2]["details"]


def test_a_token_is_good_until_it_is_revoked(console: Running, admin: Person) -> None:
    token = token_for(admin, "short-lived")
    with Program(console, token) as program:
        assert program.get("/topics").status_code == 200
        page = admin.get("/account").text
        found = re.search(r'name="token_id" value="(\w+)"><button[^>]*aria-label="Revoke short-lived"', page)
        assert found is not None
        admin.post("/account/tokens/revoke", token_id=found[1])
        refused = program.get("/topics")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"


def test_the_last_admin_stays(admin: Person) -> None:
    page = admin.post("/users/role", user="admin", role="viewer")
    assert any("last admin" in text for _, text in notices(page.text))
    assert admin.get("/users").status_code == 200


def test_two_people_who_change_one_setting_do_not_overwrite_each_other(admin: Person) -> None:
    key = "maxTransferCountOnMessageInMemory"
    settings = admin.get("/api/v1/brokers/broker-a/settings").json()
    value = settings[key]
    done = admin.post(
        "/brokers/configure", broker="broker-a", key=key, value=str(int(value) + 1), expected=value
    )
    assert notices(done.text)[0][0] == "good", notices(done.text)
    late = admin.post("/brokers/configure", broker="broker-a", key=key, value="64", expected=value)
    assert any("somebody has changed it" in text for _, text in notices(late.text))


def test_sessions_end_by_themselves() -> None:
    from kourou.console.login import Account
    from kourou.console.sessions import IDLE_SECONDS_MAX, SECONDS_MAX, Sessions
    from kourou.doors.chance import Chance
    from kourou.doors.clock import SimulatedClock

    class OneAccount:
        def get(self, name: str) -> Account:
            return Account(name, Role.ADMIN, "hash")

    clock = SimulatedClock()
    sessions = Sessions(OneAccount(), clock=clock, chance=Chance())  # type: ignore[arg-type]
    idle, _ = sessions.begin(Account("a", Role.ADMIN, "hash"))
    clock.advance(IDLE_SECONDS_MAX - 1)
    assert sessions.find(idle) is not None
    clock.advance(IDLE_SECONDS_MAX + 1)
    assert sessions.find(idle) is None
    busy, _ = sessions.begin(Account("a", Role.ADMIN, "hash"))
    for _ in range(int(SECONDS_MAX // 1800) + 1):
        clock.advance(1800)
        alive = sessions.find(busy) is not None
    assert not alive


def test_a_deep_link_from_elsewhere_finds_the_session_on_the_second_look(
    admin: Person, console: Running
) -> None:
    with console.client() as client:
        page = client.get("/topics/orders", headers={"sec-fetch-site": "cross-site"})
        assert page.status_code == 200
        assert 'http-equiv="refresh"' in page.text
        asked = client.get("/topics/orders?tab=route")
        assert asked.url.path == "/login"
        entered = client.post(
            "/login", data={"user": "admin", "password": PASSWORD, "to": asked.url.params["to"]}
        )
        assert entered.url.path == "/topics/orders"
        for target in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
            began = time.monotonic()
            entered = client.post("/login", data={"user": "admin", "password": PASSWORD, "to": target})
            assert entered.url.host == "127.0.0.1"
            assert time.monotonic() - began < 5
