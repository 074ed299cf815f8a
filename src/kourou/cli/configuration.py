"""The configuration a server is to run with: file, environment and flags, read once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from kourou.doors.configuration import Settings, Vocabulary

Config = TypeVar("Config")


def configured(
    kind: type[Config],
    vocabulary: Vocabulary,
    path: str | None,
    flags: Mapping[str, object],
    environment: Mapping[str, str] = os.environ,
) -> Config:
    """The effective configuration; what it leaves without effect is said on stderr. Raises ConfigError."""
    from kourou.cli.environment import check_environment
    from kourou.doors.configuration import read_settings
    from kourou.doors.files import RealFiles

    check_environment(environment)
    settings = read_settings(vocabulary, files=RealFiles(), path=path, environment=environment, flags=flags)
    config = settings.build(kind)
    for notice in all_notices(settings, config):
        click.echo(f"kourou: {notice}", err=True)
    return config


def all_notices(settings: Settings, config: object) -> tuple[str, ...]:
    """What is worth a word about the settings, and about what was made of them."""
    return (*settings.notices, *getattr(config, "notices", ()))
