"""The reference pages say what the code says: every command, setting, request code and public name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import click
import pytest

import kourou
from kourou.broker.config import KEYS as BROKER_KEYS
from kourou.broker.config import BrokerConfig
from kourou.doors.configuration import Vocabulary
from kourou.nameserver.config import KEYS as NAME_SERVER_KEYS
from kourou.nameserver.config import NameServerConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.remoting.blocking import BlockingClient
from tests.docs.pages import ROOT
from tools import api_reference, command_line_reference
from tools.command_line_reference import commands

pytestmark = pytest.mark.docs


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def section(text: str, heading: str) -> str:
    """What stands between a heading and the next of its kind."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading '## {heading}'"
    return found[1]


@pytest.mark.parametrize("name", commands())
def test_every_option_of_a_command_is_in_the_reference(name: str) -> None:
    command_line = page("reference/command-line.md")
    shared = section(command_line, "Options of all commands that ask a cluster")
    told = set(re.findall(r"`(--?[a-z-]+)`", section(command_line, name) + shared))
    options = {
        option
        for parameter in commands()[name].params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
    }
    assert options <= told | {"-h", "--help"}


def test_the_page_of_every_command_is_what_the_code_says() -> None:
    assert page("reference/command-line.md") == command_line_reference.page(), "run `make docs`"


def test_the_reference_has_no_command_that_does_not_exist() -> None:
    told = set(re.findall(r"^## (kourou .*)$", page("reference/command-line.md"), re.MULTILINE))
    assert told == set(commands())


@pytest.mark.parametrize(
    ("heading", "keys", "config"),
    [
        ("The name server", NAME_SERVER_KEYS, NameServerConfig()),
        ("The broker", BROKER_KEYS, BrokerConfig()),
    ],
)
def test_every_setting_is_in_the_reference_with_its_default(
    heading: str, keys: Vocabulary, config: object
) -> None:
    rows = dict(
        re.findall(
            r"^\| `([\w.]+)` \| (?:`([^|]*)`)? *\|",
            section(page("reference/configuration.md"), heading),
            re.M,
        )
    )
    defaults = {key.name: key.kind.show(getattr(config, key.field)) for key in keys.keys.values()}
    fixed = {name: only.value for name, only in keys.fixed.items()}
    assert rows == defaults | fixed


@pytest.mark.parametrize(
    "name", ["architecture.md", *(f"decisions/{n}" for n in os.listdir(ROOT / "docs/decisions"))]
)
def test_every_source_file_that_is_named_exists(name: str) -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", page(name)))
    homes = (ROOT, ROOT / "src" / "kourou")
    assert [path for path in named if not any((home / path).exists() for home in homes)] == []


def test_every_public_name_is_in_the_reference() -> None:
    told = set(re.findall(r"`(\w+)`", page("reference/library.md")))
    assert set(kourou.__all__) - {"__version__"} <= told


def test_the_page_of_every_name_is_what_the_docstrings_say() -> None:
    assert page("reference/api.md") == api_reference.page(), "run `make docs`"


def test_the_compatibility_page_lists_exactly_what_is_served() -> None:
    compatibility = page("compatibility.md")
    told = {
        heading: {
            int(code) for code in re.findall(r"^\| (\d+) \|", section(compatibility, heading), re.MULTILINE)
        }
        for heading in ("The name server serves", "The broker serves")
    }
    with kourou.LocalBroker() as local:
        served = {
            "The name server serves": set(codes_served_at(local.name_server)),
            "The broker serves": set(codes_served_at(local.address)),
        }
    assert told == served


def test_the_compatibility_page_tells_the_state_of_every_request_code() -> None:
    compatibility = page("compatibility.md")
    served = section(compatibility, "The name server serves") + section(compatibility, "The broker serves")
    in_tables = set(re.findall(r"^\| (\d+) \|", served, re.MULTILINE))
    answered_by_clients = set(
        re.findall(r"^\| (\d+) \|", section(compatibility, "The client answers"), re.MULTILINE)
    )
    codes = {str(int(code)) for code in RequestCode}
    sent = codes & set(re.findall(r"\((\d+)[,)]", served))
    refused = re.findall(r"^\| (\d+) \| `(\w+)` \|", section(compatibility, "Not served"), re.MULTILINE)
    for code, name in refused:
        assert RequestCode(int(code)).name == name
    not_served = {code for code, _ in refused}
    assert not not_served & (in_tables | answered_by_clients | sent)
    assert codes == in_tables | answered_by_clients | sent | not_served


def codes_served_at(address: str) -> Iterator[int]:
    """Every known request code that is answered with anything but "not supported"."""
    client = BlockingClient()
    try:
        for code in RequestCode:
            if client.call(address, Command(code), 5.0).code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                yield code
    finally:
        client.close()
