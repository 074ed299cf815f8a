"""What commands have in common: durations, moments, contexts, CSV, asking first."""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from kourou.cli.changing import RATE, Duration, moment_of, seconds_of
from kourou.cli.contexts import chosen, contexts_path, credentials, read_contexts, tls
from kourou.cli.environment import misspelt
from kourou.cli.main import group
from kourou.cli.output import confirmed, show
from kourou.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86_400), ("250ms", 0.25), (" 5M ", 300)],
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "1w", "inf", "nan", "m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        seconds_of(text)


@pytest.mark.parametrize("text", ["0", "100ms", "2h"])
def test_a_duration_out_of_its_range_is_told_the_range(text: str) -> None:
    with pytest.raises(click.BadParameter, match=f"'{text}' is not in 0.2 s to 3600 s"):
        Duration(least=0.2, most=3600).convert(text, None, None)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "much"])
def test_a_rate_is_a_number_more_than_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match=text):
        RATE.convert(text, None, None)
    assert RATE.convert("0.5", None, None) == 0.5


def test_what_a_command_does_is_said_on_one_line_of_a_small_terminal() -> None:
    """As `kourou topic --help` lists its commands: click cuts what is longer."""
    families: dict[str, dict[str, click.Command]] = defaultdict(dict)
    for path, command in _commands(group()):
        family, _, name = path.rpartition(" ")
        families[family][name] = command
    del families[""]  # main.py has a line for each of them
    cut = [
        f"{family} {name}"
        for family, commands in families.items()
        for name, command in commands.items()
        if command.get_short_help_str(80 - 6 - max(map(len, commands))).endswith("...")
    ]
    assert cut == []


@pytest.mark.parametrize("text", ["-1", "nan", "inf"])
def test_no_command_takes_a_number_that_means_nothing(text: str) -> None:
    taken = []
    for path, command in _commands(group()):
        for option in filter(_takes_number, command.params):
            with suppress(click.BadParameter):
                option.type.convert(text, option, None)
                taken.append(f"{path} {option.opts[0]} {text}")
    assert taken == (["group create --retries -1"] if text == "-1" else [])  # as the original takes it


