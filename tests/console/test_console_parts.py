"""The console's parts, one by one: no browser, no broker."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest

from kourou.console.attempts import FAILURES_OF_ONE_MAX, REMEMBERED_MAX, WINDOW_SECONDS, Attempts
from kourou.console.audit import FILE_BYTES_MAX, Audit
from kourou.console.bodies import SHOWN_BYTES_MAX, hex_of, shown_bytes
from kourou.console.charts import Line, chart, round_above, short
from kourou.console.config import ConsoleConfig
from kourou.console.deeds.brokers import without_secrets
from kourou.console.given import Given
from kourou.console.guard import host_name
from kourou.console.login import Accounts, Role, first_password, one_time_password
from kourou.console.paging import page_of
from kourou.console.showing import ago, moment, number, size
from kourou.console.visit import link, own_path
from kourou.doors.chance import Chance
from kourou.doors.clock import SimulatedClock
from kourou.doors.private_folder import PrivateFolder
from kourou.errors import AddressTaken, ConfigError, Corrupt, Denied
from kourou.remoting.doorbell import Doorbell

# ------------------------------------------------------------------------------------------ what is filled in


def test_a_form_and_json_mean_the_same() -> None:
    for given in (
        Given({"count": "3", "on": "true", "ids": "a, b", "table": "x=1\n\ny = 2", "name": " orders "}),
        Given({"count": 3, "on": True, "ids": ["a", "b"], "table": {"x": 1, "y": "2"}, "name": "orders"}),
    ):
        assert given.number("count") == 3
        assert given.yes("on") is True
        assert given.texts("ids") == ["a", "b"]
        assert given.table("table") == {"x": "1", "y": "2"}
        assert given.text("name") == "orders"
        assert "nothing" not in given
        assert given.text("nothing", "else") == "else"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda given: given.text("absent"), "absent is missing"),
        (lambda given: given.number("text"), "whole number"),
        (lambda given: given.number("big", most=10), "0 to 10"),
        (lambda given: given.number("endless"), "it can be"),
        (lambda given: given.yes("text"), "true or false"),
        (lambda given: given.choice("text", ("a", "b")), "a, b"),
        (lambda given: given.text("nested"), "one text"),
        (lambda given: given.texts("nested"), "list of texts"),
        (lambda given: given.table("text"), "name=value"),
    ],
)
def test_what_is_not_as_it_should_be_names_the_field(ask, words: str) -> None:  # type: ignore[no-untyped-def]
    given = Given({"text": "abc", "big": "11", "endless": "9" * 5000, "nested": {"a": {"b": 1}}})
    with pytest.raises(ConfigError, match=words):
        ask(given)


def test_a_page_beyond_the_last_is_the_last() -> None:
    page = page_of(list(range(101)), Given({"page": "99", "size": "10"}))
    assert (page.rows, page.number, page.last) == ([100], 11, 11)
    assert page_of([], Given({})).last == 1


# --------------------------------------------------------------------------------------------------- showing


def test_a_body_is_shown_in_the_forms_it_has() -> None:
    assert [name for name, _ in shown_bytes(b'{"a": 1}').forms] == ["json", "text", "hex"]
    assert [name for name, _ in shown_bytes(b"plain").forms] == ["text", "hex"]
    assert [name for name, _ in shown_bytes(bytes(range(256))).forms] == ["hex"]
    assert [name for name, _ in shown_bytes(b"[" * 100_000).forms] == ["text", "hex"]
    assert shown_bytes(b"").forms[-1] == ("hex", "")
    long = shown_bytes("é".encode() * SHOWN_BYTES_MAX)
    assert long.is_cut
    assert "\ufffd" not in long.forms[0][1]
    assert hex_of(b"Kourou\n") == "00000000  4b 6f 75 72 6f 75 0a                             Kourou."


def test_numbers_and_times_are_written_for_people() -> None:
    assert [number(value) for value in (0, 1234567, 0.25, 12.7)] == ["0", "1,234,567", "0.2", "13"]
    assert [short(value) for value in (0, 0.44, 12, 1234, 45_600_000)] == ["0", "0.4", "12", "1.2k", "45.6M"]
    assert [size(value) for value in (12, 2048, 5 * 1024**3)] == ["12 B", "2.0 KiB", "5.0 GiB"]
    assert [ago(value) for value in (1500, 600_000, 7_200_000, 864_000_000)] == [
        "2 s",
        "10 min",
        "2 h",
        "10 d",
    ]
    assert moment(0) == moment(-5) == moment(10**18) == "\u2013"


def test_a_chart_has_round_numbers_and_says_what_it_shows() -> None:
    drawn = chart([0, 1000, 2000], [Line("in", [1.0, None, 37.0])])
    assert [label for _, label in drawn.y_labels] == ["0", "25", "50"]
    assert drawn.summary == "in: 37"
    assert drawn.lines[0].path.count("L") == 1
    assert [round_above(value) for value in (0, 1, 1.5, 21, 500, 501)] == [1, 1, 2, 50, 500, 1000]
    assert chart([], [Line("in", [])]).lines[0].path == ""
    long = chart(range(10_000), [Line("in", [1.0] * 10_000)])
    assert long.lines[0].path.count("L") < 200


def test_secrets_among_settings_are_not_shown() -> None:
    shown = without_secrets(
        {"accessKey": "a", "tls.server.keyPassword": "b", "flushDiskType": "c", "aclSecret": ""}
    )
    assert shown == {
        "accessKey": "••••••",
        "tls.server.keyPassword": "••••••",
        "flushDiskType": "c",
        "aclSecret": "",
    }


def test_links_are_made_of_any_name() -> None:
    assert link("topics", "%RETRY%a/b", tab=None, q="x y") == "/topics/%25RETRY%25a%2Fb?q=x+y"
    assert own_path("/topics?a=b") == "/topics?a=b"
    for elsewhere in ("//evil", "https://evil", "/\\evil", "javascript:alert(1)", "/a\r\nb", ""):
        assert own_path(elsewhere) == "/"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("LocalHost:80", "localhost"),
        ("[::1]:80", "::1"),
        ("::1", "::1"),
        ("a.b.", "a.b"),
        ("a:b:80", "a:b:80"),
    ],
)
def test_a_host_header_is_read_without_its_port(host: str, name: str) -> None:
    assert host_name(host) == name


# -------------------------------------------------------------------------------------------------- accounts


def accounts_in(folder: Path, **options: str | None) -> Accounts:
    return Accounts(PrivateFolder(str(folder)), clock=SimulatedClock(), chance=Chance(), **options)


def test_accounts_outlast_a_restart_and_passwords_are_checked(tmp_path: Path) -> None:
    folder = PrivateFolder(str(tmp_path / "console"))
    first = first_password(folder, Chance())
    assert first is not None
    accounts = accounts_in(tmp_path / "console", first_password=first)
    assert accounts.with_password("admin", "") is None
    assert accounts.with_password("admin", f" {first} ") is not None, "as copied from a terminal"
    accounts.choose_password("admin", "a long enough one")
    one_time = accounts.add("vera", Role.VIEWER)
    token = accounts.issue_token("vera", "script")
    assert first_password(folder, Chance()) is None
    again = accounts_in(tmp_path / "console")
    admin, vera = again.with_password("admin", "a long enough one"), again.with_password("vera", one_time)
    assert admin is not None
    assert admin.role is Role.ADMIN
    assert not admin.must_change
    assert vera is not None
    assert vera.must_change
    assert again.with_token(token) == vera
    assert again.with_token("kourou_other") is None
    assert again.with_password("vera", "x" * 100_000) is None
    with pytest.raises(Denied, match="last admin"):
        again.remove("admin")
    with pytest.raises(ConfigError, match="already"):
        again.add("vera", Role.ADMIN)
    with pytest.raises(ConfigError, match="cannot be a user"):
        again.add("<b>", Role.ADMIN)
    again.reset_password("vera")
    assert again.with_password("vera", one_time) is None


def test_a_damaged_accounts_file_lets_nobody_in_and_is_kept(tmp_path: Path) -> None:
    (tmp_path / "accounts.json").write_text("{")
    with pytest.raises(Corrupt, match="restore it from a backup"):
        accounts_in(tmp_path)
    assert (tmp_path / "accounts.json").read_text() == "{"


def test_roles_are_in_order_and_one_time_passwords_differ() -> None:
    assert [Role.OPERATOR.allows(role) for role in Role] == [True, True, False]
    made = {one_time_password(Chance()) for _ in range(100)}
    assert len(made) == 100
    assert all(len(password) == 19 for password in made)


def test_failed_logins_are_forgotten_after_a_minute_and_bounded() -> None:
    clock = SimulatedClock()
    attempts = Attempts(clock)
    for _ in range(FAILURES_OF_ONE_MAX):
        assert attempts.seconds_to_wait("admin", "1.1.1.1") == 0
        attempts.failed("admin", "1.1.1.1")
        clock.advance(1)
    assert attempts.seconds_to_wait("admin", "1.1.1.1") == WINDOW_SECONDS - FAILURES_OF_ONE_MAX
    assert attempts.seconds_to_wait("admin", "2.2.2.2") == 0
    clock.advance(WINDOW_SECONDS)
    assert attempts.seconds_to_wait("admin", "1.1.1.1") == 0
    for number_ in range(REMEMBERED_MAX * 2):
        attempts.failed(f"user-{number_}", f"10.0.{number_}")
    assert len(attempts._failed) <= REMEMBERED_MAX


def test_the_audit_log_is_found_again_and_rolls_over(tmp_path: Path) -> None:
    folder = PrivateFolder(str(tmp_path / "console"))
    audit = Audit(folder, SimulatedClock())
    audit.write(user="vera", address="::1", deed="topic.delete", on="orders\n", details={"a": "x" * 9000})
    audit.write(user="otto", address="::1", deed="login", on="otto", result="refused")
    again = Audit(folder, SimulatedClock())
    assert [entry.user for entry in again.find()] == ["otto", "vera"]
    assert [entry.on for entry in again.find("DELETE")] == ["orders\n"]
    assert len(again.find()[1].details["a"]) == 500
    path = tmp_path / "console" / "audit.jsonl"
    assert len(path.read_text().splitlines()) == 2, "one line each, whatever is in it"
    with path.open("ab") as file:
        file.write(b" " * FILE_BYTES_MAX + b"\n")
    again.write(user="a", address="b", deed="c", on="d")
    assert not path.exists()
    assert (tmp_path / "console" / "audit.1.jsonl").exists()


# ----------------------------------------------------------------------------------------------------- doors


def test_a_private_folder_closes_what_was_left_open(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir(mode=0o755)
    private = PrivateFolder(str(folder))
    assert private.read("a") is None
    private.write("a", b"one")
    private.append("log", b"1\n")
    assert private.append("log", b"2\n") == 4
    (folder / "a").chmod(0o644)
    assert private.read("a") == b"one"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        private.read("link")


def test_a_doorbell_hands_over_its_socket_with_the_one_who_knocked() -> None:
    async def story() -> bytes:
        bell = Doorbell("127.0.0.1", 0)
        rung: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        bell.on_first_knock(rung.set_result)
        with pytest.raises(AddressTaken, match="another process has it"):
            Doorbell("127.0.0.1", bell.port)
        _, writer = await asyncio.open_connection("127.0.0.1", bell.port)
        listening = await asyncio.wait_for(rung, 5)
        writer.write(b"hello")
        accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        said = await asyncio.get_running_loop().sock_recv(accepted, 5)
        for each in (accepted, listening):
            each.close()
        writer.close()
        await writer.wait_closed()
        bell.close()
        return said

    assert asyncio.run(story()) == b"hello"


def test_an_address_others_can_reach_needs_tls_or_a_word() -> None:
    with pytest.raises(ConfigError, match="--certificate"):
        ConsoleConfig(name_server="a:1", folder="x", host="0.0.0.0")
    ConsoleConfig(name_server="a:1", folder="x", host="0.0.0.0", insecure=True)
    safe = ConsoleConfig(name_server="a:1", folder="x", host="10.0.0.1", certificate="c", key="k")
    assert safe.is_tls
    assert "10.0.0.1" in safe.hosts
    with pytest.raises(ConfigError, match="both"):
        ConsoleConfig(name_server="a:1", folder="x", key="k")
