"""The key-value configuration survives what disks and processes do."""

from __future__ import annotations

import contextlib
import errno
import json
import logging

import pytest

from kourou.doors.chance import Chance
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import ConfigError, Corrupt, DiskFault, Refused
from kourou.nameserver import kv as module
from kourou.nameserver.kv import KeyValues

PATH = "data/namesrv/kvConfig.json"


def opened(files: SimulatedFiles) -> KeyValues:
    kv = KeyValues(files, PATH)
    kv.load()
    return kv


def test_entries_are_kept_in_rocketmqs_own_shape() -> None:
    files = SimulatedFiles()
    kv = opened(files)
    kv.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:8")
    kv.put("mine", "k", "v")
    assert json.loads(files.read(PATH)) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:8"}, "mine": {"k": "v"}}
    }
    again = opened(files.crashed())
    assert again.get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:8"
    assert again.namespace("mine") == {"k": "v"}


def test_a_file_of_the_original_is_read() -> None:
    files = SimulatedFiles()
    files.make_folders("data/namesrv")
    files.write_atomically(PATH, b'{"configTable":{"n":{"k":"v",},},\n}')
    assert opened(files).get("n", "k") == "v"


def test_a_deleted_entry_stays_deleted_and_its_namespace_known() -> None:
    files = SimulatedFiles()
    kv = opened(files)
    kv.put("n", "k", "v")
    kv.delete("n", "k")
    kv.delete("n", "never there")
    assert opened(files).get("n", "k") is None
    assert opened(files).namespace("n") == {}
    assert opened(files).namespace("other") is None


@pytest.mark.parametrize("seed", range(30))
def test_what_was_put_is_there_after_a_power_cut(seed: int) -> None:
    files = SimulatedFiles()
    kv = opened(files)
    for number in range(3):
        kv.put("n", f"k{number}", "v")
    again = opened(files.power_cut(Chance(seed)))
    assert again.namespace("n") == {"k0": "v", "k1": "v", "k2": "v"}


@pytest.mark.parametrize("step", range(8))
def test_a_crash_in_the_middle_of_a_put_leaves_the_old_or_the_new_table(step: int) -> None:
    files = SimulatedFiles()
    kv = opened(files)
    kv.put("n", "k", "old")
    steps = iter(range(100))

    class Crash(BaseException):
        pass

    def crash(operation: str, path: str) -> None:
        if next(steps) == step:
            raise Crash

    files.before = crash
    with contextlib.suppress(Crash):
        kv.put("n", "k", "new")
    for disk in (files.crashed(), *(files.power_cut(Chance(seed)) for seed in range(5))):
        assert opened(disk).get("n", "k") in ("old", "new")


