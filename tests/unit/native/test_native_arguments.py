"""Whatever the native functions are given, they return or raise as any function does, and keep nothing.

The calls are made in a process of their own (`odd_arguments.py`): a mistake in C would end it.
"""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.native import native
from tests.unit.native.odd_arguments import Function, Maker, growth, signatures

pytestmark = pytest.mark.skipif(
    native is None, reason="there are no native loops: see test_native_is_there.py"
)

CALLS = 6_000
IS_MALLOC = os.environ.get("PYTHONMALLOC") == "malloc"
LEFT_BEHIND_MAX = 50
"""Blocks of memory that the third round of the same calls may leave: fewer than one in a hundred calls."""


def test_the_stub_names_every_function_and_no_other() -> None:
    assert set(signatures()) == {name for name, each in vars(native).items() if inspect.isbuiltin(each)}


def test_whatever_they_are_given_they_return_or_raise_and_keep_nothing(tmp_path: Path) -> None:
    last_call = tmp_path / "last-call"
    done = made_by("-m", "tests.unit.native.odd_arguments", "0", str(CALLS), str(last_call))
    told = last_call.read_text(errors="replace").partition("\n\n")[0]
    assert done.returncode == 0, f"ended with {done.returncode}; the last call was {told}\n{done.stderr}"
    returned, *left_behind = map(int, done.stdout.split())
    assert CALLS // 10 < returned < CALLS, "the calls are all refused at once, or none is odd"
    assert all(blocks < LEFT_BEHIND_MAX for blocks in left_behind)
    assert left_behind or IS_MALLOC


@pytest.mark.skipif(IS_MALLOC, reason="blocks of malloc are not counted")
def test_a_function_that_keeps_what_it_is_given_would_be_seen() -> None:
    kept: list[bytes] = []
    keeping = [Function("keep", lambda data: kept.append(data + b"!"), [ast.Name("bytes")])]
    assert growth(keeping, range(1_000)) > LEFT_BEHIND_MAX


def test_the_same_seed_makes_the_same_call() -> None:
    for name, types in signatures().items():
        one, other = (shown(Maker(7).arguments(types)) for _ in range(2))
        assert one == other, name


def shown(arguments: list[object]) -> list[object]:
    return [each if isinstance(each, (bytes, int, str)) else type(each) for each in arguments]


def made_by(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", *arguments]
    return subprocess.run(command, capture_output=True, text=True)
