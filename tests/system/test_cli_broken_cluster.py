"""Commands on a cluster of which a part is gone: they say what is missing, and end with its code."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kourou
from kourou.cli import exit_codes
from kourou.cli.main import run
from tests.interop import ours

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ours.Part, ours.Part, ours.Part]]:
    folder = tmp_path_factory.mktemp("broken")
    with (
        ours.name_server(folder) as names,
        ours.broker(folder, names.address, name="broker-a") as first,
        ours.broker(folder, names.address, name="broker-b") as second,
    ):
        yield names, first, second


@contextmanager
def frozen(part: ours.Part) -> Iterator[None]:
    """It is there, holds its connections, and says nothing: worse than gone."""
    os.kill(part.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(part.process.pid, signal.SIGCONT)


@pytest.fixture(autouse=True)
def _environment(
    cluster: tuple[ours.Part, ours.Part, ours.Part], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster[0].address)
    monkeypatch.setenv("KOUROU_CONTEXTS", str(tmp_path / "none.toml"))
    monkeypatch.setattr("kourou.admin.connection.TIMEOUT_SECONDS", 0.5)


def test_what_is_missing_is_said_and_the_rest_is_shown(
    cluster: tuple[ours.Part, ours.Part, ours.Part], capsys: pytest.CaptureFixture[str]
) -> None:
    names, _, second = cluster
    assert run(["topic", "create", "wide", "-r", "2", "-w", "2"]) == 0
    with kourou.Producer("g", names.address) as producer:
        for number in range(8):
            producer.send(kourou.Message("wide", b"%d" % number))
    with kourou.PullConsumer("readers", "wide", names.address, start="earliest") as consumer:
        seen = 0
        while seen < 8:
            seen += len(consumer.receive(8, 5))
        consumer.commit()
    capsys.readouterr()
    with frozen(second):
        assert run(["group", "lag", "readers", "-o", "json"]) == 5
        printed = capsys.readouterr()
        assert {row["broker"] for row in json.loads(printed.out)} == {"broker-a"}
        assert "not asked: broker-b" in printed.err
        assert run(["topic", "stats", "wide", "-o", "json"]) == 5
        assert "not asked: broker-b" in capsys.readouterr().err
        assert run(["broker", "ls", "-o", "json"]) == 5
        states = {row["broker"]: row["state"] for row in json.loads(capsys.readouterr().out)}
        assert states == {"broker-a": "active", "broker-b": "unreachable"}
        assert run(["check", "cluster", "--warn-disk", "100", "--crit-disk", "100"]) == 6
        assert "CLUSTER CRITICAL - broker-b" in capsys.readouterr().out
        assert run(["check", "lag", "-g", "readers", "--warn", "5"]) == 6
        assert "not asked: broker-b" in capsys.readouterr().out
        assert run(["doctor", "-q", "-o", "json"]) == 6
        findings = json.loads(capsys.readouterr().out)
        assert any(each["about"].startswith("broker broker-b") and each["do"] for each in findings)
    assert run(["group", "lag", "readers"]) == 0


def test_a_change_that_is_half_done_says_by_whom(
    cluster: tuple[ours.Part, ours.Part, ours.Part], capsys: pytest.CaptureFixture[str]
) -> None:
    _, first, second = cluster
    assert run(["topic", "create", "torn"]) == 0
    with frozen(second):
        capsys.readouterr()
        assert run(["topic", "create", "torn", "-r", "12", "-w", "12", "-o", "json"]) == 5
        rows = json.loads(capsys.readouterr().out)
        assert {row["broker"]: row["error"] is None for row in rows} == {
            first.address: True,
            second.address: False,
        }
        assert (
            run(["group", "reset", "readers", "-t", "wide", "--earliest", "--yes"]) == 5
        )  # nothing was begun
        for _ in range(3):  # a disk that is slow to sync makes the other one late, too
            assert run(["topic", "rm", "torn", "--yes"]) == 5
            said = capsys.readouterr().err
            if "done at none" not in said:
                break
        assert f"done at {first.address}, but not at {second.address}" in said
    assert run(["topic", "rm", "torn", "--yes"]) == 0
    assert run(["topic", "show", "torn"]) == 3


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("topic show nothing", 3, "no topic 'nothing'"),
        ("topic create x -b broker-z", 3, "no broker 'broker-z'; known: broker-a, broker-b"),
        ("topic create x -c elsewhere", 3, "no cluster 'elsewhere'; known: DefaultCluster"),
        ("topic create a/b", 2, "illegal characters"),
        ("group show nobody", 3, "no group 'nobody'"),
        ("group members nobody", 3, "no member is connected"),
        ("group reset nobody -t wide --latest --yes", 3, "no group 'nobody'"),
        ("group reset readers -t nothing --latest --yes", 3, "no topic 'nothing'"),
        ("group reset readers -t wide --latest --broker broker-z --yes", 3, "is not at broker 'broker-z'"),
        ("message get 7F00000100002A9F00000000000003E8 -t nothing", 3, "no topic 'nothing'"),
        ("message find nothing", 3, "no topic 'nothing'"),
        ("broker config set broker-z a=b --yes", 3, "no broker 'broker-z'"),
        ("broker config set broker-a nonsense --yes", 2, "is not KEY=VALUE"),
        ("dlq show nobody", 3, "no dead letters"),
        ("tx show nothing", 3, "no half message"),
        ("timer show nothing", 3, "no message nothing waits"),
        ("topic ls -n 127.0.0.1:1", 5, "no name server answers"),
        ("topic ls -n nonsense", 2, "not of the form host:port"),
        ("topic ls --context nowhere", 2, "no context 'nowhere'"),
    ],
)
def test_bad_input_gets_a_clear_word_and_the_right_code(
    line: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == code
    printed = capsys.readouterr()
    assert says in printed.err
    assert len(printed.err.strip().splitlines()) <= 4
    assert "Traceback" not in printed.err


# ------------------------------------------------------------------------- one table of exit codes for all


@pytest.mark.parametrize(
    "line",
    [
        "topic create x",
        "topic ls -o wide",
        "group ls",
        "group rm x --idempotent --yes",
        "tx ls",
        "timer ls",
        "check lag --warn 5",
    ],
)
def test_without_a_master_nothing_is_said_to_be_absent(
    line: str, alone: ours.Part, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*line.split(), "-n", alone.address]) == exit_codes.UNREACHABLE
    assert "no master is registered" in capsys.readouterr().err


def test_the_doctor_says_once_that_there_is_no_broker(
    alone: ours.Part, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "-q", "-n", alone.address, "-o", "json"]) == exit_codes.CHECK_FAILED
    troubles = [each for each in json.loads(capsys.readouterr().out) if each["verdict"] == "trouble"]
    assert [(each["about"], each["do"]) for each in troubles] == [
        ("brokers", f"start one with: kourou broker -n {alone.address}")
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ours.Part]:
    """A name server nobody has registered at."""
    with ours.name_server(tmp_path_factory.mktemp("alone")) as names:
        yield names


def test_the_page_for_operators_has_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "operations.md"
    assert exit_codes.as_table() in page.read_text()