def _commands(parent: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in parent.list_commands(click.Context(parent)):
        command = parent.get_command(click.Context(parent), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def _takes_number(option: click.Parameter) -> bool:
    kinds = (click.types.IntParamType, click.types.FloatParamType, Duration)
    return isinstance(option.type, kinds)


def test_a_moment_is_said_in_four_ways() -> None:
    now = datetime.now(UTC)
    assert abs(moment_of("now") - now) < timedelta(seconds=5)
    assert abs(moment_of("10m") - (now - timedelta(minutes=10))) < timedelta(seconds=5)
    assert moment_of("1700000000000") == datetime.fromtimestamp(1_700_000_000, UTC)
    assert moment_of("2026-01-31T12:00:00+00:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert moment_of("2026-01-31T12:00:00").utcoffset() is not None
    with pytest.raises(ValueError):
        moment_of("tomorrow")


# ------------------------------------------------------------------------------------------------- contexts

FILE = """
current = "staging"

[contexts.staging]
name_server = "10.0.0.1:9876;10.0.0.2:9876"
access_key = "operator"
secret_key_file = "{secret}"
tls = true
verify = false

[contexts.home]
name_server = "127.0.0.1:1234"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "secret").write_text("s3cret\n")
    path = tmp_path / "contexts.toml"
    path.write_text(FILE.format(secret=tmp_path / "secret"))
    return {"KOUROU_CONTEXTS": str(path)}


def test_who_speaks_first_wins(environment: dict[str, str]) -> None:
    assert chosen("a:1", "home", environment).name_server == "a:1"
    assert chosen(None, "home", environment | {"NAMESRV_ADDR": "b:2"}).name_server == "127.0.0.1:1234"
    assert chosen(None, None, environment | {"NAMESRV_ADDR": "b:2"}).name_server == "b:2"
    assert chosen(None, None, environment | {"KOUROU_CONTEXT": "home"}).name == "home"
    assert chosen(None, None, environment).name == "staging"
    assert chosen(None, None, {"KOUROU_CONTEXTS": "/nowhere"}).name_server == "127.0.0.1:9876"


def test_a_context_says_who_we_are_and_how_to_talk(environment: dict[str, str]) -> None:
    staging = chosen(None, None, environment)
    account = credentials(staging, environment)
    assert account is not None
    assert (account.access_key, account.secret_key) == ("operator", "s3cret")
    assert "s3cret" not in repr(account)
    secured = tls(staging)
    assert secured is not None
    assert not secured.verify
    assert tls(chosen(None, "home", environment)) is None
    assert credentials(chosen(None, "home", environment), environment) is None


def test_the_environment_says_it_louder(environment: dict[str, str]) -> None:
    loud = environment | {"KOUROU_ACCESS_KEY": "me", "KOUROU_SECRET_KEY": "mine"}
    account = credentials(chosen(None, None, environment), loud)
    assert account is not None
    assert (account.access_key, account.secret_key) == ("me", "mine")
    with pytest.raises(ConfigError, match="belong together"):
        credentials(chosen(None, "home", environment), {"KOUROU_ACCESS_KEY": "me"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("current = 'x'", "no \\[contexts.x\\]"),
        ("nonsense = 1", "unknown key 'nonsense'"),
        ("[contexts.a]\nnameserver = 'x:1'", "no key 'nameserver'"),
        ("[contexts.a]\ntls = 'yes'", "must be a bool"),
        ("contexts = 1", "must be tables"),
        ("[contexts", "cannot be understood"),
    ],
)
def test_a_file_that_is_wrong_is_said_to_be(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "contexts.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_contexts({"KOUROU_CONTEXTS": str(path)})


def test_the_file_is_where_such_files_are() -> None:
    assert contexts_path({"XDG_CONFIG_HOME": "/x"}) == "/x/kourou/contexts.toml"
    assert contexts_path({}).endswith("/.config/kourou/contexts.toml")


@pytest.mark.parametrize(
    "name",
    [
        *("KOUROU_BROKER_LISTEN_PORT", "KOUROU_NAMESERVER_LISTEN_PORT", "KOUROU_CONFIG", "PATH"),
        *("KOUROU_CONTEXT", "KOUROU_NATIVE", "KOUROU_BUILD_NATIVE"),
    ],
)
def test_variables_that_mean_something_are_let_be(name: str) -> None:
    assert list(misspelt({name: "1"})) == []


# ---------------------------------------------------------------------------------------------------- output


def test_a_cell_is_never_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": "=cmd|'/c calc'!A1", "b": -5, "c": "-5", "d": "+1+1", "e": "@x", "f": True, "g": 0.125}]
    show(rows, ("a", "b", "c", "d", "e", "f", "g"), "csv")
    assert capsys.readouterr().out.splitlines()[1] == "'=cmd|'/c calc'!A1,-5,-5,'+1+1,'@x,true,0.125"


def test_wide_has_more_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": 1, "b": [1, 2], "c": {"x": 1}, "d": False, "e": 1.5}]
    show(rows, ("a",), "table", ("b", "c", "d", "e"))
    assert capsys.readouterr().out == "a\n1\n"
    show(rows, ("a",), "wide", ("b", "c", "d", "e"))
    assert capsys.readouterr().out.splitlines()[1].split("  ") == ["1", "1, 2", "x=1", "no", "1.50"]


def test_nobody_to_ask_needs_a_yes() -> None:
    confirmed("It goes.", True)
    with pytest.raises(ConfigError, match="--yes"):  # the command was used rightly: no word of its usage
        confirmed("It goes.", False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_is_asked(monkeypatch: pytest.MonkeyPatch, typed: str, goes_on: bool) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", Terminal())
    if goes_on:
        confirmed("It goes.", False)
    else:
        with pytest.raises(click.exceptions.Exit):
            confirmed("It goes.", False)
