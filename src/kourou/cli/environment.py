"""Environment variables that begin with KOUROU_: a misspelt one is an error with the right spelling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kourou.cli.contexts import VARIABLES
from kourou.doors.configuration import Vocabulary
from kourou.errors import ConfigError

PREFIX = "KOUROU_"
OWN_VARIABLES = (
    *VARIABLES,
    "KOUROU_BUILD_NATIVE",  # at installation
    "KOUROU_CLOCK",
    "KOUROU_CONFIG",
    "KOUROU_FAILPOINT",
    "KOUROU_NATIVE",
    "KOUROU_PASSWORD",
)
SERVER_PREFIXES = ("KOUROU_BROKER_", "KOUROU_NAMESERVER_")
OTHERS_PREFIXES = ("KOUROU_CONSOLE_", "KOUROU_TEST_", "KOUROU_SPARK_", "_KOUROU_")
"""Of parts that look after theirs themselves."""


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises ConfigError for a variable that means nothing."""
    for name, hint in misspelt(environment):
        raise ConfigError(f"environment {name}: it means nothing{hint or '; unset it'}")


def misspelt(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Every such variable, and `; did you mean …?` where one is near."""
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in OWN_VARIABLES or name.startswith(OTHERS_PREFIXES):
            continue
        if not name.startswith(SERVER_PREFIXES) or not _is_setting(name):
            yield name, _near(name)


def _is_setting(name: str) -> bool:
    return any(name in vocabulary.by_variable for vocabulary in _vocabularies())


def _near(name: str) -> str:
    from difflib import get_close_matches

    settings = [variable for vocabulary in _vocabularies() for variable in vocabulary.by_variable]
    near = get_close_matches(name, [*OWN_VARIABLES, *settings], n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def _vocabularies() -> tuple[Vocabulary, Vocabulary]:
    from kourou.broker.config import KEYS as BROKER
    from kourou.nameserver.config import KEYS as NAME_SERVER

    return BROKER, NAME_SERVER
