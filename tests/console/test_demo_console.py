"""The end of `make demo CONSOLE=1`, without the demo before it: the console stays until it is told to end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = (
    "import pathlib, sys; from tools.demo_console import leave_console_running as leave;"
    "sys.exit(leave(pathlib.Path('data')))"
)


def test_the_demo_leaves_a_console_running_until_ctrl_c(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "CONSOLE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demo:
        try:
            assert demo.stdout is not None
            printed = read_until(demo.stdout, "Ctrl-C stops it cleanly.")
            address = re.search(r"console\s+(http://\S+)", printed)
            assert address is not None, printed
            assert "one-time password" in printed
            assert demo.poll() is None
            os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
            assert demo.wait(30) == 0
            assert "Traceback" not in demo.stdout.read()
        finally:
            if demo.poll() is None:
                os.killpg(demo.pid, signal.SIGKILL)


def read_until(stream: IO[str], words: str) -> str:
    read = ""
    for line in stream:
        read += line
        if words in line:
            return read
    raise AssertionError(f"it ended before {words!r}:\n{read}")


def test_without_being_asked_the_demo_just_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tools.demo_console import leave_console_running

    for value in ("", "0"):
        monkeypatch.setenv("CONSOLE", value)
        assert leave_console_running(tmp_path / "none") == 0
    assert list(tmp_path.iterdir()) == []
