"""Our name server with an Apache broker, our broker with an Apache name server; Java clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import apache, ours
from tests.interop.round_trip import java_round_trip

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]


def test_an_apache_broker_registers_with_our_name_server(version: str, tmp_path: Path) -> None:
    with ours.name_server(tmp_path) as names, apache.broker(version, tmp_path, names.address) as broker:
        received = java_round_trip(version, tmp_path, names.address)
        assert {line["storeHost"] for line in received} == {f"/{broker.address}"}
        broker.stop()
        assert not apache.is_registered(broker.address, names.address), "a stopped broker is still listed"
        names.stop()


def test_an_apache_broker_registers_with_a_compressed_body(version: str, tmp_path: Path) -> None:
    with (
        ours.name_server(tmp_path) as names,
        apache.broker(version, tmp_path, names.address, compressedRegister="true") as broker,
    ):
        assert apache.is_registered(broker.address, names.address)


def test_a_killed_apache_broker_disappears_from_our_name_server_at_once(version: str, tmp_path: Path) -> None:
    with ours.name_server(tmp_path) as names, apache.broker(version, tmp_path, names.address) as broker:
        broker.kill()
        ours.wait_until(
            lambda: not apache.is_registered(broker.address, names.address), 5.0, "it was removed"
        )


def test_our_broker_registers_with_an_apache_name_server(version: str, tmp_path: Path) -> None:
    with apache.name_server(version, tmp_path) as names, ours.broker(tmp_path, names.address) as broker:
        received = java_round_trip(version, tmp_path, names.address)
        assert {line["storeHost"] for line in received} == {f"/{broker.address}"}
        broker.stop()
        assert not apache.is_registered(broker.address, names.address), "it did not unregister"


def test_our_broker_registers_with_an_apache_name_server_and_ours_at_once(
    version: str, tmp_path: Path
) -> None:
    with apache.name_server(version, tmp_path) as theirs, ours.name_server(tmp_path) as mine:
        both = f"{theirs.address};{mine.address}"
        with ours.broker(tmp_path, both) as broker:
            assert apache.is_registered(broker.address, both)
            broker.stop()
