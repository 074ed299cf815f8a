"""`kourou topic` and `kourou message` against a real broker."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kourou
from kourou.cli.main import run


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker() as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(broker: kourou.LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints; it must succeed."""
    capsys.readouterr()
    assert run(list(arguments)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_a_topic_is_created_listed_and_shown(
    capsys: pytest.CaptureFixture[str], broker: kourou.LocalBroker
) -> None:
    printed = command(capsys, "topic", "create", "made", "--read-queues", "4", "--write-queues", "2")
    assert printed.splitlines() == [
        "topic  broker           read queues  write queues  perm",
        f"made   {broker.address}  4            2             6",
    ]
    assert "made" in command(capsys, "topic", "ls").splitlines()
    assert "TBW102" not in command(capsys, "topic", "ls")
    assert "TBW102" in command(capsys, "topic", "ls", "--all")
    (part,) = json.loads(command(capsys, "topic", "route", "made", "-o", "json"))
    assert (part["read_queues"], part["write_queues"], part["perm"]) == (4, 2, 6)
    assert part["addresses"] == f"0={broker.address}"


def test_a_topic_has_eight_queues_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = json.loads(command(capsys, "topic", "create", "plain", "-o", "json"))
    assert (row["read_queues"], row["write_queues"], row["perm"]) == (8, 8, 6)


def test_a_topic_can_be_created_at_one_broker_or_in_one_cluster(
    capsys: pytest.CaptureFixture[str], broker: kourou.LocalBroker
) -> None:
    (at_broker,) = json.loads(command(capsys, "topic", "create", "here", "-b", broker.address, "-o", "json"))
    assert at_broker["broker"] == broker.address
    (part,) = json.loads(command(capsys, "topic", "route", "here", "-o", "json"))
    command(capsys, "topic", "create", "there", "-c", part["cluster"])
    assert run(["topic", "create", "nowhere", "-c", "other"]) == 3
    assert "no cluster 'other'; known: " in capsys.readouterr().err


def test_a_topic_can_be_created_at_a_broker_without_any_name_server(
    capsys: pytest.CaptureFixture[str], broker: kourou.LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR")
    command(capsys, "topic", "create", "direct", "-b", broker.address)
    assert "direct" in command(capsys, "topic", "ls", "-n", broker.name_server)


def test_a_message_is_sent_and_seen(capsys: pytest.CaptureFixture[str]) -> None:
    command(capsys, "topic", "create", "seen")
    sending = ["message", "send", "seen", "één espresso", "--tags", "new", "--keys", "42"]
    (sent,) = json.loads(command(capsys, *sending, "--property", "colour=red", "-o", "json"))
    assert sent["status"] == "SEND_OK"
    tail = ["message", "tail", "seen", "--from", "earliest", "--count", "1", "--timeout", "5"]
    (seen,) = json.loads(command(capsys, *tail, "-o", "json"))
    assert (seen["body"], seen["tags"], seen["keys"]) == ("één espresso", "new", "42")
    assert seen["properties"]["colour"] == "red"
    for name in ("message_id", "offset_id", "broker", "queue_id", "queue_offset"):
        assert seen[name] == sent[name]
    line = command(capsys, *tail)
    assert line.endswith(f"{sent['broker']}/{sent['queue_id']}@{sent['queue_offset']}  [new] één espresso\n")


def test_many_messages_with_one_key_go_to_one_queue(capsys: pytest.CaptureFixture[str]) -> None:
    command(capsys, "topic", "create", "keyed")
    printed = command(capsys, "message", "send", "keyed", "x", "--count", "5", "--key", "k", "-o", "jsonl")
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [row["queue_offset"] for row in rows] == [0, 1, 2, 3, 4]
    table = command(capsys, "message", "send", "keyed", "x", "--count", "3")
    assert len(table.splitlines()) == 4


def test_a_body_may_come_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command(capsys, "topic", "create", "piped")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x00\xff\n")))
    command(capsys, "message", "send", "piped", "-")
    tail = ["message", "tail", "piped", "--from", "earliest", "--count", "1", "--timeout", "5"]
    (seen,) = json.loads(command(capsys, *tail, "-o", "json"))
    assert seen["body_base64"] == "AP8K"
    assert command(capsys, *tail).endswith("  \\x00\\xff\\n\n")


def test_hostile_bodies_are_shown_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    command(capsys, "topic", "create", "hostile")
    command(capsys, "message", "send", "hostile", "\x1b[2J\x1b]0;owned\x07")
    tail = ["message", "tail", "hostile", "--from", "earliest", "--count", "1", "--timeout", "5"]
    for output in ("table", "json", "jsonl"):
        printed = command(capsys, *tail, "-o", output)
        assert "owned" in printed
        assert printed.replace("\n", "").isprintable()


def test_a_group_sees_each_message_once(capsys: pytest.CaptureFixture[str]) -> None:
    command(capsys, "topic", "create", "grouped")
    command(capsys, "message", "send", "grouped", "x", "--count", "10")
    tail = ["message", "tail", "grouped", "--from", "earliest", "--group", "watchers"]
    for count in (4, 4, 2):
        printed = command(capsys, *tail, "--count", str(count), "--timeout", "20")
        assert len(printed.splitlines()) == count
    assert command(capsys, *tail, "--timeout", "0.3") == ""


def test_only_wanted_tags_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    command(capsys, "topic", "create", "tagged")
    for tag in ("a", "b", "c"):
        command(capsys, "message", "send", "tagged", f"body {tag}", "--tags", tag)
    tail = ["message", "tail", "tagged", "--from", "earliest", "--tags", "a || c", "--timeout", "3"]
    assert sorted(line[-6:] for line in command(capsys, *tail).splitlines()) == ["body a", "body c"]


def test_fewer_messages_than_asked_for_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    command(capsys, "topic", "create", "few")
    command(capsys, "message", "send", "few", "x")
    assert run(["message", "tail", "few", "--from", "earliest", "--count", "3", "--timeout", "0.3"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "kourou: 1 of 3 messages came, then none for 0.3 s\n"
    assert len(printed.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["message", "tail", "absent"], 3, "no topic 'absent'"),
        (["topic", "route", "absent"], 3, "no topic 'absent'"),
        (["message", "send", "SCHEDULE_TOPIC_XXXX", "x"], 2, "belongs to the brokers"),
        (["topic", "create", "TBW102"], 2, "topic 'TBW102' belongs to the system"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], arguments: list[str], exit_code: int, said: str
) -> None:
    assert run(arguments) == exit_code
    printed = capsys.readouterr()
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.err.startswith("kourou: ")


def test_a_cluster_that_is_not_there_is_exit_code_5(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        assert run(["topic", "ls", "-n", address]) == 5
    assert f"no name server answers ({address}" in capsys.readouterr().err


def test_tail_shows_messages_as_they_come_and_ends_with_ctrl_c(
    capsys: pytest.CaptureFixture[str], broker: kourou.LocalBroker, tmp_path: Path
) -> None:
    command(capsys, "topic", "create", "live")
    # Whoever is started in the background of a shell ignores SIGINT, and so do the programs it starts.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from kourou.cli.main import main; main()"
    )
    arguments = [sys.executable, "-c", program, "message", "tail", "live"]
    printed = tmp_path / "printed"
    with printed.open("wb") as output:
        watching = subprocess.Popen(arguments, stdout=output, stderr=subprocess.PIPE, text=True)
    try:
        with kourou.Producer("shop", name_server=broker.name_server) as producer:
            deadline = time.monotonic() + 20
            while not printed.stat().st_size and time.monotonic() < deadline:
                producer.send(kourou.Message("live", b"hello"))
                time.sleep(0.05)
        assert printed.read_text().splitlines()[0].endswith("  hello")
        watching.send_signal(signal.SIGINT)
        _, complaints = watching.communicate(timeout=10)
    finally:
        watching.kill()
    assert (watching.returncode, complaints) == (0, "")
