"""Data folders that are not as they should be: a broker says what is wrong and ends, or goes on, and nothing
is lost; `kourou store` finds the same, and puts right what can be."""

from __future__ import annotations

from pathlib import Path

import pytest

import kourou as library
from tests.kourou_process import Serving, free_pair, kourou, serving_all, serving_broker
from tests.unit.store.folder import mark_of_format

LOG = f"{0:020d}"


def send_ten(server: Serving) -> None:
    with library.Producer("senders", server.name_server) as producer:
        queue = producer.queues("orders")[0]
        for number in range(10):
            producer.send(library.Message("orders", b"body %d" % number, keys=f"k{number}"), queue=queue)


def bodies(server: Serving) -> list[bytes]:
    with library.PullConsumer("readers", "orders", server.name_server, announce=False) as consumer:
        consumer.seek("earliest")
        found: list[bytes] = []
        while received := consumer.receive(100, timeout=1.0):
            found += [message.body for message in received]
    return sorted(found)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The data folder of a broker that was stopped, with ten messages."""
    with serving_all(tmp_path) as server:
        send_ten(server)
        assert server.stop() == 0
    return tmp_path / "kourou-data" / "store"


def broker_on(store: Path, tmp_path: Path, *settings: str) -> tuple[int, str]:
    """The exit code and the last words of a broker that does not start."""
    config = tmp_path / "broker.conf"
    config.write_text("\n".join((f"listenPort={free_pair()}", *settings, "")))
    ended = kourou("broker", "-c", config, "--data", store, folder=tmp_path)
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr.splitlines()[-1]


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_a_second_broker_on_one_folder_is_turned_away_and_the_first_goes_on(tmp_path: Path) -> None:
    with serving_broker(tmp_path) as first:
        code, said = broker_on(tmp_path / "store", tmp_path)
        assert code == 1
        assert "is in use by another broker: stop that one, or choose another folder" in said
        checked = kourou("store", "check", tmp_path / "store", folder=tmp_path)
        assert checked.returncode == 1
        assert "is in use by a broker: stop it first" in checked.stderr
        assert first.is_running
        assert first.stop() == 0


def test_settings_that_contradict_the_folder_are_named_and_change_nothing(
    store: Path, tmp_path: Path
) -> None:
    before = {path: path.stat().st_size for path in store.rglob("*") if path.is_file()}
    code, said = broker_on(store, tmp_path, "mappedFileSizeCommitLog=1048576")
    assert code == 2
    assert "set mappedFileSizeCommitLog to the value this folder was begun with" in said
    after = {path: path.stat().st_size for path in store.rglob("*") if path.is_file()}
    assert {path: size for path, size in after.items() if path.name != "abort"} == before
    assert kourou("store", "check", store, folder=tmp_path).returncode == 0
    with serving_all(tmp_path) as server:
        assert len(bodies(server)) == 10
        server.stop()


def test_a_foreign_file_in_the_log_is_named_and_a_repair_moves_it_away(store: Path, tmp_path: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("where did I put it")
    code, said = broker_on(store, tmp_path)
    assert code == 2
    assert "notes.txt is not a file of the store (20 digits): move it away" in said
    assert kourou("store", "repair", store, "--yes", folder=tmp_path).returncode == 0
    [moved] = (store / "quarantine").glob("*/commitlog/notes.txt")
    assert moved.read_text() == "where did I put it"
    with serving_all(tmp_path) as server:
        assert len(bodies(server)) == 10
        server.stop()


def test_a_folder_of_a_newer_format_is_refused_by_all(store: Path, tmp_path: Path) -> None:
    overwrite(store / "checkpoint", 64, mark_of_format(2))
    code, said = broker_on(store, tmp_path)
    assert code == 2
    assert "use a newer Kourou" in said
    refused = kourou("store", "repair", store, "--yes", folder=tmp_path)
    assert refused.returncode == 2
    assert "use a newer Kourou" in refused.stderr


def test_a_missing_file_of_the_log_is_named_by_the_broker_and_filled_in_by_a_repair(tmp_path: Path) -> None:
    settings = "mappedFileSizeCommitLog=65536\n"
    config = tmp_path / "broker.conf"
    config.write_text(settings)
    with serving_all(tmp_path, "-c", str(config)) as server:
        with library.Producer("senders", server.name_server) as producer:
            for number in range(90):
                producer.send(library.Message("orders", b"%03d" % number + b"x" * 3900))
        server.stop()
    store = tmp_path / "kourou-data" / "store"
    (store / "commitlog" / f"{65536:020d}").unlink()
    code, said = broker_on(store, tmp_path, settings)
    assert code == 74
    assert "is missing before" in said
    assert "bring it back" in said
    repaired = kourou("store", "repair", store, "--yes", folder=tmp_path)
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    config.write_text(settings)
    with serving_all(tmp_path, "-c", str(config)) as server:
        found = bodies(server)
        server.stop()
    assert 60 <= len(found) < 90
    assert len(set(found)) == len(found)


def test_a_corrupt_record_is_passed_over_reported_and_repaired(store: Path, tmp_path: Path) -> None:
    log = store / "commitlog" / LOG
    at = log.read_bytes()[:65536].index(b"body 4")
    overwrite(log, at, b"BODY")
    checked = kourou("store", "check", store, folder=tmp_path)
    assert checked.returncode == 6
    assert "CRC" in checked.stdout
    dry = kourou("store", "repair", store, folder=tmp_path)
    assert dry.returncode == 6
    assert "Nothing was changed" in dry.stderr
    assert kourou("store", "repair", store, "--yes", folder=tmp_path).returncode == 0
    with serving_all(tmp_path) as server:
        assert bodies(server) == [b"body %d" % number for number in range(10) if number != 4]
        send_ten(server)
        assert len(bodies(server)) == 19
        assert server.stop() == 0
    assert kourou("store", "check", store, folder=tmp_path).returncode == 0


def test_both_generations_of_a_small_file_unreadable_is_an_error_that_says_the_way_out(
    store: Path, tmp_path: Path
) -> None:
    topics = store / "config" / "topics.json"
    topics.write_bytes(b"\xff\xfe")
    with serving_all(tmp_path) as server:  # the previous generation is whole
        server.kill()
    assert "topics.json.bak" in server.log
    topics.write_bytes(b"\xff\xfe")
    topics.with_suffix(".json.bak").write_bytes(b"{")
    code, said = broker_on(store, tmp_path)
    assert code == 74
    assert "restore one of them from a backup, or move both away" in said


def test_a_clock_that_was_set_back_between_two_runs_does_not_take_time_back_in_the_log(
    store: Path, tmp_path: Path
) -> None:
    yesterday = (
        "import time; now = time.time_ns; time.time_ns = lambda: now() - 86_400_000_000_000; "
        "import sys; from kourou.cli.main import main; sys.argv[0] = 'kourou'; main()"
    )
    with serving_all(tmp_path, program=yesterday) as server:
        send_ten(server)
        assert len(bodies(server)) == 20
        assert server.stop() == 0
    dumped = kourou("store", "dump", store, "-o", "jsonl", "--topic", "orders", folder=tmp_path)
    stored = [line.split('"stored_at": "')[1].split('"')[0] for line in dumped.stdout.splitlines()]
    assert len(stored) == 20
    assert stored == sorted(stored)
    assert kourou("store", "check", store, folder=tmp_path).returncode == 0
