"""Settings from a Java properties file, the environment and flags, with the place each one came from.

    default  <  file  <  environment  <  flag          the right-most one that speaks wins

A part that has knobs declares them once, as a `Vocabulary`: each `Key` ties RocketMQ's own name to a field of
a frozen dataclass and to what is accepted there. Defaults live in the dataclass and nowhere else.

    KEYS = Vocabulary(
        "name server",
        "KOUROU_NAMESERVER_",
        [Key("listenPort", "port", whole_number(0, 65535)), …],
        without_effect={"serverWorkerThreads", …},
        fixed={"enableControllerInNamesrv": Fixed("false", "there is no controller in it; …")},
    )
    settings = read_settings(KEYS, files=files, path="namesrv.conf", environment=environ, flags={"port": 1})
    config = settings.build(NameServerConfig)          # its __post_init__ checks what hangs together
    for notice in settings.notices: log.warning(notice)
    for name, setting in settings.explain(config): print(name, setting.value, setting.origin)

The original ignores a key it does not know, and a misspelt one with it. Here it is an error that proposes the
right spelling. Keys of the original that mean nothing here (threads, Netty) are taken with one notice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from kourou.doors.files import Files
from kourou.errors import ConfigError, ProtocolError
from kourou.protocol import java_properties

FILE_BYTES_MAX: Final = 1024 * 1024

Config = TypeVar("Config")


class Kind(NamedTuple):
    """What a setting may be: how its text is read (ValueError when it cannot be) and written."""

    accepts: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str


class Key(NamedTuple):
    """One setting: RocketMQ's name for it, the field it fills, what is accepted.

    `remote` marks the few that a peer may change while the server runs, `secret` those that are never
    shown; `also_environment` names variables of the original that mean the same (`NAMESRV_ADDR`); `flag` is
    the one of the command line, where it is not called as the field is.
    """

    name: str
    field: str
    kind: Kind
    remote: bool = False
    secret: bool = False
    also_environment: tuple[str, ...] = ()
    flag: str = ""


class Fixed(NamedTuple):
    """A key of the original that can have one value only here, and why."""

    value: str
    why: str


class Setting(NamedTuple):
    """A value and where it was said: `default`, `namesrv.conf:3`, `environment X`, `flag --x`."""

    value: Any
    origin: str


# ----------------------------------------------------------------------------------- what is accepted


def text(accepts: str = "any text", check: Callable[[str], bool] = lambda _: True) -> Kind:
    """Text as it stands; `check` says whether it will do."""

    def parse(given: str) -> str:
        if not check(given):
            raise ValueError
        return given

    return Kind(accepts, parse)


def whole_number(least: int, most: int) -> Kind:
    def parse(given: str) -> int:
        if len(given) > 20 or not given.isascii():  # int() also reads digits of other scripts
            raise ValueError
        number = int(given)
        if not least <= number <= most or "_" in given:
            raise ValueError
        return number

    return Kind(f"a whole number from {least} to {most}", parse)


def number(least: float, most: float) -> Kind:
    def parse(given: str) -> float:
        value = float(given)
        if not least <= value <= most or "_" in given:  # a NaN is nowhere in between
            raise ValueError
        return value

    return Kind(f"a number from {least:g} to {most:g}", parse)


def yes_no() -> Kind:
    def parse(given: str) -> bool:
        return {"true": True, "false": False}[given.lower()]

    return Kind("true or false", parse, lambda value: "true" if value else "false")


def one_of(*words: str) -> Kind:
    """One of `words`; case does not matter, the spelling given here comes out."""
    spellings = {word.lower(): word for word in words}
    return Kind("one of " + ", ".join(words), lambda given: spellings[given.lower()])


# --------------------------------------------------------------------------------------- the vocabulary


class Vocabulary:
    """Every key one part of the system understands."""

    def __init__(
        self,
        what: str,
        environment_prefix: str,
        keys: Iterable[Key],
        *,
        without_effect: Collection[str] = (),
        fixed: Mapping[str, Fixed] | None = None,
    ) -> None:
        self.what = what
        self.environment_prefix = environment_prefix
        self.keys: Final = {key.name: key for key in keys}
        self.by_field: Final = {key.field: key for key in self.keys.values()}
        self.by_variable: Final = {
            variable: key
            for key in self.keys.values()
            for variable in (self.variable(key.name), *key.also_environment)
        }
        self.without_effect = frozenset(without_effect)
        self.fixed = dict(fixed or {})
        assert len(self.by_field) == len(self.keys), "two keys fill one field"
        assert not self.keys.keys() & self.without_effect, "a key cannot both count and not count"

    def variable(self, name: str) -> str:
        """The environment variable of a key: `listenPort` is `KOUROU_NAMESERVER_LISTEN_PORT`."""
        words = "".join("_" + letter if letter.isupper() else letter for letter in name)
        return self.environment_prefix + words.replace(".", "_").lstrip("_").upper()

    def did_you_mean(self, name: str) -> str:
        """`; did you mean listenPort?`, or nothing when no key is near."""
        return _near(name, [*self.keys, *self.without_effect, *self.fixed])

    def parse(self, key: Key, given: str, origin: str) -> Any:
        """The value of `key`; raises ConfigError naming place, key, value and what is accepted."""
        given = given.strip()
        try:
            return key.kind.parse(given)
        except (ValueError, KeyError, OverflowError):
            raise ConfigError(
                f"{origin}: {key.name} is {_shown(given)}, but must be {key.kind.accepts}"
            ) from None

    def as_properties(self, config: object) -> str:
        """Every setting of `config` under RocketMQ's names, `key=value` lines, sorted; secrets left out."""
        keys = sorted(key for key in self.keys.values() if not key.secret)
        return java_properties.format({key.name: key.kind.show(getattr(config, key.field)) for key in keys})


