from __future__ import annotations

import logging

import pytest

from kourou.client.offsets import FileOffsets, default_offsets_file
from kourou.doors.simulated_files import SimulatedFiles
from kourou.protocol.bodies import MessageQueue

PATH = "home/.rocketmq_offsets/me@DEFAULT/g/offsets.json"


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="t", broker_name="a", queue_id=number)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles(clock_ms=lambda: 0)


def test_places_are_found_again_by_the_next_run(files: SimulatedFiles) -> None:
    offsets = FileOffsets(files, PATH)
    assert offsets.get(queue(0)) is None
    offsets.set(queue(0), 5)
    offsets.set(queue(1), 0)
    offsets.save()
    again = FileOffsets(files, PATH)
    assert (again.get(queue(0)), again.get(queue(1)), again.get(queue(2))) == (5, 0, None)


def test_the_file_is_written_as_java_writes_it(files: SimulatedFiles) -> None:
    offsets = FileOffsets(files, PATH)
    offsets.set(queue(3), 12)
    offsets.save()
    assert files.read(PATH) == b'{"offsetTable":{{"brokerName":"a","queueId":3,"topic":"t"}:12}}'


def test_a_file_of_java_is_understood(files: SimulatedFiles) -> None:
    files.make_folders("home")
    files.write_atomically(
        "home/java.json",
        b'{\n\t"offsetTable":{{\n"brokerName":"a",\n"queueId":1,\n"topic":"t"\n}:42\n}\n}',
    )
    assert FileOffsets(files, "home/java.json").get(queue(1)) == 42


def test_a_file_that_makes_no_sense_is_told_and_left_out(
    files: SimulatedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.make_folders("home")
    files.write_atomically("home/bad.json", b"<xml>")
    with caplog.at_level(logging.WARNING, "kourou.client"):
        assert FileOffsets(files, "home/bad.json").get(queue(1)) is None
    assert "home/bad.json" in caplog.text


def test_nothing_is_written_while_nothing_changes(files: SimulatedFiles) -> None:
    offsets = FileOffsets(files, PATH)
    offsets.save()
    assert not files.exists(PATH)


def test_by_default_the_file_is_where_java_has_it() -> None:
    assert default_offsets_file("g").endswith("@DEFAULT/g/offsets.json")
    assert "/.rocketmq_offsets/" in default_offsets_file("g")
