"""What is under `deploy/` is what the layouts say, and the servers take it."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kourou.broker.config import KEYS as BROKER_KEYS
from kourou.broker.config import BrokerConfig
from kourou.cli.broker import broker
from kourou.cli.nameserver import nameserver
from kourou.doors.configuration import read_settings
from kourou.doors.files import RealFiles
from kourou.nameserver.config import KEYS as NAME_SERVER_KEYS
from kourou.nameserver.config import NameServerConfig
from tools.deploy_files import ROOT, files

UNITS = ("kourou-broker@.service", "kourou-nameserver@.service")


def test_the_files_are_those_of_the_layouts() -> None:
    there = {path.relative_to(ROOT) for path in ROOT.glob("layouts/*/*.conf")}
    assert there == set(files()), "run: python -m tools.deploy_files"
    for path, text in files().items():
        assert (ROOT / path).read_text() == text, f"{path}: run: python -m tools.deploy_files"


@pytest.mark.parametrize("path", files(), ids=str)
def test_every_file_is_taken_as_it_is(path: Path) -> None:
    is_broker = path.name.startswith("broker")
    environment = {"KOUROU_BROKER_HA_SECRET": "sixteen characters"} if is_broker else {}
    keys = BROKER_KEYS if is_broker else NAME_SERVER_KEYS
    settings = read_settings(
        keys, files=RealFiles(), path=str(ROOT / path), environment=environment, flags={}
    )
    assert not settings.notices
    if is_broker:
        assert settings.build(BrokerConfig).replication().host.startswith("10.0.0."), (
            "the HA port is reachable"
        )
    else:
        settings.build(NameServerConfig)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_a_command_that_exists(name: str) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / name)
    _, verb, *options = unit["Service"]["ExecStart"].split()
    command = {"broker": broker, "nameserver": nameserver}[verb]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {option for option in options if option.startswith("-")} <= known
    assert unit["Service"]["KillSignal"] == "SIGTERM"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_the_unit(name: str, tmp_path: Path) -> None:
    text = (ROOT / name).read_text().replace("/opt/kourou/bin/kourou", "/bin/true")
    unit = tmp_path / name.replace("@", "@x")
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False, timeout=30
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    assert not complaints, complaints


def test_the_composed_brokers_elect_among_themselves() -> None:
    composed: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    brokers = {name: each for name, each in composed["services"].items() if name.startswith("broker")}
    addresses = {each["networks"]["kourou"]["ipv4_address"] for each in brokers.values()}
    for each in brokers.values():
        environment = each["environment"]
        settings = read_settings(
            BROKER_KEYS,
            files=RealFiles(),
            path=None,
            environment=environment,
            flags={"insecure": True, "name_servers": each["command"][-1]},
        )
        config = settings.build(BrokerConfig)
        assert {member.partition(":")[0] for member in config.election_members} == addresses
        assert f"{config.advertised_host}:{config.port}" in config.election_members
    server = composed["services"]["nameserver"]
    assert f"{server['networks']['kourou']['ipv4_address']}:9876" == each["command"][-1]
    for each in (*brokers.values(), server):
        command = {"broker": broker, "nameserver": nameserver}[each["command"][0]]
        assert CliRunner().invoke(command, ["--help"]).exit_code == 0