@dataclass(frozen=True)
class Settings:
    """What somebody said, by field; what nobody mentioned stays with the dataclass."""

    vocabulary: Vocabulary
    given: Mapping[str, Setting]
    notices: tuple[str, ...] = ()

    def build(self, kind: type[Config]) -> Config:
        """The dataclass with these settings; its own checks may raise ConfigError."""
        return kind(**{field: setting.value for field, setting in self.given.items()})

    def explain(self, config: object) -> list[tuple[str, Setting]]:
        """Every key with its value in `config` as text, and where it was said."""
        return [
            (
                key.name,
                Setting(
                    "******" if key.secret else key.kind.show(getattr(config, key.field)),
                    self.given[key.field].origin if key.field in self.given else "default",
                ),
            )
            for key in sorted(self.vocabulary.keys.values())
        ]


# ------------------------------------------------------------------------------------------- reading


def read_settings(
    vocabulary: Vocabulary,
    *,
    files: Files | None = None,
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """All that was said, from the weakest place to the strongest. Raises ConfigError.

    `flags` are by field name; None means that the flag was not given.
    """
    given: dict[str, Setting] = {}
    notices: tuple[str, ...] = ()
    if path is not None:
        assert files is not None, "a path is read through Files"
        from_file, notices = _from_file(vocabulary, files, path)
        given |= from_file
    given |= _from_environment(vocabulary, environment or {})
    given |= _from_flags(vocabulary, flags or {})
    return Settings(vocabulary, given, notices)


def _from_file(vocabulary: Vocabulary, files: Files, path: str) -> tuple[dict[str, Setting], tuple[str, ...]]:
    given: dict[str, Setting] = {}
    idle: dict[str, None] = {}  # a set that remembers the order
    for name, value, line in _entries(files, path):
        origin = f"{path}:{line}"
        if (key := vocabulary.keys.get(name)) is not None:
            given[key.field] = Setting(vocabulary.parse(key, value, origin), origin)
        elif name in vocabulary.without_effect:
            idle[name] = None
        elif (fixed := vocabulary.fixed.get(name)) is not None:
            _check_fixed(name, fixed, value, origin)
        else:
            raise ConfigError(
                f"{origin}: the {vocabulary.what} has no setting {_shown(name)}"
                f"{vocabulary.did_you_mean(name)}"
            )
    if not idle:
        return given, ()
    return given, (f"{path}: taken, but without effect here: {', '.join(idle)}",)


def _entries(files: Files, path: str) -> list[tuple[str, str, int]]:
    try:
        data = files.read(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot read the configuration file {path}: {reason}; check the path") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(
            f"{path} has {len(data)} bytes: a configuration file has at most {FILE_BYTES_MAX}; "
            "is this the right file?"
        )
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not a text file (it holds a NUL byte)")
    try:
        return list(java_properties.entries(data))
    except ProtocolError as error:
        raise ConfigError(f"{path}: {error}") from None


def _check_fixed(name: str, fixed: Fixed, value: str, origin: str) -> None:
    if value.strip().lower() != fixed.value.lower():
        raise ConfigError(f"{origin}: {name} can only be {fixed.value or 'empty'} here: {fixed.why}")


def _from_environment(vocabulary: Vocabulary, environment: Mapping[str, str]) -> dict[str, Setting]:
    given = {}
    for variable in sorted(environment):
        key = vocabulary.by_variable.get(variable)
        if key is not None:
            origin = f"environment {variable}"
            given[key.field] = Setting(vocabulary.parse(key, environment[variable], origin), origin)
        elif variable.startswith(vocabulary.environment_prefix):
            raise ConfigError(
                f"environment {variable}: the {vocabulary.what} has no such setting"
                f"{_near(variable, list(vocabulary.by_variable))}"
            )
    return given


def _from_flags(vocabulary: Vocabulary, flags: Mapping[str, object]) -> dict[str, Setting]:
    given = {}
    for field, value in flags.items():
        if value is None:
            continue
        key = vocabulary.by_field[field]
        origin = f"flag --{key.flag or field.replace('_', '-')}"
        shown = value if isinstance(value, str) else key.kind.show(value)
        given[field] = Setting(vocabulary.parse(key, shown, origin), origin)
    return given


def _near(name: str, names: list[str]) -> str:
    from difflib import get_close_matches  # wanted once in a process that is about to end

    lowered = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), lowered, n=1, cutoff=0.7)
    return f"; did you mean {lowered[near[0]]}?" if near else ""


def _shown(given: str) -> str:
    return repr(given if len(given) <= 60 else given[:57] + "…")
