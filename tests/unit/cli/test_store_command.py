"""`kourou store`: exit codes, what is printed, and that nothing changes without --yes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kourou.cli.main import run
from kourou.doors.clock import SimulatedClock
from kourou.doors.files import RealFiles
from kourou.store.config import StoreConfig
from kourou.store.store import Store
from tests.unit.store.folder import at_once, draft, mark_of_format

KEYED = b"KEYS\x01order-%d\x02TAGS\x01TagA\x02"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with ten messages, closed."""
    root = tmp_path / "store"
    clock = SimulatedClock()
    store = Store(
        StoreConfig(root=str(root), commit_log_segment_bytes=65536, index_slots=100, index_entries=400),
        files=RealFiles(),
        clock=clock,
        defer=lambda work: work(),
        background=at_once,
    )
    store.open()
    for number in range(10):
        store.append(draft(b"body %d" % number, properties=KEYED % number))
    clock.advance(0.1)
    store.close()
    return root


def log_of(folder: Path) -> Path:
    return folder / "commitlog" / f"{0:020d}"


def garble(folder: Path) -> None:
    data = bytearray(log_of(folder).read_bytes())
    at = data.index(b"body 4")
    data[at : at + 4] = b"BODY"
    log_of(folder).write_bytes(data)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_clean_store_ends_with_0_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(folder)
    assert run(["store", "check", str(folder)]) == 0
    printed = capsys.readouterr()
    assert "Nothing is wrong." in printed.out
    assert printed.err == ""  # no bar where nobody looks
    assert content(folder) == before


def test_damage_ends_with_6_and_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    garble(folder)
    assert run(["store", "check", str(folder)]) == 6
    printed = capsys.readouterr().out
    assert "body CRC" in printed or "no record" in printed
    assert "2 things are wrong." in printed


def test_the_report_as_json_has_counts_and_findings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    garble(folder)
    assert run(["store", "check", str(folder), "-o", "json"]) == 6
    report = json.loads(capsys.readouterr().out)
    assert (report["is_clean"], report["counts"]["records"]) == (False, 9)
    errors = [finding for finding in report["findings"] if finding["severity"] == "error"]
    assert {"file", "offset", "what", "meaning", "repair"} < errors[0].keys()
    assert run(["store", "check", str(folder), "-o", "jsonl"]) == 6
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == report["findings"]


@pytest.mark.parametrize("command", ["check", "dump", "repair"])
def test_what_is_no_store_ends_with_2(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", command, str(folder.parent)]) == 2
    assert f"did you mean {folder}?" in capsys.readouterr().err
    assert run(["store", command, str(folder / "no-such")]) == 2


def test_a_folder_of_a_newer_format_ends_with_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray((folder / "checkpoint").read_bytes())
    data[64:96] = mark_of_format(2)
    (folder / "checkpoint").write_bytes(data)
    assert run(["store", "check", str(folder)]) == 2
    assert "use a newer Kourou" in capsys.readouterr().err


def test_a_folder_in_use_is_a_clear_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = RealFiles().lock(f"{folder}/lock")
    assert lock is not None
    try:
        for command in ("check", "dump", "repair"):
            assert run(["store", command, str(folder)]) == 1
            assert "in use by a broker: stop it first" in capsys.readouterr().err
    finally:
        lock.release()


def test_a_folder_that_may_only_be_read_can_be_checked(folder: Path) -> None:
    if os.geteuid() == 0:  # nothing is read-only for root: a copy without a lock file must do
        (folder / "lock").unlink()
    else:
        (folder / "lock").chmod(0o444)
    assert run(["store", "check", str(folder)]) == 0


def test_repair_says_what_it_would_do_and_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    garble(folder)
    before = content(folder)
    assert run(["store", "repair", str(folder)]) == 6
    printed = capsys.readouterr()
    assert "put invisible records in their place" in printed.out
    assert f"kourou store repair {folder} --yes" in printed.err
    assert content(folder) == before


def test_repair_with_yes_does_it_and_checks_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    garble(folder)
    bad = log_of(folder).read_bytes()
    assert run(["store", "repair", str(folder), "--yes"]) == 0
    printed = capsys.readouterr()
    assert "Nothing is wrong." in printed.out
    assert "What was replaced is in" in printed.err
    aside = next((folder / "quarantine").glob("*/commitlog-*")).read_bytes()
    assert b"BODY 4" in aside
    assert aside in bad
    assert run(["store", "repair", str(folder), "--yes"]) == 0  # nothing to do


def test_dump_shows_records_one_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "dump", str(folder), "-o", "jsonl", "--count", "3"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["body"] for row in rows] == ["body 0", "body 1", "body 2"]
    assert (rows[1]["topic"], rows[1]["queue_offset"], rows[1]["keys"]) == ("T", 1, "order-1")
    assert rows[0]["place"] == 0
    assert rows[1]["place"] == rows[0]["size"]


def test_dump_shows_what_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "dump", str(folder), "--key", "order-7", "--body", "hex", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["body"] for row in rows] == [b"body 7".hex()]
    assert run(["store", "dump", str(folder), "--queue", "1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["store", "dump", str(folder), "--body", "none", "--from", "1", "--topic", "T"]) == 0
    table = capsys.readouterr().out
    assert "body" not in table
    assert len(table.splitlines()) == 10


def test_the_brokers_configuration_tells_unusual_sizes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = folder.parent / "broker.conf"
    conf.write_text("maxHashSlotNum=7\nmaxIndexNum=11\nmappedFileSizeCommitLog=65536\n")
    index = next((folder / "index").iterdir())
    os.truncate(index, 12_345)
    assert run(["store", "check", str(folder)]) == 6
    assert "give the broker's configuration (-c)" in capsys.readouterr().out
    conf.write_text("maxHashSlotNumber=7\n")
    assert run(["store", "check", str(folder), "-c", str(conf)]) == 2
    assert "did you mean maxHashSlotNum?" in capsys.readouterr().err


def test_a_log_in_a_folder_of_its_own_is_found_through_the_brokers_configuration(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = folder.parent / "fast-disk" / "log"
    elsewhere.parent.mkdir()
    (folder / "commitlog").rename(elsewhere)
    conf = folder.parent / "broker.conf"
    sizes = "mappedFileSizeCommitLog=65536\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
    conf.write_text(f"storePathCommitLog={elsewhere}\n{sizes}")
    assert run(["store", "check", str(folder)]) == 2
    assert "give the broker's configuration (-c)" in capsys.readouterr().err
    assert run(["store", "check", str(folder), "-c", str(conf)]) == 0
    assert "Nothing is wrong." in capsys.readouterr().out
    assert run(["store", "dump", str(folder), "-c", str(conf), "-o", "jsonl"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 10
    (elsewhere / "notes.txt").write_text("mine")
    assert run(["store", "repair", str(folder), "-c", str(conf), "--yes"]) == 0
    assert [path.read_text() for path in folder.rglob("quarantine/**/notes.txt")] == ["mine"]
    assert not (elsewhere / "notes.txt").exists()
    elsewhere.rename(folder.parent / "lost")
    capsys.readouterr()
    assert run(["store", "check", str(folder), "-c", str(conf)]) == 2
    assert f"there is no log at {elsewhere}" in capsys.readouterr().err
