"""`kourou console`, and the console inside `kourou start`, as processes."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import pytest

from kourou.console.login import Accounts
from kourou.doors.chance import Chance
from kourou.doors.clock import RealClock
from kourou.doors.private_folder import PrivateFolder
from tests.console.cluster import Person, Running, first_login
from tests.kourou_process import kourou, serving, serving_all

IDLE_MIB_MAX = 60


def memory_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def test_start_brings_a_console_that_costs_nothing_until_somebody_comes(tmp_path: Path) -> None:
    began = time.monotonic()
    with serving_all(tmp_path) as server:
        assert time.monotonic() - began < 5
        url = re.search(r"console\s+(http://127\.0\.0\.1:\d+)", server.printed)
        password = re.search(r"one-time password ([a-z2-7-]{19})", server.printed)
        assert url is not None
        assert password is not None
        idle = memory_mib(server.pid)
        assert idle < IDLE_MIB_MAX
        with httpx.Client(base_url=url[1], follow_redirects=True, timeout=20) as client:
            began = time.monotonic()
            assert "one-time password" in client.get("/").text
            assert time.monotonic() - began < 5
            entered = client.post("/login", data={"user": "admin", "password": password[1]})
            assert entered.url.path == "/password"
        assert server.stop() == 0
    assert server.log == ""
    assert password[1] not in server.log


def test_with_access_control_the_console_inside_start_sees_its_own_broker(tmp_path: Path) -> None:
    accounts = "accounts:\n  - {accessKey: somebody, secretKey: somebodys-secret, admin: true}\n"
    (tmp_path / "plain_acl.yml").write_text(accounts)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"aclEnable=true\naclConfigPath={tmp_path}/plain_acl.yml\n")
    with serving_all(tmp_path, "-c", str(conf)) as server:
        url = re.search(r"console\s+(http://\S+)", server.printed)
        password = re.search(r"one-time password ([a-z2-7-]{19})", server.printed)
        assert url is not None
        assert password is not None
        running = Running(url[1], password[1], server.name_server, tmp_path)
        first_login(running)
        person = Person(running)
        brokers = person.get("/brokers").text
        assert server.address("broker") in brokers
        assert "No permission" not in brokers
        person.close()


def test_without_a_console_nothing_is_said_of_it(tmp_path: Path) -> None:
    with serving_all(tmp_path, "--no-console") as server:
        assert "console" not in server.printed
        assert server.stop() == 0


def test_a_console_alone_serves_the_cluster_it_is_given(tmp_path: Path) -> None:
    with serving_all(tmp_path / "cluster", "--no-console") as cluster:
        arguments = ("console", "-n", cluster.name_server, "--port", "0", "--data", tmp_path / "data")
        with serving(*arguments, folder=tmp_path, until="one-time password") as console:
            url = re.search(r"(http://\S+);", console.printed)
            assert url is not None
            assert cluster.name_server in console.printed
            answer = httpx.get(url[1] + "/login", timeout=20)
            assert answer.status_code == 200
            assert answer.headers["content-security-policy"]
            assert console.stop() == 0
        assert console.log == ""


def test_a_forgotten_password_is_replaced_where_the_console_runs(tmp_path: Path) -> None:
    nobody = kourou("console", "--reset-password", "admin", folder=tmp_path)
    assert nobody.returncode == 3
    assert "no user 'admin'" in nobody.stderr
    accounts = Accounts(
        PrivateFolder(str(tmp_path / "kourou-data" / "console")),
        clock=RealClock(),
        chance=Chance(),
        first_password="first",
    )
    accounts.choose_password("admin", "what was it again")
    done = kourou("console", "--reset-password", "admin", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = re.search(r"once with (\S+),", done.stdout)
    assert found is not None
    again = Accounts(
        PrivateFolder(str(tmp_path / "kourou-data" / "console")), clock=RealClock(), chance=Chance()
    )
    assert again.with_password("admin", "what was it again") is None
    assert again.with_password("admin", found[1]) is not None


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--host", "0.0.0.0"), 2, "--insecure"),
        (("--certificate", "only.pem"), 2, "both"),
        (("--host", "no-such-host.invalid"), 2, "--insecure"),
        (("--port", "99999"), 2, "--port"),
    ],
)
def test_what_cannot_be_is_told_before_anything_starts(
    tmp_path: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    done = kourou("console", *options, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_an_error_for_who_asked_for_it_and_none_for_who_did_not(
    tmp_path: Path,
) -> None:
    with serving_all(tmp_path / "one", "--console-port", "0") as first:
        taken = re.search(r"console\s+http://127\.0\.0\.1:(\d+)", first.printed)
        assert taken is not None
        refused = kourou("console", "--port", taken[1], folder=tmp_path)
        assert refused.returncode == 1
        assert "another process has it" in refused.stderr


def test_without_the_extra_the_command_names_it_and_start_goes_on(tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util as u; real = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'starlette' else real(name, *a);"
        "from kourou.cli.main import main; sys.argv[0] = 'kourou'; main()"
    )
    done = kourou("console", folder=tmp_path, program=program)
    assert done.returncode == 2
    assert "pip install 'kourou[console]'" in done.stderr
    with serving_all(tmp_path, program=program) as server:
        assert "console" not in server.printed
        assert server.stop() == 0
