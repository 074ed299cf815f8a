"""The `kourou` command: what it ends with, and what it says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import click
import pytest

import kourou
from kourou.cli import main
from kourou.errors import (
    AddressTaken,
    Busy,
    ConfigError,
    Corrupt,
    Denied,
    DiskFault,
    MissingExtra,
    MQError,
    NoMaster,
    NotFound,
    ProtocolError,
    Refused,
    StoreForeign,
    StoreLocked,
    TimedOut,
    Unreachable,
)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Make `kourou try` call what the test gives it."""

    def install(action: Callable[[], object]) -> None:
        module = ModuleType("kourou.cli.tried")
        setattr(module, "tried", click.command()(action))  # noqa: B010
        monkeypatch.setitem(sys.modules, "kourou.cli.tried", module)
        monkeypatch.setitem(main.COMMANDS, "try", ("kourou.cli.tried", "tried", "For tests."))

    return install


def raising(error: BaseException) -> Callable[[], object]:
    def action() -> object:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (MQError("x"), 1),
        (ProtocolError("x"), 1),
        (Refused(1, "x"), 1),
        (Busy(14, "x"), 1),
        (StoreLocked("x"), 1),
        (AddressTaken("x"), 1),
        (ConfigError("x"), 2),
        (MissingExtra("x"), 2),
        (StoreForeign("x"), 2),
        (NotFound(17, "x"), 3),
        (Denied(16, "x"), 4),
        (NoMaster(17, "x"), 5),
        (Unreachable("x"), 5),
        (TimedOut("x"), 5),
        (Corrupt("x"), 74),
        (DiskFault("x"), 74),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_every_kind_of_error_is_one_line_and_has_its_exit_code(
    command: Callable[[Callable[[], object]], None],
    capsys: pytest.CaptureFixture[str],
    error: MQError,
    exit_code: int,
) -> None:
    command(raising(error))
    assert main.run(["try"]) == exit_code
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "kourou: x\n")


def test_an_error_cannot_move_the_cursor(
    command: Callable[[Callable[[], object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(Refused(1, "no\x1b[2Jway\nhome")))
    assert main.run(["try"]) == 1
    assert capsys.readouterr().err == "kourou: no\\x1b[2Jway\\nhome\n"


def test_what_a_command_returns_is_what_the_process_ends_with(
    command: Callable[[Callable[[], object]], None],
) -> None:
    command(lambda: 6)
    assert main.run(["try"]) == 6
    command(lambda: None)
    assert main.run(["try"]) == 0


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(KeyboardInterrupt(), 130), (click.Abort(), 130), (click.exceptions.Exit(3), 3)],
    ids=["Ctrl-C", "abort", "exit"],
)
def test_being_interrupted_is_no_error_to_tell_of(
    command: Callable[[Callable[[], object]], None],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    exit_code: int,
) -> None:
    command(raising(error))
    assert main.run(["try"]) == exit_code
    assert capsys.readouterr().err.strip() == ""


def test_an_error_of_the_system_is_one_line_too(
    command: Callable[[Callable[[], object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(PermissionError(13, "Permission denied", "/data/store")))
    assert main.run(["try"]) == 1
    assert capsys.readouterr().err == "kourou: /data/store: Permission denied\n"


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert kourou.__version__ in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_without_importing_any(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    def no_import(name: str) -> ModuleType:
        raise AssertionError(f"{name} is imported for a help page")

    monkeypatch.setattr(main, "import_module", no_import)
    assert main.run([flag]) == 0
    printed = capsys.readouterr().out
    for name, (_, _, about) in main.COMMANDS.items():
        assert name in printed
        assert about in printed


@pytest.mark.parametrize(
    ("typed", "hint"), [("brokr", "Did you mean 'broker'?"), ("xyzzy", "See kourou --help.")]
)
def test_an_unknown_command_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], typed: str, hint: str
) -> None:
    assert main.run([typed]) == 2
    printed = capsys.readouterr().err
    assert f"No such command '{typed}'. {hint}" in printed


@pytest.mark.parametrize("arguments", [["broker", "--nonsense"], ["start", "--port", "70000"]])
def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main.run(arguments) == 2
    assert "Error:" in capsys.readouterr().err
