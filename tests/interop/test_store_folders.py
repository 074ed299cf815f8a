"""A folder written by our broker is read by Apache's, and the other way: the format on disk is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import apache, ours
from tests.interop.round_trip import PER_WAY, check_each_once, java_consume, java_send

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

BODIES = [f"{way}-{n}" for way in ("sync", "batch") for n in range(PER_WAY)]


def test_apache_goes_on_with_a_folder_of_ours(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with ours.name_server(tmp_path) as names:
        with ours.broker(tmp_path, names.address, name="mover", store=store) as broker:
            java_send(version, tmp_path, names.address, "Moved", "sync")
            java_send(version, tmp_path, names.address, "Moved", "batch")
            broker.stop()
        with apache.broker(version, tmp_path, names.address, name="mover", store=store) as broker:
            check_found_by_key(broker.address)
            check_each_once(java_consume(version, tmp_path, names.address, "Moved", len(BODIES)), BODIES)
            java_send(version, tmp_path, names.address, "Moved", "async")
            received = java_consume(version, tmp_path, names.address, "Moved", PER_WAY)
            check_each_once(received, [f"async-{n}" for n in range(PER_WAY)])


def test_we_go_on_with_a_folder_of_apache(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with ours.name_server(tmp_path) as names:
        with apache.broker(version, tmp_path, names.address, name="mover", store=store) as broker:
            java_send(version, tmp_path, names.address, "Moved", "sync")
            java_send(version, tmp_path, names.address, "Moved", "batch")
            broker.stop()
        with ours.broker(tmp_path, names.address, name="mover", store=store) as broker:
            check_found_by_key(broker.address)
            check_each_once(java_consume(version, tmp_path, names.address, "Moved", len(BODIES)), BODIES)
            java_send(version, tmp_path, names.address, "Moved", "async")
            received = java_consume(version, tmp_path, names.address, "Moved", PER_WAY)
            check_each_once(received, [f"async-{n}" for n in range(PER_WAY)])


def check_found_by_key(address: str) -> None:
    """Every message is found in the index, by its key: QUERY_MESSAGE, of a few."""
    for way in ("sync", "batch"):
        for number in (0, PER_WAY // 2, PER_WAY - 1):
            fields = {"topic": "Moved", "key": f"{way}-key-{number}", "maxNum": "32"}
            fields |= {"beginTimestamp": "0", "endTimestamp": str(2**62)}
            found = apache.ask(address, 12, fields=fields)
            assert f"{way}-{number}".encode() in found[4 + int.from_bytes(found[1:4], "big") :], fields
