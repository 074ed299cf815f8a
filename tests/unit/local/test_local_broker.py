"""A LocalBroker that does not run. Running ones are in tests/system/test_broker_local.py."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kourou.errors import ConfigError, MQError
from kourou.local import LocalBroker
from tests import threads


@pytest.mark.parametrize("what", ["name_server", "address", "data"])
def test_asking_one_that_does_not_run_says_how_to_start_it(what: str) -> None:
    with pytest.raises(MQError, match="use it in a with statement"):
        getattr(LocalBroker(), what)


def test_stopping_one_that_never_ran_is_harmless() -> None:
    LocalBroker().stop()


def test_a_bad_setting_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    broker = LocalBroker(tmp_path / "data", broker_name="a/b")
    with pytest.raises(ConfigError, match="brokerName: name 'a/b' has illegal characters"):
        broker.start()
    assert threads.no_more_than(before)
    assert not (tmp_path / "data").exists()


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match=r"the data folder '.*/file' is a file; name another"):
        LocalBroker(file).start()
    with pytest.raises(ConfigError, match=r"'.*/file/below/it' cannot be made: .*/file is a file"):
        LocalBroker(file / "below" / "it").start()


def test_a_setting_that_does_not_exist_is_named() -> None:
    with pytest.raises((TypeError, ConfigError), match="brokr_name"):
        LocalBroker(brokr_name="x").start()


def test_a_temporary_folder_is_gone_after_a_start_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError):
        LocalBroker(broker_name="a/b").start()
    assert list(tmp_path.iterdir()) == []