def test_a_damaged_file_gives_way_to_the_generation_before(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    kv = opened(files)
    kv.put("n", "k", "first")
    kv.put("n", "k", "second")
    files.write_atomically(PATH, b'{"configTable":{"n', keep_previous=False)
    with caplog.at_level(logging.WARNING):
        assert opened(files).get("n", "k") == "first"
    assert PATH + ".bak" in caplog.text


def test_a_missing_file_gives_way_to_the_generation_before() -> None:
    files = SimulatedFiles()
    kv = opened(files)
    kv.put("n", "k", "first")
    kv.put("n", "k", "second")
    files.remove(PATH)
    assert opened(files).get("n", "k") == "first"


def test_two_damaged_generations_are_an_error_that_names_the_file() -> None:
    files = SimulatedFiles()
    files.make_folders("data/namesrv")
    files.write_atomically(PATH, b"[1]")
    files.write_atomically(PATH, b"\0\0")
    with pytest.raises(Corrupt, match=r"kvConfig\.json.*mend or move"):
        opened(files)


def test_a_path_below_a_plain_file_is_a_mistake_in_the_configuration() -> None:
    files = SimulatedFiles()
    files.open("data", create=True)
    with pytest.raises(ConfigError, match=rf"{PATH}: Not a directory; .*choose another path \(kvConfigPath"):
        opened(files)


def test_a_disk_that_cannot_be_read_is_a_fault() -> None:
    files = SimulatedFiles()
    opened(files).put("n", "k", "v")
    files.fail("pread")
    with pytest.raises(DiskFault, match="Input/output error; see to the disk"):
        opened(files)


def test_a_full_disk_refuses_the_change_and_keeps_the_old_value() -> None:
    files = SimulatedFiles()
    kv = opened(files)
    kv.put("n", "k", "old")
    files.fail("pwrite", error=errno.ENOSPC)
    with pytest.raises(Refused, match="No space left"):
        kv.put("n", "k", "new")
    assert kv.get("n", "k") == "old"
    assert opened(files).get("n", "k") == "old"
    kv.put("n", "k", "new")
    assert opened(files).get("n", "k") == "new"


@pytest.mark.parametrize(
    ("namespace", "key", "value", "remark"),
    [
        ("", "k", "v", "namespace ''"),
        ("n", "k\n", "v", r"key 'k\\n'"),
        ("n", "k" * 256, "v", "key 'k"),
        ("n", "k", "v" * (32 * 1024 + 1), "32769 characters"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(namespace: str, key: str, value: str, remark: str) -> None:
    files = SimulatedFiles()
    with pytest.raises(Refused, match=remark):
        opened(files).put(namespace, key, value)
    assert not files.exists(PATH)


def test_there_is_a_most_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 2)
    kv = opened(SimulatedFiles())
    kv.put("n", "a", "1")
    kv.put("m", "b", "1")
    with pytest.raises(Refused, match="2 entries"):
        kv.put("n", "c", "1")
    kv.put("n", "a", "2")
    assert kv.get("n", "a") == "2"


def test_a_namespace_has_a_most_of_bytes_as_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMESPACE_BYTES_MAX", 40)
    files = SimulatedFiles()
    kv = opened(files)
    kv.put("n", "a", "1" * 20)
    with pytest.raises(Refused, match="namespace 'n' would take 49 bytes, of 40 at most; delete some"):
        kv.put("n", "b", "1" * 14)
    with pytest.raises(Refused, match="namespace 'n' would take 68 bytes"):
        kv.put("n", "a", "\0" * 10)
    assert opened(files).namespace("n") == {"a": "1" * 20}
    kv.put("m", "b", "1" * 20)
    kv.put("n", "a", "2" * 20)


def test_all_entries_together_have_a_most_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALL_BYTES_MAX", 60)
    kv = opened(SimulatedFiles())
    kv.put("n", "a", "1" * 20)
    with pytest.raises(Refused, match=r"all entries would take 6. bytes, of 60 at most"):
        kv.put("m", "b", "1" * 20)
    kv.delete("n", "a")
    kv.put("m", "b", "1" * 20)


def test_what_was_too_large_when_it_was_loaded_may_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    opened(files).put("n", "a", "1" * 50)
    monkeypatch.setattr(module, "NAMESPACE_BYTES_MAX", 40)
    kv = opened(files)
    kv.put("n", "a", "1" * 45)
    with pytest.raises(Refused, match="of 40 at most"):
        kv.put("n", "a", "1" * 46)


def test_names_of_emptied_namespaces_do_not_pile_up() -> None:
    files = SimulatedFiles()
    kv = opened(files)
    for number in range(5):
        kv.put(f"n{number}", "k", "v")
        kv.delete(f"n{number}", "k")
    assert json.loads(files.read(PATH)) == {"configTable": {"n4": {}}}


def test_entries_are_written_to_the_log_without_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    kv = opened(SimulatedFiles())
    kv.put("n", "k", "a\x1b[31m\nb")
    with caplog.at_level(logging.INFO):
        kv.log()
    assert r"n k = a\x1b[31m\nb" in caplog.messages
