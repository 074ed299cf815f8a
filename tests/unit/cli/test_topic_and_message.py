"""What the two command groups refuse before they reach for the network, and what they need to load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kourou.cli.main import run


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (
            ["topic", "create", "a b", "-n", "h:1"],
            2,
            "topic 'a b' has illegal characters: a name is of letters a-z A-Z, digits and _ - % |",
        ),
        (["start", "--data", __file__], 2, f"the data folder '{__file__}' is a file"),
        (["start", "--data", f"{__file__}/a/b"], 2, f"cannot be made: {__file__} is a file"),
        (["topic", "create", "t", "-n", "h:1", "-b", "b:1", "-c", "c"], 2, "give one of them"),
        (["topic", "create", "t", "-n", "h:1", "--perm", "9"], 2, "--perm"),
        (["topic", "create", "t", "-n", "h:1", "--read-queues", "0"], 2, "--read-queues"),
        (["topic", "ls", "-n", "nowhere"], 2, "'nowhere' is not of the form host:port"),
        (["topic", "ls", "-o", "xml", "-n", "h:1"], 2, "xml"),
        (["message", "send", "t", "", "-n", "h:1"], 2, "has no body"),
        (["message", "send", "t", "x", "--property", "novalue", "-n", "h:1"], 2, "is not NAME=VALUE"),
        (["message", "send", "t", "x", "--group", "a b", "-n", "h:1"], 2, "group 'a b'"),
        (["message", "send", "t", "x", "--timeout", "0", "-n", "h:1"], 2, "'0' is not in 0.001 s to"),
        (["message", "tail", "t", "--timeout", "-1", "-n", "h:1"], 2, "'-1' is no duration: say 90, 90s"),
        (["topic", "create", "TBW102", "-n", "h:1"], 2, "topic 'TBW102' belongs to the system"),
        (["topic", "create", "TBW102", "--dry-run", "-n", "h:1"], 2, "topic 'TBW102' belongs to the system"),
        (["topic", "create", "rmq_sys_mine", "-n", "h:1"], 2, "topic 'rmq_sys_mine' belongs to the system"),
        (["topic", "perm", "SCHEDULE_TOPIC_XXXX", "4", "-y", "-n", "h:1"], 2, "belongs to the system"),
        (["topic", "resize", "OFFSET_MOVED_EVENT", "4", "-y", "-n", "h:1"], 2, "belongs to the system"),
        (["topic", "rm", "RMQ_SYS_TRACE_TOPIC", "-y", "-n", "h:1"], 2, "belongs to the system"),
        (["topic", "ls", "-n", "1.2.3:5"], 2, "'1.2.3', which is no IPv4 address"),
        (["message", "tail", "t", "--count", "0", "-n", "h:1"], 2, "--count"),
    ],
)
def test_a_command_that_makes_no_sense_says_why(
    capsys: pytest.CaptureFixture[str], arguments: list[str], exit_code: int, said: str
) -> None:
    assert run(arguments) == exit_code
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_the_commands_and_the_blocking_client_load_without_asyncio() -> None:
    programme = (
        "import sys, kourou, kourou.cli.topic, kourou.cli.message\n"
        "before = 'kourou.client.drive' in sys.modules\n"
        "kourou.Producer, kourou.PullConsumer, kourou.AsyncProducer\n"
        "print(before, 'asyncio' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", programme], capture_output=True, text=True, check=True)
    assert result.stdout == "False False\n"


def test_without_a_name_server_the_one_of_kourou_start_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "ls", "--help"]) == 0
    assert "127.0.0.1:9876" in capsys.readouterr().out
