"""`kourou cluster`: whole clusters of processes come up, are disturbed, and go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kourou as library
from tests.kourou_process import kourou

FREE_PORTS = ("--name-server-port", "0", "--port", "0")


class Cluster:
    """The one in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str) -> str:
        done = kourou("cluster", *arguments, "--data", "c", folder=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in json.loads(self.run("status", "-o", "json"))}


@contextmanager
def cluster(folder: Path, layout: str, *options: str) -> Iterator[Cluster]:
    running = Cluster(folder)
    try:
        running.run("up", "--layout", layout, *FREE_PORTS, *options)
        yield running
    finally:
        kourou("cluster", "down", "--data", "c", folder=folder)


@pytest.mark.timeout(600)
def test_two_masters_come_up_one_is_killed_and_sending_goes_on(tmp_path: Path) -> None:
    with cluster(tmp_path, "2m") as running:
        servers = running.status()
        assert {name: row["state"] for name, row in servers.items()} == dict.fromkeys(
            ("nameserver-1", "broker-a", "broker-b"), "running"
        )
        assert {row["role"] for row in servers.values() if row["kind"] == "broker"} == {"master"}
        with library.Producer("shop", servers["nameserver-1"]["address"]) as producer:
            producer.send(library.Message("orders", b"1"))
            running.run("kill", "broker-a")
            for number in range(10):
                producer.send(library.Message("orders", b"%d" % number))
        running.run("pause", "broker-b")
        states = {name: row["state"] for name, row in running.status().items()}
        assert (states["broker-a"], states["broker-b"]) == ("stopped", "paused")
        running.run("start", "broker-a")
        running.run("resume", "broker-b")
        running.run("down", "--wipe")
        assert not list((tmp_path / "c").iterdir()), "nothing is left"


def test_a_cluster_is_not_started_twice_and_unknown_names_are_told(tmp_path: Path) -> None:
    with cluster(tmp_path, "1m"):
        again = kourou("cluster", "up", "--data", "c", *FREE_PORTS, folder=tmp_path)
        assert again.returncode == 2
        assert "is running" in again.stderr
        unknown = kourou("cluster", "kill", "broker-z", "--data", "c", folder=tmp_path)
        assert unknown.returncode == 2
        assert "no server 'broker-z'" in unknown.stderr
        assert "broker-a" in unknown.stderr
        assert kourou("cluster", "down", "--data", "c", folder=tmp_path).returncode == 0
        other = kourou("cluster", "up", "--layout", "2m", "--data", "c", *FREE_PORTS, folder=tmp_path)
        assert other.returncode == 2
        assert "layout 1m, not 2m" in other.stderr


def test_where_there_is_no_cluster_the_way_out_is_told(tmp_path: Path) -> None:
    done = kourou("cluster", "status", "--data", "c", folder=tmp_path)
    assert done.returncode == 2
    assert "kourou cluster up" in done.stderr


def test_a_broker_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    done = kourou(
        "cluster", "up", "--data", "c", *FREE_PORTS, "--set", "flushDiskType=NEVER", folder=tmp_path
    )
    assert done.returncode == 2
    assert "broker-a did not start" in done.stderr
    assert "flushDiskType" in done.stderr
    kourou("cluster", "down", "--data", "c", folder=tmp_path)
