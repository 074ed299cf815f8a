"""What a person sees: the commands on terminals that are wide, narrow, or can do nothing but print."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl

import pytest

import kourou
from tests.kourou_process import PROGRAM

pytestmark = pytest.mark.timeout(600)

LONG = "a-rather-long-name-of-a-topic-of-orders-and-payments"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker() as running:
        with kourou.Producer("story", running.name_server) as producer:
            producer.send(kourou.Message(LONG, b"hello", keys="k1"))
        yield running


class Terminal:
    """Runs commands where somebody seems to look."""

    def __init__(self, name_server: str) -> None:
        self._environment = {**os.environ, "NAMESRV_ADDR": name_server, "NO_COLOR": "1"}
        for name in ("COLUMNS", "LINES"):
            self._environment.pop(name, None)

    def __call__(self, line: str, *, columns: int = 80, term: str = "xterm-256color") -> str:
        """What is on the screen in the end, bars and screens that were drawn over included."""
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *line.split()],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**self._environment, "TERM": term},
        )
        os.close(theirs)
        printed = bytearray()
        try:
            while part := os.read(ours, 65536):
                printed += part
        except OSError:  # how Linux says that nobody has the terminal open any more
            pass
        finally:
            os.close(ours)
        text = ESCAPE.sub("", printed.decode()).replace("\r\n", "\n")
        assert process.wait(60) == 0, text
        return text


@pytest.fixture
def terminal(broker: kourou.LocalBroker) -> Terminal:
    return Terminal(broker.name_server)


def test_a_table_that_fits_is_a_table_of_whole_words(terminal: Terminal) -> None:
    lines = terminal("topic ls -o wide", columns=140).splitlines()
    assert "perm  order  settings differ" in lines[1]
    assert [line.split()[:2] for line in lines if LONG in line] == [[LONG, "normal"]]
    assert all(len(line) <= 140 for line in lines)


def test_where_no_table_fits_each_row_is_a_list(terminal: Terminal) -> None:
    lines = terminal(f"message find {LONG} --key k1").splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["stored", "broker"]
    assert any(re.fullmatch(r"message id +[0-9A-F]{32}", line) for line in lines)
    assert lines[-1] == "body          hello"
    assert f"topic            {LONG}" in terminal("topic ls -o wide", columns=40).splitlines()


def test_a_load_test_shows_how_far_it_is(terminal: Terminal) -> None:
    printed = terminal("bench --duration 500ms --size 16")
    assert re.search(r"[1-9]\d* messages?, \d+/s", printed)
    assert "send" in printed.splitlines()[-2]


def test_where_nothing_can_be_drawn_over_a_line_is_printed_for_each_look(terminal: Terminal) -> None:
    printed = terminal("top --count 2 --interval 200ms", term="dumb")
    assert [line.partition(",")[0] for line in printed.splitlines()] == ["1/1 brokers", "1/1 brokers"]
    assert "Ctrl-C ends it" in terminal("top --count 1")


def test_the_doctor_speaks_plainly(terminal: Terminal) -> None:
    printed = terminal("doctor", columns=120)
    assert re.search(r"clock of \S+ +\+\d", printed)
    assert "0 troubles" in printed
