"""Who can look into a data folder: its owner, unless an operator made it for more."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import kourou


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_data_folder_that_a_broker_makes_is_its_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "new" / "kourou-data"
    with kourou.LocalBroker(data):
        assert (mode(data.parent), mode(data)) == (0o700, 0o700)
        assert mode(data / "store") == 0o700


@pytest.mark.parametrize("made", [0o755, 0o2750])
def test_a_data_folder_that_is_there_keeps_the_mode_it_has(tmp_path: Path, made: int) -> None:
    data = tmp_path / "data"
    (data / "store").mkdir(parents=True)
    for folder in (data, data / "store"):
        folder.chmod(made)
    with kourou.LocalBroker(data):
        pass
    assert (mode(data), mode(data / "store")) == (made, made)
