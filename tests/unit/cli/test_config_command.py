"""`kourou config show`: every setting, what it is, and who said so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kourou.broker.config import KEYS
from kourou.cli.main import run
from kourou.nameserver.config import KEYS as NAME_SERVER_KEYS


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, str]]:
    assert run(["config", "show", *arguments, "--origin", "-o", "json"]) == 0
    return {row["key"]: row for row in json.loads(capsys.readouterr().out)}


def test_each_place_that_speaks_is_stronger_than_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# a comment\nlistenPort=20001\nfileReservedTime=24\nflushDiskType=SYNC_FLUSH\n")
    monkeypatch.setenv("KOUROU_BROKER_LISTEN_PORT", "20002")
    monkeypatch.setenv("KOUROU_BROKER_FILE_RESERVED_TIME", "48")
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1;127.0.0.1:2")
    rows = shown(capsys, "broker", "-c", str(conf), "--port", "20003", "--data", str(tmp_path))
    told = {key: (row["value"], row["origin"]) for key, row in rows.items()}
    assert told["brokerName"] == ("kourou", "default")
    assert told["flushDiskType"] == ("SYNC_FLUSH", f"{conf}:4")
    assert told["fileReservedTime"] == ("48", "environment KOUROU_BROKER_FILE_RESERVED_TIME")
    assert told["namesrvAddr"] == ("127.0.0.1:1;127.0.0.1:2", "environment NAMESRV_ADDR")
    assert told["listenPort"] == ("20003", "flag --port")
    assert told["storePathRootDir"] == (str(tmp_path), "flag --data")


@pytest.mark.parametrize(("server", "keys"), [("broker", KEYS), ("nameserver", NAME_SERVER_KEYS)])
def test_every_setting_is_shown(
    server: str, keys: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert set(shown(capsys, server)) == set(keys.keys)  # type: ignore[attr-defined]
    assert shown(capsys, server, "--changed") == {}


def test_the_name_server_hears_the_environment_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOUROU_NAMESERVER_LISTEN_PORT", "20009")
    row = shown(capsys, "nameserver")["listenPort"]
    assert (row["value"], row["origin"]) == ("20009", "environment KOUROU_NAMESERVER_LISTEN_PORT")


def test_secrets_are_masked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("tls.server.keyPassword=hunter2\n")
    assert run(["config", "show", "-c", str(conf), "--origin"]) == 0
    printed = capsys.readouterr()
    assert "hunter2" not in printed.out + printed.err
    assert "******" in printed.out


@pytest.mark.parametrize(
    ("line", "environment", "words"),
    [
        ("flushDisk=x", {}, "conf:1: the broker has no setting 'flushDisk'; did you mean flushDiskType?"),
        ("", {"KOUROU_BROKER_LISTEN_PROT": "1"}, "did you mean KOUROU_BROKER_LISTEN_PORT?"),
        ("listenPort=70000", {}, "listenPort is '70000', but must be a whole number from 0 to 65535"),
        ("enableDLegerCommitLog=true", {}, "enableDLegerCommitLog can only be false here"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_place(
    line: str,
    environment: dict[str, str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(line + "\n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(["config", "show", "-c", str(conf)]) == 2
    assert words in capsys.readouterr().err


def test_a_flag_of_a_broker_is_none_of_a_name_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "nameserver", "--data", "here"]) == 2
    assert "a name server has no setting for 'here'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "is_noticed"),
    [
        ("brokerIP1=192.168.1.7\n", True),
        ("brokerIP1=127.0.0.1\n", False),
        ("brokerIP1=192.168.1.7\nbindAddress=192.168.1.7\ninsecure=true\n", False),
        ("brokerIP1=192.168.1.7\nbindAddress=0.0.0.0\ninsecure=true\n", False),
    ],
)
@pytest.mark.parametrize("command", ["check", "show"])
def test_an_address_that_nobody_can_reach_is_noticed(
    command: str, content: str, is_noticed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(content)
    assert run(["config", command, "broker", "-c", str(conf)]) == 0
    notice = "clients are told 192.168.1.7 (brokerIP1), but the broker listens on 127.0.0.1 only"
    assert (notice in capsys.readouterr().err) == is_noticed
