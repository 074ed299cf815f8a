"""Settings from everywhere, each with the place it came from, and errors a person can act on."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

import pytest

from kourou.doors.configuration import (
    FILE_BYTES_MAX,
    Fixed,
    Key,
    Setting,
    Settings,
    Vocabulary,
    number,
    one_of,
    read_settings,
    text,
    whole_number,
    yes_no,
)
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Oven:
    degrees: int = 180
    fan: bool = False
    mode: str = "BOTH"
    name: str = "oven"
    ratio: float = 0.5
    servers: str = ""


KEYS = Vocabulary(
    "oven",
    "KOUROU_OVEN_",
    [
        Key("ovenDegrees", "degrees", whole_number(50, 300), remote=True),
        Key("fanEnable", "fan", yes_no()),
        Key("ovenMode", "mode", one_of("TOP", "BOTTOM", "BOTH")),
        Key("ovenName", "name", text("a name without blanks", lambda given: " " not in given)),
        Key("ovenRatio", "ratio", number(0, 1)),
        Key("namesrvAddr", "servers", text(), also_environment=("NAMESRV_ADDR",)),
    ],
    without_effect={"lightThreads", "doorThreads"},
    fixed={"useGas": Fixed("false", "there is no gas in this kitchen")},
)


def read(content: bytes | None = None, **more: Any) -> Settings:
    files = SimulatedFiles()
    if content is not None:
        files.write_atomically("oven.conf", content)
        more["path"] = "oven.conf"
    return read_settings(KEYS, files=files, **more)


def test_what_nobody_mentions_is_left_to_the_dataclass() -> None:
    settings = read()
    assert settings.build(Oven) == Oven()
    assert dict(settings.explain(Oven()))["ovenDegrees"] == Setting("180", "default")


def test_a_file_fills_the_fields() -> None:
    content = (
        b"# comment\novenDegrees = 200\n  fanEnable:TRUE\novenMode top\novenName=a\\\n   b\novenRatio=0.25"
    )
    oven = read(content).build(Oven)
    assert oven == Oven(degrees=200, fan=True, mode="TOP", name="ab", ratio=0.25)


def test_the_later_of_two_lines_counts_with_its_own_number() -> None:
    settings = read(b"ovenDegrees=100\n\novenDegrees=120\n")
    assert settings.given["degrees"] == Setting(120, "oven.conf:3")


@pytest.mark.parametrize(
    ("file", "environment", "flags", "expected"),
    [
        (None, {}, {}, ("180", "default")),
        (b"ovenDegrees=100", {}, {}, ("100", "oven.conf:1")),
        (
            b"ovenDegrees=100",
            {"KOUROU_OVEN_OVEN_DEGREES": "110"},
            {},
            ("110", "environment KOUROU_OVEN_OVEN_DEGREES"),
        ),
        (
            b"ovenDegrees=100",
            {"KOUROU_OVEN_OVEN_DEGREES": "110"},
            {"degrees": 120},
            ("120", "flag --degrees"),
        ),
        (b"ovenDegrees=100", {}, {"degrees": None}, ("100", "oven.conf:1")),
    ],
)
def test_default_gives_way_to_file_to_environment_to_flag(
    file: bytes | None, environment: dict[str, str], flags: dict[str, object], expected: tuple[str, str]
) -> None:
    settings = read(file, environment=environment, flags=flags)
    assert dict(settings.explain(settings.build(Oven)))["ovenDegrees"] == expected


def test_a_variable_of_the_original_counts_too() -> None:
    settings = read(environment={"NAMESRV_ADDR": "10.0.0.1:9876", "HOME": "/root"})
    assert settings.given["servers"] == Setting("10.0.0.1:9876", "environment NAMESRV_ADDR")


def test_keys_without_effect_are_taken_with_one_notice() -> None:
    settings = read(b"lightThreads=3\nfanEnable=true\ndoorThreads=4\nlightThreads=5")
    assert settings.notices == ("oven.conf: taken, but without effect here: lightThreads, doorThreads",)
    assert settings.build(Oven).fan


def test_a_file_without_such_keys_gives_no_notice() -> None:
    assert read(b"fanEnable=true").notices == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\novenDegres=1", "oven.conf:2: the oven has no setting 'ovenDegres'; did you mean ovenDegrees?"),
        (b"OVENDEGREES=1", "oven.conf:1: the oven has no setting 'OVENDEGREES'; did you mean ovenDegrees?"),
        (b"lightThread=1", "oven.conf:1: the oven has no setting 'lightThread'; did you mean lightThreads?"),
        (b"somethingElse=1", "oven.conf:1: the oven has no setting 'somethingElse'"),
        (b"ovenDegrees=hot", "oven.conf:1: ovenDegrees is 'hot', but must be a whole number from 50 to 300"),
        (b"ovenDegrees=301", "oven.conf:1: ovenDegrees is '301', but must be a whole number from 50 to 300"),
        (b"ovenDegrees=", "oven.conf:1: ovenDegrees is '', but must be a whole number from 50 to 300"),
        (
            b"ovenDegrees=1_00",
            "oven.conf:1: ovenDegrees is '1_00', but must be a whole number from 50 to 300",
        ),
        (b"fanEnable=yes", "oven.conf:1: fanEnable is 'yes', but must be true or false"),
        (b"ovenMode=LEFT", "oven.conf:1: ovenMode is 'LEFT', but must be one of TOP, BOTTOM, BOTH"),
        (b"ovenName=a b", "oven.conf:1: ovenName is 'a b', but must be a name without blanks"),
        (b"ovenRatio=nan", "oven.conf:1: ovenRatio is 'nan', but must be a number from 0 to 1"),
        (b"useGas=true", "oven.conf:1: useGas can only be false here: there is no gas in this kitchen"),
        (b"a\nb=\0", "oven.conf:2: not a text file (it holds a NUL byte)"),
        (
            b"#" * (FILE_BYTES_MAX + 1),
            "oven.conf has 1048577 bytes: a configuration file has at most 1048576;",
        ),
        (b"ovenName=\\u12", "oven.conf: properties: \\u without four hexadecimal digits"),
    ],
)
def test_an_error_names_file_line_key_value_and_what_is_accepted(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(content)
    assert message in str(error.value)
    assert error.value.exit_code == 2


def test_a_key_that_can_have_one_value_may_have_that_one() -> None:
    assert read(b"useGas = False").build(Oven) == Oven()


def test_a_long_value_is_shortened_in_the_error() -> None:
    with pytest.raises(ConfigError) as error:
        read(b"ovenDegrees=" + b"9" * 5000)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda files: None, "No such file or directory"),
        (lambda files: files.fail("open", error=errno.EACCES), "Permission denied"),
        (lambda files: files.fail("open", error=errno.EISDIR), "Is a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(prepare: Any, reason: str) -> None:
    files = SimulatedFiles()
    prepare(files)
    with pytest.raises(ConfigError, match=f"cannot read the configuration file oven.conf: {reason}"):
        read_settings(KEYS, files=files, path="oven.conf")


def test_a_bad_variable_or_flag_is_named() -> None:
    with pytest.raises(ConfigError, match="environment KOUROU_OVEN_FAN_ENABLE: fanEnable is 'on'"):
        read(environment={"KOUROU_OVEN_FAN_ENABLE": "on"})
    with pytest.raises(
        ConfigError, match=r"KOUROU_OVEN_FAN_ENABLED: .* did you mean KOUROU_OVEN_FAN_ENABLE\?"
    ):
        read(environment={"KOUROU_OVEN_FAN_ENABLED": "true"})
    with pytest.raises(ConfigError, match="flag --degrees: ovenDegrees is '9'"):
        read(flags={"degrees": 9})


def test_what_is_shown_can_be_read_again() -> None:
    oven = Oven(degrees=99, fan=True, mode="TOP", ratio=0.75, servers="a:1;b:2")
    assert read(KEYS.as_properties(oven).encode()).build(Oven) == oven


def test_a_secret_is_never_shown() -> None:
    keys = Vocabulary("safe", "KOUROU_SAFE_", [Key("safeName", "name", text(), secret=True)])
    settings = read_settings(keys, flags={"name": "canary"})
    oven = settings.build(Oven)
    assert oven.name == "canary"
    assert "canary" not in keys.as_properties(oven) + repr(settings.explain(oven))


def test_latin_1_is_read_where_utf_8_cannot_be() -> None:
    assert read("ovenName=köche".encode("latin-1")).build(Oven).name == "köche"
    assert read("ovenName=köche".encode()).build(Oven).name == "köche"
